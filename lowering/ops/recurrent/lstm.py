"""lstm (dynamic_lstm): LSTM over variable-length sequences, in packed time-major order."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from lowering.ops.recurrent import shapes
from lowering.ops.recurrent.activations import activation, slope
from lowering.ragged.rows import offsets
from lowering.ragged.time_major import Order, alive_rows, materialized, pack, run_backward, run_forward
from lowering.registry import MASKED, op
from lowering.values import Array, LoDArray


class Peepholes(NamedTuple):
    """Diagonal weights [1, H] from the cell to the input, forget and output gate."""

    i: Array
    f: Array
    o: Array


def split_bias(bias: Array, hidden: int, use_peepholes: bool) -> tuple[Array, Peepholes | None]:
    """(bias [1, 4H], peepholes or None) of a Bias [1, 4H] or [1, 7H]."""
    want = (7 if use_peepholes else 4) * hidden
    if bias.size < want:
        raise ValueError(
            f"Bias has {bias.size} numbers; expected {want} for hidden size {hidden} and use_peepholes="
            f"{use_peepholes}. Give the layer a bias of that size, or set use_peepholes=False"
        )
    flat = bias.reshape(1, -1)
    if not use_peepholes:
        return flat[:, : 4 * hidden], None
    parts = jnp.split(flat[:, 4 * hidden : 7 * hidden], 3, axis=1)
    return flat[:, : 4 * hidden], Peepholes(*parts)


class Activations(NamedTuple):
    """Names of an LSTM's functions: of its gates i, f and o, of the cell in act(c), and of the candidate."""

    gate: str
    cell: str
    candidate: str


def lstm_cell(
    gates: Array, c_prev: Array, peep: Peepholes | None, acts: Activations, clip: float = 0.0
) -> tuple[Array, ...]:
    """(candidate, i, f, o, c, act(c), h) of pre-activations [w, 4H] in Fluid's order candidate, i, f, o."""
    candidate, i, f, o = jnp.split(gates, 4, axis=1)
    gate = activation(acts.gate)
    candidate = activation(acts.candidate)(candidate)
    i = gate(i if peep is None else i + c_prev * peep.i)
    f = gate(f if peep is None else f + c_prev * peep.f)
    c = f * c_prev + i * candidate
    if clip > 0:
        c = jnp.clip(c, -clip, clip)
    o = gate(o if peep is None else o + c * peep.o)
    active = activation(acts.cell)(c)
    return candidate, i, f, o, c, active, o * active


def lstm_cell_gradient(
    gates: Array,
    active: Array,
    c_prev: Array,
    d_h: Array,
    d_c: Array,
    peep: Peepholes | None,
    acts: Activations,
    unclipped: Array | None = None,
) -> tuple[Array, Array]:
    """(gradient of the pre-activations [w, 4H], gradient of the previous cell) from activated gates."""
    candidate, i, f, o = jnp.split(gates, 4, axis=1)
    gate = slope(acts.gate)
    d_o = d_h * active * gate(o)
    d_c = d_c + d_h * o * slope(acts.cell)(active)
    if peep is not None:
        d_c = d_c + d_o * peep.o
    if unclipped is not None:
        d_c = jnp.where(unclipped, d_c, 0)
    d_i = d_c * candidate * gate(i)
    d_f = d_c * c_prev * gate(f)
    d_candidate = d_c * i * slope(acts.candidate)(candidate)
    d_prev = d_c * f
    if peep is not None:
        d_prev = d_prev + d_i * peep.i + d_f * peep.f
    return jnp.concatenate([d_candidate, d_i, d_f, d_o], axis=1), d_prev


def initial(p: Order, state: Array | None, like: Array, width: int) -> Array:
    """An initial state in rank order; zeros when none is given."""
    return jnp.zeros((p.n, width), like.dtype) if state is None else p.sorted(state)


def packed_value(p: Order, x: LoDArray, buffer: Array) -> LoDArray:
    """A loop's buffer as an op's output, in packed order: its valid rows, and spare ones after them."""
    return LoDArray(p.batched(buffer), (), jnp.asarray(offsets(x)[-1], jnp.int32))


@op(
    slots={"h0": "H0", "c0": "C0"},
    out="Hidden Cell BatchGate~ BatchCellPreAct~",
    rows=MASKED,
    lod={"Hidden": "input", "Cell": "input"},
    infer=shapes.lstm,
)
def lstm(
    input: LoDArray,
    weight,
    bias,
    h0=None,
    c0=None,
    *,
    use_peepholes: bool = True,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
):
    """LSTM over the rows of each sequence; Input [rows, 4H] holds the projected inputs, Weight [H, 4H] is recurrent.

    gates = Input + h W + b in the order candidate, i, f, o; i, f += c_prev * peephole; c = f c_prev + i candidate;
    o += c * peephole; h = o act(c). Empty sequences produce nothing. BatchGate (activated gates) and
    BatchCellPreAct (act(c)) are in packed order.
    """
    width = weight.shape[0]
    acts = Activations(gate_activation, cell_activation, candidate_activation)
    b, peep = split_bias(bias, width, use_peepholes)
    p = pack(input, offsets(input), reverse=is_reverse)

    def step(carry, x, alive):
        h, c = carry
        gates = x + jnp.dot(h, weight)
        *active_gates, c, active, h = lstm_cell(gates, c, peep, acts)
        return (h, c), (jnp.concatenate(active_gates, axis=1), active, c, h)

    carry = (initial(p, h0, input, width), initial(p, c0, input, width))
    gates, active, cell, hidden = run_forward(p, step, carry, p.packed(input.data) + b, overwrite=True)
    outs = [input.with_data(p.unpacked(v)) for v in (hidden, cell)]
    return (*outs, packed_value(p, input, gates), packed_value(p, input, active))


@lstm.grad(wrt="input h0 c0 weight bias", loops=True)
def _(
    input: LoDArray,
    weight,
    bias,
    hidden,
    cell,
    batch_gate,
    batch_cell_pre_act,
    d_hidden,
    h0=None,
    c0=None,
    *,
    use_peepholes=True,
    is_reverse=False,
    gate_activation="sigmoid",
    cell_activation="tanh",
    candidate_activation="tanh",
):
    width = weight.shape[0]
    acts = Activations(gate_activation, cell_activation, candidate_activation)
    _, peep = split_bias(bias, width, use_peepholes)
    p = pack(input, offsets(input), reverse=is_reverse)
    c_prev = p.previous(cell, c0)
    transposed = materialized(weight.T)

    def step(carry, windows, alive):
        d_h, d_c = carry
        gates, active, before, d_out = windows
        d_gates, d_c = lstm_cell_gradient(gates, active, before, d_h + d_out, d_c, peep, acts)
        real = alive_rows(d_gates.shape[0], alive)
        d_gates = jnp.where(real, d_gates, 0)
        return (jnp.dot(d_gates, transposed), jnp.where(real, d_c, 0)), d_gates

    zeros = jnp.zeros((p.n, width), input.dtype)
    reads = (
        p.unbatched(batch_gate),
        p.unbatched(batch_cell_pre_act),
        p.packed(c_prev),
        p.packed(d_hidden),
    )
    (d_h0, d_c0), d_gates = run_backward(p, step, (zeros, zeros), reads)
    d_input = p.of_backward(d_gates)
    d_weight = jnp.dot(p.previous(hidden, h0).T, d_input)
    d_bias = bias_gradient(d_input, c_prev, cell, bias, use_peepholes)
    return (
        input.with_data(d_input),
        None if h0 is None else p.unsorted(d_h0),
        None if c0 is None else p.unsorted(d_c0),
        d_weight,
        d_bias,
    )


def bias_gradient(d_gates: Array, c_prev: Array, cell: Array, bias: Array, use_peepholes: bool) -> Array:
    """Bias@GRAD in the shape of ``bias``: d_gates summed over the rows, then d_i c_prev, d_f c_prev and d_o c
    for peepholes; zeros in what ``bias`` holds beyond these.
    """
    parts = [d_gates.sum(axis=0)]
    if use_peepholes:
        _, d_i, d_f, d_o = jnp.split(d_gates, 4, axis=1)
        parts += [(d_i * c_prev).sum(axis=0), (d_f * c_prev).sum(axis=0), (d_o * cell).sum(axis=0)]
    flat = jnp.concatenate(parts)
    missing = bias.size - flat.size
    if missing:
        flat = jnp.concatenate([flat, jnp.zeros(missing, flat.dtype)])
    return flat.reshape(bias.shape)
