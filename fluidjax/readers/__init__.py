"""Infrastructure shared by loaders and datasets."""
