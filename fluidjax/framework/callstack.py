"""The source location of an op: the Python stack, stored in its ``op_callstack`` attribute, innermost call first."""

from __future__ import annotations

import functools
import linecache
import re
import sys
from collections.abc import Sequence
from typing import Any

from lowering.program import FRAMEWORK_FOLDERS, recorded_stack

_LINE = re.compile(r'^ {2}File "(?P<file>.*)", line (?P<line>\d+), in ')


@functools.lru_cache(maxsize=8192)
def _entry(filename: str, line: int, function: str) -> str:
    code = linecache.getline(filename, line).strip()
    where = f'  File "{filename}", line {line}, in {function}\n'
    return f"{where}    {code}\n" if code else where


def record(skip: int = 1, limit: int = 64) -> list[str]:
    """The caller's stack, innermost first, without the `skip` innermost frames; at most `limit` entries."""
    entries: list[str] = []
    frame: Any = sys._getframe(skip + 1)
    while frame is not None and len(entries) < limit:
        code = frame.f_code
        entries.append(_entry(code.co_filename, frame.f_lineno, code.co_name))
        frame = frame.f_back
    return entries


def depth_of_user() -> int:
    """The number of frames between the caller and the user's line, as expected by ``warnings.warn(stacklevel=...)``."""
    depth, frame = 1, sys._getframe(1)
    while frame.f_back is not None and _is_own(frame.f_code.co_filename):
        depth, frame = depth + 1, frame.f_back
    return depth


def _is_own(filename: str) -> bool:
    return any(folder in filename for folder in FRAMEWORK_FOLDERS)


def user_entry(callstack: Sequence[str]) -> str | None:
    """The innermost entry of a recorded stack outside the framework, the user's line; None if there is none."""
    for entry in callstack:
        match = _LINE.match(entry)
        if match and not _is_own(match["file"]):
            return entry
    return None


def user_line(op: Any) -> str:
    """Where the user created `op`: ``file:line: code``, or a note that it is unknown.

    `op` is an Operator, or anything with an ``op_callstack`` attribute list in ``attrs``.
    """
    stack = op.attr("op_callstack") if hasattr(op, "has_attr") and op.has_attr("op_callstack") else []
    return describe_entry(user_entry(recorded_stack(stack)))


def describe_entry(entry: str | None) -> str:
    """``file:line: code`` of one entry of a recorded stack."""
    match = _LINE.match(entry) if entry else None
    if not match:
        return "(line not recorded)"
    code = entry.split("\n")[1].strip() if entry else ""
    return f"{match['file']}:{match['line']}" + (f": {code}" if code else "")
