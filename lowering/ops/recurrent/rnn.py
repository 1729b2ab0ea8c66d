"""rnn: stacked simple, LSTM or GRU layers in one or both directions, with a list of weights (Paddle 2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from lowering.program import OpView, VarInfo
from lowering.registry import op
from lowering.values import Array

State = tuple[Array, ...]


class Direction(NamedTuple):
    """One direction of one layer: matrices [gates H, in] and [gates H, H], and their biases."""

    x: Array
    h: Array
    x_bias: Array
    h_bias: Array


def _lstm(x: Array, h: Array, state: State) -> State:
    """Gates in the order input, forget, candidate, output."""
    i, f, g, o = jnp.split(x + h, 4, axis=1)
    c = jax.nn.sigmoid(f) * state[1] + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


def _gru(x: Array, h: Array, state: State) -> State:
    """Gates in the order reset, update, candidate; the reset gate acts on the projected state."""
    (xr, xz, xc), (hr, hz, hc) = jnp.split(x, 3, axis=1), jnp.split(h, 3, axis=1)
    z = jax.nn.sigmoid(xz + hz)
    candidate = jnp.tanh(xc + jax.nn.sigmoid(xr + hr) * hc)
    return (z * state[0] + (1 - z) * candidate,)


_CELLS: dict[str, Callable[[Array, Array, State], State]] = {
    "LSTM": _lstm,
    "GRU": _gru,
    "RNN_TANH": lambda x, h, state: (jnp.tanh(x + h),),
    "RNN_RELU": lambda x, h, state: (jnp.maximum(x + h, 0),),
}


def _run(cell: Any, weights: Direction, x: Array, state: State, lengths: Any, reverse: bool) -> tuple[Array, State]:
    """(outputs [steps, batch, H], zero after a sequence's end; the state at its end)."""
    projected = x @ weights.x.T + weights.x_bias

    def step(state: State, now: Any) -> tuple[State, Array]:
        gates, alive = now
        found = cell(gates, state[0] @ weights.h.T + weights.h_bias, state)
        if lengths is None:
            return found, found[0]
        kept = tuple(jnp.where(alive[:, None], new, old) for new, old in zip(found, state, strict=True))
        return kept, jnp.where(alive[:, None], found[0], 0)

    steps = jnp.arange(x.shape[0], dtype=jnp.int32)
    alive = steps[:, None] < (jnp.full(x.shape[1], x.shape[0]) if lengths is None else lengths)[None]
    state, outs = lax.scan(step, state, (projected, alive), reverse=reverse)
    return outs, state


def _directions(weights: list[Array], count: int) -> list[Direction]:
    """The list holds the matrices of all directions of all layers first, then their biases."""
    if len(weights) != 4 * count:
        raise ValueError(f"WeightList has {len(weights)} tensors; expected {4 * count}: 2 matrices and 2 biases each")
    pairs = [weights[2 * i : 2 * i + 2] for i in range(2 * count)]
    return [Direction(*pairs[i], *pairs[count + i]) for i in range(count)]


def _shapes(op: OpView, var_of: Any) -> dict[str, VarInfo]:
    x = var_of(op.inputs["Input"][0])
    width = int(op.attrs.get("hidden_size", 100)) * (2 if op.attrs.get("is_bidirec") else 1)
    found = {op.outputs["Out"][0]: VarInfo((*x.shape[:2], width), x.dtype)}
    for name, source in zip(op.outputs.get("State") or (), op.inputs["PreState"], strict=False):
        state = var_of(source)
        found[name] = VarInfo(tuple(state.shape), state.dtype)
    return found


@op(
    out="Out DropoutState? State* Reserve?~",
    slots={"input": "Input", "pre_state": "PreState", "weight_list": "WeightList", "sequence_length": "SequenceLength"},
    diff="input pre_state weight_list",
    grad="vjp",
    reads="input pre_state weight_list sequence_length d_out d_state",
    lod=None,
    infer=_shapes,
)
def rnn(
    input,
    pre_state: list,
    weight_list: list,
    sequence_length=None,
    *,
    dropout_prob: float = 0.0,
    is_bidirec: bool = False,
    input_size: int = 10,
    hidden_size: int = 100,
    num_layers: int = 1,
    mode: str = "RNN_TANH",
    seed: int = 0,
    is_test: bool = False,
):
    """Out [steps, batch, directions H] and State, the final states [layers directions, batch, H], by ``mode``.

    ``mode``: "LSTM" (states h and c), "GRU", "RNN_TANH" or "RNN_RELU". Steps beyond SequenceLength give zeros and keep
    the state. Dropout between layers during training is not implemented.
    """
    if mode not in _CELLS:
        raise ValueError(f"mode is {mode!r}; expected one of {sorted(_CELLS)}; set one of them")
    if dropout_prob > 0 and not is_test and num_layers > 1:
        raise ValueError("rnn drops out between layers only in Paddle; set dropout_prob to 0, or is_test to true")
    count = 2 if is_bidirec else 1
    directions = _directions(weight_list, num_layers * count)
    lasts: list[State] = []
    for layer in range(num_layers):
        outs = []
        for i in range(count):
            at = layer * count + i
            state = tuple(s[at] for s in pre_state)
            out, last = _run(_CELLS[mode], directions[at], input, state, sequence_length, i == 1)
            outs.append(out)
            lasts.append(last)
        input = jnp.concatenate(outs, axis=2)
    return input, None, [jnp.stack(parts) for parts in zip(*lasts, strict=True)], None
