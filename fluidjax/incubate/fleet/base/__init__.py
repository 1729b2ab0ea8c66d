"""What the kinds of fleet share."""
