"""Gradient descent with and without momentum: sgd, momentum, lars_momentum, dpsgd."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from lowering.ops.optimizer.sparse import looked_up, only_dense, scalar, unless_empty
from lowering.registry import Value, op
from lowering.values import Array, SelectedRows, data_of


@op(out="ParamOut", lod=None, inplace={"ParamOut": "param"})
def sgd(param: Value, learning_rate, grad: Value):
    """ParamOut = Param - LearningRate * Grad; for a sparse gradient, only its rows change.

    Param may itself be SelectedRows (a growing table): rows of the gradient are then located in the table.
    """
    table = param.values if isinstance(param, SelectedRows) else jnp.asarray(data_of(param))
    lr = scalar(learning_rate, table.dtype)
    if not isinstance(grad, SelectedRows):
        return table - lr * data_of(grad).reshape(table.shape)
    step = lr * grad.values.astype(table.dtype)
    if grad.nrows is not None:
        real = jnp.arange(grad.rows.shape[0]) < grad.nrows
        step = jnp.where(real.reshape((-1,) + (1,) * (step.ndim - 1)), step, 0)
    where = _places(param.rows, grad.rows) if isinstance(param, SelectedRows) else grad.rows
    moved = table.at[where].add(-step, mode="drop")
    return replace(param, values=moved) if isinstance(param, SelectedRows) else moved


def _places(table: Array, rows: Array) -> Array:
    """Where each of ``rows`` stands in ``table``; past its end for one that it lacks."""
    same = table[None, :] == rows[:, None]
    return jnp.where(same.any(1), same.argmax(1), table.shape[0])


_INPLACE = {"ParamOut": "param", "VelocityOut": "velocity"}


@op(
    out="ParamOut VelocityOut",
    lod=None,
    inplace=_INPLACE,
    newer="regularization_method regularization_coeff rescale_grad",
)
def momentum(
    param,
    grad: Value,
    velocity,
    learning_rate,
    *,
    mu: float,
    use_nesterov: bool = False,
    regularization_method: str = "",
    regularization_coeff: float = 0.0,
    rescale_grad: float = 1.0,
):
    """VelocityOut = mu * Velocity + Grad; ParamOut = Param - LearningRate * VelocityOut.

    With Nesterov, ParamOut = Param - LearningRate * (Grad + mu * VelocityOut). Rows absent from a sparse gradient, or
    not ``looked_up`` in it, have a gradient of zero: their velocity decays but still moves them, as in Paddle's kernel;
    one without rows changes nothing. Paddle 2 first multiplies Grad by ``rescale_grad``, and for ``l2_decay`` adds
    regularization_coeff * Param.
    """
    g = looked_up(grad).reshape(param.shape)
    g = g if rescale_grad == 1 else g * rescale_grad
    g = g + regularization_coeff * param if regularization_method == "l2_decay" else g
    lr = scalar(learning_rate, param.dtype)
    v = mu * velocity + g
    step = g + mu * v if use_nesterov else v
    return unless_empty(grad, param - lr * step, param), unless_empty(grad, v, velocity)


@op(out="ParamOut* VelocityOut*", lod=None, inplace=_INPLACE)
def merged_momentum(
    param: list,
    grad: list,
    velocity: list,
    learning_rate: list,
    *,
    mu: float,
    use_nesterov: bool = False,
    regularization_method: list[str] = (),
    regularization_coeff: list[float] = (),
    rescale_grad: float = 1.0,
):
    """A step of momentum for each parameter of a list."""
    given = {"mu": mu, "use_nesterov": use_nesterov, "rescale_grad": rescale_grad}
    methods, coeffs = regularization_method or [""] * len(param), regularization_coeff or [0.0] * len(param)
    rates = learning_rate * (len(param) // len(learning_rate))
    steps = [
        momentum(*state, regularization_method=method, regularization_coeff=coeff, **given)
        for *state, method, coeff in zip(param, grad, velocity, rates, methods, coeffs, strict=True)
    ]
    return tuple(list(parts) for parts in zip(*steps, strict=True))


@op(out="ParamOut VelocityOut", lod=None, inplace=_INPLACE)
def lars_momentum(
    param,
    grad: Value,
    velocity,
    learning_rate,
    *,
    mu: float,
    lars_coeff: float = 0.001,
    lars_weight_decay: float = 0.0005,
):
    """Momentum with a separate learning rate for each layer.

    local_lr = LearningRate * lars_coeff * |Param| / (|Grad| + lars_weight_decay * |Param|), or LearningRate where a
    norm is zero; VelocityOut = mu * Velocity + local_lr * (Grad + lars_weight_decay * Param);
    ParamOut = Param - VelocityOut.
    """
    g = only_dense(grad, "lars_momentum")
    lr = scalar(learning_rate, param.dtype)
    p_norm = jnp.sqrt(jnp.sum(param * param))
    g_norm = jnp.sqrt(jnp.sum(g * g))
    usable = (p_norm > 0) & (g_norm > 0)
    scaled = lr * lars_coeff * p_norm / jnp.where(usable, g_norm + lars_weight_decay * p_norm, 1)
    lr = jnp.where(usable, scaled, lr)
    v = velocity * mu + lr * (g + lars_weight_decay * param)
    return param - v, v


@op(out="ParamOut", lod=None, inplace={"ParamOut": "param"})
def dpsgd(
    param,
    grad: Value,
    learning_rate,
    *,
    clip: float = 10.0,
    batch_size: float = 16.0,
    sigma: float = 1.0,
    seed: int = 0,
    key: Any,
):
    """Differentially private descent: ParamOut = Param - LearningRate * (Grad / max(1, |Grad|/clip) + n / batch_size).

    n is a single draw from N(0, sigma^2), shared by all elements, as in Paddle's kernel.
    """
    g = only_dense(grad, "dpsgd")
    lr = scalar(learning_rate, param.dtype)
    norm = jnp.sqrt(jnp.sum(g * g))
    noise = sigma * jax.random.normal(key, (), param.dtype)
    return param - lr * (g / jnp.maximum(norm / clip, 1) + noise / batch_size)


def _shrink(prox: Array, lr: Array, l1: float, l2: float) -> Array:
    """The proximal step of l1 and l2 regularisation."""
    if l1 > 0:
        prox = jnp.sign(prox) * jnp.maximum(jnp.abs(prox) - lr * l1, 0)
    return prox / (1 + lr * l2)


@op(out="ParamOut", lod=None, inplace={"ParamOut": "param"})
def proximal_gd(param, grad: Value, learning_rate, *, l1: float = 0.0, l2: float = 0.0):
    """prox = Param - LearningRate * Grad; ParamOut = sign(prox) max(|prox| - lr l1, 0) / (1 + lr l2)."""
    lr = scalar(learning_rate, param.dtype)
    return _shrink(param - lr * only_dense(grad, "proximal_gd"), lr, l1, l2)


@op(out="ParamOut MomentOut", lod=None, inplace={"ParamOut": "param", "MomentOut": "moment"})
def proximal_adagrad(param, moment, grad: Value, learning_rate, *, l1: float = 0.0, l2: float = 0.0):
    """MomentOut = Moment + Grad^2; the proximal step of Param - LearningRate * Grad / sqrt(MomentOut)."""
    g = only_dense(grad, "proximal_adagrad")
    lr = scalar(learning_rate, param.dtype)
    m = moment + g * g
    return _shrink(param - lr * g / jnp.sqrt(m), lr, l1, l2), m
