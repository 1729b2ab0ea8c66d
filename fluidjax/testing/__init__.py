"""A conformance corpus of Fluid's operators, and the tools to run it.

``table()`` lists cases: an op, inputs in its domain, attributes and, if NumPy has one, a reference. ``check_*`` compare
a case with its reference, ``jax.vjp``, finite differences, and jit with interpret mode. ``strategies`` generates
inputs and cases with hypothesis. Other implementations of Fluid's ops can run the same cases.
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
