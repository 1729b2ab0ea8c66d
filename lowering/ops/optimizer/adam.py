"""The adam family: adam, adamax, lamb."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from lowering.ops.optimizer.sparse import dense, only_dense, put_rows, scalar, take_rows, unless_empty
from lowering.ops.sparse import merge_rows
from lowering.program import PADDLE_2
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
    grad: SelectedRows,
    state: Sequence[Array],
    held: Sequence[Array] | None,
    betas: tuple[Any, Any],
    rate: Array,
    epsilon: float,
) -> Sequence[Array]:
    """(param, moment1, moment2) after a sparse step; of ``held``, the rows that the gradient has not, if it is lazy."""
    if held is None:
        step = _adam_step(state[0], grad.to_dense(), state[1], state[2], betas, rate, epsilon)
        return [unless_empty(grad, new, old) for new, old in zip(step, state, strict=True)]
    merged = merge_rows(grad)
    p, m1, m2 = (take_rows(x, merged) for x in state)
    step = _adam_step(p, merged.values, m1, m2, betas, rate, epsilon)
    return [put_rows(x, merged, new) for x, new in zip(held, step, strict=True)]


def _held(ctx: Any, slots: Sequence[str], state: Sequence[Array], in_place: frozenset[str]) -> list[Array]:
    """What the variables of ``slots`` hold before the step: ``state`` where they are updated in place, or have none."""
    found = []
    for slot, x in zip(slots, state, strict=True):
        names = () if ctx is None or slot in in_place else ctx.op.outputs.get(slot) or ()
        value = next((ctx.env.get(name) for name in names), None)
        found.append(x if value is None else data_of(value).reshape(jnp.shape(x)))
    return found


@op(
    out="ParamOut Moment1Out Moment2Out Beta1PowOut Beta2PowOut",
    lod=None,
    inplace=_ADAM_INPLACE,
    continues="ParamOut Moment1Out Moment2Out",
    continues_if="lazy_mode",
    newer="skip_update epsilon_tensor",
)
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
    skip_update=None,
    epsilon_tensor=None,
    *,
    ctx=None,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    lazy_mode: bool = False,
    min_row_size_to_use_multithread: Long = 1000,
    in_place: frozenset[str] = frozenset(),
):
    """M1 = beta1 Moment1 + (1-beta1) Grad; M2 = beta2 Moment2 + (1-beta2) Grad^2; with b_i = Beta<i>Pow:

    ParamOut = Param - LearningRate sqrt(1-b2) / (1-b1) * M1 / (sqrt(M2) + epsilon); Beta<i>PowOut = b_i beta_i. For a
    sparse gradient, rows are merged; with ``lazy_mode`` only its rows change (the other rows of ParamOut are those that
    it had, if it is another variable than Param), otherwise the others have a gradient of zero. Paddle's CPU kernel
    writes the powers before the sparse update reads them: where they are updated in place, as by every optimizer, a
    sparse step uses the advanced powers. A sparse gradient without rows changes nothing. Paddle 2 scales epsilon, too,
    by sqrt(1-b2), and leaves all as it was where ``SkipUpdate`` is true.
    """
    lr = scalar(learning_rate, param.dtype)
    epsilon = epsilon if epsilon_tensor is None else scalar(epsilon_tensor, param.dtype)
    b1 = beta1 if beta1_tensor is None else scalar(beta1_tensor, param.dtype)
    b2 = beta2 if beta2_tensor is None else scalar(beta2_tensor, param.dtype)
    next1, next2 = data_of(beta1_pow) * b1, data_of(beta2_pow) * b2
    sparse = isinstance(grad, SelectedRows)
    pow1 = scalar(next1 if sparse and "Beta1PowOut" in in_place else beta1_pow, param.dtype)
    pow2 = scalar(next2 if sparse and "Beta2PowOut" in in_place else beta2_pow, param.dtype)
    rate = lr * jnp.sqrt(1 - pow2) / (1 - pow1)
    if _newer(ctx):
        epsilon = epsilon * jnp.sqrt(1 - pow2)
    state = (param, moment1, moment2)
    if sparse:
        powers = unless_empty(grad, next1, beta1_pow), unless_empty(grad, next2, beta2_pow)
        held = _held(ctx, ("ParamOut", "Moment1Out", "Moment2Out"), state, in_place) if lazy_mode else None
        step = (*_sparse_adam(grad, state, held, (b1, b2), rate, epsilon), *powers)
    else:
        g = data_of(grad).reshape(param.shape)
        step = (*_adam_step(param, g, moment1, moment2, (b1, b2), rate, epsilon), next1, next2)
    return step if skip_update is None else _unless(skip_update, step, (*state, beta1_pow, beta2_pow))


def _newer(ctx: Any) -> bool:
    """Whether the program is Paddle 2's; a rule called on its own is Fluid's."""
    return ctx is not None and ctx.release >= PADDLE_2


def _unless(skip: Array, new: Sequence[Any], old: Sequence[Any]) -> tuple[Array, ...]:
    """``new``, or ``old`` where ``skip`` is true."""
    return tuple(jnp.where(skip.reshape(()), data_of(b), a) for a, b in zip(new, old, strict=True))


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


@op(
    out="ParamOut Moment1Out Moment2Out Beta1PowOut? Beta2PowOut?",
    lod=None,
    inplace=_LAMB_INPLACE,
    newer="beta1_pow_out beta2_pow_out always_adapt",
)
def lamb(
    param,
    grad: Value,
    learning_rate,
    moment1,
    moment2,
    beta1_pow,
    beta2_pow,
    *,
    ctx=None,
    weight_decay: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-6,
    always_adapt: bool = False,
):
    """M1, M2 as in adam; r = M1 / (sqrt(M2) + epsilon) + weight_decay Param;

    ParamOut = Param - LearningRate * (|Param| / |r|, or 1 if a norm is zero) * r. Paddle 1.8's kernel does not read the
    two powers, and no op advances them; Paddle 2 divides M1 by 1 - Beta1Pow and M2 by 1 - Beta2Pow in r, advances the
    powers, and without a decay leaves the ratio at 1 unless ``always_adapt``. Rows absent from a sparse gradient have a
    gradient of zero; one without rows changes neither Param nor the moments.
    """
    g = dense(grad).reshape(param.shape)
    m1 = beta1 * moment1 + (1 - beta1) * g
    m2 = beta2 * moment2 + (1 - beta2) * g * g
    if not _newer(ctx):
        step, powers = m1 / (jnp.sqrt(m2) + epsilon), (None, None)
    else:
        pow1, pow2 = scalar(beta1_pow, param.dtype), scalar(beta2_pow, param.dtype)
        step = m1 / (1 - pow1) / (jnp.sqrt(m2 / (1 - pow2)) + epsilon)
        powers = data_of(beta1_pow) * beta1, data_of(beta2_pow) * beta2
    r = step + weight_decay * param
    ratio = _trust_ratio(param, r) if not _newer(ctx) or weight_decay > 0 or always_adapt else 1
    new = param - scalar(learning_rate, param.dtype) * ratio * r, m1, m2
    kept = (unless_empty(grad, value, old) for value, old in zip(new, (param, moment1, moment2), strict=True))
    return *kept, *powers


def _trust_ratio(param: Array, r: Array) -> Array:
    """|Param| / |r|, or 1 where a norm is zero."""
    p_norm, r_norm = jnp.sqrt(jnp.sum(param * param)), jnp.sqrt(jnp.sum(r * r))
    usable = (p_norm > 0) & (r_norm > 0)
    return jnp.where(usable, p_norm / jnp.where(usable, r_norm, 1), 1)


@op(out="ParamOut Moment1Out Moment2Out Beta1PowOut Beta2PowOut", lod=None, inplace=_ADAM_INPLACE)
def adamw(
    param,
    grad: Value,
    learning_rate,
    moment1,
    moment2,
    beta1_pow,
    beta2_pow,
    skip_update=None,
    beta1_tensor=None,
    beta2_tensor=None,
    epsilon_tensor=None,
    *,
    ctx=None,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    lr_ratio: float = 1.0,
    coeff: float = 0.01,
    with_decay: bool = False,
    lazy_mode: bool = False,
    min_row_size_to_use_multithread: Long = 1000,
    in_place: frozenset[str] = frozenset(),
):
    """A step of adam with LearningRate * lr_ratio; ``with_decay`` from Param (1 - LearningRate * lr_ratio * coeff)."""
    rate = data_of(learning_rate) * lr_ratio
    decayed = param * (1 - scalar(rate, param.dtype) * coeff) if with_decay else param
    state = moment1, moment2, beta1_pow, beta2_pow
    given = {"beta1": beta1, "beta2": beta2, "epsilon": epsilon, "lazy_mode": lazy_mode}
    tensors = beta1_tensor, beta2_tensor, None, epsilon_tensor
    step = adam(decayed, grad, rate, *state, *tensors, ctx=ctx, in_place=in_place, **given)
    return step if skip_update is None else _unless(skip_update, step, (param, *state))


@op(
    out="ParamOut* Moment1Out* Moment2Out* Beta1PowOut* Beta2PowOut*",
    slots={"param": "Param", "grad": "Grad"},
    lod=None,
    inplace=_ADAM_INPLACE,
)
def merged_adam(
    param: list,
    grad: list,
    learning_rate: list,
    moment1: list,
    moment2: list,
    beta1_pow: list,
    beta2_pow: list,
    *,
    ctx=None,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
):
    """A step of adam for each parameter of a list."""
    given = {"beta1": beta1, "beta2": beta2, "epsilon": epsilon, "ctx": ctx}
    rates = learning_rate * (len(param) // len(learning_rate))
    steps = [
        adam(*state, **given) for state in zip(param, grad, rates, moment1, moment2, beta1_pow, beta2_pow, strict=True)
    ]
    return tuple(list(parts) for parts in zip(*steps, strict=True))
