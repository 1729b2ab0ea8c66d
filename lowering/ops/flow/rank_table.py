"""Rank tables, steps of variable-length sequences, and splitting and merging rows by a mask."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from lowering.dtypes import INT64
from lowering.engine.checks import needing
from lowering.engine.context import Context
from lowering.engine.gradients.grad_maker import GradMaker
from lowering.errors import NeedsExact, SlotError
from lowering.loops import ranks
from lowering.loops.arrays import gradient_like
from lowering.loops.carried import known, known_int, scalar, zero_gradient
from lowering.ops.flow.arrays import forward_array, forward_value, shape_like
from lowering.program import EMPTY, OpSpec, OpView, VarInfo
from lowering.ragged.reorder import partition, pick
from lowering.ragged.rows import row_numbers, take
from lowering.registry import Value, op
from lowering.symbols import number
from lowering.values import LoDArray, RankTable, TensorArray, fill_padding


def as_lod(value: Any, slot: str, ctx: Context) -> LoDArray:
    """A tensor as a LoDArray; SlotError when the variable has no value or holds something else."""
    if isinstance(value, LoDArray):
        return value
    if value is None or not hasattr(value, "shape"):
        raise SlotError(
            f"op {ctx.op.type} (#{ctx.op.number}) expects a tensor in slot {slot} ({ctx.op.inputs.get(slot)}), received"
            f" {'nothing' if value is None else type(value).__name__}; compute or feed it before"
        )
    return LoDArray(value)


def unwrap(value: LoDArray) -> Any:
    """The bare array when a LoDArray says nothing more."""
    return value if value.lod or value.padded else value.data


@op(kind="block", infer=lambda op, var_of: {})
def lod_rank_table(x: Value, *, level: int = 0, ctx):
    """Out = the sequences of X at LoD ``level`` as (index, length), longest first, ties in their original order."""
    return ranks.rank_table(as_lod(x, "X", ctx), level)


def _one_int64(op: OpView, var_of: Any) -> dict[str, VarInfo]:
    return {n: VarInfo((1,), INT64) for n in op.outputs.get("Out") or ()}


@op(kind="block", infer=_one_int64)
def max_sequence_len(rank_table: RankTable, *, ctx):
    """Out = [length of the longest sequence in the table], int64; 0 for an empty table."""
    lens = rank_table.lengths
    if not lens.shape[0]:
        return np.zeros(1, np.int64)
    if known(lens) is not None:
        return np.asarray(known(lens))[:1].astype(np.int64)
    ctx.runner.bounds[ctx.op.outputs["Out"][0]] = rank_table.longest
    return lens[:1].astype(jnp.int64)


@op(kind="block", infer=shape_like("Out", "X", -1))
def lod_tensor_to_array(x: Value, rank_table: RankTable, *, ctx):
    """Out[t] = item t of every sequence longer than t, in rank order; items are rows, or sequences a level down."""
    return ranks.steps_of(as_lod(x, "X", ctx), rank_table, backward=ctx.is_backward)


@lod_tensor_to_array.grad_maker
def _(g: GradMaker):
    inputs = {"RankTable": g.input("RankTable"), "X": g.output_grad("Out")}
    return [OpSpec("array_to_lod_tensor", inputs, {"Out": g.input_grad("X")}, g.attrs)]


@op(kind="block", infer=shape_like("Out", "X", 1))
def array_to_lod_tensor(x: Value, rank_table: RankTable, *, ctx):
    """Out = the items of each sequence, concatenated, in the original order of sequences, with the table's LoD."""
    name = ctx.op.outputs["Out"][0]
    if ctx.is_backward:
        return _gradient_of_steps(x, rank_table, forward_value(name, ctx), ctx)
    if not isinstance(x, TensorArray):
        raise SlotError(f"op array_to_lod_tensor got no array in {ctx.op.inputs['X']}; write its elements before")
    if not x.stacked:
        return ranks.sequences_of(x, rank_table, ranks.rows_of(x, rank_table), backward=False)
    key = f"rows/{name}"
    most = ranks.most_rows(x, rank_table)
    room = ctx.runner.capacity(key, ranks.rows_of(x, rank_table), most)
    whole = ranks.sequences_of(x, rank_table, room, backward=False)
    if len(whole.lod) > len(rank_table.lod) and room < most:
        ctx.runner.overflow(key, needing(whole.lod[-1][-1], room))
    return whole


def _gradient_of_steps(x: Any, table: RankTable, forward: Any, ctx: Context) -> Any:
    """The gradient of lod_tensor_to_array has the rows and the LoD of what was taken apart."""
    base = forward_array(ctx.op.inputs["X"][0], ctx)
    if base is not None:
        x = gradient_like(x, base, whole=True)
    if not isinstance(x, TensorArray):
        raise SlotError(f"op array_to_lod_tensor got no array in {ctx.op.inputs['X']}; run its forward op before")
    room = forward.capacity if isinstance(forward, LoDArray) else ranks.rows_of(x, table)
    whole = ranks.sequences_of(x, table, room, backward=True)
    return forward.with_data(whole.data) if isinstance(forward, LoDArray) else whole


@array_to_lod_tensor.grad_maker
def _(g: GradMaker):
    inputs = {"RankTable": g.input("RankTable"), "X": g.output_grad("Out")}
    return [OpSpec("lod_tensor_to_array", inputs, {"Out": g.input_grad("X")}, g.attrs)]


@op(kind="block", infer=shape_like("Out", "X"))
def shrink_rnn_memory(x: Value, rank_table: RankTable, i: Value, *, ctx):
    """Out = the first rows (or sequences, if X has a LoD) of X, one for each sequence of the table longer than I."""
    x = as_lod(x, "X", ctx)
    count, step = None, known_int(i)
    if step is not None and ranks.is_known(rank_table):
        count = int(ranks.alive(rank_table, np.int32(step)))
        exact = not x.padded and all(known(o) is not None for o in x.lod)
        if exact:
            if not x.lod:
                return x.data[:count]
            host = LoDArray(x.data, tuple(np.asarray(known(o), np.int32) for o in x.lod))
            return pick(host, row_numbers(count), None, backward=False)
    if count is None:
        count = ranks.alive(rank_table, scalar(i))
    return _first(x, count)


def _first(x: LoDArray, count: Any) -> LoDArray:
    """The first ``count`` sequences of x in place: the rows after them become padding, their offsets end."""
    if not x.lod:
        return LoDArray(fill_padding(x.data, count, backward=False), (), jnp.asarray(count, jnp.int32))
    lod, end = [], jnp.asarray(count, jnp.int32)
    for off in x.lod:
        off = jnp.asarray(off)
        lod.append(jnp.minimum(off, off[end]))
        end = off[end]
    data = fill_padding(x.data, end, backward=False)
    return LoDArray(data, tuple(lod), end, jnp.asarray(count, jnp.int32), x.longest)


@shrink_rnn_memory.grad(wrt="x", slots={"d_out": "Out@GRAD"})
def _(x: Value, d_out: Value, *, ctx):
    """X@GRAD = Out@GRAD with zero rows appended."""
    like = as_lod(x, "X", ctx)
    if d_out is None:
        return zero_gradient(unwrap(like))
    d_out = as_lod(d_out, "Out@GRAD", ctx)
    data = fill_padding(d_out.data, d_out.nrows, backward=True)
    missing = like.capacity - data.shape[0]
    if missing < 0:
        raise NeedsExact("shrink_rnn_memory_grad got more gradient rows than it has rows")
    if missing:
        data = jnp.concatenate([data, jnp.zeros((missing, *data.shape[1:]), data.dtype)])
    return unwrap(like.with_data(data))


@op(kind="block", infer=shape_like("Out", "X"))
def reorder_lod_tensor_by_rank(x: Value, rank_table: RankTable, *, ctx):
    """Out = the rows (or sequences, if X has a LoD) of X in the order of the table."""
    return unwrap(_permuted(as_lod(x, "X", ctx), rank_table.index, rank_table, ctx.is_backward))


def _permuted(x: LoDArray, order: Any, table: RankTable, backward: bool) -> LoDArray:
    if x.lod and known(order) is not None and all(known(o) is not None for o in x.lod):
        x = LoDArray(x.data, tuple(np.asarray(known(o), np.int32) for o in x.lod), x.nrows, x.nseq)
        order = np.asarray(known(order))
    return pick(x, order, table.nseq, backward=backward)


@reorder_lod_tensor_by_rank.grad_maker
def _(g: GradMaker):
    inputs = {"RankTable": g.input("RankTable"), "X": g.output_grad("Out")}
    return [OpSpec("reorder_lod_tensor_by_rank_grad", inputs, {"Out": g.input_grad("X")}, g.attrs)]


@op("reorder_lod_tensor_by_rank_grad", kind="block", infer=shape_like("Out", "X"))
def reorder_lod_tensor_by_rank_grad(x: Value, rank_table: RankTable, *, ctx):
    """Out = the rows (or sequences) of X restored to their original order."""
    x = as_lod(x, "X", ctx)
    if not x.lod:
        ranked = forward_value(ctx.op.inputs["X"][0], ctx)
        if isinstance(ranked, LoDArray) and ranked.lod and ranked.capacity == x.capacity:
            x = ranked.with_data(x.data)
    index = rank_table.index
    if known(index) is not None:
        order = np.argsort(known(index), kind="stable").astype(np.int32)
    else:
        order = jnp.zeros(index.shape[0], jnp.int32).at[index].set(row_numbers(index.shape[0]))
    return unwrap(_permuted(x, order, rank_table, True))


# --- by mask ------------------------------------------------------------------------------------------------------


def _mask(mask: Any) -> Any:
    """(bool [n], number of valid entries or None)."""
    host = known(mask)
    nrows = mask.nrows if isinstance(mask, LoDArray) else None
    data = host if host is not None else (mask.data if isinstance(mask, LoDArray) else mask)
    return data.reshape(-1).astype(bool), nrows


def _both(op: OpView, var_of: Any) -> dict[str, VarInfo]:
    var = var_of(op.inputs["X"][0])
    names = [*(op.outputs.get("OutTrue") or ()), *(op.outputs.get("OutFalse") or ())]
    return {n: VarInfo(tuple(var.shape), var.dtype) for n in names if var is not None and n != EMPTY}


@op(out="OutTrue OutFalse", kind="block", infer=_both)
def split_lod_tensor(x: Value, mask: Value, *, level: int = 0, ctx):
    """OutTrue, OutFalse = the rows (or sequences of ``level``, if X has a LoD) where Mask is true, and the others."""
    x = as_lod(x, "X", ctx)
    flags, valid = _mask(mask)
    whole = _below(x, level)
    return tuple(
        unwrap(pick(whole, *partition(flags, valid, which), backward=ctx.is_backward)) for which in (True, False)
    )


@split_lod_tensor.grad_maker
def _(g: GradMaker):
    inputs = {
        "InTrue": g.output_grad("OutTrue"),
        "InFalse": g.output_grad("OutFalse"),
        "Mask": g.input("Mask"),
        "X": g.input("X"),
    }
    return [OpSpec("merge_lod_tensor", inputs, {"Out": g.input_grad("X")}, g.attrs)]


def _below(x: LoDArray, level: int) -> LoDArray:
    """x as sequences of ``level``: without the levels above."""
    return LoDArray(x.data, x.lod[level:], x.nrows) if level else x


def _merge(x: Any, mask: Any, in_true: Any, in_false: Any, level: int, ctx: Context) -> Any:
    if in_true is None and in_false is None:
        raise SlotError(f"op {ctx.op.type} (#{ctx.op.number}) has neither a true nor a false part; compute one before")
    whole = x if isinstance(x, LoDArray) else LoDArray(x)
    parts = _with_rows(in_true, in_false, ctx)
    parts = [_part(p, parts[1 - k], ctx) for k, p in enumerate(parts)]
    flags, valid = _mask(mask)
    if ctx.is_backward and len(whole.lod) > level:  # gradients have the sequences that X was split into
        parts = [
            pick(_below(whole, level), *partition(flags, valid, which), backward=True).with_data(part.data)
            for which, part in zip((True, False), parts, strict=True)
        ]
    if not any(p.lod for p in parts):
        return _merge_rows(parts, flags, valid, ctx.is_backward)
    return _merge_sequences(whole, parts, flags, valid, level, ctx)


def _with_rows(in_true: Any, in_false: Any, ctx: Context) -> list[Any]:
    """Both sides. Rows of two forms are not merged, but a side that got none, of whatever form, counts as not run."""
    sides = [value if value is None else as_lod(value, "InTrue", ctx) for value in (in_true, in_false)]
    true, false = sides
    if true is None or false is None or true.shape[1:] == false.shape[1:]:
        return sides
    if true.capacity and false.capacity and (true.padded or false.padded):
        raise NeedsExact("branches make rows of two forms, of which only one has any")
    if not true.capacity:
        return [None, false]
    return [true, false if false.capacity else None]


def _part(value: Any, other: Any, ctx: Context) -> LoDArray:
    """One side of a merge; a branch that did not run has no rows."""
    if value is not None:
        return as_lod(value, "InTrue", ctx)
    like = as_lod(other, "InTrue", ctx)
    none = tuple(np.zeros(1, np.int32) for _ in like.lod)
    return LoDArray(jnp.zeros((1, *like.shape[1:]), like.dtype), none, jnp.int32(0), jnp.int32(0) if none else None)


def _ranks(flags: Any) -> Any:
    xp: Any = np if isinstance(flags, np.ndarray) else jnp
    return xp.where(flags, xp.cumsum(flags) - 1, xp.cumsum(~flags) - 1).astype(np.int32)


def _merge_rows(parts: list[LoDArray], flags: Any, valid: Any, backward: bool) -> Any:
    true, false = parts
    xp: Any = np if isinstance(flags, np.ndarray) else jnp
    row = xp.where(flags, 0, number(true.capacity)).astype(np.int32) + _ranks(flags)
    data = take(jnp.concatenate([true.data, false.data]), row)
    if valid is None:
        return data
    return LoDArray(fill_padding(data, valid, backward=backward), (), valid)


def _merge_sequences(whole: LoDArray, parts: list[LoDArray], flags: Any, valid: Any, level: int, ctx: Context) -> Any:
    """Whole sequences, with all their levels, come from one side or the other; the levels above are X's."""
    if len(parts[0].lod) != len(parts[1].lod):
        raise SlotError(
            f"op {ctx.op.type} (#{ctx.op.number}) cannot merge InTrue with {len(parts[0].lod)} levels of sequences and"
            f" InFalse with {len(parts[1].lod)}; make both branches results of the same lod_level"
        )
    order = _ranks(flags) + number(parts[0].lod[0].shape[0]) * ~flags
    merged = pick(_joined(*parts), order, valid, backward=ctx.is_backward)
    if ctx.is_backward and whole.lod:
        return whole.with_data(merged.data[: whole.capacity])
    lod = whole.lod[:level] + merged.lod
    return LoDArray(_fitted(merged, whole, ctx), lod, merged.nrows, whole.nseq if level else merged.nseq)


def _joined(true: LoDArray, false: LoDArray) -> LoDArray:
    """The sequences of both, with one between them at each level that holds the padding of the first."""
    lod = []
    for k, (left, right) in enumerate(zip(true.lod, false.lod, strict=True)):
        shift = true.lod[k + 1].shape[0] if k + 1 < len(true.lod) else true.capacity
        xp: Any = np if isinstance(left, np.ndarray) and isinstance(right, np.ndarray) else jnp
        lod.append(xp.concatenate([left, right + number(shift)]))
    exact = not (true.padded or false.padded)
    data = jnp.concatenate([true.data, false.data])
    return LoDArray(data, tuple(lod), None if exact else number(data.shape[0]))


def _fitted(merged: LoDArray, whole: LoDArray, ctx: Context) -> Any:
    """The rows of ``merged`` in the room that X has, if that is enough: what loops carry stays as wide as it was."""
    if merged.nrows is None or len(whole.lod) < len(merged.lod):
        return merged.data
    key = f"rows/{ctx.op.outputs['Out'][0]}"
    room = ctx.runner.capacity(key, whole.capacity, merged.capacity)
    if room < merged.capacity:
        ctx.runner.overflow(key, needing(merged.nrows, room))
    return merged.data[:room]


@op(kind="block", infer=shape_like("Out", "InTrue", None))
def merge_lod_tensor(x: Value, mask: Value, in_true: Value, in_false: Value, *, level: int = 0, ctx):
    """Out = the next row (or sequence) of InTrue where Mask is true, else of InFalse, with its LoD;
    X supplies the levels above ``level``."""
    return _merge(x, mask, in_true, in_false, level, ctx)


@merge_lod_tensor.grad_maker
def _(g: GradMaker):
    outputs = {"OutTrue": g.input_grad("InTrue"), "OutFalse": g.input_grad("InFalse")}
    return [OpSpec("split_lod_tensor", {"Mask": g.input("Mask"), "X": g.output_grad("Out")}, outputs, g.attrs)]


@op(kind="block", infer=shape_like("Out", "InTrue", None))
def merge_lod_tensor_infer(x: Value, mask: Value, in_true: Value, in_false: Value, *, level: int = 0, ctx):
    """As merge_lod_tensor, without a gradient."""
    return _merge(x, mask, in_true, in_false, level, ctx)
