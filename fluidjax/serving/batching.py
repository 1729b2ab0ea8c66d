"""Combining requests to a batch and splitting its outputs; samples are rows, or the outermost sequences."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import accumulate, pairwise

import numpy as np

from fluidjax.serving.tensors import Tensor

Tensors = Mapping[str, Tensor]


class Mixed(Exception):
    """The outputs of a batch do not have one entry per sample."""


def samples_of(tensors: Tensors) -> int | None:
    """The number of samples common to all tensors; None if they differ."""
    counts = {tensor.samples for tensor in tensors.values()}
    return counts.pop() if len(counts) == 1 else None


def kind_of(tensors: Tensors) -> Hashable:
    """The key shared by requests that can be batched: names, dtypes, and row shapes."""
    return tuple((name, t.rows.dtype, t.rows.shape[1:], len(t.lod)) for name, t in tensors.items())


def joined(requests: Sequence[Tensors]) -> dict[str, Tensor]:
    """Concatenate requests of the same kind."""
    return {name: _joined([tensors[name] for tensors in requests]) for name in requests[0]}


def _joined(parts: Sequence[Tensor]) -> Tensor:
    lod = []
    for levels in zip(*(part.lod for part in parts), strict=True):
        offsets = [0]
        for level in levels:
            start = offsets[-1]
            offsets.extend(start + n for n in level[1:])
        lod.append(offsets)
    return Tensor(np.concatenate([part.rows for part in parts]), lod)


def widened(batch: Tensors) -> dict[str, Tensor]:
    """Pad with copies of the last sample to a power of two, to bound the number of compilations."""
    samples = samples_of(batch) or 1
    missing = (1 << (samples - 1).bit_length()) - samples
    last = {name: _cut(tensor, samples - 1, samples) for name, tensor in batch.items()}
    return joined([batch, *[last] * missing]) if missing else dict(batch)


def split(outputs: Tensors, counts: Sequence[int]) -> list[dict[str, Tensor]]:
    """Split outputs among requests by their numbers of samples. Raises Mixed if an output has another total."""
    if samples_of(outputs) != sum(counts):
        raise Mixed
    ends = [0, *accumulate(counts)]
    return [{name: _cut(tensor, a, b) for name, tensor in outputs.items()} for a, b in pairwise(ends)]


def _cut(tensor: Tensor, start: int, stop: int) -> Tensor:
    lod = []
    for level in tensor.lod:
        part = level[start : stop + 1]
        lod.append([n - part[0] for n in part])
        start, stop = part[0], part[-1]
    return Tensor(tensor.rows[start:stop], lod)
