"""Sequences whose length is a variable of the program under construction: growing lists, ranges, rows, zips of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidjax.base.errors import explain
from fluidjax.framework import Variable
from fluidjax.layers._control_flow.basic import (
    array_length,
    array_read,
    array_write,
    create_array,
    increment,
    less_than,
)
from fluidjax.layers._control_flow.blocks import While
from fluidjax.layers.nn import elementwise_add, elementwise_max, elementwise_min, elementwise_mul
from fluidjax.layers.nn import shape as shape_of
from fluidjax.layers.tensor import assign, cast, fill_constant
from fluidjax.to_static.values import Number, as_number, can_be_variable, is_variable, to_variable


class Staged:
    """A sequence of the program under construction: ``size()`` and ``item(i)`` create ops."""

    def size(self) -> Any:
        """The number of items: a variable, or an int."""
        raise NotImplementedError

    def item(self, index: Any) -> Any:
        """The item at an index counted from 0."""
        raise NotImplementedError

    def __iter__(self) -> Any:
        raise TypeError(
            explain(
                f"Python iterates over {type(self).__name__}, whose length is known only when the program runs",
                "a for statement of a converted function",
                "a comprehension, or a function that is not converted",
                "write the loop as a for statement",
            )
        )


class VariableList(Staged, Variable):
    """A list filled by a branch or loop on a variable: an array of the program, and the number of its valid items.

    Attributes:
        length: the variable with the number of items; branches and loops update it, and the array, in place.
    """

    length: Variable

    @staticmethod
    def over(array: Variable, length: Variable) -> VariableList:
        """An array as a list."""
        array.__class__ = VariableList
        assert isinstance(array, VariableList)
        array.length = length
        return array

    @property
    def array(self) -> Variable:
        """The array."""
        return self

    @staticmethod
    def of(items: Sequence[Any], dtype: Any) -> VariableList:
        """A list with some initial items."""
        made = VariableList.over(create_array(dtype), fill_constant([1], "int64", len(items)))
        for index, item in enumerate(items):
            array_write(_element(item, dtype), fill_constant([1], "int64", index), made.array)
        return made

    def size(self) -> Variable:
        """See Staged."""
        return as_number(assign(self.length))

    def item(self, index: Any) -> Variable:
        """See Staged."""
        return array_read(self.array, _position(index))

    def append(self, value: Any) -> None:
        """``list.append``."""
        array_write(_element(value, self.array.dtype), self.length, self.array)
        increment(self.length)

    def extend(self, values: Any) -> None:
        """``list.extend`` by a sequence of known length."""
        for value in values:
            self.append(value)

    def pop(self, index: Any = -1) -> Variable:
        """``list.pop`` of the last item."""
        if is_variable(index) or index != -1:
            raise IndexError(
                explain(
                    "an item is popped of a list that branches or loops on variables fill",
                    "pop(), the last one",
                    f"pop({index!r})",
                    "keep the items in a list that Python counts",
                )
            )
        increment(self.length, -1)
        return array_read(self.array, self.length)

    def __getitem__(self, index: Any) -> Variable:
        return self._part(index) if isinstance(index, slice) else self.item(self._from_start(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, slice):
            raise _no_slice("a slice is assigned to", "single items", index)
        array_write(_element(value, self.array.dtype), _position(self._from_start(index)), self.array)

    def _part(self, bounds: slice) -> VariableList:
        """A new list with the items between two bounds."""
        if is_variable(bounds.step) or bounds.step not in (None, 1):
            raise _no_slice("every so manieth item is taken", "slices without a step", bounds)
        made = VariableList.of([], self.array.dtype)
        index = assign(self._bound(bounds.start, 0))
        end = self._bound(bounds.stop, self.size())
        condition = less_than(index, end)
        rounds = While(condition)
        with rounds.block():
            made.append(self.item(index))
            increment(index)
            less_than(index, end, cond=condition)
        return made

    def _bound(self, bound: Any, default: Any) -> Variable:
        """A bound of a slice as a position in the list, int64 [1]."""
        size = self.size()
        found = _position(default if bound is None else self._from_start(bound))
        if is_variable(bound):
            found = elementwise_add(found, elementwise_mul(size, cast(found < 0, "int64")))
        return elementwise_min(elementwise_max(found, fill_constant([1], "int64", 0)), size)

    def _from_start(self, index: Any) -> Any:
        return self.size() + index if isinstance(index, int) and index < 0 else index


def _no_slice(what: str, expected: str, bounds: slice) -> TypeError:
    return TypeError(
        explain(
            f"{what} of a list that branches or loops on variables fill",
            expected,
            f"{bounds.start!r:.60}:{bounds.stop!r:.60}:{bounds.step!r:.60}",
            "go over the items in a for statement",
        )
    )


def grown(name: str, before: list[Any], *after: Any) -> VariableList:
    """The array for a list that branches or a loop leave with more items than before; `after`: what they leave."""
    found = next((a for a in after if isinstance(a, VariableList)), None)
    if found is not None:
        return VariableList.of(before, found.array.dtype)
    items = [item for a in after if isinstance(a, list) for item in a]
    if not all(map(can_be_variable, items)):
        raise TypeError(
            explain(
                f"the list {name} grows in a branch or loop on a variable",
                "items that are variables or numbers",
                ", ".join(type(item).__name__ for item in items),
                "let a Python value decide",
            )
        )
    return VariableList.of(before, _element_type(items))


def _element_type(items: list[Any]) -> Any:
    found = next((item for item in items if is_variable(item)), None)
    return found.dtype if found is not None else "float64" if isinstance(items[0], float) else "int64"


def _element(value: Any, dtype: Any) -> Variable:
    variable = to_variable(value)
    return cast(variable, dtype) if isinstance(variable, Number) and variable.dtype != dtype else variable


def _position(index: Any) -> Variable:
    variable = to_variable(index)
    return variable if variable.dtype.name == "INT64" else cast(variable, "int64")


class Range(Staged):
    """``range`` of variables."""

    def __init__(self, start: Any, stop: Any, step: Any = 1):
        self.start, self.stop, self.step = (as_number(v) if is_variable(v) else v for v in (start, stop, step))

    def size(self) -> Any:
        """See Staged."""
        span = self.stop if isinstance(self.start, int) and self.start == 0 else self.stop - self.start
        if not is_variable(self.step) and self.step == 1:
            return span
        return (span + self.step - (1 if is_variable(self.step) or self.step > 0 else -1)) // self.step

    def item(self, index: Any) -> Any:
        """See Staged."""
        moved = index if not is_variable(self.step) and self.step == 1 else index * self.step
        return moved if isinstance(self.start, int) and self.start == 0 else moved + self.start


class Rows(Staged):
    """The rows of a variable, whose number is known only at run time."""

    def __init__(self, rows: Variable):
        self.rows = rows

    def size(self) -> Variable:
        """See Staged."""
        return dimension(self.rows, 0)

    def item(self, index: Any) -> Variable:
        """See Staged."""
        return self.rows[index if not is_variable(index) else cast(index, "int32")]


class Together(Staged):
    """``enumerate`` and ``zip``: items made of the items of other sequences."""

    def __init__(self, parts: Sequence[Any]):
        self.parts = [part if isinstance(part, Staged) else list(part) for part in parts]

    def size(self) -> Any:
        """See Staged."""
        return next(part.size() for part in self.parts if isinstance(part, Staged))

    def item(self, index: Any) -> tuple[Any, ...]:
        """See Staged."""
        return tuple(part.item(index) if isinstance(part, Staged) else picked(part, index) for part in self.parts)


class Counter(Staged):
    """0, 1, 2 ... as ``enumerate`` counts."""

    def __init__(self, start: Any):
        self.start = start

    def item(self, index: Any) -> Any:
        """See Staged."""
        return index + self.start if self.start != 0 else index


def picked(items: Sequence[Any], index: Any) -> Any:
    """``items[index]`` of a Python sequence, where the index is a variable."""
    if not is_variable(index):
        return items[index]
    return VariableList.of(items, to_variable(items[0]).dtype).item(index)


def dimension(var: Variable, axis: int) -> Any:
    """A dimension: an int, or a variable if known only at run time."""
    known = var.shape[axis]
    return known if known >= 0 else as_number(shape_of(var)[axis])


def staged_items(items: Any) -> Any:
    """What a for statement iterates over: a list if its length is known to Python."""
    if not is_variable(items) or isinstance(items, Staged):
        return items
    if items.type.name == "LOD_TENSOR_ARRAY":
        return VariableList.over(items, array_length(items))
    if items.shape and items.shape[0] >= 0:
        return [items[i] for i in range(items.shape[0])]
    return Rows(items)
