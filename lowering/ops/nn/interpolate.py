"""bilinear_interp, nearest_interp, trilinear_interp, bicubic_interp: resizing images, one axis at a time.

Every method is a sparse matrix per axis: output row i = sum over taps of weight[t, i] * input row index[t, i]. The
forward pass gathers and adds; the gradient multiplies by the dense matrix, which is faster than a scatter on CPU.
"""

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lowering.errors import NeedsExact
from lowering.ops import fitting
from lowering.ops.shared import ints
from lowering.program import VarInfo
from lowering.ragged.rows import without_lod
from lowering.registry import MASKED, Sizes, Wise, op
from lowering.sizes.counts import RowSize, sizes_along, with_rows
from lowering.symbols import is_symbol
from lowering.values import Axis, LoDArray, Meta, Wide, concrete


class Taps(NamedTuple):
    """index and weight [taps, out] along one axis of `size` rows. Fluid works out positions in float32 and double by
    turns; so do the functions below. Sizes may be those of dims with room: then there are taps for all the room.
    """

    index: np.ndarray
    weight: np.ndarray
    size: int

    def matrix(self) -> np.ndarray:
        """The dense matrix [out, size]."""
        dense = np.zeros((self.index.shape[1], self.size), self.weight.dtype)
        if not isinstance(self.index, np.ndarray):
            return jnp.asarray(dense).at[np.arange(len(dense)), self.index].add(self.weight)
        for index, weight in zip(self.index, self.weight, strict=True):
            np.add.at(dense, (np.arange(len(index)), index), weight)
        return dense


def _module(*sizes: Any) -> Any:
    """NumPy, or ``jax.numpy`` where a run decides a size: then it works out the taps."""
    return jnp if any(is_symbol(n) or isinstance(n, (jax.Array, RowSize)) for n in sizes) else np


def _used(size: Any) -> Any:
    """A size; of a dim with room, the number of used positions."""
    return size.nrows if isinstance(size, RowSize) else size


def _steps(ratio: Any, out: Any) -> Any:
    """Where the rows of the output lie: the ratio times their numbers, in float32."""
    xp = _module(out)
    found = ratio * xp.arange(out, dtype=np.float32)
    return found if xp is np and isinstance(found, np.ndarray) else _rounded(found)


def _ratio(size, out, align_corners, scale=0.0):
    """Rows of the input for a row of the output; what the scale says where it is given (Paddle 2)."""
    size, out = _used(size), _used(out)
    xp, corner = _module(size, out), int(align_corners)
    several = xp.asarray(out, np.int32) > 1
    if scale > 0 and not align_corners:
        return xp.where(several, np.float32(1 / np.float32(scale)), 0).astype(np.float32)
    rows, steps = (xp.asarray(n - corner, np.float64) for n in (size, out))
    return xp.where(several, rows / xp.where(several, steps, 1), 0).astype(np.float32)


def nearest_taps(size: int, out: int, align_corners: bool, align_mode: int, dtype: np.dtype, scale=0.0) -> Taps:
    """The nearest row: rounded with align_corners, else cut off."""
    xp = _module(size, out)
    position = _steps(_ratio(size, out, align_corners, scale), out)
    index = (position + (0.5 if align_corners else 0)).astype(np.int32)
    return Taps(xp.minimum(index, _last(xp, size))[None], xp.ones((1, out), np.float32), size)


def _last(xp, size):
    return xp.asarray(_used(size) - 1, np.int32)


def _half_pixel(size, out, scale):
    places = _module(size, out).arange(out, dtype=np.float64) + 0.5
    return _ratio(size, out, False, scale).astype(np.float64) * places - 0.5


def linear_taps(size: int, out: int, align_corners: bool, align_mode: int, dtype: np.dtype, scale=0.0) -> Taps:
    """Two neighbours; align_mode 0 without align_corners places rows at half pixels."""
    xp = _module(size, out)
    if align_mode == 0 and not align_corners:
        position = xp.maximum(_half_pixel(size, out, scale), 0)
    else:
        position = _steps(_ratio(size, out, align_corners, scale), out)
    low = position.astype(np.int32)
    upper = position.astype(np.float32) - low.astype(np.float32)
    return Taps(xp.minimum(xp.stack([low, low + 1]), _last(xp, size)), xp.stack([1 - upper, upper]), size)


def cubic_taps(size: int, out: int, align_corners: bool, align_mode: int, dtype: np.dtype, scale=0.0) -> Taps:
    """Four neighbours with the cubic convolution kernel, a = -0.75; rows beyond the edge repeat it."""
    xp = _module(size, out)
    if align_corners:
        position = _steps(_ratio(size, out, True), out)
    else:
        position = _half_pixel(size, out, scale)
    position = position.astype(dtype)
    base = xp.floor(position).astype(np.int32)
    t = position - base.astype(dtype)
    weights = xp.stack([_cubic_far(t + 1), _cubic_near(t), _cubic_near(1 - t), _cubic_far(2 - t)])
    index = xp.clip(base + np.arange(-1, 3, dtype=np.int32)[:, None], 0, _last(xp, size))
    return Taps(index, weights.astype(dtype), size)


def _cubic_near(x, a=-0.75):
    return ((a + 2) * x - (a + 3)) * x * x + 1


def _cubic_far(x, a=-0.75):
    return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a


def resize_axis(x, axis, taps: Taps):
    """X resized along one axis: the sum of its rows at the taps, times their weights."""
    shape = [1] * x.ndim
    shape[axis] = -1
    rows = [
        jnp.take(x, jnp.asarray(i), axis=axis) * jnp.asarray(w, x.dtype).reshape(shape)
        for i, w in zip(taps.index, taps.weight, strict=True)
    ]
    return sum(rows[1:], rows[0])


def resize_axis_grad(dy, axis, taps: Taps):
    """The gradient of ``resize_axis``."""
    product = jnp.tensordot(dy, jnp.asarray(taps.matrix(), dy.dtype), axes=((axis,), (0,)))
    return jnp.moveaxis(product, -1, axis)


def scaled_size(size, scale):
    """size * scale, cut off; of a symbol, by the fraction that the scale is.

    Raises NeedsSizes for a part of a dim with room.
    """
    if isinstance(size, RowSize):
        return size.times(scale)
    if not is_symbol(size):
        return int(size * np.float32(scale))
    above, below = np.float32(scale).item().as_integer_ratio()
    return size * above // below


def _target_sizes(spatial, out_size, size_tensor, scale_tensor, attrs):
    """Sizes after resizing: SizeTensor, else OutSize, else a scale, else out_d, out_h, out_w."""
    names = ("out_d", "out_h", "out_w")[-len(spatial) :]
    if size_tensor:
        return [ints(t, "SizeTensor")[0] for t in size_tensor]
    sizes = [attrs[name] for name in names]
    scale = attrs["scale"]
    if scale_tensor is not None:
        scale = float(concrete(scale_tensor, "Scale").reshape(-1)[0])
    if scale > 0:
        sizes = [scaled_size(s, scale) for s in spatial]
    if out_size is not None:
        sizes = ints(out_size, "OutSize")
    return sizes


def _declared_sizes(op, spatial):
    """What the sizes are when the program is built: -1 where a tensor gives them.

    Beside SizeTensor the attributes hold what is known of it.
    """
    known = [op.attrs.get(name, -1) for name in ("out_d", "out_h", "out_w")[-len(spatial) :]]
    if op.inputs.get("SizeTensor"):
        return [k if k > 0 else -1 for k in known]
    scale = op.attrs.get("scale", 0.0)
    if scale > 0:
        known = [int(s * np.float32(scale)) if s > 0 else -1 for s in spatial]
    scaled = bool(op.inputs.get("Scale"))
    return [k if k > 0 and not scaled else -1 for k in known]


def _infer(op, var_of):
    x = var_of(op.inputs["X"][0])
    axes = spatial_axes(x, op.attrs.get("data_layout", "NCHW"))
    shape = list(x.shape)
    for axis, size in zip(axes, _declared_sizes(op, [shape[a] for a in axes]), strict=True):
        shape[axis] = size
    return {op.outputs["Out"][0]: VarInfo(tuple(shape), x.dtype, 0)}


def spatial_axes(x, data_layout):
    """The axes of an image that are no batch and no channels."""
    return range(1, len(x.shape) - 1) if data_layout in ("NHWC", "NDHWC") else range(2, len(x.shape))


def sized(x: LoDArray | Wide, out, plan: Sequence[tuple[int, Any]]):
    """The result for X, with room along the axes whose size is a ``RowSize``; ``plan`` tells the size for each axis.

    Raises NeedsExact if rows have LoD, or are padded, beside.
    """
    sizes = {axis: size for axis, size in plan if isinstance(size, RowSize)}
    if isinstance(x, LoDArray):
        if sizes and (x.padded or x.lod):
            raise NeedsExact("images of the size of a dim are rows of sequences")
        return with_rows(out, [sizes.get(a, n) for a, n in enumerate(out.shape)]) if sizes else x.with_data(out)
    resized = {axis for axis, _ in plan}
    kept = [(axis, n) for axis, n in zip(x.axes, x.counts, strict=True) if axis.dim not in resized]
    found = [*kept, *((Axis(a, int(n), n.label), n.nrows) for a, n in sizes.items())]
    axes, counts = zip(*sorted(found, key=lambda one: (one[0].dim, -one[0].inner)), strict=True) if found else ((), ())
    return Wide(out, counts, axes) if axes else out


def _plan(make: Callable[..., Taps], x, out_size, size_tensor, scale_tensor, data_layout, align, **attrs):
    """(axis, its size, its Taps) for each spatial axis."""
    axes = spatial_axes(x, data_layout)
    spatial = sizes_along(x, axes)
    sizes = _target_sizes(spatial, out_size, size_tensor, scale_tensor, attrs)
    if any(not is_symbol(s) and s <= 0 for s in sizes):
        raise ValueError(f"the output sizes are {sizes}; expected positive numbers; give out_h, out_w or scale")
    dtype = np.float64 if x.dtype == np.float64 else np.float32
    return [(a, out, make(n, out, *align, dtype)) for a, n, out in zip(axes, spatial, sizes, strict=True)]


def resize(x, plan: Sequence[tuple[int, Taps]], *, nearest):
    """X resized along each axis, as its taps say."""
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return integer_resize(x, plan)
    for axis, taps in plan:
        x = jnp.take(x, jnp.asarray(taps.index[0]), axis=axis) if nearest else resize_axis(x, axis, taps)
    return x


def integer_resize(x, plan):
    """All taps in one float32 sum, in the kernel's order, since the result is cut off to an integer.

    The last of three axes moves first, but of two axes the first.
    """
    total, turn = jnp.zeros((), jnp.float32), 1 if len(plan) == 3 else -1
    for chosen in product(*(range(len(taps.index)) for _, taps in plan[::turn])):
        term = x.astype(jnp.float32)
        for (axis, taps), t in zip(plan, chosen[::turn], strict=True):
            shape = [-1 if d == axis else 1 for d in range(x.ndim)]
            term = jnp.take(term, jnp.asarray(taps.index[t]), axis=axis) * jnp.asarray(taps.weight[t]).reshape(shape)
        total = total + _rounded(term)
    return total.astype(x.dtype)


def _rounded(product):
    """A product that is rounded before it is added: XLA:CPU multiplies and adds in one step otherwise.

    The select lets every number pass and keeps the two apart.
    """
    return jnp.where(product == product, product, 0)


def _backward(make, x: Meta, d_out, *args, **attrs):
    for axis, _, taps in _plan(make, x, *args, **attrs):
        d_out = resize_axis_grad(d_out, axis, taps)
    return d_out


_METHODS = {
    "nearest": nearest_taps,
    "linear": linear_taps,
    "bilinear": linear_taps,
    "trilinear": linear_taps,
    "bicubic": cubic_taps,
}


def taps_of(interp_method: str) -> Callable[..., Taps]:
    """How positions are weighed, which the attribute says whatever the op is called. Raises ValueError for others."""
    if interp_method not in _METHODS:
        raise ValueError(f"interp_method is {interp_method!r}, expected one of {', '.join(_METHODS)}")
    return _METHODS[interp_method]


def _register(type_: str, doc: str) -> None:
    """One of the types; as in Fluid all run the same kernel, which asks ``interp_method`` alone."""

    def forward(
        x: LoDArray,
        out_size: Sizes = None,
        size_tensor: list[Sizes] = None,
        scale=None,
        *,
        data_layout: str = "NCHW",
        out_d: int = 0,
        out_h: int = 0,
        out_w: int = 0,
        scale_: float = 0.0,
        interp_method: str = "bilinear",
        align_corners: bool = True,
        align_mode: int = 1,
    ):
        make = taps_of(interp_method)
        plan = _plan(
            make, x, out_size, size_tensor, scale, data_layout, (align_corners, align_mode),
            out_d=out_d, out_h=out_h, out_w=out_w, scale=scale_,
        )  # fmt: skip
        out = resize(x.data, [(axis, taps) for axis, _, taps in plan], nearest=make is nearest_taps)
        keeps = isinstance(x, Wide) or (out_size is not None and not size_tensor)  # with OutSize alone Fluid keeps LoD
        return sized(x if keeps else without_lod(x), out, [(axis, size) for axis, size, _ in plan])

    def backward(
        x: Meta, d_out, out_size: Sizes = None, size_tensor: list[Sizes] = None, scale=None, *,
        data_layout, out_d, out_h, out_w, scale_, interp_method, align_corners, align_mode,
    ):  # fmt: skip
        return _backward(
            taps_of(interp_method), x, d_out, out_size, size_tensor, scale, data_layout, (align_corners, align_mode),
            out_d=out_d, out_h=out_h, out_w=out_w, scale=scale_,
        )  # fmt: skip

    forward.__doc__ = doc
    definition = op(type_, diff="x", lod=None, rows=MASKED, infer=_infer)(forward)
    definition.grad(backward, rows=Wise("d_out"))
    definition.fits(_fits)


_KNOWN = {3: ("linear",), 4: ("bilinear", "nearest", "bicubic"), 5: ("trilinear",)}  # by the rank of X


def _fits(x, *, interp_method):
    fitting.rank("X", x, *_KNOWN)
    fitting.one_of("interp_method", interp_method, _KNOWN[len(x.shape)])


_register("nearest_interp", "Out = the nearest pixel of X at out_h x out_w.")
_register("linear_interp", "Out = X [N, C, W] resized to out_w by weights of the 2 neighbours.")
_register("bilinear_interp", "Out = X resized to out_h x out_w by weights of the 2 x 2 neighbours.")
_register("trilinear_interp", "Out = X [N, C, D, H, W] resized by weights of the 2 x 2 x 2 neighbours.")
_register("bicubic_interp", "Out = X resized to out_h x out_w by cubic convolution of 4 x 4 neighbours.")
