"""Detection: the layers that ``layers.detection`` re-exports."""
