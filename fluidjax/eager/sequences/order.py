"""Determining which recorded ops are needed, and running them one by one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fluidjax.eager.values import Spec
from lowering.engine.x64 import with_x64

Record = tuple[Any, ...]  # (kernel, code of each input): the number of an output, or ~k for leaf k


class Order:
    """The records that outputs depend on.

    Attributes:
        steps: (record, the number of its first output, the outputs that are not read after it) in order.
    """

    def __init__(self, records: Sequence[Record], alive: Iterable[int]) -> None:
        begin = sum([record[0].width for record in records])
        needed = set(alive)  # what is alive, or read by a later record
        steps: list[tuple[Record, int, list[int]]] = []
        for record in reversed(records):
            width = record[0].width
            begin -= width
            if begin not in needed if width == 1 else needed.isdisjoint(range(begin, begin + width)):
                continue
            reads = [code for code in record[1:] if code >= 0]
            steps.append((record, begin, [code for code in {*reads} if code not in needed]))
            needed.update(reads)
        steps.reverse()
        self.steps = steps


def output_specs(records: Sequence[Record], leaves: Sequence[Spec]) -> list[Spec | None]:
    """The specs of all outputs."""
    found: list[Any] = []
    for kernel, *codes in records:
        ins = tuple([found[c] if c >= 0 else leaves[~c] for c in codes])
        found += kernel.known[ins[1:] if kernel.takes_key else ins]
    return found


def one_by_one(records: Sequence[Record], arrays: Sequence[Any], alive: Sequence[int]) -> list[Any]:
    """Run what the outputs `alive` depend on; each value is released after its last use."""
    return with_x64(run_steps, Order(records, alive).steps, arrays, alive)


def run_steps(steps: Sequence[tuple[Record, int, list[int]]], arrays: Sequence[Any], alive: Sequence[int]) -> list[Any]:
    """Run the steps of an Order, with 64-bit types enabled."""
    values: dict[int, Any] = {~k: array for k, array in enumerate(arrays)}
    value_of = values.__getitem__
    for record, begin, ended in steps:
        results = record[0].run([*map(value_of, record[1:])])
        if len(results) == 1:
            values[begin] = results[0]
        else:
            values.update(enumerate(results, begin))
        for code in ended:
            del values[code]
    return [values[code] for code in alive]
