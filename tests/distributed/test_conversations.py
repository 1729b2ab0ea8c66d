"""Requests that follow one another on streams: who asks, who answers, and who does not."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.distributed.client import Client, RPCError
from fluidjax.distributed.conversation import Conversation, LateError
from fluidjax.distributed.listening import Listening
from fluidjax.distributed.requests import RefusedError, Request
from fluidjax.distributed.traffic import Traffic
from fluidjax.distributed.wire import Message, frames

METHOD = "PrefetchVariable"


class Echo:
    """A server that answers ids by themselves; 13 it keeps, 14 it refuses."""

    def __init__(self, endpoint: str) -> None:
        self.kept: list[Request] = []
        self.listening = Listening(endpoint, 1, self.post)

    def post(self, request: Request) -> None:
        if request.method != METHOD:
            return
        ids = request.message.items[0][1]
        if ids[0] == 13:
            self.kept.append(request)
        elif ids[0] == 14:
            request.refuse(RefusedError("not that one"))
        else:
            request.reply(Message([("rows", ids.astype("float32"))]))


@pytest.fixture
def deadline() -> Iterator[Any]:
    before = fluid.get_flags(["FLAGS_rpc_deadline"])
    yield lambda ms: fluid.set_flags({"FLAGS_rpc_deadline": ms})
    fluid.set_flags(before)


def ask(client: Client, endpoint: str, number: int) -> float:
    (rows,) = client.ask(METHOD, [(endpoint, "table", np.array([number]))])
    return float(rows[0])


def streams(client: Client, endpoint: str) -> int:
    return sum(each.lasts() for each in client.server(endpoint)._conversations._all)


def test_requests_that_follow_one_another_share_a_stream(endpoint: str, client: Client) -> None:
    server = Echo(endpoint)
    assert [ask(client, endpoint, n) for n in range(12)] == list(range(12))
    assert streams(client, endpoint) == 1
    with ThreadPoolExecutor(4) as threads:  # each gets its own answer
        assert list(threads.map(lambda n: ask(client, endpoint, n), range(100, 300))) == list(range(100, 300))
    assert 1 <= streams(client, endpoint) <= 4
    client.leave()
    server.listening.stop()


def test_a_refusal_ends_the_stream_only(endpoint: str, client: Client) -> None:
    server = Echo(endpoint)
    for _ in range(6):
        ask(client, endpoint, 1)
    with pytest.raises(RPCError, match="not that one"):
        ask(client, endpoint, 14)
    assert streams(client, endpoint) == 0 and ask(client, endpoint, 2) == 2 and streams(client, endpoint) == 1
    client.leave()
    server.listening.stop()


def test_an_answer_that_does_not_come(endpoint: str, client: Client, deadline: Any) -> None:
    server = Echo(endpoint)
    for _ in range(6):
        ask(client, endpoint, 1)
    deadline(300)
    with pytest.raises(RPCError, match="no answer in 0.3 s"):
        ask(client, endpoint, 13)
    deadline(20_000)
    assert ask(client, endpoint, 3) == 3
    with pytest.raises(CancelledError):  # the server waits for nobody that has gone
        server.kept[0].answer.result(120)
    client.leave()
    server.listening.stop()


def test_a_server_that_comes_back_is_asked_again(endpoint: str, client: Client) -> None:
    server = Echo(endpoint)
    for _ in range(6):
        ask(client, endpoint, 1)
    server.listening.stop()
    server = Echo(endpoint)
    assert ask(client, endpoint, 5) == 5 and streams(client, endpoint) == 1
    client.leave()
    server.listening.stop()


def test_in_rounds_a_server_that_died_is_an_error(endpoint: str, client: Client) -> None:
    server = Echo(endpoint)
    client.in_rounds = True
    client.server(endpoint)
    for _ in range(6):
        ask(client, endpoint, 1)
    server.listening.stop()
    with pytest.raises(RPCError):
        ask(client, endpoint, 5)


def test_many_threads_leave_a_server_threads_for_other_requests(endpoint: str, client: Client, deadline: Any) -> None:
    """A stream takes one of the server's 20 threads as long as it is open."""
    together = threading.Barrier(16)

    def serve(request: Request) -> None:
        if request.method == METHOD:
            together.wait(60)  # all are on their way at once
        if request.method in (METHOD, "DistributeNotify"):
            request.reply(Message([("rows", np.zeros(1, np.float32))]))

    deadline(120_000)
    listening = Listening(endpoint, 1, serve)
    with ThreadPoolExecutor(16) as threads:
        for method in (METHOD, "DistributeNotify"):
            for _ in range(3):
                item = [(endpoint, "table", np.array([1]))]
                assert len(list(threads.map(lambda _, m=method, i=item: client.ask(m, i), range(16)))) == 16
    assert 1 <= streams(client, endpoint) <= 8
    client.leave()
    listening.stop()


class Call:
    """A stream that answers when it is told to."""

    def __init__(self) -> None:
        self.active, self.answers = True, threading.Event()

    def __next__(self) -> bytes:
        assert self.answers.wait(120)
        return b"answer"

    def cancel(self) -> None:
        self.active = False

    def is_active(self) -> bool:
        return self.active


class Now(float):
    """A time; while it is compared with another, an answer comes, and whoever waits for it may go on."""

    def __new__(cls, call: Call, taken: threading.Event) -> Now:
        found = super().__new__(cls, math.inf)
        found.call, found.taken = call, taken  # type: ignore[attr-defined]
        return found

    def __gt__(self, other: float) -> bool:
        self.call.answers.set()  # type: ignore[attr-defined]
        self.taken.wait(0.5)  # type: ignore[attr-defined]
        return super().__gt__(other)


def test_an_answer_in_the_moment_of_its_deadline_is_late_or_leaves_the_stream_open() -> None:
    """The stream was passed on to the next request, and then ended as if that one had been late."""
    call, taken = Call(), threading.Event()
    passed_on: list[Conversation] = []
    conversation = Conversation(lambda sent: call)
    answer = conversation.ask(b"question", 0.0, passed_on.append)

    def take() -> None:
        with contextlib.suppress(LateError):
            next(answer)
        taken.set()

    taker = threading.Thread(target=take)
    taker.start()
    conversation.look(Now(call, taken))
    taker.join(120)
    assert taken.is_set() and call.active == bool(passed_on)


def test_who_gave_up_before_the_request_was_read_is_not_served(endpoint: str) -> None:
    class Gone:
        def add_callback(self, callback: Any) -> bool:
            return False

        def invocation_metadata(self) -> tuple[()]:
            return ()

        def peer(self) -> str:
            return "nobody"

        def abort(self, code: Any, text: str) -> None:
            raise InterruptedError

    served: list[Request] = []

    def serve(request: Request) -> None:
        served.append(request)
        request.reply()

    listening = Listening(endpoint, 1, serve)
    with pytest.raises(InterruptedError):
        listening._answering(METHOD)(iter(frames(Message([("table", np.array([1]))]))), Gone())
    listening.stop()
    assert not served


class Slow(int):
    """A number that takes a while to be added to: until another thread has added to it, or half a second."""

    met = threading.Barrier(2)

    def __add__(self, other: int) -> int:
        with contextlib.suppress(threading.BrokenBarrierError):
            self.met.wait(0.5)
        return int(self) + other


def test_threads_that_count_at_once_lose_nothing() -> None:
    traffic = Traffic()
    traffic.sent = Slow(0)
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda _: traffic.count(sent=5, requests=1), range(2)))
    assert (traffic.sent, traffic.requests) == (10, 2)
