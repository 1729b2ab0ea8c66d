"""Fake quantisation: rounding to 2^(bits-1) - 1 levels of a scale, as used in quantisation-aware training.

Ops named quantize return the integers (as floats), dequantize ops rescale them, and quantize_dequantize do both.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from lowering.dtypes import to_numpy
from lowering.program import VarInfo
from lowering.registry import Value, op
from lowering.values import LoDArray, data_of

FLUID = -1  # the type of rounding where a program names none: Fluid had a single one


def steps(bits: int) -> int:
    """The largest integer of a signed type with this many bits."""
    return (1 << (bits - 1)) - 1


def quantized(x, scale, bits, round_type=FLUID):
    """round(bound * (1 / s) * clip(x, -s, s)); a scale that is zero or subnormal counts as one.

    Means of quantised values are often halves, and so the order of the factors decides what they become. Halves go to
    even; of Paddle 2's two types, 1 rounds them away from zero, and 0 clips after rounding, to the integers of a signed
    type.
    """
    bound = steps(bits)
    factor = bound * (1 / jnp.where(scale >= jnp.finfo(scale.dtype).tiny, scale, 1))
    if round_type == 0:
        return jnp.clip(jnp.round(x * factor), -bound - 1, bound)
    method = lax.RoundingMethod.AWAY_FROM_ZERO if round_type == 1 else lax.RoundingMethod.TO_NEAREST_EVEN
    return lax.round(jnp.clip(x, -scale, scale) * factor, method)


def by_channel(scale, x, axis):
    """The scale of each channel, or of all, as it multiplies X."""
    return scale.reshape([-1 if d == axis else 1 for d in range(x.ndim)] if axis >= 0 else ())


def channel_max(x, axis):
    """max |x| of each channel."""
    return abs_max(x, axis=tuple(d for d in range(x.ndim) if d != axis))


def abs_max(x, **kwargs):
    """max |x|; zero when there is nothing."""
    return jnp.max(jnp.abs(x), initial=0, **kwargs)


@op("fake_quantize_abs_max", out="Out OutScale", diff="", lod={"Out": "x"}, newer="round_type")
def fake_quantize_abs_max(x, *, bit_length: int = 8, round_type: int = FLUID):
    """OutScale = max|X|; Out = round(X / OutScale * (2^(bit_length-1) - 1))."""
    scale = abs_max(x)
    return quantized(x, scale, bit_length, round_type), scale.reshape(1)


@op("fake_quantize_dequantize_abs_max", out="Out OutScale", lod={"Out": "x"})
def fake_quantize_dequantize_abs_max(x, *, bit_length: int = 8, round_type: int = FLUID):
    """As fake_quantize_abs_max, rescaled."""
    scale = abs_max(x)
    return quantized(x, scale, bit_length, round_type) * (scale / steps(bit_length)), scale.reshape(1)


@fake_quantize_dequantize_abs_max.grad
def _(d_out):
    return d_out


_CHANNELS = {"out": "Out OutScale", "lod": {"Out": "x"}}


@op("fake_channel_wise_quantize_abs_max", diff="", newer="round_type quant_axis", **_CHANNELS)
def fake_channel_wise_quantize_abs_max(x, *, bit_length: int = 8, round_type: int = FLUID, quant_axis: int = 0):
    """As fake_quantize_abs_max with one scale per channel, X[c] in Fluid."""
    scale = channel_max(x, quant_axis)
    return quantized(x, by_channel(scale, x, quant_axis), bit_length, round_type), scale


@op("fake_channel_wise_quantize_dequantize_abs_max", **_CHANNELS)
def fake_channel_wise_quantize_dequantize_abs_max(
    x, *, bit_length: int = 8, round_type: int = FLUID, quant_axis: int = 0
):
    """As fake_channel_wise_quantize_abs_max, rescaled."""
    scale = channel_max(x, quant_axis)
    wide = by_channel(scale, x, quant_axis)
    return quantized(x, wide, bit_length, round_type) * (wide / steps(bit_length)), scale


@fake_channel_wise_quantize_dequantize_abs_max.grad
def _(d_out):
    return d_out


def _infer_range(op_view, var_of):
    x = var_of(op_view.inputs["X"][0])
    if x is None:
        return {}
    found = {op_view.outputs["Out"][0]: VarInfo(x.shape, x.dtype, x.lod_level)}
    found[op_view.outputs["OutScale"][0]] = VarInfo((1,), x.dtype, 0)
    window = (op_view.attrs["window_size"],)
    return found | {name: VarInfo(window, x.dtype, 0) for name in op_view.outputs.get("OutScales") or ()}


def windowed_scale(now, scale, window, slot):
    """(scale, window) of a step that brings ``now`` in place of entry ``slot``: see fake_quantize_range_abs_max."""
    removed, window = window[slot], window.at[slot].set(now)
    anew = jnp.where(jnp.abs(removed - scale) < 1e-6, window.max(), scale)
    return jnp.where(scale < now, now, anew), window


@op(
    "fake_quantize_range_abs_max",
    out="Out OutScale OutScales?",
    diff="",
    lod=None,
    kind="block",
    infer=_infer_range,
    continues="OutScales",
    newer="round_type",
)
def fake_quantize_range_abs_max(
    x: Value,
    in_scale: Value,
    iter: Value = None,
    *,
    window_size: int = 10000,
    bit_length: int = 8,
    is_test: bool = False,
    round_type: int = FLUID,
    ctx,
):
    """Quantise with the largest |X| of the last ``window_size`` steps.

    OutScales[Iter % window_size] = max|X|; OutScale is InScale unless max|X| exceeds it; if the entry that leaves the
    window was the maximum, the maximum of the window is recomputed. At test time, InScale is used as it is.
    The window is the content of the OutScales variable, zeros before the first step.
    """
    data, scale = jnp.asarray(data_of(x)), jnp.asarray(data_of(in_scale)).reshape(())
    window = None
    if not is_test:
        held = next((ctx.env.get(name) for name in ctx.op.outputs.get("OutScales") or ()), None)
        held = jnp.zeros((window_size,), data.dtype) if held is None else jnp.asarray(data_of(held))
        slot = 0 if iter is None else jnp.asarray(data_of(iter)).reshape(()) % window_size
        scale, window = windowed_scale(abs_max(data), scale, held, slot)
    out = quantized(data, scale, bit_length, round_type)
    return (x.with_data(out) if isinstance(x, LoDArray) else out), scale.reshape(1), window


def moving_scale(x, accum, state, rate):
    """(scale, state, accum): the running mean of max|x| with weights that decay by ``rate``."""
    state = jnp.ones((), x.dtype) if state is None else rate * state.reshape(()) + 1
    now = abs_max(x)
    accum = now if accum is None else rate * accum.reshape(()) + now
    return accum / state, state, accum


def _moving(x, in_scale, in_accum, in_state, rate, is_test):
    if is_test:
        return in_scale.reshape(()), None, None
    scale, state, accum = moving_scale(x, in_accum, in_state, jnp.asarray(rate, x.dtype))
    return scale, state.reshape(1), accum.reshape(1)


_MOVING = {"out": "Out OutScale OutState? OutAccum?", "diff": "", "lod": {"Out": "x"}}
_MOVING_INPLACE = {"OutScale": "in_scale", "OutState": "in_state", "OutAccum": "in_accum"}


@op("fake_quantize_moving_average_abs_max", inplace=_MOVING_INPLACE, newer="round_type", **_MOVING)
def fake_quantize_moving_average_abs_max(
    x, in_scale, in_accum=None, in_state=None, *, moving_rate: float = 0.9, bit_length: int = 8, is_test: bool = False,
    round_type: int = FLUID,
):  # fmt: skip
    """OutState = r InState + 1; OutAccum = r InAccum + max|X|; OutScale = OutAccum / OutState, used to quantise Out."""
    scale, state, accum = _moving(x, in_scale, in_accum, in_state, moving_rate, is_test)
    return quantized(x, scale, bit_length, round_type), scale.reshape(1), state, accum


@op("fake_quantize_dequantize_moving_average_abs_max", inplace=_MOVING_INPLACE, newer="round_type", **_MOVING)
def fake_quantize_dequantize_moving_average_abs_max(
    x, in_scale, in_accum=None, in_state=None, *, moving_rate: float = 0.9, bit_length: int = 8, is_test: bool = False,
    round_type: int = FLUID,
):  # fmt: skip
    """As fake_quantize_moving_average_abs_max, rescaled: Out = quantised * OutScale / (2^(bits-1) - 1)."""
    scale, state, accum = _moving(x, in_scale, in_accum, in_state, moving_rate, is_test)
    back = quantized(x, scale, bit_length, round_type) * (scale / steps(bit_length))
    return back, scale.reshape(1), state, accum


@op("moving_average_abs_max_scale", inplace={"OutState": "in_state", "OutAccum": "in_accum"}, **_MOVING)
def moving_average_abs_max_scale(x, in_accum=None, in_state=None, *, moving_rate: float = 0.9, is_test: bool = False):
    """Out = X; updates the scale statistics of fake_quantize_moving_average_abs_max, except at test time."""
    if is_test:
        return x, None, None, None
    scale, state, accum = moving_scale(x, in_accum, in_state, jnp.asarray(moving_rate, x.dtype))
    return x, scale.reshape(1), state.reshape(1), accum.reshape(1)


@op("fake_dequantize_max_abs", diff="")
def fake_dequantize_max_abs(x, scale, *, max_range: float):
    """Out = X * Scale / max_range."""
    return x * scale.reshape(()) / max_range


@op("fake_channel_wise_dequantize_max_abs", diff="", newer="quant_axis x_num_col_dims")
def fake_channel_wise_dequantize_max_abs(
    x, scales: list, *, quant_bits: list[int] = [8], quant_axis: int = 0, x_num_col_dims: int = 1,  # noqa: B006
):  # fmt: skip
    """Out = X * Scales[0][c] / (2^(b0-1) - 1); of two scales, X[:, c] Scales[0][c] Scales[1] over both bounds."""
    if len(scales) == 1:
        return x * by_channel(scales[0], x, quant_axis) / steps(quant_bits[0])
    bound = steps(quant_bits[0]) * steps(quant_bits[1])
    return x * by_channel(scales[0], x, x_num_col_dims) * scales[1].reshape(()) / bound


def _of_declared_kind(value, ctx, slot):
    """A value of the data type that its variable declares: int8 weights stay int8."""
    var = ctx.out_var(slot)
    return value if var is None or var.dtype is None else value.astype(to_numpy(var.dtype))


_LINEAR = {"out": "Y OutState? OutAccum? OutScale?", "diff": "", "lod": {"Y": "x"}}


@op(**_LINEAR)
def quantize_linear(
    x, scale, zero_point, in_accum=None, in_state=None, *, quant_axis: int = 0, bit_length: int = 8,
    round_type: int = 0, is_test: bool = True, only_observer: bool = False, moving_rate: float = 0.9, ctx,
):  # fmt: skip
    """Y = round(X / Scale (2^(bits-1) - 1)) with one scale per channel, or a single one if ``quant_axis`` is -1.

    During training, the scale is the largest |X|, for a tensor a running mean of it. ``only_observer`` returns X.
    """
    del zero_point
    state = accum = None
    if not is_test and quant_axis >= 0:
        scale = channel_max(x, quant_axis)
    elif not is_test:
        scale, state, accum = moving_scale(x, in_accum, in_state, jnp.asarray(moving_rate, x.dtype))
        state, accum = state.reshape(1), accum.reshape(1)
    y = x if only_observer else quantized(x, by_channel(scale, x, quant_axis), bit_length, round_type)
    return _of_declared_kind(y, ctx, "Y"), state, accum, None if is_test else scale.reshape(-1)


@op(**_LINEAR)
def dequantize_linear(
    x, scale, zero_point, in_accum=None, in_state=None, *, quant_axis: int = 0, bit_length: int = 8,
    round_type: int = 0, is_test: bool = True, only_observer: bool = False, moving_rate: float = 0.9,
):  # fmt: skip
    """Y = X Scale / (2^(bits-1) - 1), with X integers of any dtype, Y of Scale's. ``only_observer`` returns X."""
    del zero_point, in_accum, in_state, round_type, is_test, moving_rate
    values = x.astype(scale.dtype)
    y = values if only_observer else values * by_channel(scale, x, quant_axis) / steps(bit_length)
    return y, None, None, None


@op("dequantize_abs_max", diff="")
def dequantize_abs_max(x, scale, *, max_range: float):
    """Out = X * Scale / max_range, X int8, Out float32."""
    return x.astype(jnp.float32) * scale.reshape(()) / jnp.float32(max_range)


@op("dequantize_log", slots={"dict_": "Dict"}, diff="")
def dequantize_log(x, dict_):
    """Out = Dict[X] for X >= 0 and -Dict[X + 128] below, X int8, Dict [128]."""
    index = x.astype(jnp.int32)
    return jnp.where(index < 0, -dict_[index + 128], dict_[jnp.maximum(index, 0)])
