"""Verification of gradients: Fluid's gradient ops against ``jax.vjp`` and finite differences; see ``check_grad``."""

from fluidjax.gradcheck.check import check_grad
from fluidjax.gradcheck.report import GradientMismatch, GradientReport

__all__ = ["GradientMismatch", "GradientReport", "check_grad"]
