"""What is looked at while a data set is run through: printed, or handed to the user."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np


class FetchHandler:
    """Inspects variables periodically while a program runs over a dataset; override ``handler``.

    Args:
        var_dict: maps names to the Variables to inspect; required, or AssertionError is raised.
        period_secs: seconds between two inspections.
    """

    def __init__(self, var_dict: Mapping[str, Any] | None = None, period_secs: float = 60):
        if var_dict is None:
            raise AssertionError("FetchHandler: var_dict is None; expected name -> Variable. Give what to look at")
        self.var_dict = var_dict
        self.period_secs = period_secs

    def handler(self, res_dict: Mapping[str, Any]) -> None:
        """Called with a dict from names to arrays; prints the first element of each."""
        for name, value in res_dict.items():
            if isinstance(value, np.ndarray):
                print(f"{name}[0]: {value[0]} ")

    @staticmethod
    def help() -> None:
        """Print how to write a handler."""
        print("class Watch(FetchHandler):\n    def handler(self, res_dict):\n        print(res_dict['auc'])\n")
        print("handler = Watch(var_dict={'auc': auc}, period_secs=60)")


class Look:
    """What to inspect while a data set is processed, and who inspects it."""

    def __init__(self, fetches: Sequence[Any], due: Callable[[int], bool], show: Callable[[int, list[Any]], None]):
        self.fetches = fetches
        self._due, self._show = due, show

    def __call__(self, step: int, values: list[Any]) -> None:
        """``values``: what the batch number ``step`` fetched."""
        if self.fetches and self._due(step):
            self._show(step, values)


def looking(
    fetch_list: Sequence[Any] | None, fetch_info: Sequence[str] | None, print_period: int, fetch_handler: Any
) -> Look:
    """What the arguments of ``Executor.train_from_dataset`` ask for, every ``print_period`` batches.

    A FetchHandler gets its variables' arrays instead when its seconds have passed, another handler the fetches by name.
    Raises AssertionError unless there are as many texts as fetches.
    """
    if isinstance(fetch_handler, FetchHandler):
        watched, hand = fetch_handler.var_dict, fetch_handler.handler

        def give(_: int, values: list[Any]) -> None:
            hand(dict(zip(watched, map(np.array, values), strict=True)))

        return Look([*watched.values()], _Alarm(fetch_handler.period_secs).due, give)
    fetches = list(fetch_list or ())
    names = list(fetch_info or [getattr(f, "name", f) for f in fetches])
    if len(names) != len(fetches):
        raise AssertionError(f"fetch_info has {len(names)} texts for {len(fetches)} fetches; give one for each")

    def show(step: int, values: list[Any]) -> None:
        if fetch_handler is not None:
            fetch_handler.handler(dict(zip(names, values, strict=True)))
        else:
            print(f"step {step}:", ", ".join(f"{n} = {_short(v)}" for n, v in zip(names, values, strict=True)))

    return Look(fetches, lambda step: step % print_period == 0, show)


class _Alarm:
    """Tells when some seconds have passed since it last told."""

    def __init__(self, seconds: float):
        self._seconds, self._last = seconds, time.monotonic()

    def due(self, step: int) -> bool:
        """Whether they have."""
        if time.monotonic() - self._last < self._seconds:
            return False
        self._last = time.monotonic()
        return True


def _short(value: Any) -> str:
    return np.array2string(np.asarray(value), threshold=8)
