"""assert: ends a run where a condition does not hold."""

from __future__ import annotations

import numpy as np

from lowering.errors import OpError
from lowering.registry import Long, Value, op


@op("assert", out="", kind="host", lod=None)
def assert_(cond: Value, data: list, *, summarize: Long = -1):
    """Raises OpError with the first ``summarize`` elements of Data unless Cond is true."""
    if bool(np.asarray(cond).all()):
        return
    shown = [np.asarray(value).ravel()[: summarize if summarize >= 0 else None].tolist() for value in data]
    raise OpError(
        f"assert: the condition does not hold\n  expected: True\n  received: False, with the data {shown}\n"
        "  what to do: feed what the program was made for, or leave the assertion out"
    )
