"""Sizes that are symbols: what a program computes from the shape of a value whose dims are open.

A function may be exported for sizes that only a later call knows. There ``shape`` gives traced numbers, and a rule that
wants to know them (a target of ``reshape``, an end of ``range``) needs the expressions that they stand for. These are
remembered beside the traced tensor, and followed through the ops that compute with sizes.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

_REMEMBERED: dict[int, tuple[weakref.ref[Any], np.ndarray]] = {}  # by the identity of a tracer, which has no hash

_Symbol = type(export.symbolic_shape("n")[0])

_MOST = 64  # numbers; longer tensors are no sizes


def _sign(size: Any) -> int:
    if size == 0:
        return 0
    return 1 if size >= 0 else -1  # refused by JAX where it depends on the symbols


_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "neg": np.negative,
    "sign": np.frompyfunc(_sign, 1, 1),
    "abs": np.frompyfunc(lambda size: size * _sign(size), 1, 1),
    "floor_divide": np.floor_divide,
    "remainder": np.remainder,
    "copy": np.asarray,
}
_TRUNCATED: dict[str, Callable[..., Any]] = {
    "div": np.floor_divide,
    "rem": np.remainder,
}  # towards zero, which is the same where nothing is negative
_FOLDS: dict[str, Callable[..., Any]] = {"reduce_sum": np.sum, "reduce_prod": np.prod}
_MOVES = frozenset(
    "slice dynamic_slice concatenate reshape broadcast_in_dim squeeze expand_dims transpose rev gather".split()
)


class _Unknown(Exception):
    """No expression follows."""


def is_symbol(size: Any) -> bool:
    """Whether a size is an expression and not a number."""
    return isinstance(size, _Symbol)


def number(size: Any) -> Any:
    """A size as an int32: on the host if it is a number."""
    return jnp.asarray(size, np.int32) if is_symbol(size) else np.int32(size)


def known(value: Any) -> np.ndarray | None:
    """The sizes that a traced tensor stands for, as an array of objects; None if there are none."""
    found = _REMEMBERED.get(id(value))
    return found[1] if found is not None and found[0]() is value else None


def any_known(values: Any) -> bool:
    """Whether one of the values stands for sizes."""
    return bool(_REMEMBERED) and any(known(value) is not None for value in values)


def tensor(sizes: Sequence[Any], dtype: Any) -> Any:
    """Sizes as a tensor: known numbers where all are, else traced ones that stand for the expressions."""
    return _tensor(_objects(sizes), dtype)


def same(value: Any, source: Any) -> Any:
    """``value``, whose elements are those of ``source`` and stand for the same."""
    sizes = known(source)
    return value if sizes is None else _remembered(value, sizes.reshape(value.shape))


def followed(run: Callable[[list[Any]], list[Any]], given: list[Any], results: list[Any]) -> list[Any]:
    """The results of an op on sizes and known numbers, with the expressions that they are.

    Args:
        run: the op, from values to results in the order of ``given`` and ``results``.
        given: the values, some of which stand for sizes.
        results: what the op has made of them.
    """
    sizes = [known(v) if known(v) is not None else v for v in given]
    if not all(v is None or (isinstance(v, np.ndarray) and v.size <= _MOST) for v in sizes):
        return results
    places = [i for i, v in enumerate(sizes) if v is not None and v.dtype == object]
    try:
        closed = jax.make_jaxpr(lambda *traced: run(_filled(given, places, traced)))(
            *(jax.ShapeDtypeStruct(given[i].shape, given[i].dtype) for i in places)
        )
        found = _evaluated(closed.jaxpr, closed.consts, [sizes[i] for i in places])
    except Exception:  # an op of which no expression follows has traced results, which may be all that is asked for
        return results
    return [_expressed(result, symbols) for result, symbols in zip(results, found, strict=True)]


def _filled(given: list[Any], places: list[int], traced: Sequence[Any]) -> list[Any]:
    filled = list(given)
    for place, value in zip(places, traced, strict=True):
        filled[place] = value
    return filled


def _objects(sizes: Any) -> np.ndarray:
    found = np.empty(len(sizes), object)
    found[:] = list(sizes)
    return found


def _tensor(sizes: np.ndarray, dtype: Any) -> Any:
    if not any(map(is_symbol, sizes.flat)):
        return sizes.astype(dtype)
    parts = [jnp.asarray(n, dtype) for n in sizes.flat]
    return _remembered(jnp.stack(parts).reshape(sizes.shape), sizes)


def _expressed(result: Any, sizes: np.ndarray) -> Any:
    if sizes.dtype != object:
        return result
    if not any(map(is_symbol, sizes.flat)):
        return sizes.astype(result.dtype)
    return _remembered(result, sizes)


def _remembered(value: Any, sizes: np.ndarray) -> Any:
    at = id(value)
    _REMEMBERED[at] = weakref.ref(value, lambda _: _REMEMBERED.pop(at, None)), sizes
    return value


def _evaluated(jaxpr: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[np.ndarray]:
    """The results of a jaxpr on arrays of which some hold expressions."""
    held: dict[Any, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args), strict=True))

    def read(atom: Any) -> np.ndarray:
        return np.asarray(atom.val if hasattr(atom, "val") else held[atom])

    for eqn in jaxpr.eqns:
        held.update(zip(eqn.outvars, _results(eqn, [read(atom) for atom in eqn.invars]), strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _results(eqn: Any, values: list[np.ndarray]) -> list[Any]:
    name, params = eqn.primitive.name, eqn.params
    if "jaxpr" in params and params.get("name") not in _ARITHMETIC:
        return _evaluated(params["jaxpr"].jaxpr, params["jaxpr"].consts, values)
    if all(value.dtype != object for value in values):
        with jax.ensure_compile_time_eval():
            found = eqn.primitive.bind(*values, **params)
        return list(found) if eqn.primitive.multiple_results else [found]
    name = params.get("name", name) if "jaxpr" in params else name
    if name in _ARITHMETIC:
        return [_ARITHMETIC[name](*values)]
    whole = all(eqn_input.aval.dtype.kind in "iu" for eqn_input in eqn.invars)
    if name in _TRUNCATED and whole and all((value >= 0).all() for value in values):
        return [_TRUNCATED[name](*values)]
    if name == "convert_element_type" and params["new_dtype"].kind in "iuf":
        return values
    if name in _FOLDS:
        return [np.asarray(_FOLDS[name](values[0], axis=tuple(params["axes"])), object)]
    if name in _MOVES:
        return [_moved(eqn, values)]
    raise _Unknown(name)


def _moved(eqn: Any, values: list[np.ndarray]) -> np.ndarray:
    """What a primitive that moves elements makes of expressions: it moves their numbers in a list of them."""
    listed: list[Any] = []
    numbered = []
    count = len(values) if eqn.primitive.name == "concatenate" else 1  # the others: positions
    for value in values[:count]:
        numbered.append(np.arange(len(listed), len(listed) + value.size, dtype=np.int32).reshape(value.shape))
        listed += list(value.flat)
    params = {**eqn.params, **({"fill_value": -1} if "fill_value" in eqn.params else {})}
    with jax.ensure_compile_time_eval():
        at = np.asarray(eqn.primitive.bind(*numbered, *values[count:], **params))
    if at.size and at.min() < 0:
        raise _Unknown("a position outside")
    found = np.empty(at.shape, object)
    found.reshape(-1)[:] = [listed[i] for i in at.flat]
    return found
