"""Facts about Paddle 1.8.5 that tests are held against: operator protos, API signatures, operator families."""

from __future__ import annotations

import functools
import gzip
import json
from pathlib import Path
from typing import Any


@functools.cache
def load(name: str) -> dict[str, Any]:
    """The JSON document ``<name>.json.gz`` beside this module."""
    return json.loads(gzip.decompress((Path(__file__).parent / f"{name}.json.gz").read_bytes()))


def op_protos() -> dict[str, dict[str, Any]]:
    """Slots, attributes, defaults and gradient ops of all 437 operators."""
    return load("op_protos")["ops"]


def op_families() -> dict[str, dict[str, Any]]:
    """Family of each operator, and whether it is vendor or process plumbing without a meaning on XLA."""
    return load("op_families")


def api() -> dict[str, dict[str, Any]]:
    """Kind, arguments and members of every public name."""
    return load("api_signatures")["api"]


def exported() -> dict[str, list[str]]:
    """``__all__`` of each module that has one."""
    return load("exported")
