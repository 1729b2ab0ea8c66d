"""Names of Python 3.7's standard library that have since been removed."""

from __future__ import annotations

import base64
import collections.abc
import fractions
import inspect
import math
import sys
import threading
import time
import xml.etree.ElementTree
from collections.abc import Callable
from typing import Any, NamedTuple


class ArgSpec(NamedTuple):
    """The result of ``getargspec``."""

    args: list[str]
    varargs: str | None
    keywords: str | None
    defaults: tuple[Any, ...] | None


def getargspec(func: Callable) -> ArgSpec:
    """The parameters of a function. Raises ValueError if some are keyword-only."""
    spec = inspect.getfullargspec(func)
    if spec.kwonlyargs or spec.annotations:
        raise ValueError("Function has keyword-only parameters or annotations, use inspect.signature()")
    return ArgSpec(spec.args, spec.varargs, spec.varkw, spec.defaults)


# (where, name, what it was)
_NAMES: list[tuple[Any, str, Any]] = [
    *((collections, name, getattr(collections.abc, name)) for name in collections.abc.__all__),
    (base64, "encodestring", base64.encodebytes),
    (base64, "decodestring", base64.decodebytes),
    (fractions, "gcd", math.gcd),
    (inspect, "ArgSpec", ArgSpec),
    (inspect, "getargspec", getargspec),
    (threading.Thread, "isAlive", threading.Thread.is_alive),
    (time, "clock", time.perf_counter),
    (xml.etree, "cElementTree", xml.etree.ElementTree),
]


def install() -> None:
    """Restore what is missing."""
    for place, name, value in _NAMES:
        if not hasattr(place, name):
            setattr(place, name, value)
    sys.modules.setdefault("xml.etree.cElementTree", xml.etree.ElementTree)
