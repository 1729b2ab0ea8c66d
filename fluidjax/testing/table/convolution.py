"""Convolution, pooling and resampling."""

from itertools import product

import numpy as np

from fluidjax.testing.case import away, between, case, distinct, normal


def _conv(x, w, strides, pads, dilations, groups):
    """Correlation of x [N, C, ...] with w [O, C / groups, ...], spelt out tap by tap."""
    x = np.pad(x, ((0, 0), (0, 0), *pads))
    sizes = [
        (n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(x.shape[2:], w.shape[2:], strides, dilations, strict=True)
    ]
    out = np.zeros((x.shape[0], w.shape[0], *sizes))
    per_in, per_out = w.shape[1], w.shape[0] // groups
    for tap in product(*(range(k) for k in w.shape[2:])):
        window = tuple(
            slice(t * d, t * d + (n - 1) * s + 1, s) for t, d, n, s in zip(tap, dilations, sizes, strides, strict=True)
        )
        seen = x[(slice(None), slice(None), *window)]
        for g in range(groups):
            rows, cols = slice(g * per_out, (g + 1) * per_out), slice(g * per_in, (g + 1) * per_in)
            out[:, rows] += np.einsum("nc...,oc->no...", seen[:, cols], w[(rows, slice(None), *tap)])
    return out


def _pairs(paddings, n):
    if len(paddings) == n:
        return [(p, p) for p in paddings]
    return list(zip(paddings[::2], paddings[1::2], strict=True))


def conv2d(Input, Filter, strides=(1, 1), paddings=(0, 0), dilations=(1, 1), groups=1, data_format="NCHW"):
    """NumPy's conv2d: correlation of Input [N, C, H, W] (or NHWC) with Filter [O, C / groups, kh, kw]."""
    x = np.moveaxis(Input, -1, 1) if data_format == "NHWC" else Input
    out = _conv(x, Filter, strides, _pairs(paddings, 2), dilations, groups)
    return np.moveaxis(out, 1, -1) if data_format == "NHWC" else out


def conv3d(Input, Filter, strides=(1, 1, 1), paddings=(0, 0, 0), dilations=(1, 1, 1), groups=1):
    """NumPy's conv3d: correlation of Input [N, C, D, H, W] with Filter [O, C / groups, kd, kh, kw]."""
    return _conv(Input, Filter, strides, _pairs(paddings, 3), dilations, groups)


def _pool(X, pooling_type, ksize, strides=(1, 1), paddings=(0, 0), exclusive=True):
    n, c, h, w = X.shape
    sizes = [(s - k + 2 * p) // t + 1 for s, k, p, t in zip((h, w), ksize, paddings, strides, strict=True)]
    out = np.zeros((n, c, *sizes))
    for i, j in product(*(range(s) for s in sizes)):
        top, left = i * strides[0] - paddings[0], j * strides[1] - paddings[1]
        box = X[:, :, max(top, 0) : top + ksize[0], max(left, 0) : left + ksize[1]]
        if pooling_type == "max":
            out[:, :, i, j] = box.max((2, 3))
        else:
            out[:, :, i, j] = box.sum((2, 3)) / (box[0, 0].size if exclusive else ksize[0] * ksize[1])
    return out


def _adaptive(X, pooling_type, ksize, adaptive):
    (h, w), (oh, ow) = X.shape[2:], ksize
    out = np.zeros((*X.shape[:2], oh, ow))
    for i, j in product(range(oh), range(ow)):
        box = X[:, :, i * h // oh : -(-(i + 1) * h // oh), j * w // ow : -(-(j + 1) * w // ow)]
        out[:, :, i, j] = box.max((2, 3)) if pooling_type == "max" else box.mean((2, 3))
    return out


def _bilinear(X, out_h, out_w, align_corners=True):
    def matrix(n, out):
        ratio = np.float32((n - 1) / (out - 1) if align_corners else n / out)
        at = ratio * np.arange(out, dtype=np.float32)
        low = at.astype(int)
        m = np.zeros((out, n))
        m[np.arange(out), low] += 1 - (at - low)
        m[np.arange(out), np.minimum(low + 1, n - 1)] += at - low
        return m

    return np.einsum("nchw,ih,jw->ncij", X, matrix(X.shape[2], out_h), matrix(X.shape[3], out_w))


def _unfold(X, kernel_sizes, strides, paddings, dilations):
    (kh, kw), (sh, sw), (dh, dw) = kernel_sizes, strides, dilations
    top, left, bottom, right = paddings
    x = np.pad(X, ((0, 0), (0, 0), (top, bottom), (left, right)))
    rows = (x.shape[2] - dh * (kh - 1) - 1) // sh + 1
    cols = (x.shape[3] - dw * (kw - 1) - 1) // sw + 1
    out = np.zeros((X.shape[0], X.shape[1], kh, kw, rows, cols))
    for i, j, r, c in product(range(kh), range(kw), range(rows), range(cols)):
        out[:, :, i, j, r, c] = x[:, :, r * sh + i * dh, c * sw + j * dw]
    return out.reshape(X.shape[0], -1, rows * cols)


def _transposed(Input, Filter, strides, paddings):
    """The adjoint of conv2d, by its matrix."""
    size = [
        (n - 1) * s - 2 * p + k for n, s, p, k in zip(Input.shape[2:], strides, paddings, Filter.shape[2:], strict=True)
    ]
    one = np.zeros((1, Filter.shape[1], *size))
    out = np.zeros((Input.shape[0], *one.shape[1:]))
    for place in np.ndindex(one.shape):
        one[place] = 1
        seen = conv2d(one, Filter, strides, paddings)
        out[(slice(None), *place[1:])] = np.einsum("ncij,cij->n", Input, seen[0])
        one[place] = 0
    return out


X7 = distinct(2, 3, 6, 7)


CASES = [
    case("conv2d", {"Input": normal(2, 3, 5, 6), "Filter": normal(4, 3, 3, 2)}, reference=conv2d, twice=True),
    case(
        "conv2d",
        {"Input": normal(2, 4, 6, 5), "Filter": normal(6, 2, 3, 2)},
        {"strides": [2, 1], "paddings": [1, 2], "dilations": [1, 2], "groups": 2},
        "groups",
        reference=conv2d,
    ),
    case(
        "conv2d",
        {"Input": normal(2, 5, 6, 3), "Filter": normal(4, 3, 2, 2)},
        {"paddings": [1, 0, 0, 2], "data_format": "NHWC"},
        "channels-last",
        reference=conv2d,
    ),
    case(
        "conv2d",
        {"Input": normal(2, 3, 5, 5), "Filter": normal(4, 3, 1, 1)},
        {"strides": [2, 2]},
        "pointwise",
        reference=conv2d,
    ),
    case(
        "depthwise_conv2d",
        {"Input": normal(2, 3, 5, 5), "Filter": normal(6, 1, 3, 3)},
        {"groups": 3, "paddings": [1, 1]},
        reference=conv2d,
    ),
    case(
        "conv3d",
        {"Input": normal(1, 2, 4, 3, 4), "Filter": normal(3, 2, 2, 2, 3)},
        {"paddings": [1, 0, 1]},
        reference=conv3d,
        twice=True,
    ),
    case(
        "conv2d_transpose",
        {"Input": normal(2, 3, 3, 4), "Filter": normal(3, 2, 3, 2)},
        {"strides": [2, 1], "paddings": [1, 0]},
        reference=_transposed,
    ),
    case(
        "depthwise_conv2d_transpose",
        {"Input": normal(2, 3, 3, 3), "Filter": normal(3, 1, 2, 2)},
        {"groups": 3, "strides": [2, 2]},
    ),
    case("conv3d_transpose", {"Input": normal(1, 2, 2, 3, 2), "Filter": normal(2, 3, 2, 2, 2)}, {"strides": [1, 2, 1]}),
    *(
        case(
            "pool2d",
            X7,
            {"pooling_type": kind, "ksize": [3, 2], "strides": [2, 2], "paddings": [1, 1]},
            kind,
            reference=_pool,
        )
        for kind in ("max", "avg")
    ),
    case("pool2d", X7, {"pooling_type": "avg", "ksize": [2, 2], "strides": [2, 2]}, reference=_pool),
    case("pool2d", X7, {"pooling_type": "max", "ksize": [2, 7], "strides": [2, 7]}, "tiles", reference=_pool),
    case(
        "pool2d",
        X7,
        {"pooling_type": "avg", "ksize": [3, 3], "paddings": [1, 1], "exclusive": False},
        "inclusive",
        reference=_pool,
    ),
    *(
        case(
            "pool2d",
            X7,
            {"pooling_type": kind, "ksize": [4, 3], "adaptive": True},
            f"adaptive-{kind}",
            reference=_adaptive,
        )
        for kind in ("max", "avg")
    ),
    case("pool2d", distinct(1, 2, 20, 3), {"pooling_type": "max", "ksize": [18, 2]}, "long", reference=_pool),
    case("pool3d", distinct(1, 2, 4, 4, 5), {"pooling_type": "max", "ksize": [2, 2, 3], "strides": [2, 1, 2]}),
    case("pool3d", distinct(1, 2, 4, 4, 5), {"pooling_type": "avg", "ksize": [2, 2, 3], "paddings": [1, 0, 1]}, "avg"),
    case("max_pool2d_with_index", X7, {"ksize": [3, 2], "strides": [2, 2], "paddings": [1, 0]}),
    case("max_pool3d_with_index", distinct(1, 2, 4, 4, 5), {"ksize": [2, 3, 2], "adaptive": True}),
    case(
        "unpool",
        {"X": normal(1, 2, 2, 2), "Indices": np.tile(np.array([[0, 3], [9, 15]], np.int32), (1, 2, 1, 1))},
        {"ksize": [2, 2], "strides": [2, 2], "unpooling_type": "max"},
    ),
    case("spp", X7, {"pyramid_height": 2, "pooling_type": "max"}),
    case("spp", X7, {"pyramid_height": 3, "pooling_type": "avg"}, "avg"),
    case("bilinear_interp", normal(2, 2, 3, 4), {"out_h": 5, "out_w": 7}, reference=_bilinear, rtol=1e-6),
    case(
        "bilinear_interp",
        normal(2, 2, 5, 4),
        {"out_h": 3, "out_w": 6, "align_corners": False},
        "edges",
        reference=_bilinear,
        rtol=1e-6,
    ),
    case("nearest_interp", normal(2, 2, 3, 4), {"out_h": 5, "out_w": 3, "interp_method": "nearest"}),
    case(
        "bicubic_interp",
        normal(2, 2, 4, 4),
        {"out_h": 6, "out_w": 3, "interp_method": "bicubic", "align_corners": False},
    ),
    case(
        "trilinear_interp",
        normal(1, 2, 2, 3, 4),
        {"out_d": 3, "out_h": 2, "out_w": 5, "interp_method": "trilinear"},
    ),
    case("grid_sampler", {"X": normal(2, 2, 4, 4), "Grid": between(-1.2, 1.2, 2, 4, 4, 2)}),
    case("affine_grid", {"Theta": normal(2, 2, 3)}, {"output_shape": [2, 3, 4, 5]}),
    case(
        "unfold",
        normal(2, 2, 5, 4),
        {"kernel_sizes": [2, 3], "strides": [2, 1], "paddings": [1, 0, 0, 1], "dilations": [1, 1]},
        reference=_unfold,
    ),
    case(
        "pixel_shuffle",
        normal(2, 8, 2, 3),
        {"upscale_factor": 2},
        reference=lambda X, upscale_factor: X.reshape(2, 2, 2, 2, 2, 3).transpose(0, 1, 4, 2, 5, 3).reshape(2, 2, 4, 6),
    ),
    case("space_to_depth", normal(1, 8, 2, 4), {"blocksize": 2}),
    case(
        "shuffle_channel",
        normal(2, 6, 2, 2),
        {"group": 2},
        reference=lambda X, group: X.reshape(2, 2, 3, 2, 2).swapaxes(1, 2).reshape(X.shape),
    ),
    case("temporal_shift", normal(6, 8, 2, 2), {"seg_num": 3}),
    case(
        "deformable_conv",
        {
            "Input": normal(1, 4, 4, 4),
            "Offset": away((-1.0, 0.0, 1.0), 1, 36, 3, 3),
            "Mask": normal(1, 18, 3, 3),
            "Filter": normal(2, 2, 3, 3),
        },
        {"strides": [2, 2], "paddings": [2, 2], "groups": 2, "deformable_groups": 2},
    ),
    case(
        "deformable_conv_v1",
        {"Input": normal(1, 2, 4, 4), "Offset": away((-1.0, 0.0, 1.0), 1, 8, 3, 3), "Filter": normal(3, 2, 2, 2)},
    ),
    case(
        "deformable_psroi_pooling",
        {
            "Input": normal(1, 8, 6, 6),
            "ROIs": np.array([[1.0, 2.0, 8.0, 9.0], [0.0, 1.0, 11.0, 10.0]]),
            "Trans": between(-0.3, 0.3, 2, 2, 2, 2),
        },
        {"no_trans": False, "spatial_scale": 0.5, "output_dim": 2, "group_size": [2, 2], "pooled_height": 2}
        | {"pooled_width": 2, "part_size": [2, 2], "sample_per_part": 2, "trans_std": 0.1},
        rtol=1e-6,
    ),
    case(
        "tree_conv",
        {
            "NodesVector": normal(1, 5, 3),
            "EdgeSet": np.array([[[1, 2], [1, 3], [2, 4], [2, 5]]], np.int32),
            "Filter": normal(3, 3, 2, 2),
        },
    ),
    case("similarity_focus", distinct(2, 3, 4, 3), {"axis": 1, "indexes": [0, 2]}),
    case(
        "fsp",
        {"X": normal(2, 3, 4, 2), "Y": normal(2, 2, 4, 2)},
        reference=lambda X, Y: np.einsum("nihw,njhw->nij", X, Y) / 8,
    ),
    case(
        "rank_attention",
        {
            "X": normal(3, 2),
            "RankOffset": np.array([[1, 1, 0, 2, 1], [2, 1, 0, 2, 1], [0, 0, 0, 0, 0]], np.int32),
            "RankParam": normal(8, 3),
        },
        {"MaxRank": 2},
    ),
]
