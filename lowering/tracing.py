"""Tracing a function once, both to learn what it returns and to use the trace.

Requirement: the function depends on its arguments and on values that do not change, and its side effects
(recording capacities, collecting flags) should happen once: its Python runs once, however often the result is called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from lowering.extend import extend


def trace(function: Callable[..., Any], *arguments: Any) -> tuple[Any, Callable[..., Any]]:
    """(the abstract result of ``function``, a function that computes the same without running its Python again).

    An inner loop would otherwise be traced at least twice by each level around it, to settle and to lower: the
    innermost step 2^depth times.

    Args:
        arguments: abstract values; the returned function takes values of the same structure.
    """
    closed, result = jax.make_jaxpr(function, return_shape=True)(*arguments)
    compute, structure = extend().core.jaxpr_as_fun(closed), jax.tree_util.tree_structure(result)

    def again(*values: Any) -> Any:
        return jax.tree_util.tree_unflatten(structure, compute(*jax.tree_util.tree_leaves(values)))

    return result, again
