"""Shape inference of the sequence, recurrent and structured ops.

Their row counts follow from LoD, which exists only at run time: a program says -1 there, or (as Fluid does) keeps
the row count of the input. These functions state Fluid's compile-time shapes and LoD levels directly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lowering.errors import OpError
from lowering.ops.nn import windows
from lowering.program import EMPTY, OpView, VarInfo, VarView

Facts = Mapping[str, tuple[Any, ...]]  # output slot -> (shape, LoD level, dtype number)
Infer = Callable[[OpView, Callable[[str], VarView | None]], dict[str, VarInfo]]


class Inputs:
    """The declared input variables of an op, by slot."""

    def __init__(self, op: OpView, var_of: Callable[[str], VarView | None]):
        self._op, self._var_of = op, var_of
        self.attrs = op.attrs

    def all(self, slot: str) -> list[VarView]:
        """The declared variables bound to a slot, in order; empty and undeclared ones are left out."""
        found = [self._var_of(n) for n in self._op.inputs.get(slot) or () if n != EMPTY]
        return [v for v in found if v is not None]

    def has(self, slot: str) -> bool:
        """Whether a declared variable is bound to a slot."""
        return bool(self.all(slot))

    def __call__(self, slot: str) -> VarView:
        found = self.all(slot)
        if not found:
            raise OpError(
                f"op {self._op.type}: input {slot} is required, and no declared variable is bound to it; received"
                f" inputs {dict(self._op.inputs)}; bind one where the op is appended"
            )
        return found[0]

    def ragged(self, slot: str) -> VarView:
        """An input that needs a LoD already in the program."""
        var = self(slot)
        if var.lod_level < 1:
            raise OpError(
                f"op {self._op.type}: input {slot} ({var.name!r}, shape {list(var.shape)}) has no LoD; expected"
                f" lod_level >= 1, received {var.lod_level}; declare it with lod_level=1 or use lod_reset"
            )
        return var


def inferred(facts: Callable[[Inputs], Facts]) -> Infer:
    """Make a registry ``infer`` function of a function from inputs to facts."""

    def infer(op: OpView, var_of: Callable[[str], VarView | None]) -> dict[str, VarInfo]:
        found = {}
        for slot, (shape, level, dtype) in facts(Inputs(op, var_of)).items():
            for name in op.outputs.get(slot) or ():
                if name != EMPTY:
                    found[name] = VarInfo(tuple(shape), dtype, level)
        return found

    infer.__doc__ = facts.__doc__
    return infer


def like(source: str, out: str = "Out", *, level: int | None = None) -> Infer:
    """``out`` has the shape and dtype of ``source``, and its LoD level unless ``level`` says another."""

    def facts(of: Inputs) -> Facts:
        var = of(source)
        return {out: (var.shape, var.lod_level if level is None else level, var.dtype)}

    return inferred(facts)


def columns(shape: Any, width: int) -> tuple[int, ...]:
    """``shape`` with another last dim."""
    return (*shape[:-1], int(width))


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
    """Out [-1, new_dim] with the LoD level of X."""
    x = of("X")
    return {"Out": ((-1, int(of.attrs["new_dim"])), x.lod_level, x.dtype)}


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


@inferred
def lstm(of: Inputs) -> Facts:
    """Hidden and Cell [rows, H] with the LoD level of Input; the Batch* buffers without, BatchGate like Input."""
    x, w = of("Input"), of("Weight")
    hidden = (x.shape[0], w.shape[0])
    return {
        "Hidden": (hidden, x.lod_level, x.dtype),
        "Cell": (hidden, x.lod_level, x.dtype),
        "BatchGate": (x.shape, 0, x.dtype),
        "BatchCellPreAct": (hidden, 0, x.dtype),
    }


@inferred
def lstmp(of: Inputs) -> Facts:
    """Projection [rows, P] and Cell [rows, H] with the LoD level of Input; the Batch* buffers without."""
    x, proj = of("Input"), of("ProjWeight")
    cell = (x.shape[0], proj.shape[0])
    return {
        "Projection": ((x.shape[0], proj.shape[1]), x.lod_level, x.dtype),
        "Cell": (cell, x.lod_level, x.dtype),
        "BatchGate": (x.shape, 0, x.dtype),
        "BatchCellPreAct": (cell, 0, x.dtype),
        "BatchHidden": (cell, 0, x.dtype),
    }


@inferred
def gru(of: Inputs) -> Facts:
    """Hidden [rows, H] with the LoD level of Input; the Batch* buffers without, BatchGate like Input."""
    x, w = of("Input"), of("Weight")
    hidden = (x.shape[0], w.shape[0])
    return {
        "Hidden": (hidden, x.lod_level, x.dtype),
        "BatchGate": (x.shape, 0, x.dtype),
        "BatchResetHiddenPrev": (hidden, 0, x.dtype),
        "BatchHidden": (hidden, 0, x.dtype),
    }


@inferred
def linear_chain_crf(of: Inputs) -> Facts:
    """Alpha and EmissionExps like Emission, TransitionExps like Transition; LogLikelihood [-1, 1]."""
    emission, transition = of("Emission"), of("Transition")
    return {
        "Alpha": (emission.shape, 0, emission.dtype),
        "EmissionExps": (emission.shape, 0, emission.dtype),
        "TransitionExps": (transition.shape, 0, transition.dtype),
        "LogLikelihood": ((-1, 1), 0, emission.dtype),
    }


@inferred
def crf_decoding(of: Inputs) -> Facts:
    """ViterbiPath [rows, 1], or [n, width] where Length says that Emission is padded."""
    emission = of("Emission")
    shape = emission.shape[:2] if of.has("Length") else (emission.shape[0], 1)
    return {"ViterbiPath": (shape, emission.lod_level, None)}


@inferred
def warpctc(of: Inputs) -> Facts:
    """Loss [-1, 1]: one number for each sequence."""
    return {"Loss": ((-1, 1), 0, of("Logits").dtype)}


@inferred
def ctc_align(of: Inputs) -> Facts:
    """Output [-1, 1]; with InputLength it is like Input, and OutputLength is [n, 1]."""
    x = of("Input")
    if of.has("InputLength"):
        return {"Output": (x.shape, 0, x.dtype), "OutputLength": ((x.shape[0], 1), 0, x.dtype)}
    return {"Output": ((-1, 1), 0, x.dtype)}


@inferred
def fused_embedding_seq_pool(of: Inputs) -> Facts:
    """Out [-1, width]: one row of W for each id in a row of Ids, side by side."""
    w, ids = of("W"), of("Ids")
    width = w.shape[1]
    for dim in ids.shape[1:-1]:
        width *= dim
    return {"Out": ((-1, width), 0, w.dtype)}


def _fused_lstm(of: Inputs, rows: VarView, gates: int) -> Facts:
    hidden = (rows.shape[0], of("WeightH").shape[0])
    dtype = of("WeightH").dtype
    return {
        "Hidden": (hidden, rows.lod_level, dtype),
        "Cell": (hidden, rows.lod_level, dtype),
        "XX": ((rows.shape[0], gates), rows.lod_level, dtype),
    }


@inferred
def fusion_lstm(of: Inputs) -> Facts:
    """Hidden and Cell [rows, H], XX [rows, 4 H] as wide as WeightX; all with the LoD level of X."""
    return _fused_lstm(of, of("X"), of("WeightX").shape[1])


@inferred
def fused_embedding_fc_lstm(of: Inputs) -> Facts:
    """Hidden and Cell [rows, H], XX [rows, 4 H] as wide as Embeddings; all with the LoD level of Ids."""
    return _fused_lstm(of, of("Ids"), of("Embeddings").shape[1])


@inferred
def fusion_gru(of: Inputs) -> Facts:
    """Hidden [rows, H], XX [rows, 3 H] as wide as WeightX; both with the LoD level of X."""
    x, w = of("X"), of("WeightH")
    return {
        "Hidden": ((x.shape[0], w.shape[0]), x.lod_level, x.dtype),
        "XX": ((x.shape[0], of("WeightX").shape[1]), x.lod_level, x.dtype),
    }


@inferred
def attention_lstm(of: Inputs) -> Facts:
    """Hidden and Cell [rows, H], H from C0, with the LoD level of X."""
    x, c0 = of("X"), of("C0")
    hidden = ((x.shape[0], c0.shape[1]), x.lod_level, x.dtype)
    return {"Hidden": hidden, "Cell": hidden}


@inferred
def fusion_seqconv_eltadd_relu(of: Inputs) -> Facts:
    """Out: X with as many columns as Filter; ColMat with as many as Filter has rows, without LoD."""
    x, w = of("X"), of("Filter")
    return {
        "Out": (columns(x.shape, w.shape[1]), x.lod_level, x.dtype),
        "ColMat": (columns(x.shape, w.shape[0]), 0, x.dtype),
    }


@inferred
def fusion_seqexpand_concat_fc(of: Inputs) -> Facts:
    """Out: the first X with as many columns as FCWeight."""
    x = of("X")
    return {"Out": (columns(x.shape, of("FCWeight").shape[1]), x.lod_level, x.dtype)}


@inferred
def fusion_seqpool_concat(of: Inputs) -> Facts:
    """Out [-1, the columns of all X added up] of LoD level 1."""
    xs = of.all("X")
    return {"Out": ((-1, sum(x.shape[1] for x in xs)), 1, xs[0].dtype)}


@inferred
def fusion_seqpool_cvm_concat(of: Inputs) -> Facts:
    """Out [-1, the columns of all X added up] without LoD; each X loses two unless ``use_cvm``."""
    xs = of.all("X")
    gone = 0 if of.attrs.get("use_cvm", True) else 2
    return {"Out": ((-1, sum(x.shape[1] - gone for x in xs)), 0, xs[0].dtype)}
