"""One server's part of the model: its state in the scope, the blocks that update it, and the names it serves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fluidjax.base.scope import Scope
from fluidjax.distributed.blocks import Update
from fluidjax.distributed.requests import RefusedError
from fluidjax.distributed.tables import Table
from fluidjax.execution.rooms.buckets import bucket
from fluidjax.execution.scopes.state import distinct, gather_plain, gather_values, on_host
from fluidjax.execution.scopes.writer import write_back
from fluidjax.files.tensor import RowsValue
from lowering import dtypes
from lowering.engine.dataflow import all_writes, block_uses
from lowering.program import OpView, ProgramView, VarView
from lowering.values import SelectedRows

_GEO = 3
_COUNTER = "@LR_DECAY_COUNTER@"
_KEPT = 1024  # forms


class Shard:
    """The part of a model held by the server of a ``listen_and_serv`` op.

    Attributes:
        blocks: maps merged gradients to the blocks that apply them.
        received: names that trainers send.
        held: names that trainers may request.
        declared: all variables of the program.
        tables: maps sparse deltas to their parameters, of which trainers ask for what changed (Geo-SGD only).
        counters: variables that count the trainers' steps.
        compensates: whether to correct gradients for updates made since their trainer read the parameter.
    """

    def __init__(self, program: ProgramView, op: OpView, scope: Scope) -> None:
        self.scope = scope
        self._program = program
        self.blocks = {name: int(block) for name, block in map(_pair, filter(None, op.attrs["grad_to_block_id"]))}
        self._optimizing = [int(block) for block in op.attrs["optimize_blocks"]]
        self.decay = int(op.attrs["lr_decay_block_id"])
        self.received = {*op.inputs.get("X", ()), *self.blocks, *self._sent()}
        self.declared = program.blocks[0].vars
        self.held = {name for name, var in self.declared.items() if var.persistable} - set(self.blocks)
        # A server written by hand names no gradients; it serves what its blocks write and what its scope began with.
        self._results: set[str] = set() if self.blocks else self._written()
        self.held |= self._results | (set() if self.blocks else set(scope.local_var_names()) - self.received)
        self.counters = {name for name in self.declared if name.startswith(_COUNTER + ".trainer_")}
        geo = int(op.attrs["distributed_mode"]) == _GEO
        self.tables = dict(_pair(text) for text in op.attrs["sparse_grad_to_param"]) if geo else {}
        self.compensates = bool(op.attrs.get("dc_asgd"))
        self._growing = {name: Table(scope, name) for name in self._grown()}
        self._prefetched = self._prefetches(op)
        self._table_of = {sent: table for table in self._growing for sent in self._gradients(table)}
        self.number = int(op.attrs["pserver_id"])
        self._updates: dict[tuple[int, ...], Update] = {}
        self._taken: set[Any] = set()  # forms of values that were sent and are what the program declares

    def _sent(self) -> list[str]:
        """The names summed by the blocks."""
        ops = (op for block in self.blocks.values() for op in self._program.blocks[block].ops if op.type == "sum")
        return [name for op in ops for name in op.input_names() if ".trainer_" in name]

    def _written(self) -> set[str]:
        """Outer variables written by the blocks."""
        written = {name for block in self._optimizing for name in all_writes(self._program, block)}
        return (written & self.declared.keys()) - self.received

    # Tables that grow.

    def _grown(self) -> list[str]:
        """Tables updated by blocks."""
        ops = (op for block in self.blocks.values() for op in self._program.blocks[block].ops)
        params = (name for op in ops for name in op.inputs.get("Param", ()))
        return [name for name in params if self._kind(name) == dtypes.SELECTED_ROWS]

    def _kind(self, name: str) -> int | None:
        var = self._program.find_var(0, name)
        return None if var is None else var.type

    def _gradients(self, table: str) -> list[str]:
        """The names that trainers send for a table."""
        blocks = [self._program.blocks[b] for b in self.blocks.values()]
        mine = [b for b in blocks if any(table in op.inputs.get("Param", ()) for op in b.ops)]
        return [name for b in mine for op in b.ops for name in op.input_names() if name in self.received]

    def _prefetches(self, op: OpView) -> dict[str, str]:
        """Maps the names under which trainers request rows to tables."""
        found = {}
        for name, block in map(_pair, op.attrs["prefetch_var_name_to_block_id"]):
            found[name] = next(o.inputs["W"][0] for o in self._program.blocks[int(block)].ops if "W" in o.inputs)
        return found

    def table_file(self, name: str) -> RowsValue:
        """The file content of a growing table. Raises RefusedError for any other name."""
        if name not in self._growing:
            raise RefusedError(f"the server's program has no table {name!r} to save")
        return self._growing[name].file_value()

    # State.

    def gather(self, names: Sequence[str]) -> dict[str, Any]:
        """Values by name, on the device; missing ones are omitted."""
        tables = {name: self._growing[name].values for name in names if name in self._growing}
        others = [name for name in names if name not in tables]
        plain = gather_plain(self.scope, others)
        if plain is None:
            return gather_values(self.scope, others, exact=True) | tables
        return dict(zip(others, distinct(plain), strict=True)) | tables

    def values(self, names: Iterable[str]) -> list[Any]:
        """Values by name, on the host. Raises RefusedError for a name that the program does not hold."""
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
        """Rows of a table. Raises RefusedError for a name that the program does not hold, or ids out of range."""
        growing = self._growing.get(self._prefetched.get(name, ""))
        if growing is not None:
            if ids.size and ids.min() < 0:
                raise RefusedError(f"an id below zero of {name!r}: {ids.min()}")
            places = growing.places(ids)
            return _rows(growing.values, places)
        plain = gather_plain(self.scope, [name]) if name in self.held else None
        if plain is None:
            raise RefusedError(f"the server's program holds no table {name!r}")
        table = plain[0]
        if not _within(ids, table.shape[0]):
            raise RefusedError(f"an id outside of the {table.shape[0]} rows of {name!r}: {ids.min()} to {ids.max()}")
        return _rows(table, ids)

    def height(self, table: str) -> int:
        """The number of rows of a table."""
        var = self._program.find_var(0, table)
        assert var is not None
        return var.shape[0]

    def store(self, values: Mapping[str, Any]) -> None:
        """Store values."""
        for name in self._growing:
            if name in values:
                self._growing[name].replace(values[name])
        write_back(self.scope, {name: value for name, value in values.items() if name not in self._growing})

    # Blocks.

    def check_sent(self, items: Iterable[tuple[str, Any]]) -> None:
        """Raise RefusedError for a name that no block consumes, or a value that differs from its declaration."""
        for name, value in items:
            form = _form(name, value)
            if form in self._taken:
                continue
            if name not in self.received:
                raise RefusedError(f"the server's program takes no variable {name!r}")
            var = self._program.find_var(0, name)
            fault = None if var is None else _fault(value, var)
            if fault:
                raise RefusedError(f"variable {name!r}: {fault}")
            if len(self._taken) < _KEPT:
                self._taken.add(form)

    def update_all(self, given: Mapping[str, Any]) -> None:
        """Run the schedule and all blocks."""
        if self.decay >= 0 and self.decay not in self._optimizing:
            self.decay_rate()
        self._update(tuple(self._optimizing)).run(self, self._localized(given))

    def update(self, name: str, given: Mapping[str, Any]) -> None:
        """Run the block of a merged gradient."""
        self._update((self.blocks[name],)).run(self, self._localized(given))

    def decay_rate(self) -> None:
        """Run the learning-rate schedule."""
        self._update((self.decay,)).run(self, {})

    def _localized(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Gradients of growing tables indexed by row position; all rows are located before any table is used."""
        mine = {name: self._growing[self._table_of[name]] for name in given if name in self._table_of}
        for name, table in mine.items():
            table.places(given[name].rows)
        return {name: mine[name].localized(value) if name in mine else value for name, value in given.items()}

    def _update(self, blocks: tuple[int, ...]) -> Update:
        if blocks not in self._updates:
            others = [b for b in self._optimizing if b not in blocks]
            read = {name for block in others for name in block_uses(self._program, block)}
            self._updates[blocks] = Update(self._program, blocks, self.received, read | self._results)
        return self._updates[blocks]


def _form(name: str, value: Any) -> Any:
    """What decides whether a value is what the program declares under its name."""
    if value is None:
        return name
    rows = isinstance(value, SelectedRows)
    return name, rows, value.dtype, value.values.shape[1:] if rows else value.shape


def _fault(value: Any, var: VarView) -> str | None:
    """A description of what is wrong with a value sent for a variable, or None."""
    if value is None:
        return "there is no value"
    dtype = dtypes.to_numpy(var.dtype)
    if value.dtype != dtype:
        return f"the program declares {dtype}, the trainer sent {value.dtype}"
    if isinstance(value, SelectedRows) != (var.type == dtypes.SELECTED_ROWS):
        return f"the program declares {'rows' if var.type == dtypes.SELECTED_ROWS else 'a tensor'}, not what was sent"
    declared, shape = var.shape, tuple(value.shape)
    if isinstance(value, SelectedRows):
        declared, shape = declared[1:], tuple(value.values.shape[1:])
    if len(declared) != len(shape) or any(a >= 0 and a != b for a, b in zip(declared, shape, strict=True)):
        return f"the program declares the shape {list(declared)}, the trainer sent {list(shape)}"
    return None


def _pair(text: str) -> tuple[str, str]:
    name, _, block = text.rpartition(":")
    return name, block


def _within(ids: np.ndarray, height: int) -> bool:
    """Whether all ids are rows of a table. As unsigned numbers, those below zero are above every height."""
    unsigned = ids.view(f"u{ids.dtype.itemsize}")
    return not ids.size or bool(np.maximum.reduce(unsigned) < height)


def _rows(table: Any, ids: np.ndarray) -> np.ndarray:
    if table.device.platform == "cpu" and table.dtype.kind in "fiu":
        # Read where it is. The view ends here: a buffer that anybody sees is not given away to the next update.
        return np.asarray(memoryview(table)).take(ids, axis=0)
    room = np.zeros(bucket(ids.size), np.int32)
    room[: ids.size] = ids
    return np.asarray(_taken(table, room))[: ids.size]


@jax.jit
def _taken(table: Any, ids: Any) -> Any:
    return jnp.take(table, ids, axis=0, mode="clip")
