"""What one server holds: the state in its scope, the blocks that change it, and the names that it offers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fluidjax.base.scope import Scope
from fluidjax.distributed.blocks import Update
from fluidjax.distributed.requests import RefusedError
from fluidjax.execution.buckets import bucket
from fluidjax.execution.state import gather_plain, gather_values, on_host
from fluidjax.execution.writer import write_back
from lowering import dtypes
from lowering.engine.dataflow import block_uses
from lowering.program import OpView, ProgramView, VarView
from lowering.values import SelectedRows

_COUNTER = "@LR_DECAY_COUNTER@"


class Shard:
    """The part of a model that the server of a ``listen_and_serv`` op holds.

    Attributes:
        blocks: merged gradient -> the block that uses it.
        received: names that trainers send.
        held: names that they may ask for.
        tables: sparse gradient -> the parameter that it is for.
        counters: variables that count trainers' steps.
        compensates: whether gradients are compensated for what happened since their trainer saw the parameter.
    """

    def __init__(self, program: ProgramView, op: OpView, scope: Scope) -> None:
        self.scope = scope
        self._program = program
        self.blocks = {name: int(block) for name, block in map(_pair, op.attrs["grad_to_block_id"])}
        self._optimizing = [int(block) for block in op.attrs["optimize_blocks"]]
        self.decay = int(op.attrs["lr_decay_block_id"])
        self.received = {*op.inputs.get("X", ()), *self.blocks, *self._sent()}
        declared = program.blocks[0].vars
        self.held = {name for name, var in declared.items() if var.persistable} - set(self.blocks)
        self.counters = {name for name in declared if name.startswith(_COUNTER + ".trainer_")}
        self.tables = dict(_pair(text) for text in op.attrs["sparse_grad_to_param"])
        self.compensates = bool(op.attrs.get("dc_asgd"))
        self._updates: dict[tuple[int, ...], Update] = {}

    def _sent(self) -> list[str]:
        """What blocks add up."""
        ops = (op for block in self.blocks.values() for op in self._program.blocks[block].ops if op.type == "sum")
        return [name for op in ops for name in op.input_names() if ".trainer_" in name]

    # State.

    def values(self, names: Iterable[str]) -> list[Any]:
        """The values under names, on the host. RefusedError for a name that the program does not hold."""
        names = list(names)
        for name in names:
            if name not in self.held:
                raise RefusedError(f"the server's program holds no variable {name!r}")
        found = gather_values(self.scope, names, exact=True)
        for name in names:
            if name not in found:
                raise RefusedError(f"variable {name!r} has no value: run the server's startup program first")
        return on_host([found[name] for name in names])

    def rows(self, name: str, ids: np.ndarray) -> np.ndarray:
        """Rows of a table. RefusedError for a name that the program does not hold, and for ids outside of it."""
        plain = gather_plain(self.scope, [name]) if name in self.held else None
        if plain is None:
            raise RefusedError(f"the server's program holds no table {name!r}")
        table = plain[0]
        if ids.size and not 0 <= ids.min() <= ids.max() < table.shape[0]:
            raise RefusedError(f"an id outside of the {table.shape[0]} rows of {name!r}: {ids.min()} to {ids.max()}")
        room = np.zeros(bucket(ids.size), np.int32)
        room[: ids.size] = ids
        return np.asarray(_taken(table, room))[: ids.size]

    def height(self, table: str) -> int:
        """How many rows a table has."""
        var = self._program.find_var(0, table)
        assert var is not None
        return var.shape[0]

    def store(self, values: Mapping[str, Any]) -> None:
        """Keep values."""
        write_back(self.scope, values)

    # Blocks.

    def check_sent(self, items: Iterable[tuple[str, Any]]) -> None:
        """RefusedError for a name that no block of the program takes, and for a value that it does not declare so."""
        for name, value in items:
            if name not in self.received:
                raise RefusedError(f"the server's program takes no variable {name!r}")
            var = self._program.find_var(0, name)
            fault = None if var is None else _fault(value, var)
            if fault:
                raise RefusedError(f"variable {name!r}: {fault}")

    def update_all(self, given: Mapping[str, Any]) -> None:
        """Run the schedule and all blocks."""
        self._update(tuple(self._optimizing)).run(self.scope, given)

    def update(self, name: str, given: Mapping[str, Any]) -> None:
        """Run the block of a merged gradient."""
        self._update((self.blocks[name],)).run(self.scope, given)

    def decay_rate(self) -> None:
        """Run the schedule."""
        self._update((self.decay,)).run(self.scope, {})

    def _update(self, blocks: tuple[int, ...]) -> Update:
        if blocks not in self._updates:
            others = [b for b in self._optimizing if b not in blocks]
            read = {name for block in others for name in block_uses(self._program, block)}
            self._updates[blocks] = Update(self._program, blocks, self.received, read)
        return self._updates[blocks]


def _fault(value: Any, var: VarView) -> str | None:
    """What is wrong with a value that a trainer sent for a variable."""
    if value is None:
        return "there is no value"
    dtype = dtypes.to_numpy(var.dtype)
    if value.dtype != dtype:
        return f"the program declares {dtype}, the trainer sent {value.dtype}"
    declared, shape = var.shape, tuple(value.shape)
    if isinstance(value, SelectedRows):
        declared, shape = declared[1:], tuple(value.values.shape[1:])
    if len(declared) != len(shape) or any(a >= 0 and a != b for a, b in zip(declared, shape, strict=True)):
        return f"the program declares the shape {list(declared)}, the trainer sent {list(shape)}"
    return None


def _pair(text: str) -> tuple[str, str]:
    name, _, block = text.rpartition(":")
    return name, block


@jax.jit
def _taken(table: Any, ids: Any) -> Any:
    return jnp.take(table, ids, axis=0, mode="clip")
