"""For each op with a rule for wide dims: inputs with dims that vary (see ``wide_inputs``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from lowering.values import LoDArray
from tests.stream import wide_cases_boxes, wide_cases_losses
from tests.stream.wide_inputs import Case, Input, below, between, bits, flags, positive, reals


def _one(make: Callable[[str], Input], **attrs: Any) -> tuple[Case, ...]:
    return (Case({"X": make("b n*m 2")}, "bnm", attrs),)


def _two(make: Callable[[str], Input], other: Callable[[str], Input]) -> tuple[Case, ...]:
    return (
        Case({"X": make("b n m"), "Y": other("n m")}, "bnm"),
        Case({"X": make("b n 2"), "Y": other("b 1 2")}, "bn", {"axis": 0}),
    )


def _alike(make: Callable[[str], Input], first: str = "X", second: str = "Y", **attrs: Any) -> tuple[Case, ...]:
    return (Case({first: make("b n*m 1"), second: make("b n*m 1")}, "bnm", attrs),)


def _reduced(make: Callable[[str], Input]) -> tuple[Case, ...]:
    return (
        Case({"X": make("b n*m 2")}, "bnm", {"dim": [1]}),
        Case({"X": make("b n m")}, "bnm", {"dim": [-1, 0], "keep_dim": True}),
        Case({"X": make("b n m")}, "bnm", {"reduce_all": True}),
    )


def _shaped(takes: str, dims: str, /, slot: str = "X", least: int = 1, **attrs: Any) -> Case:
    return Case({slot: reals(dims)}, takes, attrs, least=least)


def _pooled(takes: str, dims: str, pooling_type: str, ksize: list[int], **attrs: Any) -> Case:
    return Case({"X": reals(dims)}, takes, {"pooling_type": pooling_type, "ksize": ksize, **attrs}, least=3)


def _normalised(takes: str, dims: str, *, size: str = "3", **attrs: Any) -> Case:
    learned = {"Scale": reals(size), "Bias": reals(size), "Mean": reals(size), "Variance": positive(size)}
    return Case({"X": reals(dims), **learned}, takes, attrs, backward=not attrs.get("is_test"), least=2)


def _planes(takes: str, dims: str, *, size: str = "3", **attrs: Any) -> Case:
    return Case({"X": reals(dims), "Scale": reals(size), "Bias": reals(size)}, takes, attrs, least=2)


def _resized(dims: str, method: str, scale: Any) -> tuple[Case, ...]:
    """Twice as large, and to a size: by each of the ways that rows are placed."""
    letters, rank = [letter for letter in "bnm" if letter in dims], len(dims.split()) - 2
    ways = [(True, 1), (False, 1), (False, 0)]
    sizes = dict(zip(("out_w", "out_h", "out_d")[:rank], (5, 2, 4), strict=False))
    return tuple(
        _shaped("".join(letters), dims, interp_method=method, align_corners=corners, align_mode=mode, **size)
        for corners, mode in ways
        for size in ({"scale": scale}, sizes)
    )


def _tied(dims: str) -> Input:
    """A few numbers, most of them several times, infinities and NaN among them."""
    few = np.array([-np.inf, -1.5, 0.0, 2.0, np.inf, np.nan])
    return Input(dims, lambda rng, shape: rng.choice(few, shape))


def _products(turned_x: str, turned_y: str) -> tuple[Case, ...]:
    return (
        Case({"X": reals("b h m k"), "Y": reals("b h k n")}, "bhmkn"),
        Case({"X": reals("b k m"), "Y": reals("b n k")}, "bmkn", {turned_x: True, turned_y: True}),
        Case({"X": reals("b m k"), "Y": reals("k n")}, "bmkn"),
        Case({"X": reals("m k"), "Y": reals("k n")}, "mkn"),
    )


def _lengths(rng: np.random.Generator, sizes: Mapping[str, int]) -> np.ndarray:
    """Lengths of three sequences, none longer than n."""
    return rng.integers(1, sizes["n"] + 1, 3)


def _ids(dims: str, slot: str = "Ids") -> tuple[Case, ...]:
    return (Case({"W": reals("6 2"), slot: below(dims, 6)}, "bn", {"padding_idx": 2}),)


def _emissions(**others: Input) -> Mapping[str, Any]:
    return {"Emission": reals("3 n 4"), "Transition": reals("6 4"), **others, "Length": _lengths}


def _rows(rng: np.random.Generator, sizes: Mapping[str, int]) -> LoDArray:
    """Two sequences of rows of n numbers."""
    return LoDArray(rng.standard_normal((3, sizes["n"])), (np.array([0, 1, 3], np.int32),))


def _regions(rng: np.random.Generator, sizes: Mapping[str, int]) -> LoDArray:
    """Three regions of two images, some of which reach beyond them."""
    corners = rng.uniform(-2, 9, (3, 2, 2))
    return LoDArray(np.sort(corners, 1).reshape(3, 4), (np.array([0, 1, 3], np.int32),))


def _pooled_regions(channels: int = 2, **attrs: Any) -> tuple[Case, ...]:
    attrs = {"pooled_height": 2, "pooled_width": 3, **attrs}
    return tuple(
        Case({"X": reals(dims), "ROIs": _regions}, takes, {**attrs, "spatial_scale": scale}, least=2)
        for dims, takes, scale in ((f"2 {channels} n m", "nm", 1.0), (f"2 {channels} n 5", "n", 0.5))
    )


def _places_in(of: str, dims: str) -> Input:
    """Places in dims: one number for each of them, along the last of ``dims``."""
    return Input(dims, lambda rng, shape: rng.random(shape), of)


def _moving(**state: Input) -> tuple[Case, ...]:
    state = {**state, "InAccum": positive("1"), "InState": positive("1")}
    return tuple(Case({"X": reals(dims), **state}, "bn") for dims in ("b n 2", "b*n 3"))


_DEFORMED = {"Input": reals("b 2 n m"), "Filter": reals("3 2 3 3"), "Offset": reals("b 18 n m")}
_UNIT = {"Input": reals("b*n 6"), "HiddenPrev": reals("b*n 2"), "Weight": reals("2 6"), "Bias": reals("1 6")}
_SQUEEZED = (_shaped("bn", "b 1 n 2", axes=[1]), _shaped("bn", "b*n 2 1", axes=[-1]))
_UNSQUEEZED = (_shaped("bn", "b n 2", axes=[1, 3]), _shaped("bn", "b*n 2", axes=[-1]))
_RESHAPED = (
    _shaped("bn", "b n 4", shape=[0, 0, 2, 2]),
    _shaped("bn", "b n 4", shape=[-1, 4]),
    _shaped("bnm", "b n*m 4", shape=[0, -1]),
)
_FLATTENED = (_shaped("abn", "a b n 3", axis=2), _shaped("abn", "a b n", axis=0))
_TURNED = (_shaped("abnm", "a b n*m", axis=[2, 0, 1]),)
_COMPARED = _two(lambda dims: below(dims, 3), lambda dims: below(dims, 3))
_WHOLE = _two(lambda dims: below(dims, 9), lambda dims: below(dims, 5, 1))
_BITWISE = _alike(lambda dims: below(dims, 8))
_SMALLER = (
    Case({"X": reals("1 n"), "Y": positive("b n")}, "bn"),
    Case({"X": reals("n m"), "Y": positive("b n m 2")}, "bnm", {"axis": 1}),
    Case({"X": reals("1"), "Y": positive("b n m")}, "bnm"),
)

CASES: dict[str, tuple[Case, ...]] = {
    **wide_cases_boxes.CASES,
    **wide_cases_losses.CASES,
    **dict.fromkeys(
        "abs assign atan brelu ceil celu cos cosh elu erf exp expm1 fill_any_like fill_zeros_like floor"
        " gelu hard_shrink hard_sigmoid hard_swish leaky_relu logsigmoid mish relu relu6 round selu"
        " sigmoid sign silu sin sinh soft_relu softplus softshrink softsign square stanh swish tan tanh"
        " tanh_shrink thresholded_relu trunc".split(),
        _one(reals),
    ),
    **dict.fromkeys("log log10 log1p log2 reciprocal rsqrt sqrt".split(), _one(positive)),
    **dict.fromkeys(["acos", "asin"], _one(lambda dims: between(dims, 0.1, 0.9))),
    "bitwise_not": _one(lambda dims: below(dims, 8)),
    "logical_not": _one(flags),
    "pow": _one(positive, factor=2.5),
    "clip": _one(reals, min=-0.5, max=0.5),
    "scale": _one(reals, scale=2.0, bias=1.0, bias_after_scale=False),
    "cast": _one(reals, in_dtype=6, out_dtype=3),
    "dropout": (
        _shaped("bnm", "b n m", dropout_prob=0.4),
        _shaped("bnm", "b n*2 m", dropout_prob=0.4, dropout_implementation="upscale_in_train"),
        _shaped("bnm", "b*n 2*m*3 2", dropout_prob=0.4),
    ),
    **dict.fromkeys([f"elementwise_{name}" for name in "add sub mul max min".split()], _two(reals, reals)),
    "elementwise_div": (*_two(reals, positive), *_SMALLER),
    "elementwise_pow": _two(positive, reals),
    **dict.fromkeys(["elementwise_mod", "elementwise_floordiv"], _WHOLE),
    **dict.fromkeys("equal not_equal less_than less_equal greater_than greater_equal".split(), _COMPARED),
    **dict.fromkeys(["bitwise_and", "bitwise_or", "bitwise_xor"], _BITWISE),
    **dict.fromkeys(["logical_and", "logical_or", "logical_xor"], _alike(flags)),
    "sum": (Case({"X": [reals("b n*m"), reals("b n*m"), reals("b n*m")]}, "bnm"),),
    "huber_loss": _alike(reals, delta=0.7),
    "log_loss": _alike(lambda dims: between(dims, 0.1, 0.9), "Predicted", "Labels", epsilon=1e-4),
    "where": (Case({"Condition": flags("b n m"), "X": reals("b n m"), "Y": reals("b n m")}, "bnm"),),
    "concat": (
        Case({"X": [reals("b n 3"), reals("b n 2")]}, "bn", {"axis": -1}),
        Case({"X": [reals("b 2 3"), reals("b n 3"), reals("b 4 3")]}, "bn", {"axis": 1}),
        Case({"X": [reals("2 n 3"), reals("2 1 3")]}, "n", {"axis": 1}),
        Case({"X": [reals("b n"), reals("b n")]}, "bn", {"axis": 1}),
        Case({"X": [reals("2 n*m*2 3"), reals("2 4 3"), reals("2 k*6 3")]}, "nmk", {"axis": 1}),
        Case({"X": [reals("n b"), reals("3 b"), reals("m b")]}, "nmb", {"axis": 0}),
    ),
    "gather": (
        Case({"X": reals("5 n m"), "Index": below("3", 5)}, "nm"),
        Case({"X": reals("5 n m"), "Index": below("k", 5)}, "knm"),
        Case({"X": reals("n 2"), "Index": below("k", 1)}, "kn"),
        Case({"X": reals("b*n*2 3"), "Index": _places_in("b*n*2", "k*m")}, "bnkm"),
    ),
    "gather_nd": (
        Case({"X": reals("b n m"), "Index": _places_in("b n", "k 2")}, "bnmk"),
        Case({"X": reals("3 b*n m"), "Index": _places_in("3 b*n", "k 2")}, "bnmk"),
    ),
    "conv2d": (
        Case({"Input": reals("b 2 n m"), "Filter": reals("3 2 2 3")}, "nm", {"padding_algorithm": "SAME"}),
        Case({"Input": reals("b 2 n m"), "Filter": reals("3 2 2 3")}, "nm", {"paddings": [1, 1, 0, 2]}),
        Case({"Input": reals("b*n 2 m 3"), "Filter": reals("2 2 3 3")}, "bnm", {"paddings": [1, 1]}, least=2),
        Case({"Input": reals("2 2 n m"), "Filter": reals("2 1 2 2")}, "nm", {"strides": [1, 2], "groups": 2}, least=2),
        Case({"Input": reals("b 1 n m"), "Filter": reals("2 1 3 2")}, "bnm", {"strides": [2, 3], "paddings": [1, 2]}),
        Case(
            {"Input": reals("2 1 n m"), "Filter": reals("1 1 2 2")},
            "nm",
            {"strides": [3, 2], "paddings": [0, 1, 2, 0], "dilations": [2, 1]},
            least=3,
        ),
    ),
    "depthwise_conv2d": (
        Case(
            {"Input": reals("b 2 n m"), "Filter": reals("2 1 2 3")},
            "bnm",
            {"groups": 2, "strides": [2, 2], "paddings": [1, 1]},
        ),
    ),
    **dict.fromkeys(
        ["conv2d_transpose", "depthwise_conv2d_transpose"],
        (
            Case({"Input": reals("b 2 n m"), "Filter": reals("2 1 2 3")}, "bnm", {"strides": [2, 3], "groups": 2}),
            Case(
                {"Input": reals("2 2 n m"), "Filter": reals("2 1 3 4")},
                "nm",
                {"strides": [2, 1], "paddings": [1, 0, 1, 2], "groups": 2},
            ),
        ),
    ),
    "nearest_interp": (
        _shaped("bnm", "b 2 n m", scale=2.0, align_corners=False, interp_method="nearest"),
        _shaped("bnm", "b 2 n m", scale=3.0, interp_method="nearest"),
        _shaped("bnm", "b*n 2 3 m", out_h=2, out_w=5, align_corners=False, interp_method="nearest"),
        _shaped("bnm", "b n m 2", scale=2.0, data_layout="NHWC"),
        _shaped("bnm", "b 2 n m", scale=0.5, interp_method="nearest", least=2),
        _shaped("b", "b 2 n m", scale=1.5, interp_method="nearest"),
        _shaped("b", "b 2 n*m 3", scale=2.0),
    ),
    "nearest_interp_v2": (
        _shaped("bnm", "b 2 n m", scale=[2.0, 3.0], align_corners=False, interp_method="nearest"),
        _shaped("bnm", "b 2 n m", scale=[0.25, 1.0], align_corners=False, interp_method="nearest", least=4),
        _shaped("b", "b 2 n m", scale=[1.5], align_corners=False, interp_method="nearest"),
    ),
    **{f"{name}{version}": _resized(dims, name.removesuffix("_interp"), scale)
       for name, dims in (("linear_interp", "b 2 n"), ("bilinear_interp", "b 2 n m"),
                          ("bicubic_interp", "b 2 m n"), ("trilinear_interp", "b 1 3 n m"))
       for version, scale in (("", 2.0), ("_v2", [2.0]))},
    **dict.fromkeys(["roi_pool", "prroi_pool"], _pooled_regions()),
    "roi_align": (*_pooled_regions(), *_pooled_regions(sampling_ratio=2, aligned=True)),
    "psroi_pool": _pooled_regions(12, output_channels=2),
    "prelu": (
        Case({"X": reals("b 3 n m"), "Alpha": reals("3")}, "bnm", {"mode": "channel"}),
        Case({"X": reals("b 3 n"), "Alpha": reals("1")}, "bn", {"mode": "all"}),
    ),
    "conv3d": (Case({"Input": reals("2 1 n 2 m"), "Filter": reals("1 1 2 2 1")}, "nm", {"paddings": [1, 0, 0]}),),
    "deformable_conv": (Case({**_DEFORMED, "Mask": reals("b 9 n m")}, "bnm", {"paddings": [1, 1]}),),
    "deformable_conv_v1": (Case(_DEFORMED, "bnm", {"paddings": [1, 1]}),),
    **dict.fromkeys(["fake_quantize_abs_max", "fake_quantize_dequantize_abs_max"], _one(reals, bit_length=8)),
    **dict.fromkeys(
        ["fake_quantize_moving_average_abs_max", "fake_quantize_dequantize_moving_average_abs_max"],
        _moving(InScale=positive("1")),
    ),
    "moving_average_abs_max_scale": _moving(),
    "pool2d": (
        _pooled("bncm", "b*n c m 3", "max", [1, 1], global_pooling=True),
        _pooled("bcmn", "b c m n", "avg", [1, 1], global_pooling=True),
        _pooled("bmn", "b 2 m n", "max", [1, 1], adaptive=True),
        _pooled("bm", "b 2 m 3", "avg", [1, 2], adaptive=True),
        _pooled("bmn", "b 2 m n", "max", [3, 2], paddings=[2, 1, 0, 0]),
        _pooled("bm", "b 2 m 5", "max", [2, 3], strides=[1, 2], ceil_mode=True),
        _pooled("bmn", "b 2 m n", "avg", [3, 2], paddings=[1, 0, 1, 0]),
        _pooled("bmn", "b 2 m n", "avg", [3, 2], paddings=[1, 1, 1, 0], exclusive=False),
        _pooled("bmn", "b 2 m n", "avg", [3, 2], paddings=[1, 1]),
        _pooled("bmn", "b 2 m n", "max", [2, 2], strides=[2, 2]),
        _pooled("bmn", "b 2 m n", "max", [3, 2], strides=[2, 3], paddings=[1, 1, 0, 0]),
        _pooled("bmn", "b 2 m n", "max", [3, 2], strides=[2, 2], ceil_mode=True),
        _pooled("b", "b 2 m n", "max", [2, 2], strides=[3, 3], ceil_mode=True),
        _pooled("bmn", "b 2 m n", "avg", [3, 2], strides=[2, 2]),
        _pooled("bmn", "b 2 m n", "avg", [3, 2], strides=[2, 2], paddings=[1, 1], exclusive=False),
        _pooled("bmn", "b 2 m n", "avg", [3, 2], strides=[2, 2], ceil_mode=True),
        _pooled("bmn", "b 2 m n", "avg", [3, 2], strides=[2, 2], ceil_mode=True, exclusive=False),
        _pooled("bmn", "b 2 m n", "avg", [2, 3], padding_algorithm="SAME"),
        _pooled("bmn", "b 2 m n", "max", [2, 3], padding_algorithm="SAME"),
        _pooled("bmn", "b 2 m n", "avg", [2, 3], adaptive=True),
        _pooled("bmn", "b 2 m n", "max", [3, 2], adaptive=True),
        _pooled("bmn", "b 2 m n", "avg", [1, 2], adaptive=True),
        _pooled("", "b m n 2", "max", [2, 2], data_format="NHWC"),
    ),
    "pool3d": (
        _pooled("bmn", "b 1 m 3 n", "max", [2, 2, 1], strides=[1, 2, 1], paddings=[1, 0, 0]),
        _pooled("bmn", "b 1 m 3 n", "avg", [2, 2, 1], adaptive=True),
    ),
    "pad": (
        _shaped("bnm", "b n m", paddings=[0, 0, 1, 2, 2, 0], pad_value=3.5),
        _shaped("bnm", "b n*m 2", paddings=[0, 1, 0, 0, 1, 1]),
        _shaped("b", "b n*m", paddings=[0, 0, 1, 1]),
    ),
    "pad2d": (
        _shaped("bnm", "b 2 n m", paddings=[1, 2, 0, 3], pad_value=3.5),
        _shaped("bnm", "b 2 n m", paddings=[2, 1, 3, 0], mode="edge"),
        _shaped("bnm", "b 2 n m", paddings=[2, 1, 3, 2], mode="reflect", least=4),
        _shaped("bnc", "b n 3 c", paddings=[1, 1, 2, 2], mode="reflect", data_format="NHWC", least=3),
        _shaped("b", "b 2 n*m 3", paddings=[1, 0, 0, 0], mode="edge"),
    ),
    "split": (
        Case({"X": reals("b 4 n")}, "bn", {"num": 2, "axis": 1}, {"Out": 2}),
        Case({"X": reals("b n 5")}, "bn", {"sections": [2, 3], "axis": -1}, {"Out": 2}),
    ),
    "stack": (Case({"X": [reals("b n"), reals("b n")]}, "bn", {"axis": 1}),),
    **dict.fromkeys(["transpose", "transpose2"], _TURNED),
    **dict.fromkeys(["reshape", "reshape2"], _RESHAPED),
    **dict.fromkeys(["flatten", "flatten2"], _FLATTENED),
    "flatten_contiguous_range": (_shaped("abn", "a b n 3", start_axis=1, stop_axis=-1),),
    **dict.fromkeys(["squeeze", "squeeze2"], _SQUEEZED),
    **dict.fromkeys(["unsqueeze", "unsqueeze2"], _UNSQUEEZED),
    "slice": (
        _shaped("bn", "b n 4", slot="Input", axes=[2], starts=[1], ends=[3]),
        _shaped("bn", "b n 4", slot="Input", axes=[1], starts=[0], ends=[1], decrease_axis=[1]),
        _shaped("bn", "b n 4", slot="Input", axes=[1], starts=[-1], ends=[2**31 - 1]),
        _shaped("bn", "b n 4", slot="Input", axes=[1], starts=[-1], ends=[0], decrease_axis=[1]),
        _shaped("bn", "b n 4", slot="Input", least=2, axes=[1], starts=[1], ends=[2**31 - 1]),
        _shaped("bn", "b n 4", slot="Input", least=2, axes=[1, 2], starts=[0, 1], ends=[-1, 3]),
        _shaped("bn", "b n 4", slot="Input", least=3, axes=[1], starts=[-3], ends=[2**31 - 1]),
        _shaped("bn", "b n 4", slot="Input", least=3, axes=[1], starts=[-3], ends=[-1]),
        _shaped("bn", "b n 4", slot="Input", least=3, axes=[1], starts=[1], ends=[3]),
        _shaped("b", "b n 4", slot="Input", least=3, axes=[1], starts=[-3], ends=[1]),
        _shaped("bn", "b n 4", slot="Input", least=4, axes=[1], starts=[2], ends=[-1]),
    ),
    "expand_as": (
        Case({"X": reals("b 1 3"), "target_tensor": reals("b n 3")}, "bn"),
        Case({"X": reals("1 n 1"), "target_tensor": reals("b n 3")}, "bn"),
    ),
    "expand": (_shaped("bn", "b n 2", expand_times=[1, 1, 3]), _shaped("b", "b n", expand_times=[1, 2])),
    "tile": (_shaped("bn", "b n 2", repeat_times=[1, 1, 3]), _shaped("b", "b n", repeat_times=[1, 2])),
    "mul": (Case({"X": reals("b n 3"), "Y": reals("3 4")}, "bn", {"x_num_col_dims": 2}),),
    "fc": (Case({"Input": reals("b n 3"), "W": reals("3 4"), "Bias": reals("4")}, "bn", {"in_num_col_dims": 2}),),
    "matmul": _products("transpose_X", "transpose_Y"),
    "matmul_v2": _products("trans_x", "trans_y"),
    "bmm": (Case({"X": reals("b m k"), "Y": reals("b k n")}, "bmkn"),),
    "mean": _one(reals),
    **dict.fromkeys("reduce_sum reduce_mean reduce_max reduce_min".split(), _reduced(reals)),
    "reduce_prod": _reduced(positive),
    **dict.fromkeys(["reduce_all", "reduce_any"], _reduced(flags)),
    "softmax": (_shaped("bnm", "b n*m", axis=-1), _shaped("bn", "b n 3", axis=1)),
    "log_softmax": (_shaped("bn", "b n 3"), _shaped("b", "b n", axis=1)),
    "norm": (_shaped("bn", "b n 3", axis=-1), _shaped("b", "b n", axis=1)),
    "cross_entropy": (
        Case({"X": positive("b n 4"), "Label": below("b n 1", 4)}, "bn"),
        Case({"X": positive("b n 4"), "Label": positive("b n 4")}, "bn", {"soft_label": True}),
    ),
    "cross_entropy2": (Case({"X": positive("b n 4"), "Label": below("b n 1", 4)}, "bn"),),
    "sigmoid_cross_entropy_with_logits": (
        Case({"X": reals("b n*m"), "Label": bits("b n*m")}, "bnm"),
        Case({"X": reals("b n"), "Label": bits("b n")}, "", {"normalize": True, "ignore_index": 0}),
    ),
    "label_smooth": (_shaped("bn", "b n 4", epsilon=0.1),),
    "cumsum": (
        _shaped("bnm", "b n*m 2", axis=1),
        _shaped("bn", "b n 2", axis=1, exclusive=True),
        _shaped("bn", "n b", axis=0, reverse=True, exclusive=True),
        _shaped("", "b n", flatten=True),
    ),
    "reverse": (
        _shaped("bnm", "b n m", axis=[1]),
        _shaped("bn", "n b 2", axis=[0, 2]),
        _shaped("b", "b n*m", axis=[1]),
        _shaped("", "n m", axis=[0, 1]),
    ),
    **dict.fromkeys(
        ["arg_max", "arg_min"],
        (
            Case({"X": _tied("b n m")}, "bnm", {"axis": 1}),
            Case({"X": below("b n 2", 3)}, "bn", {"axis": -2, "keepdims": True}),
            _shaped("bnm", "b n*m", axis=1),
            _shaped("", "b n", axis=1, flatten=True),
        ),
    ),
    "argsort": (
        Case({"X": _tied("b n 2")}, "bn", {"axis": 1}),
        Case({"X": _tied("b n")}, "bn", {"descending": True}),
        Case({"X": below("n b", 3)}, "bn", {"axis": 0, "descending": True}),
        Case({"X": _tied("b n*m*2 2")}, "bnm", {"axis": 1}, backward=False),
    ),
    "top_k": (
        _shaped("bn", "b n 4", k=2),
        Case({"X": _tied("b m n")}, "bmn", {"k": 3}, least=3),
        Case({"X": below("b n", 3)}, "bn", {"k": 1}),
        Case({"X": _tied("b n*m")}, "bnm", {"k": 3}, backward=False, least=2),
    ),
    "top_k_v2": (
        _shaped("bn", "b 4 n", k=2, axis=1),
        Case({"X": _tied("b n 2")}, "bn", {"k": 3, "axis": 1}, least=3),
        Case({"X": _tied("b n")}, "bn", {"k": 2, "largest": False}, least=2),
        Case({"X": below("b n", 3)}, "bn", {"k": 2}, least=2),
    ),
    "lookup_table": _ids("b n 1"),
    "lookup_table_v2": _ids("b n"),
    "one_hot": (Case({"X": below("b n 1", 5)}, "bn", {"depth": 5}),),
    "one_hot_v2": (Case({"X": below("b n", 5)}, "bn", {"depth": 5}),),
    "fill_constant_batch_size_like": (
        Case({"Input": reals("b n 3")}, "bn", {"shape": [4, 1], "input_dim_idx": 1, "output_dim_idx": 1, "value": 2.0}),
    ),
    **dict.fromkeys(
        ["gaussian_random_batch_size_like", "uniform_random_batch_size_like"],
        (
            Case({"Input": reals("b n 3")}, "bn", {"shape": [4, 1, 3], "input_dim_idx": 1, "output_dim_idx": 1}),
            Case({"Input": reals("n m")}, "mn", {"shape": [900, 1, 7], "input_dim_idx": 0, "output_dim_idx": 1}),
            Case({"Input": reals("b n*m")}, "b", {"shape": [4, 1], "input_dim_idx": 1, "output_dim_idx": 1}),
        ),
    ),
    "exponential": (_shaped("bn", "b n 3", **{"lambda": 2.0}),),
    "uniform_random_inplace": (
        _shaped("bnm", "b n m 90", min=0.5, max=2.0),
        _shaped("b", "b n*m 2"),
        _shaped("", "4 n", diag_num=2, diag_step=1, diag_val=7.0),
    ),
    "gaussian_inplace": (_shaped("bnm", "b n 2 m", slot="x", mean=1.0, std=2.0),),
    "layer_norm": (
        Case({"X": reals("b n 3"), "Scale": reals("3"), "Bias": reals("3")}, "bn", {"begin_norm_axis": 2}),
        _shaped("b", "b n 3"),
    ),
    "batch_norm": (
        _normalised("bnm", "b 3 n m"),
        _normalised("bnm", "b n*m 3", data_layout="NHWC", momentum=0.5),
        _normalised("bnm", "b*n 3 m", use_global_stats=True),
        _normalised("bn", "b 3 n", is_test=True),
        _normalised("b", "b n 2", size="n"),
    ),
    "instance_norm": (
        _planes("bnm", "b 3 n m"),
        _planes("bn", "b*n 3 2"),
        _planes("bnm", "b 3 n*m 2"),
        _planes("b", "b n 2", size="n"),
    ),
    "group_norm": (
        _planes("bnm", "b 4 n m", size="4", groups=2),
        _planes("bnm", "b n*m 6", size="6", groups=3, data_layout="NHWC"),
        _planes("bn", "b*n 5 2", size="5", groups=2),
        _shaped("b", "b n 2 2", groups=1),
    ),
    "gru_unit": (Case(_UNIT, "bn"),),
    "lstm_unit": (Case({"X": reals("b*n 8"), "C_prev": reals("b*n 2")}, "bn", {"forget_bias": 0.5}),),
    "linear_chain_crf": (Case(_emissions(Label=below("3 n", 4)), "n"),),
    "crf_decoding": (Case(_emissions(), "n"), Case(_emissions(Label=below("3 n", 4)), "n")),
    "sequence_pad": (Case({"X": _rows, "PadValue": reals("n")}, "", {"padded_length": 3}),),
    "sequence_unpad": (Case({"X": reals("3 n 2"), "Length": _lengths}, "n"),),
}  # fmt: skip
