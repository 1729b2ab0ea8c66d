"""Fourier transforms, and splitting signals into frames."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from lowering.registry import Long, Longs, op

_INVERSE = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


def _norm(normalization: str, forward: bool, natural: bool) -> str:
    """NumPy's name: Paddle's kernels divide in the direction that they are asked for, whichever they transform in."""
    return normalization if forward == natural else _INVERSE[normalization]


@op("fft_c2c", diff="", lod=None)
def fft_c2c(x, *, axes: Longs, normalization: str, forward: bool):
    """Out = the discrete Fourier transform of complex X along ``axes``, or its inverse."""
    transform = jnp.fft.fftn if forward else jnp.fft.ifftn
    return transform(x, axes=tuple(axes), norm=normalization)


@op("fft_r2c", diff="", lod=None)
def fft_r2c(x, *, axes: Longs, normalization: str, forward: bool, onesided: bool):
    """Out = the transform of real X; ``onesided`` keeps the first half of the last axis."""
    norm = _norm(normalization, forward, True)
    out = jnp.fft.rfftn(x, axes=tuple(axes), norm=norm) if onesided else jnp.fft.fftn(x, axes=tuple(axes), norm=norm)
    return out if forward else jnp.conj(out)


@op("fft_c2r", diff="", lod=None)
def fft_c2r(x, *, axes: Longs, normalization: str, forward: bool, last_dim_size: Long = 0):
    """Out = the real inverse transform of X, half a Hermitian spectrum; ``last_dim_size``: length of the last axis."""
    sizes = [x.shape[a] for a in axes]
    sizes[-1] = last_dim_size or 2 * (sizes[-1] - 1)
    norm = _norm(normalization, forward, False)
    return jnp.fft.irfftn(jnp.conj(x) if forward else x, s=sizes, axes=tuple(axes), norm=norm)


def framed(x, length: int, hop: int):
    """[..., length, frames] of [..., samples]."""
    starts = np.arange(0, x.shape[-1] - length + 1, hop)
    return x[..., np.arange(length)[:, None] + starts[None, :]]


@op(grad="vjp", reads="x", lod=None)
def frame(x, *, frame_length: int, hop_length: int, axis: int = -1):
    """Out = frames of X of ``frame_length``, ``hop_length`` apart: [..., length, frames], or [frames, length, ...]."""
    if axis in (-1, x.ndim - 1) and not (axis == 0 and x.ndim == 1):
        return framed(x, frame_length, hop_length)
    out = framed(jnp.moveaxis(x, 0, -1), frame_length, hop_length)
    return jnp.moveaxis(out, (-1, -2), (0, 1))


@op(grad="vjp", reads="x", lod=None)
def overlap_add(x, *, hop_length: int, axis: int = -1):
    """Out = the frames of X [..., length, frames] (or [frames, length, ...]), ``hop_length`` apart, summed."""
    if axis == 0:
        x = jnp.moveaxis(x, (0, 1), (-1, -2))
    length, frames = x.shape[-2:]
    places = np.arange(length)[:, None] + hop_length * np.arange(frames)[None, :]
    out = jnp.zeros((*x.shape[:-2], hop_length * (frames - 1) + length), x.dtype).at[..., places].add(x)
    return jnp.moveaxis(out, -1, 0) if axis == 0 else out


@op(diff="", lod=None)
def stft(x, window, *, n_fft: int, hop_length: int, normalized: bool, onesided: bool):
    """Out [..., frequencies, frames] = the transforms of X's frames, weighted by Window."""
    frames = framed(x, n_fft, hop_length) * window[:, None]
    transform = jnp.fft.rfft if onesided else jnp.fft.fft
    return transform(frames, axis=-2, norm="ortho" if normalized else "backward")
