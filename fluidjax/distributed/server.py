"""The server's loop: serves requests one by one in the thread that runs the program, so that no locks are needed."""

from __future__ import annotations

import logging
import queue
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fluidjax.base.scope import Scope
from fluidjax.distributed.asynchronous import Asynchronous
from fluidjax.distributed.listening import Listening
from fluidjax.distributed.requests import Request
from fluidjax.distributed.rounds import Rounds
from fluidjax.distributed.shard import Shard
from lowering.program import OpView, ProgramView

_log = logging.getLogger(__name__)

_SYNC = 0


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
        self._inbox: queue.SimpleQueue[Request] = queue.SimpleQueue()

    def run(self) -> None:
        """Serve. Raises errors of the blocks, and OpError if a trainer that others wait for has died."""
        listening = Listening(self._endpoint, self._trainers, self._inbox.put)
        _log.info("server at port %d for %d trainers", listening.port, self._trainers)
        try:
            with _ended_by_signals():
                self._serve()
        except Exception as error:
            self._mode.fail(error)
            self._refuse_waiting(error)
            raise
        finally:
            listening.stop()

    def _serve(self) -> None:
        """Answer requests until no trainer is left."""
        quiet_since = time.monotonic()
        while time.monotonic() - quiet_since < self._mode.patience:
            try:
                request = self._inbox.get(timeout=0.1)  # now and then Python looks for signals
            except queue.Empty:
                continue
            self._mode.handle(request)
            quiet_since = time.monotonic()

    def _refuse_waiting(self, error: Exception) -> None:
        while not self._inbox.empty():
            self._inbox.get().refuse(error)


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
