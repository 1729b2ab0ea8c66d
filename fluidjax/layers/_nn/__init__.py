"""Networks: what ``layers.nn`` hands on."""
