"""Lookups in tables held by servers."""

from __future__ import annotations

from typing import Any

import numpy as np

from lowering.engine.host import service
from lowering.errors import OpError
from lowering.ops.distributed.parts import ids_of, like_ids
from lowering.program import OpView, VarInfo, VarOf
from lowering.registry import Long, Longs, Value, op


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


@op(out="Outputs*", kind="host", lod={"Outputs": "ids"}, infer=_rows_of_w)
def distributed_lookup_table(
    ids: list[Value],
    w: Value,
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
    numbers = [ids_of(value) for value in ids]
    distinct, places = np.unique(np.concatenate(numbers), return_inverse=True)
    rows = service("lookup")(trainer_id, endpoints, table_names, distinct, height_sections)
    if padding_idx >= 0:
        rows[distinct == padding_idx] = 0
    parts = np.split(places, np.cumsum([len(n) for n in numbers])[:-1])
    return [like_ids(value, rows[part]) for value, part in zip(ids, parts, strict=True)]


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
