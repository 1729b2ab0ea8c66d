"""The shapes and LoD levels that Fluid declares for the results of recurrences over sequences."""

from __future__ import annotations

from lowering.ragged.infer import Facts, Inputs, inferred


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
