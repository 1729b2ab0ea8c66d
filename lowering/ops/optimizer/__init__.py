"""The update rules of optimizers."""
