"""One thread that works beside the runs; when the process ends, tasks not begun are dropped unless they last."""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from fluidjax.execution.executables.waiting import waiting

Task = Callable[[], object]


class _Submitted(NamedTuple):
    task: Task
    lasting: bool


_tasks: deque[_Submitted] = deque()
_changed = threading.Condition()
_thread: threading.Thread | None = None
_busy = False
_ending = False


def ending() -> bool:
    """Whether the process ends and waits for the task at work, which may leave off."""
    return _ending


class Once:
    """A task done by whoever calls it first, while other callers wait; later callers find it done."""

    def __init__(self, task: Task):
        self._task: Task | None = task
        self._lock = threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            task, self._task = self._task, None
            if task is not None:
                task()


def submit(task: Task, *, lasting: bool = False) -> None:
    """Call ``task``, which must not raise, after those submitted before it.

    ``lasting``: the process does not end before it is done.
    """
    global _thread
    with _changed:
        _tasks.append(_Submitted(task, lasting))
        if _thread is None or not _thread.is_alive():
            _thread = threading.Thread(target=_work, name="fluidjax-beside", daemon=True)
            _thread.start()
        _changed.notify_all()


def wait() -> None:
    """Wait until everything submitted is done."""
    with _changed:
        _changed.wait_for(lambda: not _tasks and not _busy)


def _work() -> None:
    global _busy
    while True:
        with _changed:
            _changed.wait_for(lambda: bool(_tasks))
            task, _busy = _tasks.popleft().task, True
        try:
            task()
        finally:
            del task
            with _changed:
                _busy = False
                _changed.notify_all()


@atexit.register
def _finish() -> None:
    """XLA must not be at work while the process shuts down."""
    global _ending
    with _changed:
        _ending = True
        lasting = [submitted for submitted in _tasks if submitted.lasting]
        _tasks.clear()
        _tasks.extend(lasting)
    with waiting("Waiting for what is still being compiled"):
        wait()


def _forked() -> None:
    """The thread stayed behind in the parent process, where it still works."""
    global _changed, _thread, _busy
    _changed, _thread, _busy = threading.Condition(), None, False
    _tasks.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
