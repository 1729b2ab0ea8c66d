"""A program under modification by passes: its ops, their readers and writers, and parameter values."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from fluidjax import unique_name
from fluidjax.base.errors import explain
from fluidjax.base.places import CPUPlace
from fluidjax.base.scope import Scope
from fluidjax.framework import Operator, Program
from fluidjax.framework.callstack import user_line
from fluidjax.framework.view import program_view
from lowering import get_op, has_op
from lowering.engine.dataflow import definitions, needs
from lowering.errors import AttrError
from lowering.program import OpView
from lowering.registry.attributes import as_attribute
from lowering.registry.definition import AttrSpec

NORMALISATIONS = ("batch_norm", "sync_batch_norm")  # with running statistics: alike at test time


class Rewriter:
    """Block 0 of a program, and a scope with its parameters.

    A name is *steady* if it has the same value wherever block 0 reads it: it is fed or stored and never written, or
    written once, before every read. Passes replace names only by steady ones.

    Attributes:
        program, scope: what the passes modify.
        feeds, fetches: names; fetched variables keep theirs.
    """

    def __init__(self, program: Program, scope: Scope, feeds: Sequence[str], fetches: Sequence[str]):
        self.program, self.scope = program, scope
        self.feeds, self.fetches = tuple(feeds), tuple(fetches)
        self.refresh()

    def refresh(self) -> None:
        """Recompute readers and writers after ops have changed."""
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
        """Whether the name has the same value wherever it is read."""
        by = self.writers.get(name, [])
        if not by:
            return True
        held = self.block.has_var(name) and self.block.var(name).persistable
        return len(by) == 1 and not held and name not in self.feeds and min(self.readers.get(name, by)) >= by[0]

    def inner(self, name: str) -> bool:
        """Whether the name is steady, computed, and used only by block 0's own ops, so that it may be removed."""
        alone = name in self.writers and self.steady(name) and name not in self.fetches
        readers = [self.ops[at] for at in self.readers.get(name, ())]
        return alone and all(op._mentions(name) and not op._sub_block_ids() for op in readers)

    def pure(self, at: int) -> bool:
        """Whether an op only computes its outputs from its inputs."""
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
        """Create a parameter with the given value; returns its name."""
        name = unique_name.generate(f"{like}.folded")
        self.set(name, value)
        return name

    def set(self, name: str, value: np.ndarray) -> None:
        """Turn a variable into a parameter with the given value."""
        if self.block.has_var(name):
            var = self.block.var(name)
            var.persistable, var.stop_gradient = True, True
        else:
            self.block.create_var(name=name, shape=list(value.shape), dtype=value.dtype, persistable=True)
        self.scope.var(name).get_tensor().set(value, CPUPlace())

    def replace(self, name: str, by: str) -> None:
        """Make all ops read another name."""
        for at in self.readers.get(name, ()):
            self.ops[at]._rename_input(name, by)

    def remove(self, *positions: int) -> None:
        """Remove ops."""
        for at in sorted(positions, reverse=True):
            self.block._remove_op(at)
        self.refresh()

    def insert(self, at: int, type: str, inputs: Any, outputs: Any, attrs: Any) -> None:
        """Insert an op before the one at a position."""
        self.block._insert_op(at, type=type, inputs=inputs, outputs=outputs, attrs=attrs)

    def only_reader(self, name: str) -> int | None:
        """The only op that reads an inner name."""
        by = self.readers.get(name, [])
        return by[0] if self.inner(name) and len(by) == 1 else None


def _written(view: Any, op: OpView) -> list[str]:
    """What an op writes; batch_norm leaves its statistics unchanged at test time."""
    if op.type in NORMALISATIONS and (op.attrs.get("is_test") or op.attrs.get("use_global_stats")):
        return list(op.outputs.get("Y", ()))
    return list(definitions(view, op))


def first(names: Sequence[str]) -> str:
    """The variable in a slot; in a damaged program without one, "", which is never written, read or stored."""
    return names[0] if names else ""


def setting(op: Operator, name: str) -> Any:
    """An attribute, or what the op takes it to be where the program does not say, as older or damaged ones.

    Raises AttrError if it is of another type than the op's, as in damaged programs.
    """
    spec = get_op(op.type).attrs.get(name) if has_op(op.type) else None
    if not op.has_attr(name):
        return None if spec is None or spec.required else spec.default
    return op.attr(name) if spec is None else as_attribute(spec.type, op.attr(name), partial(_misfit, op, spec))


def _misfit(op: Operator, spec: AttrSpec, got: Any) -> AttrError:
    """The error for an attribute of another type."""
    what = f"op {op.type} ({user_line(op)}): attribute {spec.name!r} has another type than the op's"
    return AttrError(explain(what, spec.type, repr(got), "load the model as it was saved, or run it without passes"))
