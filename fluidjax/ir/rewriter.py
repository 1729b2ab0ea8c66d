"""A program that passes change: its ops, who writes and reads what, the values of its parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fluidjax import unique_name
from fluidjax.base.places import CPUPlace
from fluidjax.base.scope import Scope
from fluidjax.framework import Operator, Program
from fluidjax.framework.view import program_view
from lowering import get_op, has_op
from lowering.engine.dataflow import definitions, needs
from lowering.program import OpView


class Rewriter:
    """Block 0 of a program, and a scope with its parameters.

    A name is *steady* when it means one value wherever block 0 reads it: it is fed or held and never written, or
    written once, before all who read it. Passes replace names only by steady ones.

    Attributes:
        program, scope: which passes change.
        feeds, fetches: names; what is fetched keeps its name.
    """

    def __init__(self, program: Program, scope: Scope, feeds: Sequence[str], fetches: Sequence[str]):
        self.program, self.scope = program, scope
        self.feeds, self.fetches = tuple(feeds), tuple(fetches)
        self.refresh()

    def refresh(self) -> None:
        """Look at the program anew, after ops have changed."""
        view = program_view(self.program)
        self.block = self.program.global_block()
        self.ops: list[Operator] = list(self.block.ops)
        self.views: list[OpView] = list(view.blocks[0].ops)
        self.reads = [set(needs(view, op)) for op in self.views]
        self.writes = [_written(view, op) for op in self.views]
        self.writers: dict[str, list[int]] = {}
        self.readers: dict[str, list[int]] = {}
        for at, (read, written) in enumerate(zip(self.reads, self.writes, strict=True)):
            for name in read:
                self.readers.setdefault(name, []).append(at)
            for name in written:
                self.writers.setdefault(name, []).append(at)

    def steady(self, name: str) -> bool:
        """Whether the name means one value wherever it is read."""
        by = self.writers.get(name, [])
        if not by:
            return True
        held = self.block.has_var(name) and self.block.var(name).persistable
        return len(by) == 1 and not held and name not in self.feeds and min(self.readers.get(name, by)) >= by[0]

    def inner(self, name: str) -> bool:
        """Whether the name is steady, computed, and no one's outside of block 0's own ops: it may vanish."""
        alone = name in self.writers and self.steady(name) and name not in self.fetches
        readers = [self.ops[at] for at in self.readers.get(name, ())]
        return alone and all(op._mentions(name) and not op._sub_block_ids() for op in readers)

    def pure(self, at: int) -> bool:
        """Whether an op computes its outputs from its inputs alone, and does nothing else."""
        op = self.views[at]
        if not has_op(op.type):
            return False
        known = get_op(op.type)
        chance = "key" in known.special and not op.attrs.get("is_test")
        return known.kind == "plain" and not chance and not (known.updates or known.changes or known.continues)

    def value(self, name: str) -> np.ndarray | None:
        """The value of a parameter that the program never writes; None for anything else."""
        held = self.block.has_var(name) and self.block.var(name).persistable
        var = self.scope.find_var(name) if held and name not in self.writers and name not in self.feeds else None
        if var is None or not var.get_tensor()._is_initialized() or var.get_tensor().lod():
            return None
        return np.array(var.get_tensor())

    def hold(self, like: str, value: np.ndarray) -> str:
        """A new parameter of that value; its name."""
        name = unique_name.generate(f"{like}.folded")
        self.set(name, value)
        return name

    def set(self, name: str, value: np.ndarray) -> None:
        """Make a variable a parameter of that value."""
        if self.block.has_var(name):
            var = self.block.var(name)
            var.persistable, var.stop_gradient = True, True
        else:
            self.block.create_var(name=name, shape=list(value.shape), dtype=value.dtype, persistable=True)
        self.scope.var(name).get_tensor().set(value, CPUPlace())

    def replace(self, name: str, by: str) -> None:
        """Let all ops read another name."""
        for at in self.readers.get(name, ()):
            self.ops[at]._rename_input(name, by)

    def remove(self, *positions: int) -> None:
        """Take ops out."""
        for at in sorted(positions, reverse=True):
            self.block._remove_op(at)
        self.refresh()

    def insert(self, at: int, type: str, inputs: Any, outputs: Any, attrs: Any) -> None:
        """Put an op in front of the one at a position."""
        self.block._insert_op(at, type=type, inputs=inputs, outputs=outputs, attrs=attrs)

    def only_reader(self, name: str) -> int | None:
        """The op that alone reads an inner name."""
        by = self.readers.get(name, [])
        return by[0] if self.inner(name) and len(by) == 1 else None


def _written(view: Any, op: OpView) -> list[str]:
    """What an op writes; batch_norm in a test leaves its statistics as they are."""
    if op.type == "batch_norm" and (op.attrs.get("is_test") or op.attrs.get("use_global_stats")):
        return list(op.outputs.get("Y", ()))
    return list(definitions(view, op))


def first(names: Sequence[str]) -> str:
    """The variable in a slot; "" where a damaged program has none, which nobody writes, reads or holds."""
    return names[0] if names else ""
