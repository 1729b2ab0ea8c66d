"""Linear-chain conditional random fields: the cost of a labelling, its gradient, and the best labelling.

A Transition [K + 2, K] holds the start weights, the end weights, and the weights from tag i to tag j. Sequences are
LoD rows, or a padded batch [n, width, K] with Length.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from lowering.engine.checks import Demand, within_lengths
from lowering.errors import NeedsExact
from lowering.ops import fitting
from lowering.ops.loss import shapes
from lowering.ragged.rows import (
    offsets,
    per_row,
    per_sequence,
    row_gradient,
    row_numbers,
    segment_sum,
    stretch,
    take,
    without_lod,
)
from lowering.ragged.time_major import Order, alive_rows, pack, pack_padded, run_backward, run_forward
from lowering.registry import Masked, op
from lowering.values import Array, LoDArray, Meta


class Chains(NamedTuple):
    """The rows of all sequences; ``valid`` masks padding."""

    p: Order
    x: Array
    valid: Array

    @property
    def first(self) -> Array:
        """bool [rows]: where sequences start."""
        return self.p.first & self.valid

    @property
    def last(self) -> Array:
        """bool [rows]: where they end."""
        return row_numbers(self.x.shape[0]) == self.p.end - 1

    def sums(self, rows: Array) -> Array:
        """[n, 1]: sums of [rows] over the valid rows of each sequence."""
        return segment_sum(jnp.where(self.valid, rows, 0), self.p.seg, self.p.n)[:, None]


def _chains(emission: LoDArray | Meta, rows: Array, length: Array | None) -> Chains:
    x = rows.reshape(-1, emission.shape[-1])
    if length is None:
        p = pack(emission, offsets(emission))
    elif emission.nrows is not None:
        raise NeedsExact("Length says nothing of padding rows")
    else:
        p = pack_padded(emission.shape, length)
    return Chains(p, x, row_numbers(x.shape[0]) < p.end)


def _restored(emission: LoDArray, length: Array | None, rows: Array) -> Any:
    """Rows as the op's output: as many as emissions, without their LoD, or in the shape of the padded batch."""
    if length is None:
        return without_lod(per_row(emission, rows))
    return rows.reshape(emission.shape[:2] + rows.shape[1:])


def _alpha(c: Chains, exps: Array, w: Array) -> tuple[Array, Array]:
    """(normalized forward variables, their norms [rows, 1]) in row order."""

    def step(before, x, alive):
        a = before * x
        norm = jnp.sum(a, axis=1, keepdims=True)
        a = a / norm
        return jnp.dot(a, w[2:]), (a, norm)

    start = jnp.broadcast_to(w[:1], (c.p.n, exps.shape[1]))
    a, norm = run_forward(c.p, step, start, c.p.packed(exps))
    return c.p.unpacked(a), c.p.unpacked(norm)


def _score(c: Chains, tags: Array, transition: Array) -> Array:
    """[rows]: what each row adds to the score of the given tags."""
    own = jnp.take_along_axis(c.x, tags[:, None], axis=1)[:, 0]
    before = jnp.concatenate([tags[:1], tags[:-1]])
    moved = jnp.where(c.first, transition[0, tags], transition[2 + before, tags])
    return own + moved + jnp.where(c.last, transition[1, tags], 0)


def _tags(label: Array) -> Array:
    return label.reshape(-1).astype(jnp.int32)


@op(
    out="Alpha~ EmissionExps~ TransitionExps~ LogLikelihood",
    rows=Masked("label"),
    lod=None,
    diff="emission transition",
    infer=shapes.linear_chain_crf,
)
def linear_chain_crf(emission: LoDArray, transition, label, length=None):
    """LogLikelihood[i] = log Z(X_i) - score(X_i, label_i): the cost of the given tags, 0 for an empty sequence.

    score sums the emission of each tag, the weights between neighbours, and the start and end weights; Z sums exp of
    it over all labellings (forward algorithm, normalised at each step).
    """
    c = _chains(emission, emission.data, length)
    peak = jnp.max(c.x, axis=1, keepdims=True)
    exps, w = jnp.exp(c.x - peak), jnp.exp(transition)
    alpha, norm = _alpha(c, exps, w)
    log_z = (peak + jnp.log(norm))[:, 0]
    log_z = log_z + jnp.where(c.last, jnp.log(jnp.sum(alpha * w[1], axis=1)), 0)
    cost = c.sums(log_z - _score(c, _tags(label), transition))
    if length is not None:
        alpha = jnp.where(c.valid[:, None], alpha, 0)
    else:
        cost = without_lod(per_sequence(emission, cost))
    rows = [_restored(emission, length, v) for v in (alpha, exps)]
    return (*rows, w, cost)


@linear_chain_crf.fits
def _(emission, transition, label, length=None):
    _fitting_tags(emission, transition, label, length)


@linear_chain_crf.check
def _(emission: Meta, label, length=None):
    return [Demand("label", within_lengths(label, length), 0, emission.shape[-1])]


@linear_chain_crf.grad(loops=True)
def _(
    emission: Meta,
    transition: Meta,
    label,
    alpha,
    emission_exps,
    transition_exps,
    d_log_likelihood,
    length=None,
):
    c = _chains(emission, emission_exps, length)
    exps, alpha = emission_exps.reshape(c.x.shape), alpha.reshape(c.x.shape)
    weighted = _beta(c, exps, transition_exps)  # beta * exps
    scale = jnp.where(c.valid, take(d_log_likelihood.reshape(-1), c.p.seg), 0)[:, None]
    joint = alpha * weighted / jnp.where(c.valid[:, None], exps, 1)
    marginal = joint / jnp.sum(joint, axis=1, keepdims=True)
    tags = jax.nn.one_hot(_tags(label), c.x.shape[1], dtype=c.x.dtype)
    d_x = jnp.where(c.valid[:, None], (marginal - tags) * scale, 0)
    d_transition = _transition_gradient(c, alpha, weighted, transition_exps, tags, d_x, scale)
    return row_gradient(emission, d_x.reshape(emission.shape)), d_transition


def _beta(c: Chains, exps: Array, w: Array) -> Array:
    """Normalized backward variables times the emission factors, in row order."""

    def step(after, windows, alive):
        x, last = windows
        beta = jnp.where(last, w[1], jnp.dot(after, w[2:].T))
        beta = beta / jnp.sum(beta, axis=1, keepdims=True)
        weighted = jnp.where(alive_rows(x.shape[0], alive), beta * x, 0)
        return weighted, weighted

    reads = (c.p.packed(exps), c.p.packed(c.last[:, None]))
    _, weighted = run_backward(c.p, step, jnp.zeros((c.p.n, exps.shape[1]), exps.dtype), reads)
    return c.p.of_backward(weighted)


def _transition_gradient(
    c: Chains, alpha: Array, weighted: Array, w: Array, tags: Array, d_x: Array, scale: Array
) -> Array:
    inner = jnp.where((c.valid & ~c.first)[:, None], scale, 0)
    before = stretch(alpha, -1, alpha.shape[0])
    total = jnp.sum(jnp.dot(before, w[2:]) * weighted, axis=1, keepdims=True)
    pairs = jnp.dot((before * inner / jnp.where(inner == 0, 1, total)).T, weighted) * w[2:]
    pairs = pairs - jnp.dot((stretch(tags, -1, tags.shape[0]) * inner).T, tags)
    ends = [jnp.sum(jnp.where(flag[:, None], d_x, 0), axis=0)[:, None] for flag in (c.first, c.last)]
    return jnp.concatenate(
        [*ends, pairs.T], axis=1
    ).T  # along the last dim: see ``fluidjax.execution.executables.levels``


def _best_tags(c: Chains, transition: Array) -> Array:
    """int32 [rows]: the tags of the best labelling (Viterbi), the lower tag where two are equal.

    Forward only the scores are found, each a maximum, and take the emissions' place. Which tag one came from is asked
    backward, along the labelling alone: finding all K of them is K times as many comparisons, and a maximum with its
    place is not vectorized.
    """
    start, end, inner = transition[:1], transition[1:2], transition[2:]

    def forward(reached, x, alive):
        score = reached + x
        return jnp.max(score[:, :, None] + inner[None], axis=1), (score,)

    reached = jnp.broadcast_to(start, (c.p.n, c.x.shape[1]))
    (scores,) = run_forward(c.p, forward, reached, c.p.packed(c.x), overwrite=True)
    # What is added where nothing follows (0), or a tag does (1 + tag).
    follows = jnp.concatenate([end.T, inner], axis=1).T

    def backward(after, score, alive):
        tag = lax.argmax(score + take(follows, after[:, 0]), 1, jnp.int32)[:, None]
        real = alive_rows(tag.shape[0], alive)
        return jnp.where(real, 1 + tag, 0), jnp.where(real, tag, 0)

    _, tags = run_backward(c.p, backward, jnp.zeros((c.p.n, 1), jnp.int32), scores)
    return c.p.of_backward(tags)[:, 0]


@op(out="ViterbiPath", rows=Masked("label"), lod="emission", diff="", infer=shapes.crf_decoding)
def crf_decoding(emission: LoDArray, transition, label=None, length=None):
    """The highest-scoring tags (int64); with Label, 1 where they agree with it and 0 elsewhere."""
    c = _chains(emission, emission.data, length)
    path = _best_tags(c, transition)
    if label is not None:
        path = path == _tags(label)
    path = jnp.where(c.valid, path, 0).astype(jnp.int64)
    return per_row(emission, path[:, None] if length is None else path.reshape(emission.shape[:2]))


@crf_decoding.fits
def _(emission, transition, label=None, length=None):
    _fitting_tags(emission, transition, label, length)


def _fitting_tags(emission, transition, label, length):
    """Emission [rows, tags], or padded [n, width, tags] with Length; a label for each row of it."""
    padded = length is not None
    fitting.rank("Emission", emission, 3 if padded else 2)
    fitting.rank("Transition", transition, 2)
    tags = emission.shape[-1]
    fitting.same("Transition and [tags + 2, tags]", transition.shape, (-1 if tags < 0 else tags + 2, tags))
    if label is None:
        return
    fitting.rank("Label", label, *((2, 3) if padded else (2,)))
    if len(label.shape) == 3 or not padded:
        fitting.dim("Label", label, len(label.shape) - 1, 1)
