"""Fake quantisation: rounding to 2^(bits-1) - 1 steps of a scale, as quantisation-aware training inserts it.

Ops named quantize return the integers (as floats), dequantize ops multiply back, and quantize_dequantize do both.
"""

from __future__ import annotations

import jax.numpy as jnp

from lowering.program import VarInfo
from lowering.registry import Value, op
from lowering.values import LoDArray, data_of


def steps(bits: int) -> int:
    """The largest integer of a signed type of so many bits."""
    return (1 << (bits - 1)) - 1


def quantized(x, scale, bits):
    """round(bound / s * clip(x, -s, s)) with a scale of zero counting as one."""
    bound = steps(bits)
    safe = jnp.where(scale > 0, scale, 1)
    return jnp.round(jnp.clip(x, -scale, scale) * (bound / safe))


def abs_max(x, **kwargs):
    """max |x|; zero when there is nothing."""
    return jnp.max(jnp.abs(x), initial=0, **kwargs)


@op("fake_quantize_abs_max", out="Out OutScale", diff="", lod={"Out": "x"})
def fake_quantize_abs_max(x, *, bit_length: int = 8):
    """OutScale = max|X|; Out = round(X / OutScale * (2^(bit_length-1) - 1))."""
    scale = abs_max(x)
    return quantized(x, scale, bit_length), scale.reshape(1)


@op("fake_channel_wise_quantize_abs_max", out="Out OutScale", diff="", lod={"Out": "x"})
def fake_channel_wise_quantize_abs_max(x, *, bit_length: int = 8):
    """As fake_quantize_abs_max with a scale for each X[c]."""
    scale = abs_max(x, axis=tuple(range(1, x.ndim)))
    return quantized(x, scale.reshape((-1,) + (1,) * (x.ndim - 1)), bit_length), scale


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
)
def fake_quantize_range_abs_max(
    x: Value,
    in_scale: Value,
    iter: Value = None,
    *,
    window_size: int = 10000,
    bit_length: int = 8,
    is_test: bool = False,
    ctx,
):
    """Quantise with the largest |X| of the last ``window_size`` steps.

    OutScales[Iter % window_size] = max|X|; OutScale is InScale unless max|X| exceeds it; when the entry that falls out
    of the window was the maximum, the maximum of the window is taken anew. In a test InScale is used as it is.
    The window is what the variable of OutScales holds, zeros before the first step.
    """
    data, scale = jnp.asarray(data_of(x)), jnp.asarray(data_of(in_scale)).reshape(())
    window = None
    if not is_test:
        held = next((ctx.env.get(name) for name in ctx.op.outputs.get("OutScales") or ()), None)
        held = jnp.zeros((window_size,), data.dtype) if held is None else jnp.asarray(data_of(held))
        slot = 0 if iter is None else jnp.asarray(data_of(iter)).reshape(()) % window_size
        scale, window = windowed_scale(abs_max(data), scale, held, slot)
    out = quantized(data, scale, bit_length)
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


@op("fake_quantize_moving_average_abs_max", inplace=_MOVING_INPLACE, **_MOVING)
def fake_quantize_moving_average_abs_max(
    x, in_scale, in_accum=None, in_state=None, *, moving_rate: float = 0.9, bit_length: int = 8, is_test: bool = False
):
    """OutState = r InState + 1; OutAccum = r InAccum + max|X|; OutScale = OutAccum / OutState; Out quantises by it."""
    scale, state, accum = _moving(x, in_scale, in_accum, in_state, moving_rate, is_test)
    return quantized(x, scale, bit_length), scale.reshape(1), state, accum


@op("fake_quantize_dequantize_moving_average_abs_max", inplace=_MOVING_INPLACE, **_MOVING)
def fake_quantize_dequantize_moving_average_abs_max(
    x, in_scale, in_accum=None, in_state=None, *, moving_rate: float = 0.9, bit_length: int = 8, is_test: bool = False
):
    """As fake_quantize_moving_average_abs_max, multiplied back: Out = quantised * OutScale / (2^(bits-1) - 1)."""
    scale, state, accum = _moving(x, in_scale, in_accum, in_state, moving_rate, is_test)
    back = quantized(x, scale, bit_length) * (scale / steps(bit_length))
    return back, scale.reshape(1), state, accum


@op("moving_average_abs_max_scale", inplace={"OutState": "in_state", "OutAccum": "in_accum"}, **_MOVING)
def moving_average_abs_max_scale(x, in_accum=None, in_state=None, *, moving_rate: float = 0.9, is_test: bool = False):
    """Out = X; the scale statistics of fake_quantize_moving_average_abs_max, none of them in a test."""
    if is_test:
        return x, None, None, None
    scale, state, accum = moving_scale(x, in_accum, in_state, jnp.asarray(moving_rate, x.dtype))
    return x, scale.reshape(1), state.reshape(1), accum.reshape(1)


@op("fake_dequantize_max_abs", diff="")
def fake_dequantize_max_abs(x, scale, *, max_range: float):
    """Out = X * Scale / max_range."""
    return x * scale.reshape(()) / max_range


@op("fake_channel_wise_dequantize_max_abs", diff="")
def fake_channel_wise_dequantize_max_abs(x, scales: list, *, quant_bits: list[int] = [8]):  # noqa: B006
    """Out = X * Scales[0][c] / (2^(b0-1) - 1); of two scales, X[:, c] Scales[0][c] Scales[1] over both bounds."""
    if len(scales) == 1:
        shape = (-1,) + (1,) * (x.ndim - 1)
        return x * scales[0].reshape(shape) / steps(quant_bits[0])
    shape = (1, -1) + (1,) * (x.ndim - 2)
    bound = steps(quant_bits[0]) * steps(quant_bits[1])
    return x * scales[0].reshape(shape) * scales[1].reshape(()) / bound


@op("dequantize_abs_max", diff="")
def dequantize_abs_max(x, scale, *, max_range: float):
    """Out = X * Scale / max_range, X int8, Out float32."""
    return x.astype(jnp.float32) * scale.reshape(()) / jnp.float32(max_range)


@op("dequantize_log", slots={"dict_": "Dict"}, diff="")
def dequantize_log(x, dict_):
    """Out = Dict[X] for X >= 0 and -Dict[X + 128] below, X int8, Dict [128]."""
    index = x.astype(jnp.int32)
    return jnp.where(index < 0, -dict_[index + 128], dict_[jnp.maximum(index, 0)])
