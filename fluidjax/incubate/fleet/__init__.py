"""Fleet: training on many machines."""
