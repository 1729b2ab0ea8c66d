"""The shapes and LoD levels that Fluid declares for the results of the sequence ops."""

from __future__ import annotations

from typing import Any

from lowering.errors import OpError
from lowering.ops.nn import windows
from lowering.ragged.infer import Facts, Inputs, columns, inferred


@inferred
def sequence_pool(of: Inputs) -> Facts:
    """Out: X with one LoD level less; MaxIndex, of MAX pooling alone, like X without LoD."""
    x = of.ragged("X")
    facts: dict[str, tuple[Any, ...]] = {"Out": (x.shape, x.lod_level - 1, x.dtype)}
    if str(of.attrs.get("pooltype", "AVERAGE")).upper() == "MAX":
        facts["MaxIndex"] = (x.shape, 0, None)
    return facts


@inferred
def sequence_expand(of: Inputs) -> Facts:
    """Out [-1, ...] with the LoD level of X."""
    x = of("X")
    return {"Out": ((-1, *x.shape[1:]), x.lod_level, x.dtype)}


@inferred
def sequence_expand_as(of: Inputs) -> Facts:
    """Out [-1, ...] with the LoD level of Y."""
    x, y = of("X"), of("Y")
    return {"Out": ((-1, *x.shape[1:]), y.lod_level, x.dtype)}


@inferred
def sequence_concat(of: Inputs) -> Facts:
    """Out: the rows of all X added up (-1 where one is unknown), with the highest LoD level among them."""
    xs = of.all("X")
    rows = sum(x.shape[0] for x in xs) if all(x.shape[0] >= 0 for x in xs) else -1
    return {"Out": ((rows, *xs[0].shape[1:]), max(x.lod_level for x in xs), xs[0].dtype)}


@inferred
def sequence_conv(of: Inputs) -> Facts:
    """Out: X with as many columns as Filter."""
    x, w = of("X"), of("Filter")
    if len(x.shape) != 2 or len(w.shape) != 2:
        raise OpError(
            f"op sequence_conv takes rows of numbers: expected X and Filter of rank 2, received X ({x.name!r})"
            f" {list(x.shape)} and Filter {list(w.shape)}; flatten the rows first (reshape)"
        )
    return {"Out": (columns(x.shape, w.shape[1]), x.lod_level, x.dtype)}


@inferred
def sequence_enumerate(of: Inputs) -> Facts:
    """Out [rows of X, win_size] with the LoD level of X."""
    x = of("X")
    return {"Out": ((x.shape[0], int(of.attrs["win_size"])), x.lod_level, x.dtype)}


@inferred
def sequence_reshape(of: Inputs) -> Facts:
    """Out [-1, new_dim] with the LoD level of X, and at least one."""
    x = of("X")
    return {"Out": ((-1, int(of.attrs["new_dim"])), max(1, x.lod_level), x.dtype)}


@inferred
def sequence_pad(of: Inputs) -> Facts:
    """Out [-1, padded_length, ...] without LoD, 1 (as Fluid says) where padded_length is not given; Length [-1]."""
    x = of.ragged("X")
    padded = int(of.attrs.get("padded_length", -1))
    return {
        "Out": ((-1, padded if padded >= 0 else 1, *x.shape[1:]), 0, x.dtype),
        "Length": ((-1,), 0, None),
    }


@inferred
def sequence_unpad(of: Inputs) -> Facts:
    """Out [-1, ...] of LoD level 1: X without its second dim, and at least [-1, 1]."""
    x = of("X")
    return {"Out": ((-1, *(x.shape[2:] or (1,))), 1, x.dtype)}


@inferred
def sequence_mask(of: Inputs) -> Facts:
    """Y [..., maxlen] in ``out_dtype``; -1 where maxlen comes from a tensor or from the numbers of X."""
    x = of("X")
    maxlen = int(of.attrs.get("maxlen", -1))
    width = -1 if of.has("MaxLenTensor") or maxlen <= 0 else maxlen
    return {"Y": ((*x.shape, width), 0, int(of.attrs["out_dtype"]))}


@inferred
def sequence_topk_avg_pooling(of: Inputs) -> Facts:
    """Out [-1, len(topks) * channel_num] with the LoD level of ROW."""
    row = of("ROW")
    width = len(of.attrs["topks"]) * int(of.attrs["channel_num"])
    return {"Out": ((-1, width), row.lod_level, of("X").dtype)}


@inferred
def lod_reset(of: Inputs) -> Facts:
    """Out: X with the LoD level of Y (at least 1); without Y one level, or one more than X under ``append``."""
    x = of("X")
    if of.has("Y"):
        level = max(of("Y").lod_level, 1)
    else:
        level = x.lod_level + 1 if of.attrs.get("append") else 1
    return {"Out": (x.shape, level, x.dtype)}


@inferred
def im2sequence(of: Inputs) -> Facts:
    """Out [N, C * kh * kw] of LoD level 1: N is Fluid's, the true number of rows is that of the windows."""
    x = of("X")
    kernel, stride, pads = (of.attrs[name] for name in ("kernels", "strides", "paddings"))
    for axis, size in enumerate(x.shape[2:]):
        if size >= 0 and not of.has("Y"):
            windows.count(size, kernel[axis], stride[axis], (pads[axis], pads[axis + 2]))
    return {"Out": ((x.shape[0], x.shape[1] * kernel[0] * kernel[1]), 1, x.dtype)}


@inferred
def edit_distance(of: Inputs) -> Facts:
    """Out like Refs without LoD; SequenceNum [1]."""
    return {"Out": (of("Refs").shape, 0, None), "SequenceNum": ((1,), 0, None)}


@inferred
def match_matrix_tensor(of: Inputs) -> Facts:
    """Out and Tmp [-1, 1]: how many numbers there are follows from the LoD alone."""
    x = of("X")
    return {"Out": ((-1, 1), x.lod_level, x.dtype), "Tmp": ((-1, 1), 0, x.dtype)}


@inferred
def var_conv_2d(of: Inputs) -> Facts:
    """Out and Col [-1, 1]: how many numbers there are follows from the LoD alone."""
    x = of("X")
    return {"Out": ((-1, 1), 0, x.dtype), "Col": ((-1, 1), 0, x.dtype)}


@inferred
def filter_by_instag(of: Inputs) -> Facts:
    """Out: Ins with an unknown number of rows; LossWeight [-1, 1]; IndexMap [-1, 2]."""
    ins = of("Ins")
    return {
        "Out": ((-1, *ins.shape[1:]), 0, ins.dtype),
        "LossWeight": ((-1, 1), 0, None),
        "IndexMap": ((-1, 2), 0, None),
    }
