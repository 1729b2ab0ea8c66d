"""``python -m tests.distributed.kills [KILLS [SEED]]``: kills servers and trainers of launched jobs at drawn moments.

Each job of one server and one worker in sync mode loses one of them some milliseconds after a step, both drawn, and
has to end with the bits of an uninterrupted one. The last line of each kind is ``kind: P of N``.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path

from tests.distributed.test_launched import STEPS, launched


def main(kills: int = 20, seed: int = 0) -> int:
    """Kill ``kills`` servers and as many trainers: returns how many jobs ended otherwise than they should."""
    draw, missed = random.Random(seed), 0
    with tempfile.TemporaryDirectory() as folder:
        whole = launched(Path(folder, "whole"), "sync")
        for kind in ("server", "trainer"):
            passed = 0
            for number in range(kills):
                fate = f"{kind}_0", str(draw.randrange(1, STEPS - 3)), f"{draw.random() * 0.02:.4f}"
                begun, right = time.monotonic(), False
                try:
                    right = launched(Path(folder, f"{kind}_{number}"), "sync", *fate) == whole
                except AssertionError as error:
                    print(error)
                passed += right
                print(*fate, "same bits" if right else "DIFFERS", f"{time.monotonic() - begun:.1f} s", flush=True)
            print(f"{kind}: {passed} of {kills}", flush=True)
            missed += kills - passed
    return missed


if __name__ == "__main__":
    sys.exit(bool(main(*map(int, sys.argv[1:]))))
