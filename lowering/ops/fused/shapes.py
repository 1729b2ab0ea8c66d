"""The shapes and LoD levels that Fluid declares for the results of fused sequence ops."""

from __future__ import annotations

from lowering.program import VarView
from lowering.ragged.infer import Facts, Inputs, columns, inferred


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
