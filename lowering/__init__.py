"""What Fluid's operators mean in JAX."""
