"""One thread that compiles beside the runs; the process ends without what has not begun yet."""

from __future__ import annotations

import atexit
import threading
from collections import deque
from collections.abc import Callable

Task = Callable[[], None]

_tasks: deque[Task] = deque()
_changed = threading.Condition()
_thread: threading.Thread | None = None
_busy = False


class Once:
    """A task that is done by the first who calls it, while others wait; who calls it later finds it done."""

    def __init__(self, task: Task):
        self._task: Task | None = task
        self._lock = threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            task, self._task = self._task, None
            if task is not None:
                task()


def submit(task: Task) -> None:
    """Call ``task``, which raises nothing, after those that were submitted before."""
    global _thread
    with _changed:
        _tasks.append(task)
        if _thread is None or not _thread.is_alive():
            _thread = threading.Thread(target=_work, name="fluidjax-compile", daemon=True)
            _thread.start()
        _changed.notify_all()


def wait() -> None:
    """Wait until everything that was submitted is done."""
    with _changed:
        _changed.wait_for(lambda: not _tasks and not _busy)


def _work() -> None:
    global _busy
    while True:
        with _changed:
            _changed.wait_for(lambda: bool(_tasks))
            task, _busy = _tasks.popleft(), True
        try:
            task()
        finally:
            del task
            with _changed:
                _busy = False
                _changed.notify_all()


@atexit.register
def _finish() -> None:
    """XLA must not be at work while the process is taken down."""
    with _changed:
        _tasks.clear()
    wait()
