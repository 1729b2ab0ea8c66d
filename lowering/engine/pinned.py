"""Values that are computed once, however XLA fuses the operators that read them.

XLA computes a value that several loops read anew in each of them, and rounds it in each as it contracts there: `a * b`
and a sum become one operation in one loop and two in the other. An element is then not equal to the maximum that it
is. Operators that run one by one know no such thing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from lowering.program import OpView
from lowering.registry import get_op, has_op
from lowering.symbols import is_symbol
from lowering.values import LoDArray


def pinned(x: Any) -> Any:
    """``x``, computed once: all that reads the result reads the same bits.

    Only the result of a branch is not computed again. The other branch here is never taken, which no compiler knows;
    a barrier, and a write in place, they see through.
    """
    if not isinstance(x, jax.core.Tracer) or not x.size or not jnp.issubdtype(x.dtype, jnp.floating):
        return x
    never = jnp.ravel(x)[0] * 0 > 0
    return lax.cond(never, jnp.zeros_like, lambda data: data, x)


def once_on_cpu(x: Any) -> Any:
    """``x``, computed once where it is compiled for a CPU: for what several loops read, or one loop several times.

    XLA's kernels for CPUs would compute it anew for each element that reads it. So may other platforms', where a branch
    costs more than that.
    """
    if not isinstance(x, jax.core.Tracer):
        return x
    return lax.platform_dependent(x, cpu=pinned, default=lambda data: data)


def pinned_value(value: Any) -> Any:
    """A variable's value, computed once; single numbers and what is no tensor stay as they are."""
    if isinstance(value, LoDArray):
        return value.with_data(pinned_value(value.data))
    several = isinstance(value, jax.Array) and (is_symbol(value.size) or value.size > 1)
    return pinned(value) if several else value


def compared(ops: Iterable[OpView]) -> frozenset[str]:
    """Names that a comparison reads, and another operator too."""
    ops = list(ops)
    comparing = [op for op in ops if has_op(op.type) and get_op(op.type).compares]
    names = {name for op in comparing for name in op.input_names()}
    if not names:
        return frozenset()
    readers = Counter(name for op in ops for name in set(op.input_names()))
    return frozenset(name for name in names if readers[name] > 1)
