"""Blocks of a server's program as jitted functions, with state updated in place."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import jax

from fluidjax.distributed.rooms import Rooms
from lowering.dtypes import SELECTED_ROWS
from lowering.engine.dataflow import flow
from lowering.engine.runner import Runner
from lowering.program import OpView, ProgramView


class State(Protocol):
    """The state that blocks operate on."""

    def gather(self, names: Sequence[str]) -> dict[str, Any]:
        """Values by name, on the device; missing ones are omitted."""

    def store(self, values: Mapping[str, Any]) -> None:
        """Store values."""


class Update:
    """One or more blocks of a program, compiled into a single function.

    Args:
        program: the server's program.
        blocks: block indices, in order.
        received: names passed at each run rather than held as state.
        read_elsewhere: names read by other blocks.
    """

    def __init__(
        self, program: ProgramView, blocks: Sequence[int], received: Collection[str], read_elsewhere: Collection[str]
    ) -> None:
        self._program, self._received = program, received
        self._ops = [op for block in blocks for op in program.blocks[block].ops]
        reads, writes = flow(program, self._ops)
        kept = [n for n in writes if self._is_kept(n, read_elsewhere)]
        self.given = [n for n in reads if n in received]
        self._replaced = [n for n in reads if n not in received and n in kept]
        self._read = [n for n in reads if n not in received and n not in kept]
        self._kept = kept
        # Compiled for each set of names given, and their sizes; state comes in buffers that are given away.
        self._compiled = jax.jit(self._step, donate_argnums=0)
        self._rooms = Rooms()

    def _is_kept(self, name: str, read_elsewhere: Collection[str]) -> bool:
        """Whether to keep a result: state and, as in Fluid, merged gradients, except sparse ones, which are unused."""
        var = self._program.find_var(0, name)
        if name in self._received and (var is None or var.type == SELECTED_ROWS):
            return False
        return name in read_elsewhere or (var is not None and var.persistable)

    def run(self, state: State, given: Mapping[str, Any]) -> None:
        """Run on the state and those values that are ``given``; store the results."""
        given = {name: self._rooms.taken(name, value) for name, value in given.items() if name in self.given}
        replaced, read = state.gather(self._replaced), state.gather(self._read)
        state.store(jax.block_until_ready(self._compiled(replaced, read, given)))

    def _step(self, replaced: dict[str, Any], read: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        env = {**replaced, **read, **given}
        Runner(self._program).run_ops(self._runnable(given), env)
        return {name: env[name] for name in self._kept if name in env}

    def _runnable(self, given: Mapping[str, Any]) -> list[OpView]:
        """The ops, excluding those of blocks for which no value was given."""
        missing = {n for n in self.given if n not in given}
        idle = {op.block_idx for op in self._ops if self._has_nothing(op, missing)}
        return [op for op in self._ops if op.block_idx not in idle]

    def _has_nothing(self, op: OpView, missing: set[str]) -> bool:
        """Whether the op sums values sent by trainers and none was sent."""
        sent = {name for name in op.input_names() if name in self.given}
        return op.type == "sum" and bool(sent) and sent <= missing
