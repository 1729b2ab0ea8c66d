"""What a trainer tells servers without waiting: in which order it is taken, and what becomes of errors."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.distributed import communicator, geo
from fluidjax.distributed.client import Client, RPCError
from fluidjax.distributed.listening import Listening
from fluidjax.distributed.parts import Target
from fluidjax.distributed.requests import RefusedError, Request
from fluidjax.distributed.settings import CHUNK, METHODS
from fluidjax.distributed.wire import Message, frames
from tests.distributed.jobs import Job
from tests.distributed.test_conversations import streams

SEND, GET = "SendVariable", "GetVariable"


class Sums:
    """A server that adds up what it is sent; it refuses numbers below zero, and takes nothing unless it is ``open``."""

    def __init__(self, endpoint: str) -> None:
        self.total, self.sent, self.open = 0.0, 0, threading.Event()
        self.open.set()
        self.listening = Listening(endpoint, 1, self.serve)

    def serve(self, request: Request) -> None:
        for name, value in request.message.items if request.method == SEND else ():
            assert self.open.wait(120)
            if name != "w":
                continue
            if value[0] < 0:
                request.refuse(RefusedError("below zero"))
                return
            self.total, self.sent = self.total + float(value[0]), self.sent + 1
        if request.method == GET:
            size = CHUNK if request.message.names() == ["long"] else 1
            request.reply(Message([(name, np.full(size, self.total)) for name in request.message.names()]))
        elif request.method in METHODS:
            request.reply()


def tell(client: Client, endpoint: str, number: float) -> None:
    client.tell([(endpoint, "w", np.array([number]))])


def total(client: Client, endpoint: str, name: str = "w") -> float:
    return client.ask(GET, [(endpoint, name, None)])[0][0]


@pytest.fixture
def server(endpoint: str, client: Client):
    """A server that a client knows well, so that their requests share a stream."""
    found = Sums(endpoint)
    for _ in range(6):
        tell(client, endpoint, 0)
        total(client, endpoint)
    yield found
    client.leave()
    found.listening.stop()


@pytest.mark.parametrize("name", ["w", "long"])
def test_what_is_asked_after_it_was_told_is_served_after_it(server, client, endpoint, name):
    """Also if the answer does not fit the stream."""
    for step in range(1, 30):
        tell(client, endpoint, 1)
        assert total(client, endpoint, name) == step
    assert streams(client, endpoint) == 1


def test_nobody_waits_for_what_is_told_but_for_a_server_that_falls_behind(server, client, endpoint):
    before = server.sent
    server.open.clear()
    for _ in range(4):
        tell(client, endpoint, 1)  # returns
    assert server.sent == before
    opened = threading.Timer(0.3, server.open.set)
    opened.start()
    tell(client, endpoint, 1)
    assert server.open.is_set() and server.sent == before + 5
    assert total(client, endpoint) == 5


def test_what_was_refused_is_the_error_of_the_next_request(server, client, endpoint):
    tell(client, endpoint, -1)
    with pytest.raises(RPCError, match="below zero"):
        total(client, endpoint)
    assert total(client, endpoint) == 0
    tell(client, endpoint, -1)
    with pytest.raises(RPCError, match="below zero"):
        client.complete()


def test_all_that_was_told_is_taken_before_a_trainer_is_done(server, client, endpoint):
    threads = [threading.Thread(target=tell, args=(client, endpoint, 1)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    client.complete()
    assert server.total == 3


def test_a_trainer_that_told_a_server_that_died_goes_on_when_it_is_back(server, client, endpoint):
    server.listening.stop()
    tell(client, endpoint, 1)
    again = Sums(endpoint)
    tell(client, endpoint, 1)
    assert total(client, endpoint) == again.total <= 2
    tell(client, endpoint, 5)
    assert total(client, endpoint) == again.total >= 5
    client.leave()
    again.listening.stop()


def test_a_method_that_there_is_not_closes_the_stream(server, client, endpoint):
    stranger = client.server(endpoint)._stub("InTurn", "stream_stream")
    (frame,) = frames(Message(flags=len(METHODS) << 4))
    with pytest.raises(Exception, match="there is no method 6"):
        next(stranger(iter([frame])))
    assert total(client, endpoint) == 0


def test_gradients_are_told_and_used_before_the_next_step_asks():
    job = Job(config={"sync_mode": False}, sync=False)
    with job.running():
        losses = job.train(12)
    np.testing.assert_allclose(losses, job.alone(12), rtol=1e-5)


@pytest.fixture
def scope(monkeypatch, client) -> fluid.Scope:
    """A scope with three parameters of a one, for communicators that talk through the client of this test."""
    for module in (communicator, geo):
        monkeypatch.setattr(module, "client", client)
    found = fluid.Scope()
    for name in ("v", "a", "b"):
        found.var(name).get_tensor().set(np.ones(1), fluid.CPUPlace())
    return found


def held(scope: fluid.Scope) -> dict[str, float]:
    return {name: float(np.array(scope.find_var(name).get_tensor())[0]) for name in ("v", "a", "b")}


def at(endpoint: str, *names: str) -> dict[str, Target]:
    return {name: Target((name,), (endpoint,), ()) for name in names}


@pytest.mark.parametrize("made", [communicator.Background, communicator.Stepwise])
def test_a_communicator_receives_at_the_end_what_it_sent(server, scope, endpoint, made):
    sends = made(at(endpoint, "w"), at(endpoint, "v"), scope, {"send_queue_size": "4"})
    sends.start()
    server.open.clear()
    for _ in range(4):
        sends.push(["w"], [np.ones(1)], [], None)
    threading.Timer(0.3, server.open.set).start()
    sends.barrier()
    sends.stop()
    assert held(scope)["v"] == server.total == 4


def test_geo_tells_what_moved_and_asks_once_for_all_dense_parameters(server, scope, endpoint, client):
    exchange = geo.Geo(at(endpoint, "v", "a", "b"), [], 2, 1, scope)
    exchange._begin()
    for name in held(scope):
        scope.find_var(name).get_tensor().set(np.full(1, 3.0), fluid.CPUPlace())
    before = client.traffic.requests
    exchange._exchange()
    assert client.traffic.requests - before == 2
    assert held(scope) == {"v": 1, "a": 1, "b": 1}  # 3, of which half the change was sent, and a server that holds 0
