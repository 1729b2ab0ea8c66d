"""Passes that fuse several ops into one: batch normalisation into convolutions, products and sums into ``fc``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fluidjax.framework import Operator
from fluidjax.ir.rewriter import NORMALISATIONS, Rewriter, first, setting

_CONVOLUTIONS = ("conv2d", "depthwise_conv2d", "conv3d")


def conv_bn(r: Rewriter) -> int:
    """Fold a convolution, an optional bias and batch normalisation into a convolution with other filters and a bias."""
    found = 0
    while (step := next(_normalised(r), None)) is not None:
        _fold(r, *step)
        found += 1
    return found


def _normalised(r: Rewriter) -> Iterator[tuple[int, int | None, int, np.ndarray, np.ndarray]]:
    """(convolution, bias, batch_norm, filters, offset) that can be folded."""
    for at, op in enumerate(r.ops):
        if op.type not in _CONVOLUTIONS or setting(op, "data_format") not in ("NCHW", "NCDHW", "AnyLayout"):
            continue
        if setting(op, "use_mkldnn") and _more(op):
            continue
        bias, norm = None, r.only_reader(first(op.output("Output")))
        if norm is not None and r.ops[norm].type == "elementwise_add":
            bias, norm = norm, r.only_reader(first(r.ops[norm].output("Out")))
        scaled = _scaled(r, at, bias, norm) if norm is not None else None
        if scaled is not None:
            assert norm is not None
            yield (at, bias, norm, *scaled)


def _more(op: Operator) -> bool:
    """Whether oneDNN's convolution adds something, or applies an activation, before its output is normalised."""
    read = [name for slot in ("Bias", "ResidualData") if slot in op.input_names for name in op.input(slot)]
    return bool(read) or any(setting(op, name) for name in ("fuse_activation", "fuse_relu", "fuse_brelu"))


def _scaled(r: Rewriter, conv: int, bias: int | None, at: int | None) -> tuple[np.ndarray, np.ndarray] | None:
    norm = r.ops[at] if at is not None else None
    if norm is None or norm.type not in NORMALISATIONS or setting(norm, "data_layout") != "NCHW":
        return None
    outputs = [n for slot in norm.output_names if slot != "Y" for n in norm.output(slot)]
    statistics = [first(norm.input(slot)) for slot in ("Mean", "Variance")]
    if not (setting(norm, "is_test") or setting(norm, "use_global_stats")) or _elsewhere(r, at, outputs, statistics):
        return None
    if setting(norm, "use_mkldnn") and setting(norm, "fuse_with_relu"):
        return None
    values = [r.value(first(norm.input(slot))) for slot in ("Scale", "Bias", "Mean", "Variance")]
    filters, added = r.value(first(r.ops[conv].input("Filter"))), _added(r, bias, conv)
    if filters is None or added is None:
        return None
    channels = filters.shape[:1]
    if any(v is None or v.shape != channels for v in values) or np.shape(added) not in ((), (1,), channels):
        return None  # unknown, or what the op itself refuses
    scale, offset, mean, variance = (np.asarray(v, np.float64) for v in values)
    factor = scale / np.sqrt(variance + setting(norm, "epsilon"))
    wide = filters.astype(np.float64) * factor.reshape(-1, *[1] * (filters.ndim - 1))
    return wide.astype(filters.dtype), (offset + (added - mean) * factor).astype(filters.dtype)


def _elsewhere(r: Rewriter, at: int | None, outputs: list[str], statistics: list[str]) -> bool:
    """Whether any other output of batch normalisation is used."""
    return any(n in r.fetches or (n not in statistics and n in r.readers) for n in outputs)


def _added(r: Rewriter, bias: int | None, conv: int) -> Any:
    """The bias in between: 0 if there is none, None if it is not one number per channel."""
    if bias is None:
        return 0.0
    op, name = r.ops[bias], first(r.ops[conv].output("Output"))
    value = r.value(first(op.input("Y")))
    alone = op.input("X") == [name] and setting(op, "axis") == 1 and value is not None and value.ndim == 1
    return value.astype(np.float64) if alone and value is not None else None


def _fold(r: Rewriter, conv: int, bias: int | None, norm: int, filters: np.ndarray, offset: np.ndarray) -> None:
    op, out = r.ops[conv], first(r.ops[norm].output("Y"))
    between = first(op.output("Output"))
    op._rename_input(first(op.input("Filter")), r.hold(first(op.input("Filter")), filters))
    held = r.hold(out, offset)
    r.insert(norm, "elementwise_add", {"X": [between], "Y": [held]}, {"Out": [out]}, {"axis": 1})
    r.remove(norm + 1, *([bias] if bias is not None else []))


def fc(r: Rewriter) -> int:
    """Fuse a product, a sum and an optional relu into ``fc``."""
    found = 0
    while (step := next(_dense(r), None)) is not None:
        product, added, relu = step
        mul, last = r.ops[product], r.ops[relu if relu is not None else added]
        inputs = {"Input": mul.input("X"), "W": mul.input("Y"), "Bias": r.ops[added].input("Y")}
        attrs = {
            "in_num_col_dims": setting(mul, "x_num_col_dims"),
            "activation_type": "relu" if relu is not None else "",
        }
        out = last.output("Out")
        last_at = relu if relu is not None else added
        r.insert(last_at + 1, "fc", inputs, {"Out": out}, attrs)
        r.remove(product, added, *([relu] if relu is not None else []))
        found += 1
    return found


def _dense(r: Rewriter) -> Iterator[tuple[int, int, int | None]]:
    for at, op in enumerate(r.ops):
        if op.type != "mul" or setting(op, "y_num_col_dims") != 1:
            continue
        out, weight = first(op.output("Out")), r.value(first(op.input("Y")))
        added = r.only_reader(out)
        if added is None or weight is None or weight.ndim != 2 or not r.steady(first(op.input("X"))):
            continue
        sum_ = r.ops[added]
        bias = r.value(first(sum_.input("Y"))) if sum_.type == "elementwise_add" and sum_.input("X") == [out] else None
        whole = bias is not None and bias.shape in ((weight.shape[1],), (1, weight.shape[1]))
        declared = r.block._find_var_recursive(out)
        if declared is None:  # in a damaged program
            continue
        rank = len(declared.shape)
        last = setting(sum_, "axis") in (-1, setting(op, "x_num_col_dims"), rank - 1) if whole else False
        if not last or rank != setting(op, "x_num_col_dims") + 1:
            continue
        after = r.only_reader(first(sum_.output("Out")))
        yield at, added, after if after is not None and r.ops[after].type == "relu" else None
