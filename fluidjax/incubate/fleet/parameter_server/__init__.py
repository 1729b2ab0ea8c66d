"""Fleet with servers that hold the parameters."""
