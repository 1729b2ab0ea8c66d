"""Samples in memory, dealt anew among the workers of a fleet."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fluidjax.base.errors import explain
from fluidjax.readers.multi_slot import Sample


def dealt(samples: Sequence[Sample], fleet: Any) -> list[Sample]:
    """This worker's part of the samples of all workers: each sample goes to a worker that is drawn for it.

    Every worker of the fleet has to call this. RuntimeError where its role maker knows no way between workers.
    """
    workers, exchange = fleet.worker_num(), getattr(fleet._role_maker, "_worker_exchange", None)
    if workers == 1:
        return list(samples)
    if exchange is None:
        raise RuntimeError(
            explain(
                f"global_shuffle: samples cannot go from worker to worker with {type(fleet._role_maker).__name__}",
                f"a role maker by which the {workers} workers meet",
                "one without barriers and reductions",
                "init the fleet with GeneralRoleMaker(http_ip_port=...) or (path=...), or call local_shuffle()",
            )
        )
    parts: list[list[Sample]] = [[] for _ in range(workers)]
    for sample in samples:
        random.choice(parts).append(sample)
    mine = exchange([packed(part) for part in parts])
    return [sample for part in mine for sample in unpacked(part)]


def packed(samples: Sequence[Sample]) -> bytes:
    """Samples as an archive of arrays: of each variable the lengths and the values, and the texts as JSON."""
    arrays = {"texts": np.frombuffer(json.dumps([dict(s.texts) for s in samples]).encode(), np.uint8)}
    for at, values in enumerate(zip(*samples, strict=True)):
        arrays[f"lengths{at}"] = np.array([len(v) for v in values], np.int64)
        arrays[f"values{at}"] = np.concatenate(values)
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()


def unpacked(data: bytes) -> Iterator[Sample]:
    """What ``packed`` made an archive of."""
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        texts = json.loads(arrays["texts"].tobytes())
        slots = [
            np.split(arrays[f"values{at}"], np.cumsum(arrays[f"lengths{at}"])[:-1]) for at in range(len(arrays) // 2)
        ]
    for row, given in enumerate(texts):
        sample = Sample(values[row] for values in slots)
        if given:
            sample.texts = given
        yield sample
