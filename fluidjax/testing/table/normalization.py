"""Normalisation."""

import numpy as np

from fluidjax.testing.case import case, normal, positive


def _stats(x, axes):
    return x.mean(axes, keepdims=True), x.var(axes, keepdims=True)


def _batch_norm(X, Scale, Bias, Mean, Variance, is_test=False, data_layout="NCHW", momentum=0.9):
    x = np.moveaxis(X, -1, 1) if data_layout == "NHWC" else X
    axes = tuple(d for d in range(x.ndim) if d != 1)
    m, v = (Mean, Variance) if is_test else (x.mean(axes), x.var(axes))
    wide = [v.reshape(1, -1, *[1] * (x.ndim - 2)) for v in (m, v, Scale, Bias)]
    y = (x - wide[0]) / np.sqrt(wide[1] + np.float32(1e-5)) * wide[2] + wide[3]
    y = np.moveaxis(y, 1, -1) if data_layout == "NHWC" else y
    share = 0.0 if is_test else 1 - float(np.float32(momentum))
    return y, Mean * (1 - share) + m * share, Variance * (1 - share) + v * share


def _layer_norm(X, Scale, Bias, begin_norm_axis=1):
    flat = X.reshape(int(np.prod(X.shape[:begin_norm_axis])), -1)
    m, v = _stats(flat, 1)
    y = (flat - m) / np.sqrt(v + np.float32(1e-5)) * Scale + Bias
    return y.reshape(X.shape), m[:, 0], v[:, 0]


def _instance_norm(X, Scale, Bias):
    m, v = _stats(X, (2, 3))
    inv = 1 / np.sqrt(v + np.float32(1e-5))
    return (X - m) * inv * Scale[:, None, None] + Bias[:, None, None], m.reshape(-1), inv.reshape(-1)


def _group_norm(X, Scale, Bias, groups):
    x = X.reshape(X.shape[0], groups, -1)
    m, v = _stats(x, 2)
    y = ((x - m) / np.sqrt(v + np.float32(1e-5))).reshape(X.shape)
    return y * Scale[:, None, None] + Bias[:, None, None], m[..., 0], v[..., 0]


def _uneven_groups(X, Scale, Bias, groups, data_layout):
    """Five channels in three groups: two, two and one."""
    x = np.moveaxis(X, -1, 1) if data_layout == "NHWC" else X
    parts = [x[:, :2], x[:, 2:4], x[:, 4:]]
    stats = [_stats(p, (1, 2, 3)) for p in parts]
    y = np.concatenate([(p - m) / np.sqrt(v + np.float32(1e-5)) for p, (m, v) in zip(parts, stats, strict=True)], 1)
    y = y * Scale[:, None, None] + Bias[:, None, None]
    m, v = (np.stack([s[k].reshape(-1) for s in stats], 1) for k in (0, 1))
    return np.moveaxis(y, 1, -1) if data_layout == "NHWC" else y, m, v


def _data_norm(X, BatchSize, BatchSum, BatchSquareSum):
    means, scales = BatchSum / BatchSize, np.sqrt(BatchSize / BatchSquareSum)
    return (X - means) * scales, means, scales


def _lrn(X, n, k, alpha, beta):
    padded = np.pad(X**2, ((0, 0), (n // 2, n // 2), (0, 0), (0, 0)))
    mid = k + alpha * sum(padded[:, i : i + X.shape[1]] for i in range(n))
    return X * mid**-beta, mid


BN = {"Scale": normal(3), "Bias": normal(3), "Mean": normal(3), "Variance": positive(3)}
AFFINE = {"Scale": normal(4), "Bias": normal(4)}
SUMS = {"BatchSize": positive(3), "BatchSum": normal(3), "BatchSquareSum": positive(3)}

CASES = [
    case("batch_norm", {"X": normal(4, 3, 2, 2), **BN}, reference=_batch_norm),
    case("batch_norm", {"X": normal(4, 2, 2, 3), **BN}, {"data_layout": "NHWC"}, "last", reference=_batch_norm),
    case("batch_norm", {"X": normal(4, 3), **BN}, {"is_test": True}, "test", reference=_batch_norm, smooth=False),
    case("batch_norm", {"X": normal(4, 3), **BN}, {"use_global_stats": True}, "global"),
    case("sync_batch_norm", {"X": normal(4, 3, 2, 2), **BN}, reference=_batch_norm),
    case("sync_batch_norm", {"X": normal(4, 3), **BN}, {"is_test": True}, "test", reference=_batch_norm, smooth=False),
    case("sync_batch_norm", {"X": normal(4, 3), **BN}, {"use_global_stats": True}, "global"),
    case("inplace_abn", {"X": normal(4, 3, 2), **BN}, {"activation": "leaky_relu"}),
    case("inplace_abn", {"X": normal(4, 3, 2), **BN}, {"activation": "elu", "alpha": 0.7}, "elu"),
    case("layer_norm", {"X": normal(4, 3, 2), "Scale": normal(6), "Bias": normal(6)}, reference=_layer_norm),
    case(
        "layer_norm",
        {"X": normal(4, 3, 2), "Scale": normal(2), "Bias": normal(2)},
        {"begin_norm_axis": 2},
        "axis",
        reference=_layer_norm,
    ),
    case("layer_norm", {"X": normal(4, 3)}, label="bare"),
    case("instance_norm", {"X": normal(2, 4, 3, 3), **AFFINE}, reference=_instance_norm, twice=True),
    case("group_norm", {"X": normal(2, 4, 3, 3), **AFFINE}, {"groups": 2}, reference=_group_norm),
    case("group_norm", {"X": normal(2, 3, 3, 4), **AFFINE}, {"groups": 2, "data_layout": "NHWC"}, "last"),
    case("group_norm", {"X": normal(2, 4, 3, 3)}, {"groups": 2}, "bare"),
    case("group_norm", {"X": normal(2, 3, 3, 4)}, {"groups": 2, "data_layout": "NHWC"}, "last-plain"),
    *(
        case(
            "group_norm",
            {"X": normal(2, *(shape if layout == "NCHW" else reversed(shape))), "Scale": normal(5), "Bias": normal(5)},
            {"groups": 3, "data_layout": layout},
            f"uneven-{layout}",
            reference=_uneven_groups,
        )
        for layout in ("NCHW", "NHWC")
        for shape in ((5, 2, 3),)
    ),
    case("data_norm", {"X": normal(4, 3), **SUMS}, wrt=("X",), reference=_data_norm),
    case(
        "data_norm",
        {"X": normal(4, 3), **SUMS, "scale_w": normal(3), "bias": normal(3)},
        {"enable_scale_and_shift": True},
        "affine",
        wrt=("X", "scale_w", "bias"),
    ),
    case(
        "spectral_norm",
        {"Weight": normal(3, 4), "U": normal(3), "V": normal(4)},
        {"power_iters": 0},
        reference=lambda Weight, U, V, power_iters: Weight / (U @ Weight @ V),
    ),
    case(
        "lrn",
        normal(2, 6, 2, 3),
        {"n": 3, "k": 1.5, "alpha": 0.5, "beta": 0.75},
        reference=_lrn,
    ),
    case(
        "affine_channel",
        {"X": normal(2, 4, 3, 2), **AFFINE},
        {"data_layout": "NCHW"},
        reference=lambda X, Scale, Bias, data_layout: X * Scale[:, None, None] + Bias[:, None, None],
    ),
    case("affine_channel", {"X": normal(2, 3, 4), **AFFINE}, {"data_layout": "NHWC"}, "last"),
    case("dropout", {"X": normal(5, 4)}, {"dropout_prob": 0.4}),
    case(
        "dropout", {"X": normal(5, 4)}, {"dropout_prob": 0.4, "dropout_implementation": "upscale_in_train"}, "upscale"
    ),
    case(
        "dropout",
        {"X": normal(5, 4)},
        {"dropout_prob": 0.25, "is_test": True},
        "test",
        reference=lambda X, **a: X * 0.75,
        wrt=(),
    ),
]
