"""Fake quantisation: rounding to 2^(bits-1) - 1 steps of a scale, as quantisation-aware training inserts it.

Ops named quantize return the integers (as floats), dequantize ops multiply back, and quantize_dequantize do both.
"""

from __future__ import annotations

import jax.numpy as jnp

from lowering.registry import op


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


@op("fake_quantize_range_abs_max", out="Out OutScale OutScales?", diff="", lod={"Out": "x"})
def fake_quantize_range_abs_max(
    x, in_scale, iter=None, *, window_size: int = 10000, bit_length: int = 8, is_test: bool = False
):
    """Quantise with the largest |X| of the last ``window_size`` steps.

    OutScales[Iter % window_size] = max|X|; OutScale is InScale unless max|X| exceeds it; when the entry that falls out
    of the window was the maximum, the maximum of the window is taken anew. In a test InScale is used as it is.
    The window itself is state that only the op's output holds, so a first step starts it with zeros.
    """
    if is_test:
        return quantized(x, in_scale.reshape(()), bit_length), in_scale.reshape(1), None
    now = abs_max(x)
    slot = jnp.zeros((), jnp.int32) if iter is None else (iter.reshape(()) % window_size).astype(jnp.int32)
    window = jnp.zeros((window_size,), x.dtype).at[slot].set(now)
    scale = jnp.maximum(now, in_scale.reshape(()))
    return quantized(x, scale, bit_length), scale.reshape(1), window


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
