"""Paddle 2's resizing ops: a scale for each axis, which also determines the spacing of the rows read."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lowering.ops.nn.interpolate import (
    Taps,
    resize,
    resize_axis_grad,
    scaled_size,
    sized,
    spatial_axes,
    taps_of,
)
from lowering.ops.shared import ints, names_in
from lowering.program import VarInfo
from lowering.registry import Sizes, Wise, op
from lowering.sizes.counts import sizes_along
from lowering.symbols import is_symbol
from lowering.values import LoDArray, Meta, concrete


def _scales(rank: int, scale, scale_tensor) -> list[float]:
    """A scale for each axis; zeros where none is given."""
    given = list(scale)
    if scale_tensor is not None:
        given = concrete(scale_tensor, "Scale").reshape(-1).tolist()
    given = [float(v) for v in given] or [0.0]
    return given * rank if len(given) == 1 else given


def _sizes(spatial, scales, out_size, size_tensor, declared) -> list[int]:
    """Sizes after resizing: SizeTensor, else OutSize, else the scales, else out_d, out_h, out_w."""
    if size_tensor:
        return [ints(t, "SizeTensor")[0] for t in size_tensor]
    if out_size is not None:
        return ints(out_size, "OutSize")
    if all(s > 0 for s in scales):
        return [scaled_size(n, s) for n, s in zip(spatial, scales, strict=True)]
    return list(declared)


def _plan(make: Callable[..., Taps], x, tensors, data_layout, align, scale, declared):
    """(axis, its size, its Taps) for each spatial axis; sizes in SizeTensor take the scales' place altogether."""
    out_size, size_tensor, scale_tensor = tensors
    axes = spatial_axes(x, data_layout)
    spatial = sizes_along(x, axes)
    scales = _scales(len(spatial), scale, scale_tensor)
    sizes = _sizes(spatial, scales, out_size, size_tensor, declared[-len(spatial) :])
    if any(not is_symbol(s) and s <= 0 for s in sizes):
        raise ValueError(f"the output sizes are {sizes}; expected positive numbers; give out_h, out_w or scale")
    steps = [0.0] * len(spatial) if size_tensor or min(scales) <= 0 else scales
    dtype = np.float64 if x.dtype == np.float64 else np.float32
    return [(a, out, make(n, out, *align, dtype, s)) for a, n, out, s in zip(axes, spatial, sizes, steps, strict=True)]


def _infer(op, var_of):
    x = var_of(op.inputs["X"][0])
    axes = spatial_axes(x, op.attrs.get("data_layout", "NCHW"))
    shape, known = list(x.shape), [op.attrs.get(n, -1) for n in ("out_d", "out_h", "out_w")[-len(axes) :]]
    scales = _scales(len(axes), op.attrs.get("scale") or (), None)
    if any(names_in(op, slot) for slot in ("OutSize", "SizeTensor", "Scale")):
        known = [-1] * len(axes)
    elif all(s > 0 for s in scales):
        known = [int(shape[a] * np.float32(s)) if shape[a] > 0 else -1 for a, s in zip(axes, scales, strict=True)]
    for axis, size in zip(axes, known, strict=True):
        shape[axis] = size if size > 0 else -1
    return {op.outputs["Out"][0]: VarInfo(tuple(shape), x.dtype, 0)}


def _register(type_: str, doc: str) -> None:
    """One of the types; as in Paddle all run the same kernel, which asks ``interp_method`` alone."""

    def plan(x, tensors, data_layout, out_d, out_h, out_w, scale_, interp_method, align_corners, align_mode):
        make, form = taps_of(interp_method), (align_corners, align_mode)
        return _plan(make, x, tensors, data_layout, form, scale_, (out_d, out_h, out_w))

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
        scale_: list[float] = (),
        interp_method: str = "bilinear",
        align_corners: bool = True,
        align_mode: int = 1,
    ):
        tensors = (out_size, size_tensor, scale)
        steps = plan(x, tensors, data_layout, out_d, out_h, out_w, scale_, interp_method, align_corners, align_mode)
        out = resize(x.data, [(axis, taps) for axis, _, taps in steps], nearest=interp_method == "nearest")
        return sized(x, out, [(axis, size) for axis, size, _ in steps])

    def backward(
        x: Meta, d_out, out_size: Sizes = None, size_tensor: list[Sizes] = None, scale=None, *,
        data_layout, out_d, out_h, out_w, scale_, interp_method, align_corners, align_mode,
    ):  # fmt: skip
        tensors = (out_size, size_tensor, scale)
        steps = plan(x, tensors, data_layout, out_d, out_h, out_w, scale_, interp_method, align_corners, align_mode)
        for axis, _, taps in steps:
            d_out = resize_axis_grad(d_out, axis, taps)
        return d_out

    forward.__doc__ = doc
    op(type_, diff="x", lod=None, rows=Wise("x"), infer=_infer)(forward).grad(backward, rows=Wise("d_out"))


_register("nearest_interp_v2", "Out = the nearest element of X [N, C, (D, H,) W] at each place.")
_register("linear_interp_v2", "Out = X [N, C, W] resized by weights of the 2 neighbours.")
_register("bilinear_interp_v2", "Out = X [N, C, H, W] resized by weights of the 2 x 2 neighbours.")
_register("trilinear_interp_v2", "Out = X [N, C, D, H, W] resized by the 2 x 2 x 2 neighbours.")
_register("bicubic_interp_v2", "Out = X resized by cubic convolution of the 4 x 4 neighbours.")
