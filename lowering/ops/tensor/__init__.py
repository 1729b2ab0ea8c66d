"""Making tensors, reshaping them, taking parts and joining."""
