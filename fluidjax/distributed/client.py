"""The trainer's side: one channel to each server, requests to several of them at once."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from fluidjax.base.errors import explain
from fluidjax.distributed import settings
from fluidjax.distributed.wire import NOW, Message, WireError, frames, joined
from lowering.errors import LoweringError

# Names that stand for notices, as in Fluid.
BATCH_BARRIER, FETCH_BARRIER, COMPLETE = "BATCH_BARRIER@RECV", "FETCH_BARRIER@RECV", "COMPLETE@RECV"


class RPCError(LoweringError, RuntimeError):
    """A server did not answer in time, or refused; the message says which."""


class Traffic:
    """Bytes that went to servers and came from them, and requests."""

    def __init__(self) -> None:
        self.sent = self.received = self.requests = 0

    def __repr__(self) -> str:
        return f"<{self.requests} requests, {self.sent} bytes sent, {self.received} bytes received>"


class Server:
    """One server as a trainer sees it."""

    def __init__(self, endpoint: str, traffic: Traffic) -> None:
        self.endpoint, self._traffic = endpoint, traffic
        credentials, options = settings.channel_credentials(), settings.options(server=False)
        grpc = settings.grpc()
        self._channel = (
            grpc.insecure_channel(endpoint, options)
            if credentials is None
            else grpc.secure_channel(endpoint, credentials, options)
        )
        self._methods: dict[tuple[str, bool], Any] = {}
        self._attending: Any = None
        self._leaving = threading.Event()

    def start(self, method: str, message: Message, timeout: float | None = None, *, wait: bool = True) -> Any:
        """Send a request, which may ``wait`` for the server to be there; ``finish`` waits for its answer."""
        parts = frames(message)
        self._traffic.sent += message.size
        self._traffic.requests += 1
        stub = self._stub(method, long=len(parts) > 1)
        return stub(
            iter(parts) if len(parts) > 1 else parts[0],
            timeout=settings.deadline() if timeout is None else timeout,
            wait_for_ready=wait,
            metadata=settings.metadata(),
        )

    def finish(self, call: Any, what: str) -> Message:
        """The answer to a request. RPCError when there is none."""
        grpc = settings.grpc()
        try:
            answer = joined(call, settings.limit())
        except grpc.RpcError as error:
            raise self._failure(what, error.code(), error.details()) from None
        except WireError as error:
            raise self._failure(what, None, str(error)) from error
        if answer is None:
            return Message()
        self._traffic.received += answer.size
        return answer

    def attend(self, trainer: int) -> None:
        """Keep a call open for as long as this process lives: by its end the server knows that the trainer is gone."""
        if self._attending is None or not self._attending.is_active():
            stub = self._stub("Attend", long=True)
            self._attending = stub(self._presence(trainer), wait_for_ready=True, metadata=settings.metadata())

    def leave(self) -> None:
        """Close the channel."""
        self._leaving.set()
        if self._attending is not None:
            self._attending.cancel()
        self._channel.close()

    def _presence(self, trainer: int) -> Iterator[bytes]:
        yield from frames(Message(trainer=trainer))
        self._leaving.wait()

    def _stub(self, method: str, *, long: bool) -> Any:
        key = method, long
        if key not in self._methods:
            kind = self._channel.stream_stream if long else self._channel.unary_stream
            self._methods[key] = kind(f"/{settings.SERVICE}/{method}")
        return self._methods[key]

    def _failure(self, what: str, code: Any, details: str) -> RPCError:
        grpc = settings.grpc()
        timed_out = code == grpc.StatusCode.DEADLINE_EXCEEDED
        received = f"no answer in {settings.deadline():g} s" if timed_out else f"{details}"
        todo = (
            "see whether the server still runs and whether all other trainers do; FLAGS_rpc_deadline sets the time"
            if timed_out or code == grpc.StatusCode.UNAVAILABLE
            else "see the server's own message"
        )
        error = RPCError(explain(f"{what} failed at the server {self.endpoint}", "its answer", received, todo))
        error.unreachable = code == grpc.StatusCode.UNAVAILABLE  # type: ignore[attr-defined]
        return error


class Client:
    """This process as a trainer.

    Attributes:
        trainer: its number, as the ops of its programs say it.
        in_rounds: whether it keeps step with other trainers. A server that is gone is then not waited for: what it knew
            of the round is gone, too.
        traffic: what was said so far.
    """

    def __init__(self) -> None:
        self.trainer = 0
        self.in_rounds = False
        self.traffic = Traffic()
        self._servers: dict[str, Server] = {}
        self._left: list[Server] = []
        self._lock = threading.RLock()

    def server(self, endpoint: str) -> Server:
        """The server at an endpoint; the channel to it is made when it is first asked for."""
        with self._lock:
            if endpoint not in self._servers:
                self._servers[endpoint] = Server(endpoint, self.traffic)
            return self._servers[endpoint]

    def introduce(self, trainer: int) -> None:
        """Take the number of this trainer from an op that knows it."""
        self.trainer = trainer

    def ask(
        self, method: str, items: Iterable[tuple[str, str, Any]], flags: int = 0, timeout: float | None = None
    ) -> list[Any]:
        """Ask several servers at once.

        Args:
            method: of the service.
            items: (endpoint, name, value); those of one server go in one message.
            flags: of the messages.

        Returns:
            A value for each item, in order; what servers answer without values is None.
        """
        items = list(items)
        mine: dict[str, list[tuple[str, Any]]] = {}
        for endpoint, name, value in items:
            mine.setdefault(endpoint, []).append((name, value))
        answers = self._exchange(method, mine, flags, timeout)
        values = {endpoint: iter(answer.values()) for endpoint, answer in answers.items()}
        return [next(values[endpoint], None) for endpoint, _, _ in items]

    def _exchange(
        self, method: str, mine: dict[str, list[tuple[str, Any]]], flags: int, timeout: float | None
    ) -> dict[str, Message]:
        """Ask each server once; what fails because a server went away is asked again when it is back."""
        waiting, answers = dict(mine), {}
        retries = 0 if self.in_rounds else settings.retries()
        while waiting:
            calls = {e: self._start(e, method, items, flags, timeout) for e, items in waiting.items()}
            failed = None
            for endpoint, call in calls.items():
                try:
                    answers[endpoint] = self.server(endpoint).finish(call, f"{method} of {_some(waiting[endpoint])}")
                    del waiting[endpoint]
                except RPCError as error:
                    failed = error
            if failed is not None and (retries <= 0 or not getattr(failed, "unreachable", False)):
                raise failed
            retries -= 1
        return answers

    def _start(
        self, endpoint: str, method: str, items: Sequence[tuple[str, Any]], flags: int, timeout: float | None
    ) -> Any:
        server = self.server(endpoint)
        server.attend(self.trainer)
        return server.start(method, Message(items, self.trainer, flags), timeout, wait=not self.in_rounds)

    def notify(self, endpoints: Iterable[str], notice: str) -> None:
        """Give servers a notice: a barrier, or that this trainer has completed."""
        self.ask("SendVariable", [(endpoint, notice, None) for endpoint in dict.fromkeys(endpoints)])

    def fetch(self, wanted: Sequence[tuple[str, str]], *, now: bool) -> list[Any]:
        """Values of (endpoint, name); with ``now``, whatever phase the servers are in."""
        items = [(endpoint, name, None) for endpoint, name in wanted]
        return self.ask("GetVariable", items, NOW if now else 0)

    def complete(self) -> None:
        """Tell all servers that this trainer ends; servers that are gone already are fine.

        The connections stay until the process ends, and by that servers know when nobody can need them any more.
        """
        with self._lock:
            servers, self._servers = self._servers, {}
            self._left += servers.values()
            self.in_rounds = False
        message = Message([(COMPLETE, None)], self.trainer)
        for server in servers.values():
            with contextlib.suppress(RPCError):
                server.finish(server.start("SendVariable", message, timeout=5, wait=False), COMPLETE)

    def finish(self) -> None:
        """What the end of a process does: it completes, unless an error ended it; then connections break."""
        if getattr(sys, "last_value", None) is None:
            self.complete()

    def leave(self) -> None:
        """Close all connections."""
        with self._lock:
            left, self._left = [*self._servers.values(), *self._left], []
            self._servers = {}
        for server in left:
            server.leave()


def _some(items: Sequence[tuple[str, Any]]) -> str:
    names = [name for name, _ in items]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


client = Client()
