"""gru (dynamic_gru) over variable-length sequences, in packed time-major order, and gru_unit, one step of it."""

from __future__ import annotations

import jax.numpy as jnp

from lowering.ops.recurrent import shapes
from lowering.ops.recurrent.activations import NUMBERED, activation, slope
from lowering.ops.recurrent.lstm import initial, packed_value
from lowering.ragged.rows import offsets
from lowering.ragged.time_major import alive_rows, materialized, pack, run_backward, run_forward
from lowering.registry import MASKED, Wise, op
from lowering.values import Array, LoDArray, Meta


def split_weight(weight: Array) -> tuple[Array, Array]:
    """(gate weight [H, 2H], candidate weight [H, H]): they follow each other in the memory of Weight [H, 3H]."""
    width = weight.shape[0]
    flat = weight.reshape(-1)
    return flat[: 2 * width * width].reshape(width, 2 * width), flat[2 * width * width :].reshape(width, width)


def join_weight(d_gate: Array, d_candidate: Array, shape: tuple[int, ...]) -> Array:
    """The inverse of ``split_weight``: both gradients, one after the other in memory, in Weight's ``shape``."""
    return jnp.concatenate([d_gate.reshape(-1), d_candidate.reshape(-1)]).reshape(shape)


def gru_cell(
    x: Array, h_prev: Array, weights: tuple[Array, Array], act: str, gate_act: str, origin_mode: bool
) -> tuple[Array, Array, Array]:
    """(activated gates [w, 3H] in the order u, r, c; r * h_prev; h)."""
    width = h_prev.shape[1]
    gates = activation(gate_act)(x[:, : 2 * width] + jnp.dot(h_prev, weights[0]))
    u, r = gates[:, :width], gates[:, width:]
    reset = r * h_prev
    c = activation(act)(x[:, 2 * width :] + jnp.dot(reset, weights[1]))
    h = u * h_prev + (1 - u) * c if origin_mode else u * c + (1 - u) * h_prev
    return jnp.concatenate([gates, c], axis=1), reset, h


def gru_cell_gradient(
    gates: Array,
    h_prev: Array,
    d_h: Array,
    transposed: tuple[Array, Array],
    act: str,
    gate_act: str,
    origin_mode: bool,
) -> tuple[Array, Array]:
    """(gradient of the pre-activations [w, 3H], gradient of h_prev)."""
    u, r, c = jnp.split(gates, 3, axis=1)
    keep = u if origin_mode else 1 - u
    d_u = d_h * (h_prev - c if origin_mode else c - h_prev) * slope(gate_act)(u)
    d_c = d_h * (1 - keep) * slope(act)(c)
    d_reset = jnp.dot(d_c, transposed[1])
    d_r = d_reset * h_prev * slope(gate_act)(r)
    d_gates = jnp.concatenate([d_u, d_r], axis=1)
    d_prev = d_h * keep + d_reset * r + jnp.dot(d_gates, transposed[0])
    return jnp.concatenate([d_gates, d_c], axis=1), d_prev


def _transposed(weight: Array) -> tuple[Array, Array]:
    gate, candidate = split_weight(weight)
    return materialized(gate.T), materialized(candidate.T)


@op(
    slots={"h0": "H0"},
    out="BatchGate~ BatchResetHiddenPrev~ BatchHidden~ Hidden",
    rows=MASKED,
    lod={"Hidden": "input"},
    infer=shapes.gru,
)
def gru(
    input: LoDArray,
    weight,
    h0=None,
    bias=None,
    *,
    activation: str = "tanh",
    gate_activation: str = "sigmoid",
    is_reverse: bool = False,
    origin_mode: bool = False,
):
    """GRU over the rows of each sequence; Input [rows, 3H] holds the projected inputs.

    u, r = act_gate(Input + h W_ur); c = act(Input + (r h) W_c); h = u c + (1 - u) h, or with ``origin_mode``
    h = u h + (1 - u) c. The Batch outputs are in packed order.
    """
    width = weight.shape[0]
    weights = split_weight(weight)
    p = pack(input, offsets(input), reverse=is_reverse)
    x = p.packed(input.data)
    x = x if bias is None else x + bias.reshape(1, -1)

    def step(h, window, alive):
        gates, reset, h = gru_cell(window, h, weights, activation, gate_activation, origin_mode)
        return h, (gates, reset, h)

    gates, reset, hidden = run_forward(p, step, initial(p, h0, input, width), x, overwrite=True)
    batch = [packed_value(p, input, v) for v in (gates, reset, hidden)]
    return (*batch, input.with_data(p.unpacked(hidden)))


@gru.grad(wrt="input h0 weight bias", loops=True)
def _(
    input: Meta,
    weight,
    batch_gate,
    batch_reset_hidden_prev,
    batch_hidden: LoDArray,
    hidden,
    d_hidden,
    h0=None,
    bias: Meta = None,
    *,
    activation="tanh",
    gate_activation="sigmoid",
    is_reverse=False,
    origin_mode=False,
):
    width = weight.shape[0]
    transposed = _transposed(weight)
    p = pack(input, offsets(input), reverse=is_reverse)
    h_prev = p.previous(hidden, h0)

    def step(d_h, windows, alive):
        gates, before, d_out = windows
        d_gates, d_prev = gru_cell_gradient(
            gates, before, d_h + d_out, transposed, activation, gate_activation, origin_mode
        )
        real = alive_rows(d_gates.shape[0], alive)
        return jnp.where(real, d_prev, 0), jnp.where(real, d_gates, 0)

    reads = (p.unbatched(batch_gate), p.packed(h_prev), p.packed(d_hidden))
    d_h0, d_gates = run_backward(p, step, jnp.zeros((p.n, width), input.dtype), reads)
    d_input = p.of_backward(d_gates)
    reset = p.unpacked(p.unbatched(batch_reset_hidden_prev))
    d_weight = join_weight(
        jnp.dot(h_prev.T, d_input[:, : 2 * width]), jnp.dot(reset.T, d_input[:, 2 * width :]), weight.shape
    )
    d_bias = None if bias is None else d_input.sum(axis=0).reshape(bias.shape)
    return input.like(d_input), None if h0 is None else p.unsorted(d_h0), d_weight, d_bias


@op(out="Gate~ ResetHiddenPrev~ Hidden", lod=None, rows=Wise("input hidden_prev"))
def gru_unit(
    input,
    hidden_prev,
    weight,
    bias=None,
    *,
    activation: int = 2,
    gate_activation: int = 1,
    origin_mode: bool = False,
):
    """One step of gru on rows [n, 3H] and [n, H]; activations by code: 0 identity, 1 sigmoid, 2 tanh, 3 relu."""
    x = input if bias is None else input + bias.reshape(1, -1)
    names = NUMBERED[activation], NUMBERED[gate_activation]
    return gru_cell(x, hidden_prev, split_weight(weight), *names, origin_mode)


@gru_unit.grad
def _(
    input,
    hidden_prev,
    weight,
    gate,
    reset_hidden_prev,
    d_hidden,
    bias: Meta = None,
    *,
    activation=2,
    gate_activation=1,
    origin_mode=False,
):
    width = weight.shape[0]
    names = NUMBERED[activation], NUMBERED[gate_activation]
    d_input, d_prev = gru_cell_gradient(gate, hidden_prev, d_hidden, _transposed(weight), *names, origin_mode)
    d_weight = join_weight(
        jnp.dot(hidden_prev.T, d_input[:, : 2 * width]),
        jnp.dot(reset_hidden_prev.T, d_input[:, 2 * width :]),
        weight.shape,
    )
    return d_input, d_prev, d_weight, None if bias is None else d_input.sum(axis=0).reshape(bias.shape)
