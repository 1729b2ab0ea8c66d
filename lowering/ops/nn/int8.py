"""Bytes for numbers, as a model for 8-bit kernels stores them: quantize, dequantize, requantize.

Halves go to even, and what is beyond the type becomes its nearest end.
"""

from __future__ import annotations

import jax.numpy as jnp

from lowering.registry import WISE, op


def _rounded(x, dtype):
    ends = jnp.iinfo(dtype)
    return jnp.clip(jnp.round(x), ends.min, ends.max).astype(dtype)


@op(out="Output", diff="", lod="input", rows=WISE)
def quantize(input, *, is_negative_input: bool = False, Scale: float = 1.0, output_format: str = "NHWC"):  # noqa: N803
    """Output = round(Input * Scale): int8 if Input may be negative, else uint8; ``output_format`` is of no effect."""
    return _rounded(input * jnp.float32(Scale), jnp.int8 if is_negative_input else jnp.uint8)


@op(out="Output", diff="", lod="input", rows=WISE)
def dequantize(input, *, Scale: float = 1.0):  # noqa: N803
    """Output = Input / Scale, float32."""
    return input.astype(jnp.float32) * (1 / jnp.float32(Scale))


@op(out="Output", diff="", lod="input", rows=WISE)
def requantize(input, *, Scale_in: float = 1.0, Scale_out: float = 1.0):  # noqa: N803
    """Output = round(Input * Scale_out / Scale_in), of the type of Input."""
    return _rounded(input.astype(jnp.float32) * (jnp.float32(Scale_out) / jnp.float32(Scale_in)), input.dtype)
