"""Seeds of runs: (base, number of the run), so that runs of a seeded program repeat bit for bit."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import numpy as np

# What runs without a seed draw from: another number in each process.
entropy = int(np.random.SeedSequence().generate_state(1)[0])
# Of each program: what its base is where it has no ``random_seed``, and the count of its runs.
_lock = threading.Lock()
_runs: weakref.WeakKeyDictionary[Any, list[int]] = weakref.WeakKeyDictionary()


def next_seed(program: Any) -> np.ndarray:
    """uint32 [2]: the program's ``random_seed`` (0: chosen anew in each process) and the count of its runs so far."""
    with _lock:
        runs = _runs.get(program)
        if runs is None:
            runs = _runs[program] = [entropy, 0]
        base, count = int(program.random_seed) or runs[0], runs[1]
        runs[1] += 1
    return np.array([base & 0xFFFFFFFF, count], np.uint32)


def state_of(program: Any) -> tuple[int, int]:
    """What the seeds of later runs follow from."""
    base, count = _runs.get(program, (entropy, 0))
    return base, count


def resume(program: Any, base: int, count: int) -> None:
    """Let later runs have the seeds that they had after ``state_of`` gave these."""
    _runs[program] = [base, count]
