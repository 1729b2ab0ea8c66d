"""How far LLVM optimises a step on CPUs.

At its highest level LLVM unrolls whole loops before it vectorises, and moves conditions that do not change out of inner
loops. Neither helps the small kernels of a recurrence, which are 6 to 20 percent faster one level lower. But a
concatenation that XLA has fused with the computation of its parts decides, element by element, which to read: only
the highest level moves this out of the innermost loop, which is many times slower without it.
"""

from __future__ import annotations

from typing import Any

_PRODUCTS = frozenset({"dot_general", "conv_general_dilated"})
_LOOPS = frozenset({"while", "scan"})


def compiler_options(jaxpr: Any, platform: str) -> dict[str, Any]:
    """XLA's options for a step, a ``jax.core.Jaxpr``; none unless others are known to be better."""
    if platform == "cpu" and _recurs(jaxpr) and not _joins(jaxpr):
        return {"xla_backend_optimization_level": 2}
    return {}


def _recurs(jaxpr: Any) -> bool:
    """Whether a loop multiplies matrices."""
    for equation in jaxpr.eqns:
        inside = called(equation)
        if any(map(_multiplies if equation.primitive.name in _LOOPS else _recurs, inside)):
            return True
    return False


def _multiplies(jaxpr: Any) -> bool:
    return any(e.primitive.name in _PRODUCTS or any(map(_multiplies, called(e))) for e in jaxpr.eqns)


def _joins(jaxpr: Any) -> bool:
    """Whether anything is joined or padded along a dim other than the last."""
    return any(_joined(e) or any(map(_joins, called(e))) for e in jaxpr.eqns)


def _joined(equation: Any) -> bool:
    name, params = equation.primitive.name, equation.params
    if name == "concatenate":
        return bool(params["dimension"] < len(equation.outvars[0].aval.shape) - 1)
    return name == "pad" and any(any(dim) for dim in params["padding_config"][:-1])


def called(equation: Any) -> list[Any]:
    """The jaxprs that an equation calls."""
    values = (v for p in equation.params.values() for v in (p if isinstance(p, tuple) else (p,)))
    return [v for v in values if hasattr(v, "eqns")]
