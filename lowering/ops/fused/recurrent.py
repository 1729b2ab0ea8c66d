"""Recurrences that Paddle's inference passes fuse with their input projection, and the attention LSTM."""

from __future__ import annotations

import jax.numpy as jnp

from lowering.engine.checks import Demand
from lowering.ops.fused import shapes
from lowering.ops.math.extrema import at_least
from lowering.ops.recurrent.activations import activation as named
from lowering.ops.recurrent.gru import gru_cell, split_weight
from lowering.ops.recurrent.lstm import Activations, initial, lstm_cell, split_bias
from lowering.ragged.rows import lowest, offsets, take
from lowering.ragged.time_major import pack, run_forward
from lowering.registry import MASKED, op
from lowering.values import Array, LoDArray, Meta

_STATES = {"h0": "H0", "c0": "C0", "xx": "XX"}


def _lstm(
    x: LoDArray,
    projected: Array,
    weight: Array,
    bias: Array,
    h0: Array | None,
    c0: Array | None,
    acts: Activations,
    use_peepholes: bool,
    is_reverse: bool,
) -> tuple[LoDArray, LoDArray]:
    """(hidden, cell) for projected inputs that hold their bias already; ``bias`` gives the peepholes.

    As in Fluid, a C0 without an H0 is not looked at.
    """
    c0 = None if h0 is None else c0
    width = weight.shape[0]
    _, peep = split_bias(bias, width, use_peepholes)
    p = pack(x, offsets(x), reverse=is_reverse)

    def step(carry, window, alive):
        h, c = carry
        *_, c, _, h = lstm_cell(window + jnp.dot(h, weight), c, peep, acts)
        return (h, c), (h, c)

    carry = (initial(p, h0, projected, width), initial(p, c0, projected, width))
    hidden, cell = run_forward(p, step, carry, p.packed(projected))
    return x.with_data(p.unpacked(hidden)), x.with_data(p.unpacked(cell))


@op(
    slots=_STATES,
    out="Hidden Cell XX~ BatchedInput~ BatchedHidden~ BatchedCell~ ReorderedH0~ ReorderedC0~ CheckedCell~",
    rows=MASKED,
    diff="",
    lod={"Hidden": "x", "Cell": "x", "XX": "x"},
    infer=shapes.fusion_lstm,
)
def fusion_lstm(
    x: LoDArray,
    weight_x,
    weight_h,
    bias,
    h0=None,
    c0=None,
    *,
    use_peepholes: bool = True,
    is_reverse: bool = False,
    use_seq: bool = True,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
):
    """lstm of XX = X WeightX + bias, recurring through WeightH."""
    acts = Activations(gate_activation, cell_activation, candidate_activation)
    b, _ = split_bias(bias, weight_h.shape[0], use_peepholes)
    projected = jnp.dot(x.data, weight_x) + b
    outs = _lstm(x, projected, weight_h, bias, h0, c0, acts, use_peepholes, is_reverse)
    return (*outs, x.with_data(projected), *(None,) * 6)


@op(
    slots=_STATES,
    out="Hidden Cell XX~ BatchedInput~ BatchedHidden~ BatchedCell~ ReorderedH0~ ReorderedC0~",
    rows=MASKED,
    diff="",
    lod={"Hidden": "ids", "Cell": "ids", "XX": "ids"},
    infer=shapes.fused_embedding_fc_lstm,
)
def fused_embedding_fc_lstm(
    ids: LoDArray,
    embeddings,
    weight_h,
    bias,
    h0=None,
    c0=None,
    *,
    use_peepholes: bool = True,
    is_reverse: bool = False,
    use_seq: bool = True,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
):
    """lstm of XX = Embeddings[Ids]; the table holds projected rows with their bias."""
    acts = Activations(gate_activation, cell_activation, candidate_activation)
    projected = take(embeddings, ids.data.reshape(-1).astype(jnp.int32))
    outs = _lstm(ids, projected, weight_h, bias, h0, c0, acts, use_peepholes, is_reverse)
    return (*outs, ids.with_data(projected), *(None,) * 5)


@fused_embedding_fc_lstm.check
def _(ids, embeddings: Meta):
    return [Demand("ids", ids, 0, embeddings.shape[0])]


@op(
    slots=_STATES,
    out="ReorderedH0~ XX~ BatchedInput~ BatchedOut~ Hidden",
    rows=MASKED,
    diff="",
    lod={"Hidden": "x", "XX": "x"},
    infer=shapes.fusion_gru,
)
def fusion_gru(
    x: LoDArray,
    weight_x,
    weight_h,
    h0=None,
    bias=None,
    *,
    activation: str = "tanh",
    gate_activation: str = "sigmoid",
    is_reverse: bool = False,
    use_seq: bool = True,
    origin_mode: bool = False,
):
    """gru of XX = X WeightX + Bias, recurring through WeightH."""
    projected = jnp.dot(x.data, weight_x)
    projected = projected if bias is None else projected + bias.reshape(1, -1)
    p = pack(x, offsets(x), reverse=is_reverse)
    weights = split_weight(weight_h)

    def step(h, window, alive):
        *_, h = gru_cell(window, h, weights, activation, gate_activation, origin_mode)
        return h, h

    hidden = run_forward(p, step, initial(p, h0, projected, weight_h.shape[0]), p.packed(projected))
    return None, x.with_data(projected), None, None, x.with_data(p.unpacked(hidden))


@op(
    slots={"h0": "H0", "c0": "C0", "lstm_weight": "LSTMWeight", "lstm_bias": "LSTMBias"},
    out="Hidden Cell AttentionedX~ AttentionFCOut~ LSTMX~ LSTMOUT~",
    rows=MASKED,
    diff="",
    lod={"Hidden": "x", "Cell": "x"},
    infer=shapes.attention_lstm,
)
def attention_lstm(
    x: LoDArray,
    c0,
    attention_weight,
    lstm_weight,
    lstm_bias,
    h0=None,
    attention_bias=None,
    attention_scalar=None,
    attention_scalar_bias=None,
    *,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
):
    """An LSTM whose input at each step is the attention-weighted sum of its sequence's rows.

    The score of a row is relu((row, c) AttentionWeight + bias), then relu(scalar * score + scalar bias) where a scalar
    is given; softmax over the sequence. LSTMWeight [D + M, 4D] and LSTMBias have the order f, i, o, candidate, with
    the rows of h first.
    """
    width, depth = x.shape[1], c0.shape[1]
    p = pack(x, offsets(x))
    rank = take(p.rank, p.seg)
    rank = jnp.where(jnp.arange(x.capacity) < x.rows(), rank, p.n)
    scored = jnp.dot(x.data, attention_weight[:width])[:, 0]
    scored = scored if attention_bias is None else scored + attention_bias.reshape(())

    def attend(c):
        scores = at_least(scored + take(jnp.dot(c, attention_weight[width:])[:, 0], rank), 0)
        if attention_scalar is not None:
            scores = scores * attention_scalar.reshape(())
            bias = 0 if attention_scalar_bias is None else attention_scalar_bias.reshape(())
            scores = at_least(scores + bias, 0)
        exps = jnp.exp(scores - take(_rank_max(scores, rank, p.n), rank))
        weights = exps / take(_rank_sum(exps, rank, p.n), rank)
        return _rank_sum(x.data * weights[:, None], rank, p.n)[: c.shape[0]]

    def step(carry, window, alive):
        h, c = carry
        gates = jnp.dot(h, lstm_weight[:depth]) + jnp.dot(attend(c), lstm_weight[depth:])
        f, i, o, g = jnp.split(gates + lstm_bias.reshape(1, -1), 4, axis=1)
        gate, cell = named(gate_activation), named(cell_activation)
        c = gate(f) * c + gate(i) * named(candidate_activation)(g)
        h = gate(o) * cell(c)
        return (h, c), (h, c)

    carry = (initial(p, h0, x, depth), p.sorted(c0))
    hidden, cell = run_forward(p, step, carry, p.packed(x.data))
    return (x.with_data(p.unpacked(hidden)), x.with_data(p.unpacked(cell)), *(None,) * 4)


def _rank_sum(rows: Array, rank: Array, count: int) -> Array:
    return jnp.zeros((count,) + rows.shape[1:], rows.dtype).at[rank].add(rows, mode="drop")


def _rank_max(rows: Array, rank: Array, count: int) -> Array:
    return jnp.full(count, lowest(rows.dtype), rows.dtype).at[rank].max(rows, mode="drop")
