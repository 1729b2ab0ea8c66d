"""Fleet: training on many machines. Its names import; they are not built yet."""
