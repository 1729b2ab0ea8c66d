"""The shapes and LoD levels that Fluid declares for the results of losses over sequences."""

from __future__ import annotations

from lowering.ragged.infer import Facts, Inputs, inferred


@inferred
def linear_chain_crf(of: Inputs) -> Facts:
    """Alpha, EmissionExps and TransitionExps like their inputs; LogLikelihood [-1, 1], or [n, 1] with Length."""
    emission, transition = of("Emission"), of("Transition")
    return {
        "Alpha": (emission.shape, 0, emission.dtype),
        "EmissionExps": (emission.shape, 0, emission.dtype),
        "TransitionExps": (transition.shape, 0, transition.dtype),
        "LogLikelihood": ((emission.shape[0] if of.has("Length") else -1, 1), 0, emission.dtype),
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
