"""PaddlePaddle Fluid's programming model on JAX."""
