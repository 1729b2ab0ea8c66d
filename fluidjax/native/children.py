"""How ``fluid.core`` tells the end of the processes that a loader reads in."""

from __future__ import annotations

import os
import signal
from typing import Any

from fluidjax.base.errors import EnforceNotMet, explain

_watched: dict[int, tuple[int, ...]] = {}  # by the key that their loader gave


def _set_process_pids(key: int, pids: tuple[int, ...]) -> None:
    """Watch processes; those that were watched under the key are forgotten."""
    _watched[key] = tuple(pids)


def _erase_process_pids(key: int) -> None:
    """Watch the processes of a key no longer."""
    _watched.pop(key, None)


def _set_process_signal_handler() -> None:
    """In a watched process: it ends without a fault when it is asked to end."""
    signal.signal(signal.SIGTERM, _leave)


def _leave(signum: int, frame: Any) -> None:
    os._exit(0)


def _throw_error_if_process_failed() -> None:
    """Raise EnforceNotMet if a watched process ended with an error or by a signal; its loader's are watched no longer.

    It can be called where SIGCHLD is handled: the processes can still be waited for afterwards.
    """
    for key, pids in list(_watched.items()):
        for pid in pids:
            how = _failure(pid)
            if how is not None:
                del _watched[key]
                raise EnforceNotMet(
                    explain(
                        f"FatalError: DataLoader process (pid {pid}) {how}",
                        "a process that reads until its generator ends",
                        "a process that is gone; what it said stands above",
                        "run DataLoader.from_generator(..., use_multiprocess=False), which shows where it fails",
                    )
                )


def _failure(pid: int) -> str | None:
    """How a process failed; None if it did not, still runs, or is no child that has not been waited for."""
    try:
        end = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    if end is None or (end.si_code == os.CLD_EXITED and end.si_status == 0):
        return None
    if end.si_code == os.CLD_EXITED:
        return f"exited unexpectedly with code {end.si_status}"
    return f"was killed by signal: {signal.strsignal(end.si_status)}"
