"""Recurrent units over dense batches, fused pairs, and pooling of regions of interest."""

import numpy as np

from fluidjax.testing.case import away, between, case, distinct, normal
from lowering.values import LoDArray

_GRU = {"Input": normal(4, 6), "HiddenPrev": normal(4, 2), "Weight": normal(2, 6), "Bias": normal(1, 6)}
_ROIS = np.array([[0.0, 0.0, 3.0, 4.0], [1.0, 1.0, 4.0, 4.0], [0.0, 2.0, 5.0, 5.0]])
_SPLIT = np.array([0, 1, 3])
_REGIONS = {"ROIs": _ROIS, "RoisLod": _SPLIT}
_BINS = {"pooled_height": 2, "pooled_width": 2}


def _lstm_unit(X, C_prev, forget_bias):
    i, f, o, j = np.split(X, 4, 1)
    i, f, o = (1 / (1 + np.exp(-v)) for v in (i, f + forget_bias, o))
    c = f * C_prev + i * np.tanh(j)
    return c, o * np.tanh(c)


def _one_lstm(Input, InitH, InitC, W, **attrs):
    """One layer with cuDNN's weights: input and recurrent matrices [4H, in], then two biases; gates i, f, c, o."""
    wx, wh, bias = W[:32].reshape(8, 4), W[32:48].reshape(8, 2), W[48:56] + W[56:64]
    h, c, outs = InitH[0], InitC[0], []
    for x in Input:
        i, f, g, o = np.split(x @ wx.T + h @ wh.T + bias, 4, 1)
        i, f, o = (1 / (1 + np.exp(-v)) for v in (i, f, o))
        c = f * c + i * np.tanh(g)
        h = o * np.tanh(c)
        outs.append(h)
    return np.stack(outs), h[None], c[None]


def _pair(*functors):
    return {"functor_list": list(functors), "axis": -1}


_LSTM = {"Input": normal(3, 2, 4), "InitH": normal(1, 2, 2), "InitC": normal(1, 2, 2), "W": normal(64)}
_YOLO = {"anchors": [10, 13, 16, 30], "anchor_mask": [0, 1], "class_num": 2}

CASES = [
    case("cudnn_lstm", _LSTM, {"input_size": 4, "hidden_size": 2, "max_len": 3}),
    case(
        "cudnn_lstm",
        {"Input": normal(3, 2, 4), "InitH": normal(4, 2, 2), "InitC": normal(4, 2, 2), "W": normal(256)},
        {"input_size": 4, "hidden_size": 2, "max_len": 3, "num_layers": 2, "is_bidirec": True},
        "stacked-both-ways",
    ),
    case("cudnn_lstm", _LSTM, {"input_size": 4, "hidden_size": 2, "max_len": 3}, "cell", reference=_one_lstm),
    case(
        "psroi_pool",
        {"X": normal(2, 8, 6, 6), "ROIs": LoDArray(_ROIS, (_SPLIT.astype(np.int32),))},
        {**_BINS, "output_channels": 2},
    ),
    case(
        "yolov3_loss",
        {
            "X": normal(1, 14, 3, 3),
            "GTBox": np.array([[[0.3, 0.4, 0.2, 0.3], [0.7, 0.6, 0.4, 0.3]]]),
            "GTLabel": np.array([[0, 1]], np.int32),
        },
        _YOLO,
        wrt=("X",),
    ),
    case(
        "yolov3_loss",
        {
            "X": normal(1, 14, 3, 3),
            "GTBox": np.array([[[0.3, 0.4, 0.03, 0.04], [0.32, 0.45, 0.035, 0.04]]]),
            "GTLabel": np.array([[0, 1]], np.int32),
        },
        {**_YOLO, "ignore_thresh": 0.5, "downsample_ratio": 32},
        "shared-cell",
        wrt=("X",),
    ),
    case("gru_unit", _GRU, wrt=("Input", "HiddenPrev", "Weight", "Bias")),
    case("gru_unit", _GRU, {"origin_mode": True}, "origin", wrt=("Input", "HiddenPrev", "Weight", "Bias")),
    case(
        "gru_unit",
        {"Input": away((0,), 4, 6), "HiddenPrev": normal(4, 2), "Weight": normal(2, 6)},
        {"activation": 0, "gate_activation": 2},
        "identity-and-tanh",
        wrt=("Input", "HiddenPrev", "Weight"),
    ),
    case("lstm_unit", {"X": normal(4, 8), "C_prev": normal(4, 2)}, {"forget_bias": 0.5}, reference=_lstm_unit),
    case(
        "fused_elemwise_activation",
        {"X": away((0,), 4, 3), "Y": normal(3)},
        _pair("elementwise_add", "scale") | {"scale": 2.0},
        reference=lambda X, Y, **a: (X + 2 * Y,),
    ),
    case(
        "fused_elemwise_activation",
        {"X": between(1.0, 2.0, 4, 3), "Y": between(-0.5, 0.5, 3)},
        _pair("relu", "elementwise_add"),
        "outer",
        reference=lambda X, Y, **a: (np.maximum(X + Y, 0),),
    ),
    case("im2sequence", normal(2, 3, 4, 5), {"kernels": [2, 2], "strides": [1, 2]}),
    case("roi_align", {"X": normal(2, 3, 6, 6), **_REGIONS}, {**_BINS, "sampling_ratio": 2}),
    case("roi_pool", {"X": distinct(2, 3, 6, 6), **_REGIONS}, _BINS),
    case(
        "prroi_pool",
        {"X": normal(2, 3, 6, 6), "ROIs": _ROIS + 0.125, "BatchRoINums": np.array([1, 2])},
        _BINS,
        wrt=("X",),
    ),
]
