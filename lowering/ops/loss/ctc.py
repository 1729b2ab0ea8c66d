"""Connectionist temporal classification: the loss, and the alignment's labels.

The labels of all sequences, with blanks between them, form one flat axis, so the recurrence does no work for padding
and needs no bound on the label length.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lowering.engine.checks import Demand, within_lengths
from lowering.ops.loss import shapes
from lowering.ops.math.extrema import at_least
from lowering.ops.sequence.pad import padded_rows, unpadded_rows
from lowering.ops.sequence.slice import compact
from lowering.ragged.rows import (
    bounds,
    lengths,
    longest,
    offsets,
    per_sequence,
    row_gradient,
    row_numbers,
    segments,
    take,
    without_lod,
)
from lowering.registry import MASKED, op
from lowering.values import Array, LoDArray, Meta, is_concrete

# Stands for log 0: far below any log probability, and finite, so that differences stay defined.
_NEVER = -1e30


class Lattice(NamedTuple):
    """The flat axis of labels and blanks, and where the frames of each sequence are.

    Attributes:
        label: int32 [e], the class at each position; ``seq`` int32 [e] its sequence, ``at`` its place therein.
        inside: bool [e], whether a position is one (padded batches have others); ``skip``: reachable from ``at`` - 2.
        count: int32 [n], positions of each sequence; ``start`` int32 [n] the first of them.
        needed: int32 [n], the least number of frames: one for each label, and one between two equal ones.
        frames: int32 [n], the number of frames; ``frame`` (sequence, step) -> row of the logits.
        steps: static bound of the frames.
    """

    label: Array
    seq: Array
    at: Array
    inside: Array
    skip: Array
    count: Array
    start: Array
    needed: Array
    frames: Array
    first: Array
    stride: int
    steps: int

    def rows(self, t: Array) -> Array:
        """int32 [e]: the row of the logits that holds step ``t`` of each position's sequence."""
        return self.first[self.seq] + jnp.minimum(t, jnp.maximum(self.frames[self.seq] - 1, 0)) * self.stride


def _lattice(labels: Array, sizes: Array, begins: Array, starts: Array, count: int, blank: int, **frames):
    """Positions of sequence i begin at ``starts[i]``, its labels at ``begins[i]`` of ``labels``."""
    edges = jnp.concatenate([starts, jnp.full(1, count, jnp.int32)])
    seq = jnp.minimum(segments(edges, row_numbers(count)), starts.shape[0] - 1)
    at = row_numbers(count) - starts[seq]
    inside = at < 2 * sizes[seq] + 1
    own = take(labels, begins[seq] + at // 2).astype(jnp.int32)
    before = take(labels, begins[seq] + at // 2 - 1).astype(jnp.int32)
    odd = at % 2 == 1
    label = jnp.where(odd & inside, own, np.int32(blank))
    later = odd & (at > 1)
    skip = later & (own != before) & (own != blank)  # a label that is the blank cannot skip one
    needed = (sizes + jnp.zeros(sizes.shape, sizes.dtype).at[seq].add(later & inside & (own == before))).astype(
        jnp.int32
    )
    return Lattice(label, seq, at, inside, skip, 2 * sizes + 1, starts, needed, **frames)


def _ragged_lattice(logits: LoDArray, label: LoDArray, blank: int) -> Lattice:
    off, tags = offsets(logits), offsets(label)
    n = off.shape[0] - 1
    if tags.shape[0] != off.shape[0]:
        raise ValueError(
            f"warpctc got {n} sequences of logits and {tags.shape[0] - 1} of labels; feed one label sequence for each"
        )
    starts = jnp.asarray(2 * tags[:-1] + row_numbers(n), jnp.int32)
    steps = int(longest(off)) if is_concrete(off) else logits.capacity
    bound = logits.longest[-1] if logits.longest else steps
    return _lattice(
        label.data.reshape(-1),
        jnp.asarray(lengths(tags)),
        jnp.asarray(tags[:-1]),
        starts,
        2 * label.capacity + n,
        blank,
        frames=jnp.asarray(lengths(off)),
        first=jnp.asarray(off[:-1]),
        stride=1,
        steps=min(steps, bound),
    )


def _padded_lattice(logits: Array, label: Array, frames: Array, sizes: Array, blank: int) -> Lattice:
    steps, n = logits.shape[:2]
    width = label.shape[1]
    rows = jnp.asarray(row_numbers(n))
    return _lattice(
        label.reshape(-1),
        jnp.minimum(sizes.reshape(-1).astype(jnp.int32), width),
        rows * width,
        rows * (2 * width + 1),
        n * (2 * width + 1),
        blank,
        frames=jnp.minimum(frames.reshape(-1).astype(jnp.int32), steps),
        first=rows,
        stride=n,
        steps=steps,
    )


def _moved(x: Array, by: int, allowed: Array) -> Array:
    """x at position e - by where ``allowed``, else never."""
    never = jnp.full(abs(by), _NEVER, x.dtype)
    moved = jnp.concatenate([never, x[:-by]]) if by > 0 else jnp.concatenate([x[-by:], never])
    return jnp.where(allowed, moved, _NEVER)


def _forward(lat: Lattice, logp: Array) -> Array:
    """[steps, e]: the log probability of all paths that reach each position in each step."""
    start = jnp.where(lat.inside & (lat.at < 2), logp[lat.rows(jnp.int32(0)), lat.label], _NEVER)
    table = jnp.full((max(lat.steps, 1), start.shape[0]), _NEVER, logp.dtype).at[0].set(start)
    total = jnp.max(lat.frames, initial=0)

    def body(state):
        t, a, table = state
        near, far = _moved(a, 1, lat.at > 0), _moved(a, 2, lat.skip)
        reached = jnp.logaddexp(jnp.logaddexp(a, near), far) + logp[lat.rows(t), lat.label]
        alive = (t < lat.frames[lat.seq]) & lat.inside
        a = jnp.where(alive, at_least(reached, _NEVER), a)
        return t + 1, a, lax.dynamic_update_index_in_dim(table, a, t, 0)

    return lax.while_loop(lambda s: s[0] < total, body, (jnp.int32(1), start, table))[2]


def _ends(lat: Lattice) -> Array:
    """bool [e]: the last label and the blank after it, where a path may end."""
    return lat.inside & (lat.at >= lat.count[lat.seq] - 2)


def _log_likelihood(lat: Lattice, table: Array) -> Array:
    """[n]: the log probability of each sequence's labels."""
    last = jnp.maximum(lat.frames - 1, 0)
    final = table[last[lat.seq], row_numbers(table.shape[1])]
    end = lat.start + lat.count - 1
    one = take(final, end)
    two = jnp.where(lat.count > 1, take(final, end - 1), _NEVER)
    return jnp.logaddexp(one, two)


def _occupancy(lat: Lattice, logp: Array, table: Array, like: Array) -> Array:
    """[rows, classes]: the probability of each class in each frame, given the labels."""
    skip_from = jnp.concatenate([lat.skip[2:], jnp.zeros(2, bool)])[: lat.skip.shape[0]]
    step_from = lat.at < lat.count[lat.seq] - 1

    def body(state):
        t, after, counts = state
        frames = lat.frames[lat.seq]
        near, far = _moved(after, -1, step_from), _moved(after, -2, skip_from)
        beta = jnp.logaddexp(jnp.logaddexp(after, near), far)
        beta = jnp.where(t == frames - 1, jnp.where(_ends(lat), 0.0, _NEVER), beta).astype(logp.dtype)
        alive = (t < frames) & lat.inside
        alpha = lax.dynamic_index_in_dim(table, t, 0, keepdims=False)
        share = jnp.where(alive, jnp.exp(alpha + beta - like[lat.seq]), 0)
        rows = lat.rows(t)
        after = jnp.where(alive, at_least(beta + logp[rows, lat.label], _NEVER), _NEVER)
        return t - 1, after, counts.at[rows, lat.label].add(share)

    start = jnp.full(lat.label.shape, _NEVER, logp.dtype)
    last = jnp.max(lat.frames, initial=0) - 1
    return lax.while_loop(lambda s: s[0] >= 0, body, (last, start, jnp.zeros_like(logp)))[2]


def _loss_and_gradient(lat: Lattice, logits: Array, valid: Array) -> tuple[Array, Array]:
    """(loss [n], its gradient [rows, classes]); both 0 where the labels do not fit into the frames.

    Labels that fit, but are never reached for one of them is the blank, have an infinite loss.
    """
    if not logits.shape[0]:  # no frames at all, hence no labels that fit
        return jnp.zeros(lat.frames.shape, logits.dtype), logits
    logp = jax.nn.log_softmax(logits, axis=1)
    table = _forward(lat, logp)
    like = _log_likelihood(lat, table)
    possible = (like > _NEVER / 2) & (lat.frames > 0)
    counts = _occupancy(lat, logp, table, jnp.where(possible, like, 0))
    grad = jnp.where(valid & jnp.any(counts > 0, axis=1), 1, 0)[:, None] * jnp.exp(logp) - counts
    never = jnp.where(lat.needed <= lat.frames, jnp.inf, 0).astype(like.dtype)
    return jnp.where(possible, -like, never), grad


@op(out="WarpCTCGrad~ Loss", slots={"warpctc_grad": "WarpCTCGrad"}, rows=MASKED, lod=None, diff="logits",
    infer=shapes.warpctc)  # fmt: skip
def warpctc(
    logits: LoDArray, label: LoDArray, logits_length=None, label_length=None, *, blank: int = 0,
    norm_by_times: bool = False,
):  # fmt: skip
    """Loss[i] = -log of the probability that softmax(Logits) of sequence i, merged and without blanks, spells label i.

    Logits [rows, classes] and Label [rows, 1] with LoD, or padded ones [steps, n, classes] and [n, width] with their
    lengths. WarpCTCGrad is the gradient with respect to Logits
    (by step, or by row if the LoD is not known while tracing). Labels too long for the frames cost 0.
    """
    if logits_length is None:
        lat = _ragged_lattice(logits, label, blank)
        valid = row_numbers(logits.capacity) < offsets(logits)[-1]
        numbers, grad = _loss_and_gradient(lat, logits.data, valid)
        loss, off = without_lod(per_sequence(logits, numbers[:, None])), offsets(logits)
        if is_concrete(off):  # Fluid's layout [steps, n, classes], whose shape a traced LoD cannot give
            return padded_rows(grad, off, lat.steps, jnp.zeros((), grad.dtype)).swapaxes(0, 1), loss
        return logits.with_data(grad), loss
    lat = _padded_lattice(logits.data, label.data, logits_length, label_length, blank)
    steps, n, classes = logits.shape
    valid = (row_numbers(steps)[:, None] < lat.frames[None, :]).reshape(-1)
    loss, grad = _loss_and_gradient(lat, logits.data.reshape(-1, classes), valid)
    return grad.reshape(logits.shape), loss[:, None]


@warpctc.check
def _(logits: Meta, label, label_length=None):
    return [Demand("label", within_lengths(label, label_length), 0, logits.shape[-1])]


@warpctc.grad(loops=True)
def _(logits: Meta, warpctc_grad, d_loss, logits_length=None, *, norm_by_times=False):
    if logits_length is None:
        off = offsets(logits)
        seg, start, end = bounds(off, logits.capacity)
        scale = take(d_loss.reshape(-1), seg)
        scale = scale / jnp.maximum(end - start, 1) if norm_by_times else scale
        rows = warpctc_grad
        if rows.ndim == 3:
            rows = unpadded_rows(rows.swapaxes(0, 1), off, logits.capacity)
        return row_gradient(logits, rows * scale[:, None].astype(rows.dtype))
    scale = d_loss.reshape(1, -1, 1)
    if norm_by_times:
        scale = scale / jnp.maximum(logits_length.reshape(1, -1, 1), 1)
    return warpctc_grad * scale.astype(warpctc_grad.dtype)


def _kept(x: Array, before: Array, starts: Array, blank: int, merge_repeated: bool) -> Array:
    repeated = (x == before) & ~starts if merge_repeated else jnp.zeros(x.shape, bool)
    return (x != np.asarray(blank, x.dtype)) & ~repeated


@op(out="Output OutputLength?", rows=MASKED, lod=None, diff="", infer=shapes.ctc_align)
def ctc_align(
    input: LoDArray, input_length=None, *, blank: int = 0, merge_repeated: bool = True, padding_value: int = 0
):
    """Input, repeats merged and blanks removed: rows with LoD, or a padded batch [n, width] with InputLength [n, 1].

    If no rows are left at all, Output is a single row -1 that belongs to no sequence.
    """
    if input_length is not None:
        return _padded_align(input.data, input_length, blank, merge_repeated, padding_value)
    flat = input.data.reshape(-1)
    _, start, _ = bounds(offsets(input), input.capacity)
    before = jnp.concatenate([flat[:1], flat[:-1]])
    keep = _kept(flat, before, row_numbers(input.capacity) == start, blank, merge_repeated)
    out = compact(input, keep)
    total = jnp.asarray(out.lod[-1][-1], jnp.int32)
    data = jnp.where(total > 0, out.data, jnp.asarray(-1, out.dtype)).reshape(-1, 1)
    return LoDArray(data, out.lod, jnp.maximum(total, 1), out.nseq), None


def _padded_align(x: Array, length: Array, blank: int, merge_repeated: bool, padding_value: int):
    n, width = x.shape[:2]
    x = x.reshape(n, width)
    starts = np.broadcast_to(row_numbers(width)[None, :] == 0, (n, width))
    before = jnp.concatenate([x[:, :1], x[:, :-1]], axis=1)
    keep = _kept(x, before, starts, blank, merge_repeated)
    keep = keep & (row_numbers(width)[None, :] < length.reshape(-1, 1))
    place = jnp.where(keep, jnp.cumsum(keep, axis=1) - 1, width)
    out = jnp.full((n, width), padding_value, x.dtype)
    out = out.at[row_numbers(n)[:, None], place].set(x, mode="drop")
    return out, jnp.sum(keep, axis=1, keepdims=True).astype(x.dtype)
