"""What XLA has compiled: made, called, shared in a process, and left on disk for others."""
