"""Nested structures (lists, tuples, namedtuples, dicts) of Variables: flatten, rebuild, map, compare."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fluidjax.base.errors import ArgumentError
from fluidjax.base.unknown import unknown_name

__all__: list[str] = []


def convert_to_list(value: Any, n: int, name: str, dtype: type = int) -> list:
    """``[value] * n`` for a single number, ``list(value)`` for n of them.

    Args:
        value: a ``dtype``, or a list or tuple of n values of that type.
        n: required length.
        name: name of the argument, for error messages.
        dtype: type of the elements.

    Raises:
        ValueError: wrong type or length.
    """
    if isinstance(value, dtype):
        return [value] * n
    problem = f"argument '{name}' must be one {dtype.__name__} or {n} of them; received {value!r}"
    try:
        values = list(value)
    except TypeError:
        raise ArgumentError(f"{problem}. Pass a number, list or tuple.") from None
    if len(values) != n:
        raise ArgumentError(f"{problem} ({len(values)} of them). Pass {n} numbers.")
    for item in values:
        try:
            dtype(item)
        except (ValueError, TypeError):
            raise ArgumentError(f"{problem}, with {item!r} of type {type(item).__name__} in it.") from None
    return values


def is_sequence(seq: Any) -> bool:
    """Whether ``seq`` is a list, tuple, dict or another sequence that is not a string."""
    return isinstance(seq, dict) or (isinstance(seq, Sequence) and not isinstance(seq, str))


def _is_namedtuple(value: Any) -> bool:
    return isinstance(value, tuple) and hasattr(value, "_fields")


def _children(nest: Any) -> Iterator[Any]:
    """The direct children; those of a dict in the order of its sorted keys."""
    if isinstance(nest, Mapping):
        for key in sorted(nest):
            yield nest[key]
    else:
        yield from nest


def _rebuild(like: Any, children: list[Any]) -> Any:
    if isinstance(like, Mapping):
        by_key = dict(zip(sorted(like), children, strict=True))
        made: Any = type(like)
        return made((key, by_key[key]) for key in like)
    if _is_namedtuple(like):
        return type(like)(*children)
    return type(like)(children)


def flatten(nest: Any) -> list[Any]:
    """The leaves of a nested structure in order; a single leaf gives a list of length one."""
    if not is_sequence(nest):
        return [nest]
    leaves: list[Any] = []
    for child in _children(nest):
        leaves.extend(flatten(child))
    return leaves


def _pack(structure: Any, leaves: Iterator[Any]) -> Any:
    if not is_sequence(structure):
        return next(leaves)
    return _rebuild(structure, [_pack(child, leaves) for child in _children(structure)])


def pack_sequence_as(structure: Any, flat_sequence: Sequence[Any]) -> Any:
    """``flat_sequence`` packed into the structure of ``structure``.

    Raises:
        TypeError: ``flat_sequence`` is not a sequence.
        ValueError: the number of leaves does not match.
    """
    if not is_sequence(flat_sequence):
        raise TypeError(f"flat_sequence must be a list or tuple; received {type(flat_sequence).__name__}.")
    places = len(flatten(structure))
    if places != len(flat_sequence):
        raise ArgumentError(
            f"Could not pack {len(flat_sequence)} values into a structure of {places} places: {structure!r}. "
            "Pass one value for each place."
        )
    return _pack(structure, iter(flat_sequence))


def map_structure(func: Callable[..., Any], *structure: Any) -> Any:
    """Apply ``func`` to corresponding leaves, with the structure of the first argument."""
    columns = [flatten(one) for one in structure]
    return pack_sequence_as(structure[0], [func(*leaves) for leaves in zip(*columns, strict=True)])


def _assert_same(nest1: Any, nest2: Any, check_types: bool) -> None:
    if is_sequence(nest1) != is_sequence(nest2):
        raise ArgumentError(
            "The two structures don't have the same nested structure: one has a value where the other has "
            f"more structure. First: {nest1!r}. Second: {nest2!r}."
        )
    if not is_sequence(nest1):
        return
    if check_types and type(nest1) is not type(nest2):
        raise TypeError(
            f"The two structures don't have the same sequence type: first {type(nest1).__name__}, second "
            f"{type(nest2).__name__}."
        )
    if isinstance(nest1, Mapping) and isinstance(nest2, Mapping) and set(nest1) != set(nest2):
        raise ArgumentError(
            f"The two dictionaries don't have the same set of keys: first {sorted(nest1)}, second {sorted(nest2)}."
        )
    for one, two in zip(_children(nest1), _children(nest2), strict=True):
        _assert_same(one, two, check_types)


def assert_same_structure(nest1: Any, nest2: Any, check_types: bool = True) -> None:
    """Raise unless both have the same structure and, with ``check_types``, the same container types.

    Raises:
        ValueError: the number of leaves, the nesting or the dict keys differ.
        TypeError: the container types differ.
    """
    count1, count2 = len(flatten(nest1)), len(flatten(nest2))
    if count1 != count2 or (is_sequence(nest1) and is_sequence(nest2) and len(nest1) != len(nest2)):
        raise ArgumentError(
            "The two structures don't have the same number of elements: "
            f"first ({count1} elements): {nest1!r}, second ({count2} elements): {nest2!r}."
        )
    _assert_same(nest1, nest2, check_types)


def hold_mutable_vars(structure: Any) -> bool:
    """Whether a list or dict is among the members, which a function could modify."""
    return any(is_sequence(member) for member in structure)


def copy_mutable_vars(structure: Any) -> Any:
    """A copy with new containers around the same leaves."""
    return pack_sequence_as(structure, list(flatten(structure)))


__getattr__ = unknown_name(__name__)
