"""How trainers come to their servers."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from fluidjax.distributed import settings
from tests.ports import free_endpoints


def echo(endpoint: str) -> grpc.Server:
    """A server that answers what it is sent."""
    server = grpc.server(ThreadPoolExecutor(2), options=settings.options(server=True))
    answer = grpc.unary_unary_rpc_method_handler(lambda request, context: request)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("echo", {"Say": answer})])
    server.add_insecure_port(endpoint)
    server.start()
    return server


def said(endpoint: str) -> bytes:
    with grpc.insecure_channel(endpoint, options=settings.options(server=False)) as channel:
        return channel.unary_unary("/echo/Say")(b"word", wait_for_ready=True, timeout=120)


@pytest.fixture
def endpoint() -> str:
    (found,) = free_endpoints(1)
    return found


@pytest.fixture
def slow(endpoint: str) -> Iterator[str]:
    """An endpoint in front of another that takes 1.5 s for each connection, as a machine does that is busy."""
    gate = socket.create_server(("127.0.0.1", 0))
    opened: list[socket.socket] = [gate]

    def relay(source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                target.sendall(data)
        except OSError:
            return

    def connect(near: socket.socket) -> None:
        time.sleep(1.5)
        host, _, port = endpoint.rpartition(":")
        far = socket.create_connection((host, int(port)))
        opened.extend([near, far])
        threading.Thread(target=relay, args=(near, far), daemon=True).start()
        relay(far, near)

    def accept() -> None:
        while True:
            try:
                near = gate.accept()[0]
            except OSError:
                return
            threading.Thread(target=connect, args=(near,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield f"127.0.0.1:{gate.getsockname()[1]}"
    for one in opened:
        one.close()


def test_a_connection_that_takes_long_is_waited_for(endpoint: str, slow: str) -> None:
    """It was given up after a second, and begun again for ever."""
    server = echo(endpoint)
    assert said(slow) == b"word"
    server.stop(None).wait()


def test_a_server_that_comes_late_is_found_soon(endpoint: str) -> None:
    with ThreadPoolExecutor(1) as beside:
        asked = beside.submit(said, endpoint)
        time.sleep(1)
        server = echo(endpoint)
        assert asked.result(120) == b"word"
    server.stop(None).wait()
