"""Seeds of runs: (base, number of the run), so that runs of a seeded program repeat bit for bit."""

from __future__ import annotations

import itertools
import weakref
from typing import Any

import numpy as np

ENTROPY = int(np.random.SeedSequence().generate_state(1)[0])
_counters: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def next_seed(program: Any) -> np.ndarray:
    """uint32 [2]: the program's ``random_seed`` (0: chosen anew in each process) and the count of its runs so far."""
    counter = _counters.get(program)
    if counter is None:
        counter = _counters[program] = itertools.count()
    base = int(program.random_seed) or ENTROPY
    return np.array([base & 0xFFFFFFFF, next(counter)], np.uint32)
