"""lstmp (dynamic_lstmp), an LSTM with a recurrent projection, and lstm_unit, a single plain step."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lowering.ops.recurrent import shapes
from lowering.ops.recurrent.activations import activation, slope
from lowering.ops.recurrent.lstm import (
    Activations,
    bias_gradient,
    initial,
    lstm_cell,
    lstm_cell_gradient,
    packed_value,
    split_bias,
)
from lowering.ragged.rows import offsets
from lowering.ragged.time_major import alive_rows, materialized, pack, run_backward, run_forward
from lowering.registry import MASKED, Wise, op
from lowering.values import LoDArray


def _projected_by(proj_activation: str, cell_activation: str) -> str:
    return "identity" if proj_activation == "identity" else cell_activation


@op(
    slots={"h0": "H0", "c0": "C0"},
    out="Projection Cell BatchGate~ BatchCellPreAct~ BatchHidden~",
    rows=MASKED,
    lod={"Projection": "input", "Cell": "input"},
    infer=shapes.lstmp,
)
def lstmp(
    input: LoDArray,
    weight,
    proj_weight,
    bias,
    h0=None,
    c0=None,
    *,
    use_peepholes: bool = True,
    is_reverse: bool = False,
    cell_clip: float = 0.0,
    proj_clip: float = 0.0,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
    proj_activation: str = "tanh",
):
    """lstm with a projected hidden state: r = act(h ProjWeight), and r recurs through Weight [P, 4H].

    As in Fluid's kernel, act is ``cell_activation``; ``proj_activation`` only says whether there is one ("identity":
    none).

    ``cell_clip`` and ``proj_clip`` clip the cell and the projection to [-clip, clip] if positive.
    """
    acts = Activations(gate_activation, cell_activation, candidate_activation)
    b, peep = split_bias(bias, proj_weight.shape[0], use_peepholes)
    p = pack(input, offsets(input), reverse=is_reverse)

    def step(carry, x, alive):
        r, c = carry
        *gates, c, active, h = lstm_cell(x + jnp.dot(r, weight), c, peep, acts, cell_clip)
        r = activation(_projected_by(proj_activation, cell_activation))(jnp.dot(h, proj_weight))
        if proj_clip > 0:
            r = jnp.clip(r, -proj_clip, proj_clip)
        return (r, c), (jnp.concatenate(gates, axis=1), active, c, h, r)

    carry = (initial(p, h0, input, proj_weight.shape[1]), initial(p, c0, input, proj_weight.shape[0]))
    gates, active, cell, hidden, proj = run_forward(p, step, carry, p.packed(input.data) + b, overwrite=True)
    outs = [input.with_data(p.unpacked(v)) for v in (proj, cell)]
    return (*outs, *(packed_value(p, input, v) for v in (gates, active, hidden)))


@lstmp.grad(wrt="input h0 c0 weight proj_weight bias", loops=True)
def _(
    weight,
    proj_weight,
    bias,
    projection: LoDArray,
    cell,
    batch_gate,
    batch_cell_pre_act,
    batch_hidden,
    d_projection,
    h0=None,
    c0=None,
    *,
    use_peepholes=True,
    is_reverse=False,
    cell_clip=0.0,
    proj_clip=0.0,
    gate_activation="sigmoid",
    cell_activation="tanh",
    candidate_activation="tanh",
    proj_activation="tanh",
):
    acts = Activations(gate_activation, cell_activation, candidate_activation)
    _, peep = split_bias(bias, proj_weight.shape[0], use_peepholes)
    p = pack(projection, offsets(projection), reverse=is_reverse)
    c_prev = p.previous(cell, c0)
    transposed, proj_transposed = materialized(weight.T), materialized(proj_weight.T)

    def step(carry, windows, alive):
        d_r, d_c = carry
        gates, active, before, r, c, d_out = windows
        d_r = (d_r + d_out) * slope(_projected_by(proj_activation, cell_activation))(r)
        if proj_clip > 0:
            d_r = jnp.where(jnp.abs(r) < proj_clip, d_r, 0)
        d_h = jnp.dot(d_r, proj_transposed)
        unclipped = jnp.abs(c) < cell_clip if cell_clip > 0 else None
        d_gates, d_c = lstm_cell_gradient(gates, active, before, d_h, d_c, peep, acts, unclipped)
        real = alive_rows(d_gates.shape[0], alive)
        d_gates = jnp.where(real, d_gates, 0)
        carry = (jnp.dot(d_gates, transposed), jnp.where(real, d_c, 0))
        return carry, (d_gates, jnp.where(real, d_r, 0))

    zeros = [jnp.zeros((p.n, width), projection.dtype) for width in (proj_weight.shape[1], c_prev.shape[1])]
    packed = [p.packed(v) for v in (c_prev, projection.data, cell, d_projection)]
    reads = (p.unbatched(batch_gate), p.unbatched(batch_cell_pre_act), *packed)
    (d_h0, d_c0), buffers = run_backward(p, step, tuple(zeros), reads)
    d_input, d_proj = map(p.of_backward, buffers)
    return (
        projection.with_data(d_input),
        None if h0 is None else p.unsorted(d_h0),
        None if c0 is None else p.unsorted(d_c0),
        jnp.dot(p.previous(projection.data, h0).T, d_input),
        jnp.dot(p.unpacked(p.unbatched(batch_hidden)).T, d_proj),
        bias_gradient(d_input, c_prev, cell, bias, use_peepholes),
    )


@op(slots={"c_prev": "C_prev"}, out="C H", lod=None, rows=Wise("x c_prev"))
def lstm_unit(x, c_prev, *, forget_bias: float = 0.0):
    """C = sigmoid(f + forget_bias) C_prev + sigmoid(i) tanh(g), H = sigmoid(o) tanh(C); X = [i, f, o, g]."""
    i, f, o, g = _unit_gates(x, forget_bias)
    c = f * c_prev + i * g
    return c, o * jnp.tanh(c)


def _unit_gates(x, forget_bias):
    i, f, o, g = jnp.split(x, 4, axis=1)
    return (*(jax.nn.sigmoid(v) for v in (i, f + forget_bias, o)), jnp.tanh(g))


@lstm_unit.grad
def _(x, c_prev, c, d_c, d_h, *, forget_bias=0.0):
    i, f, o, g = _unit_gates(x, forget_bias)
    active = jnp.tanh(c)
    d_c = d_c + d_h * o * (1 - active * active)
    d_x = [d_c * g * i * (1 - i), d_c * c_prev * f * (1 - f), d_h * active * o * (1 - o), d_c * i * (1 - g * g)]
    return jnp.concatenate(d_x, axis=1), d_c * f
