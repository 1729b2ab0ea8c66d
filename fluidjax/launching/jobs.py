"""The processes of a job: started, monitored, stopped and restarted together."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import FrameType
from typing import IO, Any

from fluidjax.launching.guard import Guard

# Seconds between two checks of the processes; and how long a process may take to end when asked to.
_PAUSE, _GRACE = 0.05, 3.0
_SET_DEATH_SIGNAL = 1  # of Linux's prctl


@dataclass(frozen=True)
class Member:
    """One process of a job.

    Attributes:
        name: name used in messages.
        log: name of its log file, if there is a log directory.
        command: the command line.
        told: additions to this process's environment.
        serves: whether it runs indefinitely, and is to be stopped once all others are done.
    """

    name: str
    log: str
    command: tuple[str, ...]
    told: dict[str, str]
    serves: bool = False

    def also_told(self, more: dict[str, str]) -> Member:
        """The same process with additions to its environment."""
        return replace(self, told={**self.told, **more})


class Stopped(BaseException):
    """This process was asked to stop."""


def run(
    members: Callable[[], Sequence[Member]],
    *,
    log_dir: str | None = None,
    restarts: int = 0,
    say: Callable[[str], None] = lambda text: print(text, file=sys.stderr, flush=True),
) -> int:
    """Run a job to its end: returns 0, or 1 if a process failed and no restarts are left.

    If a process fails, all others are stopped. No process of the job, and on
    POSIX systems none that these started, outlives this call, or this process, even if that is killed.

    Args:
        members: returns the processes; called at each start.
        log_dir: directory for log files, which are appended to; by default, output goes to this process's own.
        restarts: how often to restart all processes.
        say: called with progress messages.
    """
    with _ended_by_signals(), Guard() as guard:
        for attempt in range(restarts + 1):
            failed = _once(members(), log_dir, guard)
            if failed is None:
                return 0
            say(f"{failed}; the other processes were ended")
            if attempt < restarts:
                say(f"starting all processes again ({attempt + 1} of at most {restarts} times)")
    return 1


def _once(members: Sequence[Member], log_dir: str | None, guard: Guard) -> str | None:
    """The failure, or None if all processes succeeded."""
    started: list[tuple[Member, subprocess.Popen[bytes]]] = []
    try:
        for member in members:
            started.append((member, _start(member, log_dir)))
            guard.add(started[-1][1].pid)
        return _watch(started, guard)
    finally:
        end([process for _, process in started])
        for _, process in started:
            guard.forget(process.pid)


def _watch(started: Sequence[tuple[Member, subprocess.Popen[bytes]]], guard: Guard) -> str | None:
    while True:
        guard.renew()
        codes = [(member, process.poll()) for member, process in started]
        for member, code in codes:
            if code not in (None, 0):
                return f"{member.name} {_how(code)}"
        if all(code == 0 for member, code in codes if not member.serves):
            return None
        time.sleep(_PAUSE)


def _how(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"failed with exit code {code}"


def _start(member: Member, log_dir: str | None) -> subprocess.Popen[bytes]:
    environment = {**os.environ, **member.told}
    for name in ("http_proxy", "https_proxy"):
        environment.pop(name, None)
    with _output(member, log_dir) as output:
        return subprocess.Popen(
            member.command,
            env=environment,
            stdout=output,
            stderr=None if output is None else subprocess.STDOUT,
            **_apart(),
        )


def _apart() -> dict[str, Any]:
    """Arguments of Popen for a process whose descendants can be signalled together, where the system can."""
    if os.name != "posix":
        return {}
    # no thread of this process holds locks that `preexec_fn` needs
    return {"start_new_session": True, "preexec_fn": functools.partial(_die_with_parent, os.getpid())}


@contextlib.contextmanager
def _output(member: Member, log_dir: str | None) -> Iterator[IO[Any] | None]:
    if log_dir is None:
        yield None
        return
    os.makedirs(log_dir, exist_ok=True)
    with open(os.path.join(log_dir, member.log), "a") as file:
        yield file


def _die_with_parent(launcher: int) -> None:
    """Make the kernel kill this process when the launcher ends for any reason (Linux); it may have ended already."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != launcher:
        os._exit(1)


def end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Stop processes and, on POSIX systems, their descendants: with SIGTERM and, after a grace period, SIGKILL."""
    for process in processes:
        _stop(process)
    deadline = time.monotonic() + _GRACE
    while time.monotonic() < deadline and any(p.poll() is None for p in processes):
        time.sleep(_PAUSE)
    for process in processes:
        _stop(process, kill=True)
        process.wait()


def _stop(process: subprocess.Popen[bytes], *, kill: bool = False) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL if kill else signal.SIGTERM)
        else:
            process.kill() if kill else process.terminate()


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Context manager: SIGTERM ends this process like an exception, so that nothing is left running."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Stopped(number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except Stopped:
        sys.exit(128 + signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
