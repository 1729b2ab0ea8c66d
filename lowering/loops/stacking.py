"""Tensor arrays that a loop reads or carries, each as one buffer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lowering.engine.run import Run
from lowering.loops import arrays
from lowering.structure import same_structure
from lowering.values import TensorArray


def array_key(name: str) -> str:
    """The name under which the executor keeps the capacity of a tensor array."""
    return f"array/{name}"


def array_room(runner: Run, name: str) -> int:
    """The capacity of a tensor array when it is stacked."""
    return max(runner.array_capacity, runner.capacities.get(array_key(name), 0))


def stacked_reads(env: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Arrays that steps read by a traced index, stacked once: the buffers are loop invariants of the steps."""
    found = {}
    for name in sorted(names):  # an order of its own in each process would miss the cache of compiled programs
        array = env.get(name)
        if isinstance(array, TensorArray) and not array.stacked and array.items:
            first = array.items[0]
            if all(v is not None and same_structure(v, first) for v in array.items):
                found[name] = arrays.as_stacked(array, first, len(array.items))
    return found


def stacked(name: str, value: Any, runner: Run) -> Any:
    """A tensor array that is carried through a loop, as one buffer; other values as they are."""
    if not isinstance(value, TensorArray) or value.stacked:
        return value
    present = [v for v in value.items or () if v is not None]
    return arrays.as_stacked(value, present[0], array_room(runner, name)) if present else value
