"""Exporting programs as pure JAX functions."""

from fluidjax.export.costs import Cost, Costs, op_costs
from fluidjax.export.function import ExportError, JaxFunction, from_jax, to_jax
from fluidjax.export.ragged import ragged

__all__ = ["Cost", "Costs", "ExportError", "JaxFunction", "from_jax", "op_costs", "ragged", "to_jax"]
