"""Optimizers with per-element step sizes: the adagrad, adadelta, rmsprop and ftrl families."""

from __future__ import annotations

import jax.numpy as jnp

from lowering.ops.optimizer.sparse import looked_up, only_dense, put_rows, scalar, take_rows
from lowering.ops.sparse import merge_rows
from lowering.registry import Value, op
from lowering.values import SelectedRows, data_of


@op(out="ParamOut MomentOut", lod=None, inplace={"ParamOut": "param", "MomentOut": "moment"})
def adagrad(param, grad: Value, moment, learning_rate, *, epsilon: float = 1e-6):
    """MomentOut = Moment + Grad^2; ParamOut = Param - LearningRate * Grad / (sqrt(MomentOut) + epsilon).

    For a sparse gradient (rows merged first), only its rows change.
    """
    lr = scalar(learning_rate, param.dtype)
    if isinstance(grad, SelectedRows):
        merged = merge_rows(grad)
        g = merged.values
        m = take_rows(moment, merged) + g * g
        step = lr * g / (jnp.sqrt(m) + epsilon)
        return jnp.asarray(param).at[merged.rows].add(-step, mode="drop"), put_rows(moment, merged, m)
    g = data_of(grad)
    m = moment + g * g
    return param - lr * g / (jnp.sqrt(m) + epsilon), m


@op(out="ParamOut MomentOut", lod=None, inplace={"ParamOut": "param", "MomentOut": "moment"})
def decayed_adagrad(param, grad: Value, moment, learning_rate, *, decay: float = 0.95, epsilon: float = 1e-6):
    """MomentOut = decay Moment + (1-decay) Grad^2; ParamOut = Param - LearningRate * Grad / (sqrt(MomentOut) + eps)."""
    g = only_dense(grad, "decayed_adagrad")
    m = decay * moment + (1 - decay) * g * g
    return param - scalar(learning_rate, param.dtype) * g / (jnp.sqrt(m) + epsilon), m


@op(
    out="ParamOut AvgSquaredGradOut AvgSquaredUpdateOut",
    lod=None,
    inplace={
        "ParamOut": "param",
        "AvgSquaredGradOut": "avg_squared_grad",
        "AvgSquaredUpdateOut": "avg_squared_update",
    },
    newer="learning_rate",
)
def adadelta(
    param,
    grad: Value,
    avg_squared_grad,
    avg_squared_update,
    learning_rate=None,
    *,
    rho: float = 0.95,
    epsilon: float = 1e-6,
    in_place: frozenset[str] = frozenset(),
):
    """G = rho * AvgSquaredGrad + (1-rho) Grad^2; update = -sqrt((AvgSquaredUpdate + eps) / (G + eps)) * Grad;

    U = rho * AvgSquaredUpdate + (1-rho) update^2; ParamOut = Param + update. There is no learning rate: Paddle's op
    ignores the optimizer's. Where AvgSquaredUpdate is updated in place, as by every optimizer, Paddle's kernel adds
    -sqrt((U + eps) / (G + eps)) * Grad instead: it reads the variable again after writing it. Paddle 2.5 and later read
    a LearningRate: ParamOut = Param + LearningRate * update.
    """
    g = only_dense(grad, "adadelta")
    squared = rho * avg_squared_grad + (1 - rho) * g * g

    def update(average):
        return -jnp.sqrt((average + epsilon) / (squared + epsilon)) * g

    step = update(avg_squared_update)
    average = rho * avg_squared_update + (1 - rho) * step * step
    if learning_rate is not None:
        return param + scalar(learning_rate, param.dtype) * step, squared, average
    return param + (update(average) if "AvgSquaredUpdateOut" in in_place else step), squared, average


@op(
    out="ParamOut MomentOut MeanSquareOut MeanGradOut",
    lod=None,
    inplace={"ParamOut": "param", "MomentOut": "moment", "MeanSquareOut": "mean_square", "MeanGradOut": "mean_grad"},
)
def rmsprop(
    param,
    mean_square,
    learning_rate,
    grad: Value,
    moment,
    mean_grad=None,
    *,
    epsilon: float = 1e-10,
    decay: float = 0.9,
    momentum: float = 0.0,
    centered: bool = False,
):
    """MeanSquareOut = decay * MeanSquare + (1-decay) Grad^2; ParamOut = Param - MomentOut;

    MomentOut = momentum * Moment + LearningRate * Grad / sqrt(MeanSquareOut + eps). If centered, MeanGradOut^2 is
    subtracted under the root, where MeanGradOut = decay * MeanGrad + (1-decay) Grad; else MeanGrad is unchanged.
    Rows absent from a sparse gradient, or not ``looked_up`` in it, have a gradient of zero.
    """
    g = looked_up(grad).reshape(param.shape)
    lr = scalar(learning_rate, param.dtype)
    squared = decay * mean_square + (1 - decay) * g * g
    variance = squared
    if centered:
        mean_grad = decay * mean_grad + (1 - decay) * g
        variance = squared - mean_grad * mean_grad
    m = momentum * moment + lr * g / jnp.sqrt(variance + epsilon)
    return param - m, m, squared, mean_grad


@op(
    out="ParamOut SquaredAccumOut LinearAccumOut",
    lod=None,
    inplace={
        "ParamOut": "param",
        "SquaredAccumOut": "squared_accumulator",
        "LinearAccumOut": "linear_accumulator",
    },
)
def ftrl(
    param,
    squared_accumulator,
    linear_accumulator,
    grad: Value,
    learning_rate,
    *,
    l1: float = 0.0,
    l2: float = 0.0,
    lr_power: float = -0.5,
):
    """Follow the regularized leader.

    S = SquaredAccumulator + Grad^2; L = LinearAccumulator + Grad - (S^-p - SquaredAccumulator^-p) / lr * Param with
    p = lr_power; ParamOut = (l1 sign(L) - L) / (S^-p / lr + 2 l2) where |L| > l1, else 0.
    """
    g = only_dense(grad, "ftrl")
    lr = scalar(learning_rate, param.dtype)

    def root(x):
        return jnp.sqrt(x) if lr_power == -0.5 else jnp.power(x, -lr_power)

    squared = squared_accumulator + g * g
    linear = linear_accumulator + g - (root(squared) - root(squared_accumulator)) / lr * param
    shrunk = (l1 * jnp.sign(linear) - linear) / (root(squared) / lr + 2 * l2)
    return jnp.where(jnp.abs(linear) > l1, shrunk, 0), squared, linear
