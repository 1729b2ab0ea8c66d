"""A process that ends what a launcher started once the launcher is no more, in whatever way it ended.

The kernel ends a launcher's own children with it (``jobs``, on Linux), but not what these started: loaders of data,
shells, servers. Each child leads a process group, so a guard that knows the groups can end all of it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from types import TracebackType


class Guard:
    """Context manager: the groups that are added are killed if this process ends, even by SIGKILL, within the context.

    The guard reads a pipe of which this process alone holds the other end: its end is the end of this process.
    Does nothing where the system has no process groups.
    """

    def __enter__(self) -> Guard:
        self._groups: set[int] = set()
        self._process = _begun() if hasattr(os, "killpg") else None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process is not None:
            self._process.communicate()

    def add(self, group: int) -> None:
        """Guard a process group, known by the process that leads it."""
        self._groups.add(group)
        self._tell(f"+{group}")

    def forget(self, group: int) -> None:
        """Guard a process group no longer: it has been ended, and its number may come to be another's."""
        self._groups.discard(group)
        self._tell(f"-{group}")

    def renew(self) -> None:
        """Start another guard if the one that there was has been ended: what it guarded does not need it to go on."""
        if self._process is not None and self._process.poll() is not None:
            self._process.communicate()
            self._process = _begun()
            for group in self._groups:
                self._tell(f"+{group}")

    def _tell(self, line: str) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # ``renew`` tells the next one
                print(line, file=self._process.stdin, flush=True)


def _begun() -> subprocess.Popen[str]:
    command = [sys.executable, "-I", "-S", __file__]
    return subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True)


def _watch() -> None:
    """Read ``+GROUP`` and ``-GROUP`` up to the end, then kill the groups that are left."""
    groups: set[int] = set()
    for line in sys.stdin:
        (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    _watch()
