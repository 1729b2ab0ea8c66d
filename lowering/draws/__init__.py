"""Random numbers: one stream of bits, computed by XLA, by NumPy or by kernels of the host."""
