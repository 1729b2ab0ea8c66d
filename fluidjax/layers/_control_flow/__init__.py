"""Control flow: the layers that ``layers.control_flow`` re-exports."""
