"""The layer classes: what ``dygraph.nn`` hands on."""
