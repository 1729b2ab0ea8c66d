"""Seeds of runs: (base, number of the run), so that runs of a seeded program repeat bit for bit."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import numpy as np

# The base for programs without a seed: a different number in each process.
entropy = int(np.random.SeedSequence().generate_state(1)[0])
# For each program: the base used where it has no ``random_seed``, and the count of its runs.
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
    """(base, count): the state from which the seeds of later runs follow."""
    base, count = _runs.get(program, (entropy, 0))
    return base, count


def resume(program: Any, base: int, count: int) -> None:
    """Give later runs the seeds that followed when ``state_of`` returned these numbers."""
    _runs[program] = [base, count]
