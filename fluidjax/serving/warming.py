"""Warming up: runs the model on random inputs before the first request, to compile it and to test for independence.

Samples may be batched if no output of one depends on the others. This is tested by running two requests of different
sizes, with random values, alone and together. A user who knows better can disable batching with ``--max-batch
1``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fluidjax.base.lod import lengths_to_offsets
from fluidjax.serving.batching import Mixed, joined, split
from fluidjax.serving.model import ServedModel
from fluidjax.serving.tensors import Tensor, Variable

# The default values of open sizes: a batch's own size, the rows of sequences, images of 32 pixels.
_LENGTH, _OPEN = 8, 32
# The lengths of sequences that batches are compiled for ahead; what is shorter fits into the room of what is longer.
_LENGTHS = (32, _LENGTH)
# What outputs computed together may differ by from those computed alone, relative to the largest: sums round otherwise.
_TOLERANCE = 1e-4

Shapes = Mapping[str, tuple[int, ...]]


def warm_up(model: ServedModel, max_batch: int, shapes: Shapes) -> str | None:
    """Run the model at all batch sizes. Returns the reason why requests cannot be batched, or None.

    Args:
        max_batch: maximum number of samples per batch.
        shapes: complete shapes of inputs with unknown dimensions besides the first.
    """
    states = model.states()
    try:
        return _tried(model, max_batch, shapes)
    except Exception as error:  # what is made up need not suit the model: the requests will
        return f"made-up inputs do not suit the model ({' '.join(str(error).split())[:200]})"
    finally:
        model.restore(states)


def _tried(model: ServedModel, max_batch: int, shapes: Shapes) -> str | None:
    rng = np.random.default_rng(0)

    def drawn(lengths: Sequence[int]) -> dict[str, Tensor]:
        return {name: _drawn(var, lengths, shapes.get(name), rng) for name, var in model.inputs.items()}

    requests = [drawn([_LENGTH]), drawn([5, 3])]
    alone = [model.run(request) for request in requests]
    reason = _never(model, max_batch)
    if reason:
        return reason
    try:
        together = split(model.run(joined(requests)), [1, 2])
    except Mixed:
        return "its outputs are not one for each sample"
    if not all(map(_same, alone, together)):
        return "a sample's outputs depend on the others of its batch"
    ragged = any(var.lod_level for var in model.inputs.values())
    for samples in reversed(_sizes(max_batch)):
        for length in _LENGTHS if ragged else _LENGTHS[:1]:
            model.run(drawn([length] * samples))
    return None


def _never(model: ServedModel, max_batch: int) -> str | None:
    """Reasons that rule out batching from the start."""
    if max_batch == 1:
        return "batches have one sample"
    if model.state:
        return f"each run changes {', '.join(model.state)}"
    fixed = [v.name for v in model.inputs.values() if not v.lod_level and v.shape[:1] != (-1,)]
    if fixed or not model.inputs:
        return f"the model fixes the first size of {', '.join(fixed)}" if fixed else "the model has no inputs"
    return None


def _sizes(most: int) -> list[int]:
    """The batch sizes that batches are padded to."""
    return [1 << n for n in range((most - 1).bit_length() + 1)]


def _drawn(var: Variable, lengths: Sequence[int], shape: tuple[int, ...] | None, rng: np.random.Generator) -> Tensor:
    """Random values (0 and 1 for integers), with the given sequence lengths or number of samples."""
    first, *others = (shape or var.shape) or (-1,)
    count = sum(lengths) if var.lod_level else len(lengths)
    sizes = (count if first < 0 or shape else first, *(_OPEN if n < 0 else n for n in others))[: len(var.shape)]
    whole = var.dtype.kind in "iub"
    rows = (rng.integers(0, 2, sizes) if whole else rng.standard_normal(sizes)).astype(var.dtype)
    outer = [[1] * len(lengths)] * (var.lod_level - 1)
    return Tensor(rows, lengths_to_offsets([*outer, lengths]) if var.lod_level else [])


def _same(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> bool:
    return all(_alike(first[name], second[name]) for name in first)


def _alike(a: Tensor, b: Tensor) -> bool:
    if a.rows.shape != b.rows.shape or a.lod != b.lod:
        return False
    if a.rows.dtype.kind != "f":
        return bool(np.array_equal(a.rows, b.rows))
    limit = _TOLERANCE * np.abs(a.rows).max(initial=0.0, where=np.isfinite(a.rows))
    return bool(np.allclose(a.rows, b.rows, rtol=0, atol=limit, equal_nan=True))
