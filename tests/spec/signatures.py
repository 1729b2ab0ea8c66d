"""Holding fluidjax's public names against the API signatures of Paddle 1.8.5."""

from __future__ import annotations

import functools
import importlib
import inspect
import re
from dataclasses import dataclass
from typing import Any

from fluidjax.base.unbuilt import is_unbuilt
from tests.spec import api

_MISSING = object()


@dataclass(frozen=True)
class Entry:
    """One public name: ``state`` is 'missing', 'equal' or 'differs'."""

    name: str
    state: str
    problem: str = ""


def resolve(name: str) -> Any:
    """The object that fluidjax serves for a ``paddle...`` name, or ``_MISSING``."""
    if name.startswith("paddle.fluid."):
        base, rest = "fluidjax", name.split(".")[2:]
    else:
        base, rest = "fluidjax.paddle", name.split(".")[1:]
    try:
        found: Any = importlib.import_module(base)
    except ModuleNotFoundError:
        return _MISSING
    path = base
    for part in rest:
        within, path = path, f"{path}.{part}"
        found = getattr(found, part, _MISSING)
        if found is _MISSING:  # a module, or of one that a function of its name stands before: ``paddle.batch.batch``
            found = getattr(_imported(within), part, _MISSING)
        if found is _MISSING:
            found = _imported(path)
        if found is _MISSING or is_unbuilt(found):
            return _MISSING
    return found


def _imported(path: str) -> Any:
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        if error.name and path.startswith(error.name):
            return _MISSING
        raise


def parameters(function: Any) -> list[tuple[str, str | None]]:
    """(name, repr of the default) of each parameter; starred names as Paddle's table writes them."""
    found = []
    for p in inspect.signature(function).parameters.values():
        star = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        default = None if p.default is p.empty else re.sub(r" at 0x[0-9a-f]+", "", repr(p.default))
        found.append((star + p.name, default))
    return found


def expected(entry: dict[str, Any]) -> list[tuple[str, str | None]]:
    """The parameters in the spec, without ``self`` and ``cls``."""
    args = [(a["name"], a.get("default")) for a in entry["args"]]
    return args[1:] if args and args[0][0] in ("self", "cls") else args


def same_default(ours: str | None, theirs: str | None) -> bool:
    """Equal reprs; a default that is an object of Paddle's own has no comparable repr."""
    return ours == theirs or bool(theirs and theirs.startswith("<") and ours is not None)


def compare_parameters(ours: list[tuple[str, str | None]], theirs: list[tuple[str, str | None]]) -> str:
    """'' when names, order and defaults are equal."""
    if [n for n, _ in ours] != [n for n, _ in theirs]:
        return f"parameters {[n for n, _ in ours]}, expected {[n for n, _ in theirs]}"
    wrong = [(n, a, b) for (n, a), (_, b) in zip(ours, theirs, strict=True) if not same_default(a, b)]
    return "; ".join(f"default of {n} is {a}, expected {b}" for n, a, b in wrong)


def check(name: str) -> Entry:
    """Compare one public name with its spec entry."""
    entry = api()[name]
    found = resolve(name)
    if found is _MISSING:
        return Entry(name, "missing")
    target = api().get(entry.get("alias_of", ""), entry)
    if "args" not in target or not callable(found):
        return Entry(name, "equal")
    if target.get("partial_of"):  # the spec does not list the parameters that are left
        partial = isinstance(found, functools.partial)
        return Entry(name, "equal" if partial else "differs", "" if partial else "expected a functools.partial")
    problem = compare_parameters(parameters(found), expected(target)) if _has_signature(target) else ""
    problems = [problem] if problem else []
    problems += member_problems(found, target) if target["kind"] == "class" else []
    return Entry(name, "differs" if problems else "equal", "; ".join(problems))


def _has_signature(entry: dict[str, Any]) -> bool:
    return not any(a["name"].startswith("*") for a in entry["args"]) or entry["kind"] == "function"


def member_problems(found: Any, entry: dict[str, Any]) -> list[str]:
    """Methods that are there but have other parameters."""
    problems = []
    for name, member in entry.get("members", {}).items():
        ours = inspect.getattr_static(found, name, _MISSING)
        if ours is _MISSING or "args" not in member or not callable(getattr(found, name, None)):
            continue
        params = parameters(getattr(found, name))
        theirs = expected(member)
        if member["kind"] == "method" and params and params[0][0] == "self":
            params = params[1:]
            if "inherited_from" in member and [a["name"] for a in member["args"][:1]] == ["var"]:
                theirs = theirs[1:]  # a function that became a method
        problem = compare_parameters(params, theirs)
        if problem:
            problems.append(f"{name}: {problem}")
    return problems


def missing_members(name: str) -> list[str]:
    """Members of a class in the spec that ours lacks."""
    entry, found = api()[name], resolve(name)
    if found is _MISSING or entry["kind"] != "class":
        return []
    return [m for m in entry.get("members", {}) if inspect.getattr_static(found, m, _MISSING) is _MISSING]


def group_of(name: str) -> str:
    """The module a public name is listed under: ``fluid``, ``fluid.layers``, ``dataset`` ..."""
    parts = name.split(".")[1:]
    if parts[0] == "fluid":
        return ".".join(parts[:2]) if len(parts) > 2 else "fluid"
    return parts[0]
