"""The trainer's side: one channel per server, and concurrent requests to several servers."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from fluidjax.base.errors import explain
from fluidjax.distributed import settings
from fluidjax.distributed.conversation import Conversations, LateError
from fluidjax.distributed.settings import IN_PARTS, IN_TURN, SEND_AND_GET
from fluidjax.distributed.sizes import Items, Sizes
from fluidjax.distributed.traffic import Traffic
from fluidjax.distributed.wire import LAST, NOW, TOLD, Message, WireError, flags_of, frames, joined
from lowering.errors import LoweringError

# Names that stand for notices, as in Fluid.
BATCH_BARRIER, FETCH_BARRIER, COMPLETE = "BATCH_BARRIER@RECV", "FETCH_BARRIER@RECV", "COMPLETE@RECV"


Head = tuple[int, int]

_OFTEN = 3  # requests of a method, after which those that follow share a stream


class RPCError(LoweringError, RuntimeError):
    """A server did not answer in time, or refused the request; the message says which."""


class Server:
    """A trainer's connection to one server."""

    def __init__(self, endpoint: str, traffic: Traffic) -> None:
        self.endpoint, self._traffic = endpoint, traffic
        credentials, options = settings.channel_credentials(), settings.options(server=False)
        grpc = settings.grpc()
        self._channel = (
            grpc.insecure_channel(endpoint, options)
            if credentials is None
            else grpc.secure_channel(endpoint, credentials, options)
        )
        self._methods: dict[str, Any] = {}
        self._sizes = Sizes()
        self._asked: Counter[str] = Counter()
        self._conversations = Conversations(self._stub(IN_TURN, "stream_stream"))
        self._attending: Any = None
        self._to_attend = threading.Lock()
        self._leaving = threading.Event()

    def start(
        self,
        method: str,
        items: Items,
        head: Head,
        timeout: float | None = None,
        *,
        wait: bool = True,
    ) -> Iterable[bytes]:
        """Make a request: the frames of its answer, which ``finish`` waits for.

        Args:
            method: of the service.
            items: names with their values.
            head: (trainer, flags) of the message.
            timeout: seconds that it may take.
            wait: whether it may wait for the server to come up.
        """
        trainer, flags = head
        message = Message(items, trainer, flags_of(method, flags))
        parts = frames(message)
        self._traffic.count(sent=message.size, requests=1)
        seconds = settings.deadline() if timeout is None else timeout
        short = len(parts) == 1 and self._sizes.are_short(method, message)
        self._asked[method] += short
        if short and self._asked[method] > _OFTEN:
            asked = self._conversations.ask(parts[0], seconds, wait=wait)
            if asked is not None:
                return asked
        self.follow(trainer)
        settled = {"timeout": seconds, "wait_for_ready": wait, "metadata": settings.metadata()}
        if short:
            return self._stub(method, "unary_stream")(parts[0], **settled)
        return self._stub(method + IN_PARTS, "stream_stream")(iter(parts), **settled)

    def tell(self, method: str, items: Items, head: Head, *, wait: bool = True) -> bool:
        """Make a request that nobody waits for; what this thread asks later is served after it.

        If the server refuses it, the error is that of the next request. False: it was not made, and is to be asked.
        """
        message = Message(items, head[0], flags_of(method, head[1] | TOLD))
        part, *more = frames(message)
        if more or self._asked[method] <= _OFTEN or not self._conversations.tell(part, wait=wait):
            return False
        self._traffic.count(sent=message.size, requests=1)
        return True

    def follow(self, trainer: int, *, all_threads: bool = False) -> None:
        """Wait until the server has taken what this thread, or all of them, told it. Raises RPCError if it refused."""
        (nothing,) = frames(Message(trainer=trainer, flags=flags_of("GetVariable", NOW)))
        for answer in self._conversations.follow(nothing, settings.deadline(), all_threads=all_threads):
            try:
                self.finish(answer, "what was sent")
            except RPCError as error:
                if not getattr(error, "unreachable", False):  # who asks the server finds out whether it comes back
                    raise

    def finish(self, call: Iterable[bytes], method: str, items: Items = ()) -> Message:
        """The answer to a request of a method for items. Raises RPCError if there is none."""
        grpc = settings.grpc()
        try:
            answer = joined(call, settings.limit())
        except LateError:
            raise self._failure(method, items, grpc.StatusCode.DEADLINE_EXCEEDED, "") from None
        except grpc.RpcError as error:
            raise self._failure(method, items, error.code(), error.details()) from None
        except WireError as error:
            raise self._failure(method, items, None, str(error)) from error
        if answer is None:
            return Message()
        self._traffic.count(received=answer.size)
        self._sizes.learn(method, items, answer)
        return answer

    def attend(self, trainer: int) -> None:
        """Keep one call open while this process lives, so that its end tells the server that the trainer is gone."""
        if self._attends():
            return
        with self._to_attend:
            # Of two calls one would be dropped, and the server would hear that the trainer is gone.
            if not self._attends():
                stub = self._stub("Attend", "stream_stream")
                self._attending = stub(self._presence(trainer), wait_for_ready=True, metadata=settings.metadata())

    def _attends(self) -> bool:
        return self._attending is not None and self._attending.is_active()

    def leave(self) -> None:
        """Close the channel."""
        self._leaving.set()
        self._conversations.leave()
        if self._attending is not None:
            self._attending.cancel()
        self._channel.close()

    def _presence(self, trainer: int) -> Iterator[bytes]:
        yield from frames(Message(trainer=trainer))
        self._leaving.wait()

    def _stub(self, method: str, kind: str) -> Any:
        if method not in self._methods:
            self._methods[method] = getattr(self._channel, kind)(f"/{settings.SERVICE}/{method}")
        return self._methods[method]

    def _failure(self, method: str, items: Items, code: Any, details: str) -> RPCError:
        grpc = settings.grpc()
        what = f"{method} of {_some(items)}" if items else method
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
        trainer: its index, as given by the ops of its programs.
        in_rounds: whether it runs in lockstep with other trainers. A server that dies is then not retried, since its
            state of the round is lost.
        traffic: the communication so far.
    """

    def __init__(self) -> None:
        self.trainer = 0
        self.in_rounds = False
        self.traffic = Traffic()
        self._servers: dict[str, Server] = {}
        self._left: list[Server] = []
        self._lock = threading.RLock()

    def server(self, endpoint: str) -> Server:
        """The connection to a server; its channel is created on first use."""
        found = self._servers.get(endpoint)
        if found is not None:
            return found
        with self._lock:
            if endpoint not in self._servers:
                self._servers[endpoint] = Server(endpoint, self.traffic)
            return self._servers[endpoint]

    def introduce(self, trainer: int) -> None:
        """Record the index of this trainer, given by an op."""
        self.trainer = trainer

    def ask(
        self, method: str, items: Iterable[tuple[str, str, Any]], flags: int = 0, timeout: float | None = None
    ) -> list[Any]:
        """Send a request to several servers concurrently.

        Args:
            method: name of the service's method.
            items: (endpoint, name, value); those for the same server are combined in one message.
            flags: of the messages.

        Returns:
            One value per item, in order; None where the answer contains no value.
        """
        items = list(items)
        mine: dict[str, Any] = {}
        for endpoint, name, value in items:
            mine.setdefault(endpoint, []).append((name, value))
        answers = self._exchange(method, mine, flags, timeout)
        values = {endpoint: iter(answer.values()) for endpoint, answer in answers.items()}
        return [next(values[endpoint], None) for endpoint, _, _ in items]

    def _exchange(self, method: str, mine: dict[str, Items], flags: int, timeout: float | None) -> dict[str, Message]:
        """Send a request to each server; retry, once the server is back, if it failed because the server went away."""
        waiting, answers = dict(mine), {}
        retries = 0 if self.in_rounds else settings.retries()
        while waiting:
            calls = {e: self._start(e, method, items, flags, timeout) for e, items in waiting.items()}
            failed = None
            for endpoint, call in calls.items():
                try:
                    answers[endpoint] = self.server(endpoint).finish(call, method, waiting[endpoint])
                    del waiting[endpoint]
                except RPCError as error:
                    failed = error
            if failed is not None and (retries <= 0 or not getattr(failed, "unreachable", False)):
                raise failed
            retries -= 1
        return answers

    def _start(self, endpoint: str, method: str, items: Items, flags: int, timeout: float | None) -> Iterable[bytes]:
        server = self.server(endpoint)
        server.attend(self.trainer)
        return server.start(method, items, (self.trainer, flags), timeout, wait=not self.in_rounds)

    def tell(self, items: Iterable[tuple[str, str, Any]]) -> None:
        """Send (endpoint, name, value) items; their servers take them before what this thread asks next.

        Nothing is waited for, so an error may be that of a later request, and what was on its way to a server that died
        is lost, as are the updates since its last checkpoint.
        """
        mine: dict[str, Any] = {}
        for endpoint, name, value in items:
            mine.setdefault(endpoint, []).append((name, value))
        rest = {endpoint: sent for endpoint, sent in mine.items() if not self._told(endpoint, sent)}
        self._exchange("SendVariable", rest, 0, None)

    def _told(self, endpoint: str, items: Items) -> bool:
        server = self.server(endpoint)
        server.attend(self.trainer)
        return server.tell("SendVariable", items, (self.trainer, 0), wait=not self.in_rounds)

    def notify(self, endpoints: Iterable[str], notice: str) -> None:
        """Notify servers of a barrier or of this trainer's completion."""
        self.ask("SendVariable", [(endpoint, notice, None) for endpoint in dict.fromkeys(endpoints)])

    def end_batch(
        self,
        items: Sequence[tuple[str, str, Any]],
        endpoints: Iterable[str],
        wanted: Sequence[tuple[str, str]] = (),
        *,
        last: bool = False,
    ) -> list[Any]:
        """Send (endpoint, name, value) items, and tell all endpoints in the same messages that this is the batch.

        Returns the values of (endpoint, name) ``wanted``, at these endpoints, once the round is over. With ``last``,
        the messages also count as this trainer's fetch barrier.
        """
        self.in_rounds = True
        if not last:
            self.ask("SendVariable", [*items, *((endpoint, BATCH_BARRIER, None) for endpoint in endpoints)])
            return self.fetch(wanted, now=False) if wanted else []
        mine: dict[str, Any] = {endpoint: [] for endpoint in endpoints}
        for endpoint, name, value in [*items, *((endpoint, name, None) for endpoint, name in wanted)]:
            mine[endpoint].append((name, value))
        values = {e: iter(answer.values()) for e, answer in self._exchange(SEND_AND_GET, mine, LAST, None).items()}
        return [next(values[endpoint], None) for endpoint, _ in wanted]

    def fetch(self, wanted: Sequence[tuple[str, str]], *, now: bool, last: bool = False) -> list[Any]:
        """Fetch values of (endpoint, name).

        With ``now``, regardless of the servers' phase; with ``last``, also count as this trainer's fetch barrier.
        """
        items = [(endpoint, name, None) for endpoint, name in wanted]
        return self.ask("GetVariable", items, (NOW if now else 0) | (LAST if last else 0))

    def complete(self) -> None:
        """Tell all servers that this trainer is done; servers that are gone are ignored. RPCError for a refusal.

        Connections stay open until the process ends, which lets servers detect that nobody needs them any more.
        """
        with self._lock:
            servers, self._servers = self._servers, {}
            self._left += servers.values()
            self.in_rounds = False
        refused = None
        for server in servers.values():
            try:
                server.follow(self.trainer, all_threads=True)
            except RPCError as error:
                refused = error
            with contextlib.suppress(RPCError):
                call = server.start("SendVariable", [(COMPLETE, None)], (self.trainer, 0), timeout=5, wait=False)
                server.finish(call, COMPLETE)
        if refused is not None:
            raise refused

    def finish(self) -> None:
        """Called when the process ends: completes, unless after an error, and closes the connections."""
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
