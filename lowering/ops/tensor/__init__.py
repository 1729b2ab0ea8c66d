"""Creating, reshaping, slicing and joining tensors."""
