"""What a script gave, held against its recording: the first difference, or None.

A record is {"losses": [...], "grads": {...}, "params": {...}, "extra": {...}}. Losses and what else was noted agree to
1e-4, gradients and parameters to 1e-3; a gradient or parameter is its norm and its first numbers, which may differ by a
part of the norm.
"""

from __future__ import annotations

import math
from typing import Any

LOOSE, TIGHT = 1e-3, 1e-4
PARTS = {"extra": (TIGHT, 2e-6), "losses": (TIGHT, 1e-6), "grads": (LOOSE, 1e-6), "params": (LOOSE, 1e-6)}


def difference(recorded: dict[str, Any], found: dict[str, Any]) -> str | None:
    """Where a record first differs from the recorded one."""
    for part, (relative, absolute) in PARTS.items():
        problem = _differ(part, recorded[part], found[part], relative, absolute)
        if problem:
            return problem
    return None


def _differ(path: str, want: Any, got: Any, relative: float, absolute: float) -> str | None:
    if _number(want) and _number(got):
        return None if _near(want, got, relative, absolute) else f"{path}: {got}, recorded {want}"
    if isinstance(want, dict) and isinstance(got, dict):
        return _differ_in_dicts(path, want, got, relative, absolute)
    if isinstance(want, list) and isinstance(got, list):
        if len(want) != len(got):
            return f"{path}: {len(got)} items, recorded {len(want)}"
        pairs = [(f"{path}[{i}]", w, g) for i, (w, g) in enumerate(zip(want, got, strict=True))]
        return _first(_differ(*pair, relative, absolute) for pair in pairs)
    same = type(want) is type(got) and want == got
    return None if same else f"{path}: {got!r:.200}, recorded {want!r:.200}"


def _differ_in_dicts(path: str, want: Any, got: Any, relative: float, absolute: float) -> str | None:
    if set(want) != set(got):
        return f"{path}: lacks {sorted(set(want) - set(got))}, has besides {sorted(set(got) - set(want))}"
    slack = {key: (relative, absolute) for key in want}
    if _number(want.get("norm")):
        slack = {key: (LOOSE, 1e-6 + (TIGHT * abs(want["norm"]) if key == "first" else 0)) for key in want}
    return _first(_differ(f"{path}.{key}", want[key], got[key], *slack[key]) for key in sorted(want))


def _first(problems: Any) -> str | None:
    return next((p for p in problems if p), None)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _near(a: float, b: float, relative: float, absolute: float) -> bool:
    if math.isfinite(a) and math.isfinite(b):
        return abs(a - b) <= relative * max(abs(a), abs(b)) + absolute
    return a == b or (math.isnan(a) and math.isnan(b))
