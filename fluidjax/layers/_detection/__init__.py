"""Detection: what ``layers.detection`` hands on."""
