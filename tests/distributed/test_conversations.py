"""Requests that follow one another on streams: who asks, who answers, and who does not."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.distributed.client import Client, RPCError
from fluidjax.distributed.listening import Listening
from fluidjax.distributed.requests import RefusedError, Request
from fluidjax.distributed.wire import Message
from tests.ports import free_endpoints

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
def endpoint() -> str:
    (found,) = free_endpoints(1)
    return found


@pytest.fixture
def client() -> Iterator[Client]:
    found = Client()
    yield found
    found.leave()


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
