"""Convolutions of few channels on CPUs: strips of neighbouring columns count as channels of their own.

XLA:CPU computes a convolution of 17 channels or more, read or written, as one blocked product. With fewer of both it
packs each patch by itself, which takes 1.6 times (16 channels of 3x3) to 8 times (one channel) as long. A kernel of O
channels that is set down `width` times, each a stride further along, in a kernel of width * O channels computes as
many columns of the result at once; the zeros beside it cost less than the packing. An odd number of channels read is
made up to a multiple of four, without which that product copies them one by one (up to 10 times slower).
"""

import jax
import jax.numpy as jnp
from jax import lax

from lowering.ops.nn.windows import Geometry

_FEW = 16  # channels up to which XLA:CPU packs patches one by one
_WIDEST = 8  # columns of a strip
_MANY = 64  # channels written from which an odd number read costs less than a copy of the image


def strip_width(w_shape: tuple, geo: Geometry) -> int:
    """How many columns of the result are computed at once: 1 where XLA's convolution is as fast as it gets."""
    if len(w_shape) != 4 or geo.groups != 1 or geo.dilations[1] != 1 or w_shape[3] == 1:
        return 1
    if max(w_shape[:2]) > _FEW:
        return 1
    return next(width for width in (2, 4, 8) if width * w_shape[0] > _FEW or width == _WIDEST)


def pays(w_shape: tuple, geo: Geometry, columns: int) -> bool:
    """Whether `forward_strips` is faster on a CPU than XLA's convolution; not if the number of columns is a symbol."""
    return isinstance(columns, int) and (strip_width(w_shape, geo) > 1 or _odd(w_shape, geo))


def _odd(w_shape: tuple, geo: Geometry) -> bool:
    return len(w_shape) == 4 and geo.groups == 1 and w_shape[1] % 2 == 1 < w_shape[1] and w_shape[0] < _MANY


def forward_strips(x: jax.Array, w: jax.Array, geo: Geometry, columns: int) -> jax.Array:
    """`conv_kernels.forward` of images, of whose result `columns` stand in a row."""
    width, stride = strip_width(w.shape, geo), geo.strides[1]
    if _odd(w.shape, geo):
        x, w = (_filled(value, 1, -w.shape[1] % 4) for value in (x, w))
    strips = -(-columns // width)
    # Past the last column a strip reads zeros, and what it finds there is cut off.
    (top, left), rest = (pad[0] for pad in geo.pads), (strips * width - columns) * stride
    pads = ((top, geo.pads[0][1]), (left, geo.pads[1][1] + rest))
    steps = [(i * stride, (width - 1 - i) * stride) for i in range(width)]
    kernel = jnp.concatenate([_filled(w, 3, after, before) for before, after in steps])
    y = lax.conv_general_dilated(
        x,
        kernel,
        (geo.strides[0], width * stride),
        pads,
        rhs_dilation=geo.dilations,
        dimension_numbers=("NCHW", "OIHW", "NHWC"),
    )
    n, rows = y.shape[:2]
    return y.reshape(n, rows, strips * width, w.shape[0])[:, :, :columns].transpose(0, 3, 1, 2)


def _filled(value: jax.Array, axis: int, after: int, before: int = 0) -> jax.Array:
    """A value with zeros before and after it along an axis."""
    config = [(0, 0, 0)] * value.ndim
    config[axis] = (before, after, 0)
    return lax.pad(value, jnp.zeros((), value.dtype), config)
