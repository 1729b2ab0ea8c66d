"""Lookups in tables held by servers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lowering.engine.host import service
from lowering.errors import OpError
from lowering.ops.distributed.parts import ids_of, like_ids
from lowering.program import OpView, VarInfo, VarOf
from lowering.registry import Long, Longs, Value, op
from lowering.values import Meta


def _rows_of_w(op_view: OpView, var_of: VarOf) -> dict[str, VarInfo]:
    """Outputs [n, width of W] for Ids [n, 1]; declared as [n, 1, width] in the place of a lookup_table_v2."""
    table = var_of(op_view.inputs["W"][0])
    found = {}
    for name, ids_name in zip(op_view.outputs["Outputs"], op_view.inputs["Ids"], strict=True):
        ids = var_of(ids_name)
        if ids is None or table is None:
            continue
        if len(ids.shape) != 2:
            raise OpError(
                f"op distributed_lookup_table: ids {ids_name} of shape {list(ids.shape)}: expected two dimensions,"
                f" [n, 1], received {len(ids.shape)}; look up ids of shape [n, 1] in a table with is_sparse=True"
            )
        rows = ids.shape[:1] if op_view.attrs["lookup_table_version"] == "lookup_table" else ids.shape
        found[name] = VarInfo((*rows, *table.shape[1:]), None, ids.lod_level)
    return found


@dataclass(frozen=True)
class Lookup:
    """What one op looks up.

    Attributes:
        endpoints, tables, heights: of the table's parts, one of each; the last part has the rest of the rows.
        rows: how many there are at least.
        ids: rising and each once.
        values: what they were taken from.
        places: where each value's ids are among them.
    """

    endpoints: list[str]
    tables: list[str]
    heights: list[int]
    rows: int
    ids: np.ndarray
    values: list[Value]
    places: list[np.ndarray]

    @classmethod
    def of(cls, view: OpView, values: list[Value], rows: int) -> Lookup:
        """What an op looks up for the values of its Ids, in a table declared with so many rows."""
        numbers = [ids_of(value) for value in values]
        ids, places = np.unique(np.concatenate(numbers), return_inverse=True)
        parts = np.split(places, np.cumsum([len(n) for n in numbers])[:-1])
        endpoints, tables, heights = (view.attrs[name] for name in ("endpoints", "table_names", "height_sections"))
        return cls(endpoints, tables, heights, max(rows, sum(heights)), ids, values, parts)


def _found(ctx: Any, trainer: int) -> tuple[Lookup, np.ndarray]:
    """What the op looks up, and its rows; all later look-ups whose ids are there, too, are asked for with it."""
    kept, block = ctx.runner.outside.kept, ctx.runner.program.blocks[ctx.op.block_idx]
    key, own = (Lookup, ctx.op.index), _ids_in(ctx, ctx.op)
    known = kept.pop(key, None)
    if known is not None and all(a is b for a, b in zip(known[0].values, own, strict=True)):
        return known
    later = [ctx.op, *(o for o in block.ops[ctx.op.index + 1 :] if o.type == ctx.op.type)]
    ready = [o for o in later if all(name in ctx.env for name in o.inputs["Ids"])]
    lookups = [Lookup.of(o, _ids_in(ctx, o), _height(ctx, o)) for o in ready]
    for view, lookup, rows in zip(ready, lookups, service("lookup")(trainer, lookups), strict=True):
        kept[Lookup, view.index] = lookup, rows
    return kept.pop(key)


def _height(ctx: Any, view: OpView) -> int:
    """The rows that a trainer's own variable has, or is declared with."""
    name = view.inputs["W"][0]
    var = ctx.runner.program.find_var(view.block_idx, name)
    shape = ctx.env[name].shape if name in ctx.env else () if var is None else var.shape
    return shape[0] if shape else 0


def _ids_in(ctx: Any, view: OpView) -> list[Value]:
    return [ctx.env[name] for name in view.inputs["Ids"]]


@op(out="Outputs*", kind="host", lod={"Outputs": "ids"}, infer=_rows_of_w, moves="early")
def distributed_lookup_table(
    ids: list[Value],
    w: Meta,
    *,
    table_names: list[str] = [""],  # noqa: B006
    height_sections: Longs = [],  # noqa: B006
    endpoints: list[str] = ["127.0.0.1:6164"],  # noqa: B006
    trainer_id: int = 0,
    lookup_table_version: str = "lookup_table",
    padding_idx: Long = -1,
    dtype: int = 5,
    ctx: Any,
):
    """Outputs, for each of Ids, = its rows of the table, sharded over the endpoints by ``height_sections``."""
    lookup, rows = _found(ctx, trainer_id)
    if padding_idx >= 0:
        rows[lookup.ids == padding_idx] = 0
    return [like_ids(value, rows[part]) for value, part in zip(ids, lookup.places, strict=True)]


def _looked_up(op_view: OpView, var_of: VarOf) -> dict[str, VarInfo]:
    """Fluid takes the number of dimensions of Ids, which is 2, for their number."""
    table = var_of(op_view.inputs["W"][0])
    out = op_view.outputs["Out"][0]
    return {} if table is None else {out: VarInfo((2, *table.shape[1:]), None, None)}


@op(kind="host", lod=None, infer=_looked_up)
def lookup_sparse_table(
    w: Value, ids: Value, *, padding_idx: Long = -1, auto_grown_table: bool = True, is_test: bool = False, ctx: Any
):
    """Out = rows of the table W, on the server that holds it; missing rows are zeros.

    In the block of a server's program, the op tells the server which table trainers look up, and may add rows to.
    """
    numbers = ids_of(ids)
    held = np.asarray(w.rows)[: None if w.nrows is None else int(w.nrows)]
    values = np.asarray(w.values)
    place = {int(number): index for index, number in enumerate(held)}
    rows = np.zeros((len(numbers), *values.shape[1:]), values.dtype)
    for index, number in enumerate(numbers.tolist()):
        if number in place and number != padding_idx:
            rows[index] = values[place[number]]
    return rows
