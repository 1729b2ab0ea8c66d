"""How far LLVM optimizes a step on CPUs.

At its highest level LLVM unrolls whole loops before it vectorizes, and takes out of inner loops what an outer one
decides. Neither helps the small kernels of a recurrence, which one level lower are 6 to 20 percent faster. But a
concatenation that XLA fused with what makes its parts decides, element by element, which part it reads: the highest
level alone takes this out of the innermost loop, which without it is many times slower.
"""

from __future__ import annotations

from typing import Any

_PRODUCTS = frozenset({"dot_general", "conv_general_dilated"})
_LOOPS = frozenset({"while", "scan"})


def compiler_options(jaxpr: Any, platform: str) -> dict[str, Any]:
    """XLA's options for a step, a ``jax.core.Jaxpr``; none but where it is known that others are better."""
    if platform == "cpu" and _recurs(jaxpr) and not _joins(jaxpr):
        return {"xla_backend_optimization_level": 2}
    return {}


def _recurs(jaxpr: Any) -> bool:
    """Whether a loop multiplies matrices."""
    for equation in jaxpr.eqns:
        inside = _inside(equation)
        if any(map(_multiplies if equation.primitive.name in _LOOPS else _recurs, inside)):
            return True
    return False


def _multiplies(jaxpr: Any) -> bool:
    return any(e.primitive.name in _PRODUCTS or any(map(_multiplies, _inside(e))) for e in jaxpr.eqns)


def _joins(jaxpr: Any) -> bool:
    """Whether anything is joined or padded along another dim than the last."""
    return any(_joined(e) or any(map(_joins, _inside(e))) for e in jaxpr.eqns)


def _joined(equation: Any) -> bool:
    name, params = equation.primitive.name, equation.params
    if name == "concatenate":
        return bool(params["dimension"] < len(equation.outvars[0].aval.shape) - 1)
    return name == "pad" and any(any(dim) for dim in params["padding_config"][:-1])


def _inside(equation: Any) -> list[Any]:
    """The jaxprs that an equation calls."""
    values = (v for p in equation.params.values() for v in (p if isinstance(p, tuple) else (p,)))
    return [v for v in values if hasattr(v, "eqns")]
