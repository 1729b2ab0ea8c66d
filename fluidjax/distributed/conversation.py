"""Streams on which a trainer asks one short request after another, which is half the work of a call for each."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from fluidjax.distributed import settings
from fluidjax.distributed.wire import WireError

_LOOK = 0.2  # seconds between looks at the time: a stream knows of no deadline for one of its answers
_MOST = 8  # streams to one server: each takes one of the threads that the server has for a trainer


class LateError(Exception):
    """An answer did not come in time."""


class Conversation:
    """One stream; who has asked is answered before anybody asks again.

    Args:
        open: makes the call, given what it is to send.
    """

    def __init__(self, open: Callable[[Iterator[bytes]], Any]) -> None:
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._call = open(iter(self._outbox.get, None))
        self._ends, self._late = math.inf, False
        self._timing = threading.Lock()  # an answer is either in time, or late

    def ask(self, frame: bytes, seconds: float, again: Callable[[Conversation], None]) -> Iterator[bytes]:
        """Send a request: its answer, a single frame, after which ``again`` is told that others may ask.

        Raises, when the answer is taken, LateError, WireError or the call's own error: the stream is over then.
        """
        self._ends = time.monotonic() + seconds
        self._outbox.put(frame)
        return self._answer(again)

    def _answer(self, again: Callable[[Conversation], None]) -> Iterator[bytes]:
        try:
            frame = next(self._call)
            self._in_time()
        except BaseException as error:
            self.leave()
            if self._late:
                raise LateError from None
            if isinstance(error, StopIteration):
                raise WireError("the server ended the stream") from None
            raise
        again(self)
        yield frame

    def _in_time(self) -> None:
        with self._timing:
            if self._late:
                raise LateError
            self._ends = math.inf

    def lasts(self) -> bool:
        """Whether the stream is still open, as far as is known here."""
        return bool(self._call.is_active())

    def look(self, now: float) -> None:
        """End the stream if an answer is overdue."""
        with self._timing:
            self._late = self._late or now > self._ends
        if self._late:
            self.leave()

    def leave(self) -> None:
        """End the stream."""
        self._call.cancel()
        self._outbox.put(None)


class Conversations:
    """The streams to one server, a few for each method, and ``_MOST`` in all.

    Args:
        stub: makes the stub of a method's streams.
    """

    def __init__(self, stub: Callable[[str], Any]) -> None:
        self._stub = stub
        self._idle: dict[str, deque[Conversation]] = {}
        self._all: list[Conversation] = []
        self._lock = threading.Lock()
        self._over = threading.Event()

    def ask(self, method: str, frame: bytes, seconds: float, *, wait: bool) -> Iterator[bytes] | None:
        """The answer to a short request, or None if all streams are in use.

        Args:
            method: of the service.
            frame: the message.
            seconds: that the answer may take.
            wait: whether it may wait for the server to come up.
        """
        idle = self._idle.setdefault(method, deque())
        taken = self._taken(idle, method, wait)
        return None if taken is None else taken.ask(frame, seconds, idle.append)

    def _taken(self, idle: deque[Conversation], method: str, wait: bool) -> Conversation | None:
        """A stream that nobody uses."""
        while idle:
            try:
                found = idle.pop()
            except IndexError:  # another thread was faster
                break
            if found.lasts():
                return found
            found.leave()
        return self._opened(method, wait)

    def _opened(self, method: str, wait: bool) -> Conversation | None:
        def open(sent: Iterator[bytes]) -> Any:
            return self._stub(method)(sent, wait_for_ready=wait, metadata=settings.metadata())

        with self._lock:
            if not self._all:
                threading.Thread(target=self._look, name="fluidjax-deadlines", daemon=True).start()
            open_now = [each for each in self._all if each.lasts()]
            if len(open_now) >= _MOST:
                return None
            self._all = [*open_now, Conversation(open)]
            return self._all[-1]

    def _look(self) -> None:
        while not self._over.wait(_LOOK):
            for each in self._all:
                each.look(time.monotonic())

    def leave(self) -> None:
        """End all streams."""
        self._over.set()
        for each in self._all:
            each.leave()
