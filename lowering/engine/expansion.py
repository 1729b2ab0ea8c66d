"""Primitives that are made of others, which JAX enters only where it compiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from lowering.engine.x64 import with_x64
from lowering.extend import is_literal


def expansion(equation: Any) -> Any:
    """What an equation computes, as a closed jaxpr of other equations; None if its primitive is made of no others.

    These are JAX's "hijax" primitives (``searchsorted`` since 0.11) and ``polynomial`` (since 0.12). What reads
    equations one by one enters them here, and has to know none of them.

    The inputs of the jaxpr are those of the equation. Numbers that are written into the equation are written into the
    jaxpr, too.
    """
    rule = _rule(equation.primitive)
    if rule is None:
        return None
    written = [np.asarray(v.val, v.aval.dtype)[()] if is_literal(v) else None for v in equation.invars]

    def run(*given: Any) -> Any:
        return rule(*[v if w is None else w for v, w in zip(given, written, strict=True)], **equation.params)

    return with_x64(jax.make_jaxpr(run), *[v.aval for v in equation.invars])


def _rule(primitive: Any) -> Callable[..., Any] | None:
    if primitive.name == "call_hi_primitive":
        return primitive.to_lojax
    return _polynomial if primitive.name == "polynomial" else None


def _polynomial(x: Any, *coefficients: Any, unroll: int | None = None) -> Any:
    """a0 + x (a1 + x (a2 + ...)), rounded as by JAX, which makes a loop of more terms than ``unroll``."""
    found = coefficients[-1]
    for coefficient in coefficients[-2::-1]:
        found = jax.lax.add(jax.lax.mul(found, x), coefficient)
    return found
