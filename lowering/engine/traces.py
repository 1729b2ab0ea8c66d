"""Rules that a run has already traced, for ops of equal content.

A deep net applies few different ops: a training step of HRNet has 5,158, 242 of them different. The first op of its
kind is traced as it stands; the second one's rule alone, and its equations are entered for that op and all later ones.
``jax.jit`` with ``inline`` does this: the step has the equations that it would have if each rule were traced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax

from lowering.engine.single import freeze
from lowering.registry import OpDef
from lowering.values import LoDArray, Meta

# Since jax 0.11 True enters a call, which only XLA makes equations of.
_EARLY: Any = jax.Inline.JAX_EARLY if hasattr(jax, "Inline") else True


class Traces:
    """The rules that the trace of one step has come to."""

    def __init__(self) -> None:
        self._known: dict[Any, Callable[..., Any] | None] = {}

    def evaluate(self, definition: OpDef, args: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """What ``definition.fn(*args, **keywords)`` returns, from the trace of an equal call where there is one."""
        key = _key(definition, args, keywords)
        run = None if key is None else self._known.get(key)
        if run is not None:
            return run(*_arrays(args))
        results = definition.fn(*args, **keywords)
        if key is not None and key not in self._known:
            self._known[key] = _jitted(definition, args, keywords) if _new(results, args) else None
        return results


def _key(definition: OpDef, args: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    """What decides what the rule does; None where that is more than the forms of its arguments and its attributes."""
    if not definition.special <= {"in_place", "checked"}:
        return None
    forms = tuple(map(_form, args))
    if None in forms:
        return None
    return definition.type, definition.fn, forms, tuple((name, freeze(value)) for name, value in keywords.items())


def _form(arg: Any) -> Any:
    """The form of an argument; None if a rule may want to know more of it."""
    if arg is None:
        return ()
    if isinstance(arg, list):
        forms = tuple(map(_form, arg))
        return None if None in forms else forms
    if isinstance(arg, (LoDArray, Meta)):
        if arg.lod or arg.nrows is not None or arg.nseq is not None:
            return None
        data = (arg.shape, arg.dtype) if isinstance(arg, Meta) else _form(arg.data)
        return data and (type(arg), data, arg.longest, arg.tight)
    return arg.aval if isinstance(arg, jax.core.Tracer) else None


def _new(results: Any, args: Sequence[Any]) -> bool:
    """Whether all results are arrays that the rule has made: none is known now, or an argument itself."""
    leaves = jax.tree_util.tree_leaves(results)
    made = all(isinstance(leaf, jax.core.Tracer) for leaf in leaves)
    return made and {id(leaf) for leaf in leaves}.isdisjoint(map(id, _arrays(args)))


def _jitted(definition: OpDef, args: Sequence[Any], keywords: Mapping[str, Any]) -> Callable[..., Any]:
    """The rule as a function of the arrays among its arguments. It holds on to no array."""
    forms = [_without_arrays(arg) for arg in args]

    def run(*arrays: Any) -> Any:
        left = iter(arrays)
        return definition.fn(*(_with_arrays(form, left) for form in forms), **keywords)

    return jax.jit(run, inline=_EARLY)


def _arrays(args: Any) -> Iterator[Any]:
    for arg in args:
        if isinstance(arg, list):
            yield from _arrays(arg)
        elif isinstance(arg, LoDArray):
            yield arg.data
        elif isinstance(arg, jax.core.Tracer):
            yield arg


_ARRAY = object()


def _without_arrays(arg: Any) -> Any:
    if isinstance(arg, list):
        return [_without_arrays(part) for part in arg]
    if isinstance(arg, LoDArray):
        return arg.with_data(_ARRAY)
    return _ARRAY if isinstance(arg, jax.core.Tracer) else arg


def _with_arrays(form: Any, arrays: Iterator[Any]) -> Any:
    if isinstance(form, list):
        return [_with_arrays(part, arrays) for part in form]
    if isinstance(form, LoDArray):
        return form.with_data(next(arrays))
    return next(arrays) if form is _ARRAY else form
