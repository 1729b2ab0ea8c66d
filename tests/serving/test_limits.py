"""Limits: too much, too slow, too many, without the token."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from fluidjax.serving.model import ServedModel
from fluidjax.serving.settings import Settings
from tests.serving.at_work import JSON, NPZ, serving

REQUEST = {"x": [[1.0, 2.0, 3.0]], "w": [[1, 2]]}


class Held(ServedModel):
    """A model whose runs wait to be let go."""

    go, entered = threading.Event(), threading.Event()

    def run(self, inputs):
        self.entered.set()
        assert self.go.wait(240)
        return super().run(inputs)


@pytest.fixture
def held(folder):
    """A held model, let go to be warm."""
    model = Held(folder)
    model.go.set()
    yield model
    model.go.set()


def hold(model):
    model.go.clear()
    model.entered.clear()


def test_more_than_the_queue_holds_come_back_later(held):
    with serving(held, Settings(queue=3, max_batch=1)) as client, ThreadPoolExecutor(3) as pool:
        hold(held)
        first = [pool.submit(client.predict, REQUEST) for _ in range(3)]
        while "fluidjax_requests_waiting 3.0" not in client.get("/metrics").body.decode():
            pass
        late = client.predict(REQUEST)
        assert late.status == 503 and late.headers["retry-after"] == "1" and "busy" in late.json["error"]
        assert client.is_alive()
        held.go.set()
        assert [f.result().status for f in first] == [200] * 3
        assert client.predict(REQUEST).status == 200


def test_an_answer_that_takes_too_long(held):
    with serving(held, Settings(timeout=0.2, max_batch=1)) as client:
        hold(held)
        answer = client.predict(REQUEST)
        assert answer.status == 504 and answer.json["expected"] == "an answer within 0.2 s"
        held.go.set()


def test_it_is_not_healthy_before_it_is_warm(held):
    hold(held)
    with serving(held, Settings(max_batch=1), warm=False) as client:
        assert held.entered.wait(240)
        assert client.get("/health").status == 503
        held.go.set()
        assert client.server.ready.wait(240)
        assert client.is_alive()


def test_what_runs_is_finished_at_the_end(held):
    with serving(held, Settings(max_batch=1)) as client, ThreadPoolExecutor(1) as pool:
        hold(held)
        answer = pool.submit(client.predict, REQUEST)
        assert held.entered.wait(240)
        client.server.stop()
        threading.Timer(0.3, held.go.set).start()
        assert answer.result().status == 200


def sent(client, head, body=b""):
    """What the server answers to bytes, and whether it closes then."""
    with socket.create_connection(("127.0.0.1", client.port), timeout=120) as connection:
        connection.sendall(head + b"\r\n\r\n" + body)
        connection.shutdown(socket.SHUT_WR) if body == b"end" else None
        return connection.recv(65536)


HEAD = b"POST /predict HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"


def test_bodies_that_are_too_large_or_lie(folder):
    with serving(ServedModel(folder), Settings(max_body=1000, max_batch=1)) as client:
        assert b" 413 " in sent(client, HEAD + b"Content-Length: 1001")
        assert b" 413 " in sent(client, HEAD + b"Transfer-Encoding: chunked", b"7d1\r\n" + b"1" * 2001 + b"\r\n")
        assert b" 400 " in sent(client, HEAD + b"Content-Length: -1")
        assert b" 400 " in sent(client, HEAD + b"Content-Length: a")
        assert b" 400 " in sent(client, HEAD + b"Content-Length: 2", b"{}" + b"\x00 more than was said")
        sent(client, HEAD + b"Content-Length: 999", b"end")
        assert client.ask("POST", "/predict", json.dumps({"inputs": {"x": [[0] * 500]}}), JSON).status == 413
        assert client.ask("POST", "/predict", b"0" * 1001, NPZ).status == 413
        assert client.predict(REQUEST).status == 200


def test_a_body_that_does_not_end(folder):
    with serving(ServedModel(folder), Settings(timeout=0.5, max_batch=1)) as client:
        assert b" 408 " in sent(client, HEAD + b"Content-Length: 999", b"{")
        assert client.is_alive()


def test_a_token(folder):
    with serving(ServedModel(folder), Settings(token="open sesame", max_batch=1)) as client:
        for path in ("/model", "/metrics", "/openapi.json"):
            assert client.get(path).status == 401
            assert client.get(path, Authorization="Bearer open sesame").status == 200
        assert client.predict(REQUEST).status == 401
        assert client.predict(REQUEST, Authorization="Bearer open").status == 401
        assert client.predict(REQUEST, Authorization="Bearer open sesame").status == 200
        assert client.is_alive() and client.get("/").status == 200


def test_other_pages_and_methods(client):
    for method, path, status in (("GET", "/nosuch", 404), ("GET", "/predict", 405), ("DELETE", "/model", 405)):
        answer = client.ask(method, path)
        assert answer.status == status and answer.json["received"] == f"{method} {path}"


def test_answers_do_not_wait_for_acknowledgements(client, monkeypatch):
    """Head and body are sent at once: an answer in two packets would wait 40 ms for the first to be acknowledged."""
    set_to = []
    taken = socket.socket.accept

    def accept(self):
        connection, address = taken(self)
        set_to.append(connection)
        return connection, address

    monkeypatch.setattr(socket.socket, "accept", accept)
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", client.port, timeout=120)) as connection:
        connection.request("GET", "/health")
        connection.getresponse().read()
        assert [s.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for s in set_to] == [1]
