"""What users write in ``fetch_list``, as names."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidjax.base.errors import explain
from fluidjax.base.values import LoDTensor
from fluidjax.framework import Operator, Variable


class FetchListError(TypeError, AssertionError):
    """``fetch_list`` is not a list; an AssertionError as well, because that is what Fluid 1.8.5 raises."""


def fetch_names(fetch_list: Any) -> tuple[str, ...]:
    """The names of the variables to fetch, those of nested lists in their places.

    Raises FetchListError for what is not a list, and TypeError for an item that is neither variable, name nor operator.
    """
    if fetch_list is None:
        return ()
    if isinstance(fetch_list, (str, Variable)):
        fetch_list = [fetch_list]
    if not isinstance(fetch_list, (list, tuple)):
        raise FetchListError(
            f"Executor.run: fetch_list is a list or tuple of Variables and names, received"
            f" {type(fetch_list).__name__}; write fetch_list=[variable]"
        )
    groups = (item if isinstance(item, (list, tuple)) else [item] for item in fetch_list)
    return tuple(name for group in groups if not _is_of_minimize(group) for name in map(_fetch_name, group) if name)


def _fetch_name(item: Any) -> str:
    """The name to fetch for ``item``; none for an operator, which Fluid lets users put among the fetches."""
    if isinstance(item, (str, Operator)):
        return item if isinstance(item, str) else ""
    if isinstance(item, Variable):
        return item.name
    result = isinstance(item, (np.ndarray, LoDTensor))
    raise TypeError(
        explain(
            f"Executor.run: a fetch is a Variable or a name, received {_kind(item)}",
            "variables of the program, or their names",
            f"{_kind(item)} of shape {list(np.shape(item))}, as a run returns it" if result else repr(item),
            "give what a run returns a name of its own: after `loss, = exe.run(..., fetch_list=[loss])` the name `loss`"
            " no longer means the variable"
            if result
            else "fetch a variable of the program",
        )
    )


def _kind(item: Any) -> str:
    return "ndarray" if isinstance(item, np.ndarray) else type(item).__name__


def name_of(item: Any) -> str:
    """What Fluid keys a fetch by: a variable's name; the id of an operator, alone or first of a pair.

    Raises TypeError for anything else.
    """
    if isinstance(item, tuple):
        return name_of(item[0])
    return str(id(item)) if isinstance(item, Operator) else _fetch_name(item)


def _is_of_minimize(group: Any) -> bool:
    """Whether it is what ``optimizer.minimize`` returns: operators, and pairs of parameters and gradients."""
    ops = group[0] if isinstance(group, tuple) and group else None
    return isinstance(ops, list) and all(isinstance(op, Operator) for op in ops)


def fetch_targets(fetch_list: Any) -> list[Any]:
    """The fetches as they were given, as a list."""
    if fetch_list is None:
        return []
    return list(fetch_list) if isinstance(fetch_list, (list, tuple)) else [fetch_list]
