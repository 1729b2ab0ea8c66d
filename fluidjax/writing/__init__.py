"""Writing ops into programs: code shared by layers, clips and parameters."""
