"""cudnn_lstm (layers.lstm): stacked dense LSTMs, in one or both directions, with a single flat weight."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from lowering.program import OpView, VarInfo
from lowering.registry import op
from lowering.values import Array


class Layer(NamedTuple):
    """One direction of one layer: x [in, 4H], h [H, 4H] and bias [4H], gates in the order i, f, candidate, o."""

    x: Array
    h: Array
    bias: Array


def _layers(w: Array, width: int, hidden: int, layers: int, directions: int) -> list[list[Layer]]:
    """Cut the flat weight: all matrices (input, then recurrent) layer by layer, then the two biases of each."""
    flat, at, matrices = w.reshape(-1), 0, []
    for layer in range(layers):
        inputs = width if layer == 0 else hidden * directions
        for _ in range(directions):
            pair = []
            for size in (inputs, hidden):
                pair.append(flat[at : at + 4 * hidden * size].reshape(4 * hidden, size).T)
                at += 4 * hidden * size
            matrices.append(pair)
    found = []
    for x, h in matrices:
        bias = flat[at : at + 4 * hidden] + flat[at + 4 * hidden : at + 8 * hidden]
        at += 8 * hidden
        found.append(Layer(x, h, bias))
    if at != flat.size:
        raise ValueError(
            f"W of cudnn_lstm has {flat.size} numbers; expected {at} for input size {width}, hidden_size {hidden},"
            f" {layers} layers and {directions} direction(s); make it with layers.lstm"
        )
    return [found[i * directions : (i + 1) * directions] for i in range(layers)]


def _run(layer: Layer, x: Array, h: Array, c: Array, reverse: bool) -> tuple[Array, Array, Array]:
    """(outputs [steps, batch, H], last h, last c)."""
    projected = jnp.dot(x, layer.x) + layer.bias

    def step(carry, gates):
        h, c = carry
        i, f, g, o = jnp.split(gates + jnp.dot(h, layer.h), 4, axis=1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    (h, c), outs = lax.scan(step, (h, c), projected, reverse=reverse)
    return outs, h, c


def _dropped(x: Array, key: Array, rate: float) -> Array:
    kept = jax.random.bernoulli(key, 1 - rate, x.shape)
    return jnp.where(kept, x / jnp.asarray(1 - rate, x.dtype), 0)


def _shapes(op: OpView, var_of: Any) -> dict[str, VarInfo]:
    """From Input and the initial states; Cache, which has no shape, keeps the general inference away."""
    found = {}
    for slot, source in (("Out", "Input"), ("last_h", "InitH"), ("last_c", "InitC")):
        var = var_of(op.inputs[source][0])
        if var is None or not op.outputs.get(slot):
            continue
        shape = tuple(var.shape)
        if slot == "Out":
            shape = (*shape[:2], int(op.attrs["hidden_size"]) * (2 if op.attrs.get("is_bidirec") else 1))
        found[op.outputs[slot][0]] = VarInfo(shape, var.dtype)
    return found


@op(
    slots={"last_h": "last_h", "last_c": "last_c"},
    infer=_shapes,
    out="Out last_h last_c",
    diff="input init_h init_c w",
    grad="vjp",
    reads="input init_h init_c w cache out d_out d_last_h d_last_c",
    lod=None,
)
def cudnn_lstm(
    input,
    init_h,
    init_c,
    w,
    cache=None,
    *,
    max_len: int = 20,
    dropout_prob: float = 0.0,
    is_bidirec: bool = False,
    input_size: int = 10,
    hidden_size: int = 100,
    num_layers: int = 1,
    is_test: bool = False,
    seed: int = -1,
    key,
):
    """Stacked LSTM over Input [steps, batch, width]; InitH and InitC are [layers * directions, batch, H].

    The weight has cuDNN's layout. Dropout is applied between layers; its mask depends on the seed and the values of
    Input, so that the gradient op, which samples independently, obtains the same mask.
    """
    directions = 2 if is_bidirec else 1
    key = jax.random.fold_in(key, lax.bitcast_convert_type(jnp.sum(input).astype(jnp.float32), jnp.uint32))
    x, lasts = input, []
    for depth, layer in enumerate(_layers(w, input.shape[2], hidden_size, num_layers, directions)):
        if depth and dropout_prob > 0 and not is_test:
            x = _dropped(x, jax.random.fold_in(key, depth), dropout_prob)
        runs = []
        for direction, weights in enumerate(layer):
            state = depth * directions + direction
            runs.append(_run(weights, x, init_h[state], init_c[state], direction == 1))
        x = jnp.concatenate([r[0] for r in runs], axis=2)
        lasts += [r[1:] for r in runs]
    return x, jnp.stack([h for h, _ in lasts]), jnp.stack([c for _, c in lasts])
