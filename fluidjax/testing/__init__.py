"""A conformance corpus of Fluid's operators, and what is needed to run it.

``table()`` lists cases: an op, domain-safe inputs, attributes and, where NumPy has one, a reference. ``check_*`` hold a
case against its reference, ``jax.vjp``, finite differences, and jit against interpret mode. ``strategies`` draws
inputs and cases with hypothesis. Another implementation of Fluid's ops can run the same cases.
"""

from fluidjax.testing.case import Case, Inputs, case
from fluidjax.testing.checks import (
    Mismatch,
    check_double_gradient,
    check_float32,
    check_forward,
    check_gradient,
    check_half,
    check_modes,
)
from fluidjax.testing.run import Bound, bind, run_forward, run_gradient
from fluidjax.testing.table import table

__all__ = [
    "Bound",
    "Case",
    "Inputs",
    "Mismatch",
    "bind",
    "case",
    "check_double_gradient",
    "check_float32",
    "check_forward",
    "check_gradient",
    "check_half",
    "check_modes",
    "run_forward",
    "run_gradient",
    "table",
]
