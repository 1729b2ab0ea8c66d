"""Fleet: distributed training."""
