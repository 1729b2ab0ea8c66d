"""Ways out: a program as a pure JAX function."""

from fluidjax.export.function import ExportError, JaxFunction, from_jax, to_jax
from fluidjax.export.ragged import ragged

__all__ = ["ExportError", "JaxFunction", "from_jax", "ragged", "to_jax"]
