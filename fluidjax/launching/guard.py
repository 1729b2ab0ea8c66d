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
        self._process: subprocess.Popen[bytes] | None = None
        if hasattr(os, "killpg"):
            self._begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process is not None:
            self._end()

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
            self._end()
            self._begin()

    def _begin(self) -> None:
        """Start a guard. The groups are in the pipe before it is there, so it knows them however soon this one ends."""
        read, write = os.pipe()
        try:
            self._pipe = os.fdopen(write, "wb", buffering=0)
            for group in self._groups:
                self._pipe.write(f"+{group}\n".encode())
            command = [sys.executable, "-I", "-S", __file__]
            self._process = subprocess.Popen(command, stdin=read, start_new_session=True)
        finally:
            os.close(read)

    def _end(self) -> None:
        self._pipe.close()
        if self._process is not None:
            self._process.wait()

    def _tell(self, line: str) -> None:
        if self._process is not None:
            with contextlib.suppress(BrokenPipeError):  # ``renew`` tells the next one
                self._pipe.write(f"{line}\n".encode())


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
