"""Convolutions of volumes as those of images, for CPUs.

A kernel's taps along depth become channels, and the places that it reaches along depth become images:
y[N * D', O, ...] = windows[N * D', C * taps, ...] (*) w[O, C / groups * taps, ...]. XLA:CPU computes convolutions of
volumes with loops that are 2 to 17 times slower than its convolutions of images, and their gradients up to 75 times.
"""

import jax
import jax.numpy as jnp
from jax import lax

from lowering.ops.nn.windows import Geometry


def flat_geometry(geo: Geometry) -> Geometry:
    """The geometry of the images' convolution."""
    return Geometry(geo.strides[1:], geo.pads[1:], geo.dilations[1:], geo.groups)


def flat_kernel(w_shape: tuple) -> tuple:
    """The shape of the images' kernel, for a kernel [O, C / groups, taps, ...]."""
    return (w_shape[0], w_shape[1] * w_shape[2], *w_shape[3:])


def images_of(y: jax.Array) -> jax.Array:
    """Volumes [N, C, D, ...] as images [N * D, C, ...]."""
    slices = y.swapaxes(1, 2)
    return slices.reshape(-1, *slices.shape[2:])


def volumes_of(images: jax.Array, count: int) -> jax.Array:
    """`count` volumes from their images."""
    return images.reshape(count, -1, *images.shape[1:]).swapaxes(1, 2)


def windows_of(x: jax.Array, taps: int, depth: int, geo: Geometry) -> jax.Array:
    """What the taps read at each of `depth` places: x[N, C, D, ...] as [N * depth, C * taps, ...]."""
    slices = x.swapaxes(1, 2)
    around = [(0, 0, 0), (*geo.pads[0], 0), *[(0, 0, 0)] * (x.ndim - 2)]
    slices = lax.pad(slices, jnp.zeros((), x.dtype), around)
    span = (depth - 1) * geo.strides[0] + 1
    begins = [tap * geo.dilations[0] for tap in range(taps)]
    reads = [lax.slice_in_dim(slices, begin, begin + span, geo.strides[0], 1) for begin in begins]
    return jnp.stack(reads, axis=3).reshape(-1, x.shape[1] * taps, *x.shape[3:])


def windows_added(windows: jax.Array, taps: int, x_shape: tuple, geo: Geometry) -> jax.Array:
    """The adjoint of `windows_of`: each value is added where it was read in x[x_shape]."""
    n, channels, size = x_shape[:3]
    rows = windows.reshape(n, -1, channels, taps, *x_shape[3:])
    span = (rows.shape[1] - 1) * geo.strides[0] + 1
    total = None
    for tap in range(taps):
        low = tap * geo.dilations[0] - geo.pads[0][0]
        around = [(0, 0, 0), (low, size - low - span, geo.strides[0] - 1), *[(0, 0, 0)] * (len(x_shape) - 2)]
        placed = lax.pad(lax.index_in_dim(rows, tap, 3, keepdims=False), jnp.zeros((), rows.dtype), around)
        total = placed if total is None else total + placed
    return total.swapaxes(1, 2)
