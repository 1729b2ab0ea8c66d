"""Values split among servers: by rows or by id, and merged again."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import jax.numpy as jnp
import numpy as np

from lowering.dtypes import SELECTED_ROWS
from lowering.engine.checks import Demand
from lowering.errors import OpError, SlotError
from lowering.program import OpSpec, OpView, VarInfo, VarOf
from lowering.registry import Longs, Value, op
from lowering.values import Form, LoDArray, SelectedRows


def _exact(x: SelectedRows) -> tuple[np.ndarray, np.ndarray]:
    """The row numbers and values of X on the host, without padding."""
    count = None if x.nrows is None else int(x.nrows)
    return np.asarray(x.rows)[:count], np.asarray(x.values)[:count]


def ids_of(value: Any) -> np.ndarray:
    """Ids in their order, without padding."""
    if isinstance(value, LoDArray):
        value = value.data if value.nrows is None else value.data[: int(value.nrows)]
    return np.asarray(value).reshape(-1)


def _bounds(sections: Sequence[int]) -> list[tuple[int, int]]:
    return list(pairwise(accumulate(sections, initial=0)))


@op(out="Out*", lod=None, linear=True)
def split_byref(x, *, sections: list[int] = [], num: int = 0, ctx):  # noqa: B006
    """Out = X split along axis 0 into ``sections``, or ``num`` equal parts."""
    if num:
        return jnp.split(x, num)
    if sum(sections) != x.shape[0]:
        raise ValueError(f"sections {list(sections)} do not add up to the {x.shape[0]} rows of X")
    return [x[begin:end] for begin, end in _bounds(sections)]


@split_byref.grad_maker
def _(g):
    return [OpSpec("concat", {"X": g.output_grad("Out")}, {"Out": g.input_grad("X")}, g.attrs)]


def _sections(op_view: OpView, var_of: VarOf) -> dict[str, VarInfo]:
    source = var_of(op_view.inputs["X"][0])
    if source is None:
        return {}
    rows = op_view.attrs["height_sections"]
    shapes = [(n, *source.shape[1:]) for n in rows]
    return {
        name: VarInfo(shape, source.dtype, None, SELECTED_ROWS)
        for name, shape in zip(op_view.outputs["Out"], shapes, strict=False)
    }


@op(out="Out*", kind="host", lod=None, infer=_sections, moves="late")
def split_selected_rows(x: Value, *, height_sections: Longs = []):  # noqa: B006
    """Out = the rows of X in each of the consecutive sections, numbered from its start."""
    if not isinstance(x, SelectedRows):
        raise SlotError(
            f"op split_selected_rows expects SelectedRows in slot X, received a {type(x).__name__}; split a dense"
            " gradient with split_byref"
        )
    rows, values = _exact(x)
    found = []
    for begin, end in _bounds(height_sections):
        own = (begin <= rows) & (rows < end)
        found.append(SelectedRows((rows[own] - begin).astype(np.int32), values[own], end - begin))
    return found


@split_selected_rows.grad_maker
def _(g):
    return [OpSpec("sum", {"X": g.output_grad("Out")}, {"Out": g.input_grad("X")}, g.attrs)]


def _kind_of_ids(op_view: OpView, var_of: VarOf) -> dict[str, VarInfo]:
    source = var_of(op_view.inputs["Ids"][0])
    return {} if source is None else {name: VarInfo(None, None, None, source.type) for name in op_view.outputs["Out"]}


@op(out="Out*", kind="host", lod=None, infer=_kind_of_ids)
def split_ids(ids: list[Value], *, ctx: Any):
    """Out number k of n = the ids with id % n == k, unique and in ascending order; for SelectedRows, all its rows."""
    count = ctx.arity("Out")
    if isinstance(ids[0], SelectedRows):
        return _rows_dealt(ids, count)
    distinct = np.unique(np.concatenate([ids_of(value) for value in ids]))
    return [distinct[distinct % count == k].reshape(-1, 1) for k in range(count)]


def _rows_dealt(ids: Sequence[Any], count: int) -> list[SelectedRows]:
    if len(ids) != 1:
        raise OpError(f"op split_ids: expected one SelectedRows in slot Ids, received {len(ids)}; split each by itself")
    rows, values = _exact(ids[0])
    own = [rows % count == k for k in range(count)]
    return [SelectedRows(rows[mine], values[mine], ids[0].height) for mine in own]


@op(out="Out*", kind="host", lod={"Out": "ids"})
def merge_ids(ids: list[Value], rows: list[Value], x: list[Value]):
    """Out, for each of Ids, = the row of X for every id; Rows holds the ids of the rows of each X."""
    numbers = np.concatenate([ids_of(value) for value in rows])
    table = np.concatenate([_data(value) for value in x])
    place = {int(number): index for index, number in enumerate(numbers)}
    return [like_ids(value, table[_places(place, ids_of(value))]) for value in ids]


def _data(value: Any) -> np.ndarray:
    if isinstance(value, LoDArray):
        value = value.data if value.nrows is None else value.data[: int(value.nrows)]
    return np.asarray(value)


def _places(place: dict[int, int], ids: np.ndarray) -> list[int]:
    missing = [int(i) for i in ids if int(i) not in place]
    if missing:
        raise OpError(
            f"op merge_ids: no row for id {missing[0]}: expected every id of Ids in Rows, found {len(place)} of them;"
            " split the same ids with split_ids"
        )
    return [place[int(i)] for i in ids]


def like_ids(ids: Any, data: np.ndarray) -> Any:
    """``data``, one row for each id, with the LoD of the ids."""
    return LoDArray(data, tuple(np.asarray(level) for level in ids.lod)) if isinstance(ids, LoDArray) else data


@op(out="Out", lod=None)
def ref_by_trainer_id(x: list, trainer_id):
    """Out = the X whose number is TrainerId."""
    return jnp.stack(x)[trainer_id.reshape(())]


@ref_by_trainer_id.check
def _(x, trainer_id):
    return [Demand("trainer_id", trainer_id, 0, len(x))]


@op(kind="host", lod=None)
def fake_init(*, shape: Longs, ctx: Any):
    """Out = that shape without elements, which servers hold. Fluid sets no height."""
    var = ctx.out_var("Out")
    form = Form(tuple(shape), np.dtype(np.float32))
    if var is not None and var.type == SELECTED_ROWS:
        return SelectedRows(np.zeros(0, np.int32), form, 0)
    return form
