"""Control flow: what ``layers.control_flow`` hands on."""
