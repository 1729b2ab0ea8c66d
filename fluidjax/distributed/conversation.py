"""Streams on which a trainer makes one short request after another, which is half the work of a call for each.

What needs no answer is told: the thread that told goes on at once, and what it asks next follows on the same stream, so
that the server takes both in their order. If the server has refused what it was told, that answer is an error.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from fluidjax.distributed import settings
from fluidjax.distributed.wire import WireError, fit, together

_LOOK = 0.2  # seconds between looks at the time: a stream knows of no deadline for one of its answers
_MOST = 8  # streams to one server: each takes one of the threads that the server has for a trainer
_MOST_TOLD = 4  # requests on their way without an answer, so that a trainer does not run ahead of a slow server


class LateError(Exception):
    """An answer did not come in time."""


class Conversation:
    """One stream; who has asked is answered before anybody asks again.

    Args:
        open: makes the call, given what it is to send.
    """

    def __init__(self, open: Callable[[Iterator[bytes]], Any]) -> None:
        self._outbox: queue.SimpleQueue[bytes] = queue.SimpleQueue()  # b"": the end
        self._call = open(self._parts())
        self._ends, self._late = math.inf, False
        self._told = 0  # since the last answer
        self._timing = threading.Lock()  # an answer is either in time, or late

    def _parts(self) -> Iterator[bytes]:
        """What gRPC sends: of the frames that wait by then, as many as fit into one of its messages.

        Each of its messages wakes three threads here and two there, so what is asked right after something was told
        goes with it. Nothing waits for company.
        """
        frame = self._outbox.get()
        while frame:
            waiting, following = [frame], self._waiting()
            while following and fit([*waiting, following]):
                waiting.append(following)
                following = self._waiting()
            yield together(waiting)
            frame = self._outbox.get() if following is None else following

    def _waiting(self) -> bytes | None:
        try:
            return self._outbox.get_nowait()
        except queue.Empty:
            return None

    def ask(self, frame: bytes, seconds: float, again: Callable[[Conversation], None]) -> Iterator[bytes]:
        """Send a request: its answer, a single frame, after which ``again`` is told that others may ask.

        Raises, when the answer is taken, LateError, WireError or the call's own error: the stream is over then.
        """
        self._ends = time.monotonic() + seconds
        self._outbox.put(frame)
        return self._answer(again)

    def tell(self, frame: bytes) -> bool:
        """Send a request that is not answered; False if it has to be asked: the stream is over, or it is time to."""
        if self._told == _MOST_TOLD or not self.lasts():
            return False
        self._told += 1
        self._outbox.put(frame)
        return True

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
        self._told = 0
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
        self._outbox.put(b"")


class Conversations:
    """The streams to one server, ``_MOST`` at most.

    Args:
        stub: makes a stream.
    """

    def __init__(self, stub: Callable[..., Any]) -> None:
        self._stub = stub
        self._idle: deque[Conversation] = deque()
        self._all: list[Conversation] = []
        self._told: dict[int, Conversation] = {}  # by thread: where its next request has to follow
        self._lock = threading.Lock()
        self._over = threading.Event()

    def ask(self, frame: bytes, seconds: float, *, wait: bool) -> Iterator[bytes] | None:
        """The answer to a short request, or None if all streams are in use.

        Args:
            frame: the message.
            seconds: that the answer may take.
            wait: whether it may wait for the server to come up.
        """
        taken = self._told.pop(threading.get_ident(), None) or self._taken(wait)
        return None if taken is None else taken.ask(frame, seconds, self._idle.append)

    def tell(self, frame: bytes, *, wait: bool) -> bool:
        """Send a short request that is not answered; False if it has to be asked instead."""
        mine = threading.get_ident()
        taken = self._told.pop(mine, None) or self._taken(wait)
        if taken is None:
            return False
        self._told[mine] = taken  # if it is over, who asks is told why
        return taken.tell(frame)

    def follow(self, frame: bytes, seconds: float, *, all_threads: bool = False) -> Iterator[Iterator[bytes]]:
        """Ask on the stream that this thread told something on, or all threads did: an answer each."""
        for thread in list(self._told) if all_threads else [threading.get_ident()]:
            told = self._told.pop(thread, None)
            if told is not None:
                yield told.ask(frame, seconds, self._idle.append)

    def _taken(self, wait: bool) -> Conversation | None:
        """A stream that nobody uses."""
        while self._idle:
            try:
                found = self._idle.pop()
            except IndexError:  # another thread was faster
                break
            if found.lasts():
                return found
            found.leave()
        return self._opened(wait)

    def _opened(self, wait: bool) -> Conversation | None:
        def open(sent: Iterator[bytes]) -> Any:
            return self._stub(sent, wait_for_ready=wait, metadata=settings.metadata())

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
