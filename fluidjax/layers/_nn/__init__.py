"""Neural-network layers: what ``layers.nn`` re-exports."""
