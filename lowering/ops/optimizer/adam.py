"""The adam family: adam, adamax, lamb."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from lowering.ops.optimizer.sparse import dense, merge_rows, only_dense, put_rows, scalar, take_rows, unless_empty
from lowering.registry import Long, Value, op
from lowering.values import Array, SelectedRows, data_of

_ADAM_INPLACE = {
    "ParamOut": "param",
    "Moment1Out": "moment1",
    "Moment2Out": "moment2",
    "Beta1PowOut": "beta1_pow",
    "Beta2PowOut": "beta2_pow",
}
_LAMB_INPLACE = {slot: param for slot, param in _ADAM_INPLACE.items() if "Pow" not in slot}


def _adam_step(
    p: Array, g: Array, m1: Array, m2: Array, betas: tuple[Any, Any], rate: Array, epsilon: Any
) -> tuple[Array, Array, Array]:
    beta1, beta2 = betas
    m1 = beta1 * m1 + (1 - beta1) * g
    m2 = beta2 * m2 + (1 - beta2) * g * g
    return p - rate * (m1 / (jnp.sqrt(m2) + epsilon)), m1, m2


def _sparse_adam(
    grad: SelectedRows, state: Sequence[Array], lazy: bool, betas: tuple[Any, Any], rate: Array, epsilon: float
) -> Sequence[Array]:
    """(param, moment1, moment2) after a sparse step."""
    if not lazy:
        step = _adam_step(state[0], grad.to_dense(), state[1], state[2], betas, rate, epsilon)
        return [unless_empty(grad, new, old) for new, old in zip(step, state, strict=True)]
    merged = merge_rows(grad)
    p, m1, m2 = (take_rows(x, merged) for x in state)
    step = _adam_step(p, merged.values, m1, m2, betas, rate, epsilon)
    return [put_rows(x, merged, new) for x, new in zip(state, step, strict=True)]


@op(out="ParamOut Moment1Out Moment2Out Beta1PowOut Beta2PowOut", lod=None, inplace=_ADAM_INPLACE)
def adam(
    param,
    grad: Value,
    learning_rate,
    moment1,
    moment2,
    beta1_pow,
    beta2_pow,
    beta1_tensor=None,
    beta2_tensor=None,
    *,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    lazy_mode: bool = False,
    min_row_size_to_use_multithread: Long = 1000,
    in_place: frozenset[str] = frozenset(),
):
    """M1 = beta1 Moment1 + (1-beta1) Grad; M2 = beta2 Moment2 + (1-beta2) Grad^2; with b_i = Beta<i>Pow:

    ParamOut = Param - LearningRate sqrt(1-b2) / (1-b1) * M1 / (sqrt(M2) + epsilon); Beta<i>PowOut = b_i beta_i. For a
    sparse gradient, rows are merged; with ``lazy_mode`` only its rows change, otherwise the others have a gradient of
    zero. Paddle's CPU kernel writes the powers before the sparse update reads them: where they are updated in place,
    as by every optimizer, a sparse step uses the advanced powers. A sparse gradient without rows
    changes nothing.
    """
    lr = scalar(learning_rate, param.dtype)
    b1 = beta1 if beta1_tensor is None else scalar(beta1_tensor, param.dtype)
    b2 = beta2 if beta2_tensor is None else scalar(beta2_tensor, param.dtype)
    next1, next2 = data_of(beta1_pow) * b1, data_of(beta2_pow) * b2
    sparse = isinstance(grad, SelectedRows)
    pow1 = scalar(next1 if sparse and "Beta1PowOut" in in_place else beta1_pow, param.dtype)
    pow2 = scalar(next2 if sparse and "Beta2PowOut" in in_place else beta2_pow, param.dtype)
    rate = lr * jnp.sqrt(1 - pow2) / (1 - pow1)
    state = (param, moment1, moment2)
    if sparse:
        powers = unless_empty(grad, next1, beta1_pow), unless_empty(grad, next2, beta2_pow)
        return (*_sparse_adam(grad, state, lazy_mode, (b1, b2), rate, epsilon), *powers)
    g = data_of(grad).reshape(param.shape)
    return (*_adam_step(param, g, moment1, moment2, (b1, b2), rate, epsilon), next1, next2)


@op(
    out="ParamOut MomentOut InfNormOut",
    lod=None,
    inplace={"ParamOut": "param", "MomentOut": "moment", "InfNormOut": "inf_norm"},
)
def adamax(
    param,
    grad: Value,
    learning_rate,
    moment,
    inf_norm,
    beta1_pow,
    *,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
):
    """MomentOut = beta1 Moment + (1-beta1) Grad; InfNormOut = max(beta2 InfNorm + epsilon, |Grad|);

    ParamOut = Param - LearningRate / (1 - Beta1Pow) * MomentOut / InfNormOut. Beta1Pow is advanced by a separate op.
    """
    g = only_dense(grad, "adamax")
    m = beta1 * moment + (1 - beta1) * g
    norm = jnp.maximum(jnp.abs(g), beta2 * inf_norm + epsilon)
    lr = scalar(learning_rate, param.dtype) / (1 - scalar(beta1_pow, param.dtype))
    return param - lr * (m / norm), m, norm


@op(out="ParamOut Moment1Out Moment2Out", lod=None, inplace=_LAMB_INPLACE)
def lamb(
    param,
    grad: Value,
    learning_rate,
    moment1,
    moment2,
    beta1_pow,
    beta2_pow,
    *,
    weight_decay: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-6,
):
    """M1, M2 as in adam; r = M1 / (sqrt(M2) + epsilon) + weight_decay Param;

    ParamOut = Param - LearningRate * (|Param| / |r|, or 1 if a norm is zero) * r. Paddle's kernel does not read the two
    powers, and no op advances them. Rows absent from a sparse gradient have a gradient of zero; one without rows
    changes nothing.
    """
    g = dense(grad).reshape(param.shape)
    m1 = beta1 * moment1 + (1 - beta1) * g
    m2 = beta2 * moment2 + (1 - beta2) * g * g
    r = m1 / (jnp.sqrt(m2) + epsilon) + weight_decay * param
    p_norm, r_norm = jnp.sqrt(jnp.sum(param * param)), jnp.sqrt(jnp.sum(r * r))
    usable = (p_norm > 0) & (r_norm > 0)
    ratio = jnp.where(usable, p_norm / jnp.where(usable, r_norm, 1), 1)
    new = param - scalar(learning_rate, param.dtype) * ratio * r, m1, m2
    return tuple(unless_empty(grad, value, old) for value, old in zip(new, (param, moment1, moment2), strict=True))
