"""Serves requests one at a time, each in the gRPC thread that brought it, while the program's thread waits.

What an answer need not wait for is done by the program's thread, or by the next request's, whichever is first.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fluidjax.base.scope import Scope
from fluidjax.distributed.asynchronous import Asynchronous
from fluidjax.distributed.listening import Listening
from fluidjax.distributed.requests import Request
from fluidjax.distributed.rounds import Rounds
from fluidjax.distributed.shard import Shard
from fluidjax.distributed.wire import TOLD
from lowering.program import OpView, ProgramView

_log = logging.getLogger(__name__)

_SYNC = 0
_LOOK = 0.1  # seconds between looks at whether anybody is still to be waited for


class Server:
    """Serves the trainers of a ``listen_and_serv`` op until all have completed.

    Args:
        program, op: supply the blocks to run and the settings.
        scope: holds the state.
    """

    def __init__(self, program: ProgramView, op: OpView, scope: Scope) -> None:
        self._shard = Shard(program, op, scope)
        self._endpoint, trainers = op.attrs["endpoint"], int(op.attrs["Fanin"])
        sync = int(op.attrs["distributed_mode"]) == _SYNC
        self._mode: Rounds | Asynchronous = (Rounds if sync else Asynchronous)(self._shard, trainers)
        self._trainers = trainers
        self._turn = threading.Lock()  # whose request is served; those that wait for it are refused after an error
        # The run holds the scope's lock; while this thread waits, requests have it.
        self._scope = threading.Condition(scope._lock)
        self._quiet_since = time.monotonic()
        self._serving = True
        self._error: Exception | None = None

    def run(self) -> None:
        """Serve. Raises errors of the blocks, and OpError if a trainer that others wait for has died."""
        listening = Listening(self._endpoint, self._trainers, self._serve)
        _log.info("server at port %d for %d trainers", listening.port, self._trainers)
        try:
            with _ended_by_signals(), self._scope:
                self._wait()
        finally:
            with self._scope:
                self._serving = False
            listening.stop()

    def _wait(self) -> None:
        """Do what requests leave to be done, until no trainer is left; raise the error of a request."""
        while self._error is None and time.monotonic() - self._quiet_since < self._mode.patience:
            self._scope.wait(_LOOK)  # now and then Python looks for signals
            if self._mode.owed:
                self._do(self._mode.settle)
        if self._error is not None:
            raise self._error

    def _serve(self, request: Request) -> None:
        """Answer a request, now or later, in its turn. Whoever asks after an error is told of it."""
        with self._turn:
            if self._error is not None:
                request.refuse(self._error)
                return
            with self._scope:
                if self._serving:
                    self._do(self._mode.handle, request)
                    if request.message.flags & TOLD and self._error is None:
                        self._do(self._mode.settle)  # nobody waits for this thread
                if self._error is not None or self._mode.owed:
                    self._scope.notify()

    def _do(self, work: Callable[..., None], *args: Any) -> None:
        try:
            work(*args)
        except Exception as error:
            self._error = error
            self._mode.fail(error)
        self._quiet_since = time.monotonic()


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Exit with code 0 on SIGTERM, which launchers use to stop servers, and on Ctrl-C; as in Fluid.

    A SIGINT that is ignored, or has a handler of the program's own, keeps it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: Any) -> None:
        raise SystemExit(0)

    ours = [signal.SIGTERM, *([signal.SIGINT] if signal.getsignal(signal.SIGINT) is signal.default_int_handler else [])]
    before = {number: signal.signal(number, end) for number in ours}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
