"""What a cell shows of an error: the user's own lines and cells, as ``base/tracebacks`` leaves of a script's errors."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from fluidjax.base import tracebacks
from fluidjax.base.flags import flag

# A line as Python's tracebacks name it, and as fluidjax does where there is no room.
_LINE = re.compile(
    r'File "(?P<file>[^"]+)", line (?P<line>\d+)'
    r"|(?P<cell>\S*[/\\]ipykernel_\d+[/\\]\d+\.py|<ipython-input-[^>]+>):(?P<at>\d+)"
)


def show(shell: Any, kind: type[BaseException], error: BaseException, trace: Any, tb_offset: int | None = None) -> None:
    """IPython's handler of what a cell raises: as without one, but for the frames that ``of_users`` leaves out."""
    error.args = tuple(_named(shell, text) if isinstance(text, str) else text for text in error.args)
    if hasattr(error, "__notes__"):
        error.__notes__ = [_named(shell, note) for note in error.__notes__]
    for cause in _causes(error):
        cause.__traceback__ = of_users(cause, cause.__traceback__)
    shell.showtraceback((kind, error, of_users(error, trace)), tb_offset=tb_offset, running_compiled_code=True)


def of_users(error: BaseException, trace: TracebackType | None) -> TracebackType | None:
    """A traceback without frames of fluidjax and of what it called; all of it where fluidjax may be wrong, and if
    FLAGS_call_stack_level is 2.
    """
    frames = list(_frames(trace))
    outside = list(_outside(frames))
    if flag("FLAGS_call_stack_level") >= 2 or not outside:
        return trace
    if outside[-1] is not frames[-1] and not _for_the_user(error, frames[-1]):
        return trace
    kept: TracebackType | None = None
    for entry in reversed(outside):
        kept = TracebackType(kept, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return kept


def _for_the_user(error: BaseException, last: TracebackType) -> bool:
    """Whether an error from within fluidjax was raised for the user to read: a bug has no message, or Python's own."""
    if isinstance(error, KeyboardInterrupt):
        return True
    bug = not error.args if type(error) is AssertionError else type(error) in tracebacks.BUGS
    return tracebacks.within_ours(last) and not bug


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The errors that are shown above an error."""
    seen = [error]
    while True:
        cause = seen[-1].__cause__ or (None if seen[-1].__suppress_context__ else seen[-1].__context__)
        if cause is None or any(cause is other for other in seen):
            return
        seen.append(cause)
        yield cause


def _frames(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _outside(frames: list[TracebackType]) -> Iterator[TracebackType]:
    inside = False
    for entry in frames:
        inside = tracebacks.within_ours(entry) or (inside and tracebacks.within_inner(entry))
        if not inside:
            yield entry


def _named(shell: Any, text: str) -> str:
    """A message with ``Cell In[3]`` for the file that IPython made of the cell, as in the traceback above it."""

    def name(found: re.Match[str]) -> str:
        label = shell.compile.format_code_name(found["file"] or found["cell"])
        return found[0] if label is None else f"{' '.join(label)}, line {found['line'] or found['at']}"

    return _LINE.sub(name, text)


def watch_errors() -> None:
    """Have a notebook show errors with ``show``, unless something else shows them already."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None and not shell.custom_exceptions:
        shell.set_custom_exc((Exception, KeyboardInterrupt), show)
