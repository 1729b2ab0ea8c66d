"""Static analysis of a script's use of Fluid; nothing is executed."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from fluidjax.base.unbuilt import is_unbuilt
from fluidjax.command.aliases import target_of
from fluidjax.command.terms import BadUse, table
from lowering.errors import near


class Use(NamedTuple):
    """A use of a Fluid name in a script: ``paddle.fluid.layers.fc`` at a line."""

    name: str
    line: int


def uses_of(path: str) -> list[Use]:
    """The names of ``paddle`` used by a script, in order of lines. Raises BadUse if the script cannot be parsed."""
    try:
        with open(path, encoding="utf-8") as file:
            tree = ast.parse(file.read(), path)
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        raise BadUse(
            f"cannot read the script {path!r}",
            "a file in Python 3",
            f"{type(error).__name__}: {error}",
            "check the path; 2to3 turns Python 2 into Python 3",
        ) from None
    names = _imported(tree)
    found = {use for node in ast.walk(tree) for use in _uses(node, names)}
    longest = {use for use in found if not any(o.line == use.line and o.name.startswith(use.name + ".") for o in found)}
    return sorted(longest, key=lambda use: (use.line, use.name))


def _imported(tree: ast.AST) -> dict[str, str]:
    """Maps names in the script to the paddle names they refer to."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == "paddle":
                    names[alias.asname or "paddle"] = alias.name if alias.asname else "paddle"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "paddle" and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def _uses(node: ast.AST, names: dict[str, str]) -> Iterator[Use]:
    if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "paddle" and not node.level:
        yield from (Use(f"{node.module}.{alias.name}", node.lineno) for alias in node.names if alias.name != "*")
    elif isinstance(node, ast.Import):
        yield from (Use(a.name, node.lineno) for a in node.names if a.name.partition(".")[0] == "paddle")
    elif isinstance(node, ast.Attribute):
        chain = _chain(node)
        if chain and chain[0] in names:
            yield Use(".".join([names[chain[0]], *chain[1:]]), node.lineno)


def _chain(node: ast.expr) -> list[str]:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return [node.id, *reversed(parts)] if isinstance(node, ast.Name) else []


def missing(name: str) -> str | None:
    """The reason why a paddle name is unusable, or None. Attributes of objects are not followed."""
    at, so_far = importlib.import_module("fluidjax.paddle"), "paddle"
    for part in name.split(".")[1:]:
        below: Any = getattr(at, part, None)
        if below is None:
            below = _module(f"{so_far}.{part}")
        if below is None and not hasattr(at, part):
            close = near(part, dir(at))
            return f"{so_far} has no {part}" + (f"; did you mean {close[0]}?" if close else "")
        if is_unbuilt(below):
            return f"{so_far}.{part} is not built yet"
        at, so_far = below, f"{so_far}.{part}"
        if isinstance(at, type) or not hasattr(at, "__name__"):
            return None
    return None


def _module(name: str) -> Any:
    target = target_of(name)
    try:
        return None if target is None else importlib.import_module(target)
    except ImportError:
        return None


def problems_of(path: str) -> list[str]:
    """One line per missing name, with the lines of the script that use it."""
    lines: dict[str, list[int]] = {}
    for use in uses_of(path):
        lines.setdefault(use.name, []).append(use.line)
    found = []
    for name, at in lines.items():
        reason = missing(name)
        if reason:
            found.append(f"{path}:{at[0]}: {name}: {reason}" + (f" (and {len(at) - 1} more lines)" if at[1:] else ""))
    return found


def describe(path: str) -> Iterator[str]:
    """The lines about a script: the Fluid names it uses, and which of them are missing."""
    counts: dict[str, int] = {}
    for use in uses_of(path):
        counts[use.name] = counts.get(use.name, 0) + 1
    yield f"names of paddle: {len(counts)}"
    yield table((count, name) for name, count in sorted(counts.items()))
    problems = problems_of(path)
    yield "runs here: all names are there" if not problems else "\n  ".join(["runs here: no", *problems])
