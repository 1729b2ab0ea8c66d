"""What loaders and data sets share."""
