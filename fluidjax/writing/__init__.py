"""Writing ops into programs: what layers, clips and parameters share."""
