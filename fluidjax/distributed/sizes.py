"""Which answers are known to be short: a request whose answer is takes half the work if it is no stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fluidjax.distributed.settings import CHUNK, SEND_AND_GET
from fluidjax.distributed.wire import CHANGED, NOW, Message

Items = Sequence[tuple[str, Any]]

_WITH_VALUES = ("GetVariable", "PrefetchVariable")


class Sizes:
    """What one server's answers held so far: variables keep their size, and rows of one table are equally long."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], float] = {}  # bytes of a variable, or of a row

    def are_short(self, method: str, message: Message) -> bool:
        """Whether the answer will surely fit into one frame."""
        asked = _asked(method, message.items)
        if asked and message.flags & (NOW | CHANGED):  # what is asked for out of turn may have any size
            return False
        unknown = float("inf")
        return 2 * sum(_count(v) * self._known.get((method, n), unknown) for n, v in asked) < CHUNK

    def learn(self, method: str, items: Items, answer: Message) -> None:
        """Take note of the values of an answer."""
        for (name, asked), value in zip(_asked(method, items), answer.values(), strict=False):
            if (method, name) not in self._known and isinstance(value, np.ndarray) and value.size:
                self._known[method, name] = value.nbytes / _count(asked)


def _asked(method: str, items: Items) -> Items:
    """The items of a request that are answered by values."""
    if method == SEND_AND_GET:
        return [item for item in items if item[1] is None]
    return items if method in _WITH_VALUES else ()


def _count(asked: Any) -> int:
    """How many rows are asked for; 1 for a variable, and for no rows."""
    return max(asked.size, 1) if isinstance(asked, np.ndarray) else 1
