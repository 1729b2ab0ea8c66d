"""Damaged requests to a server: an answer, or a refusal of the sender's in three parts; and it goes on."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import time
from collections.abc import Iterator

import numpy as np
import pytest

from tests.conftest import seed_of
from tests.fuzz.mutate import SECONDS, mutated
from tests.serving.at_work import JSON, NPZ, Client, ServedModel, packed, saved, serving, words_and_numbers

PARTS = {"error", "expected", "received", "what_to_do"}
WORDS = [[1, 2], [3]]
BODIES = {
    "json": (json.dumps({"inputs": {"x": [[1.0, 2.0, 3.0]] * 2, "w": WORDS}}).encode(), JSON),
    "offsets": (
        json.dumps({"inputs": {"x": [[1, 2, 3]], "w": {"data": [[1], [2]], "lod": [[0, 2]]}}}).encode(),
        JSON,
    ),
    "npz": (
        packed({"x": np.ones((1, 3), "float32"), "w": np.array([[1], [2]]), "w.lod0": np.array([0, 2])}),
        NPZ,
    ),
}


@pytest.fixture(scope="module")
def client(tmp_path_factory) -> Iterator[Client]:
    with serving(ServedModel(saved(tmp_path_factory.mktemp("model"), words_and_numbers))) as client:
        yield client


def rounds(name: str) -> Iterator[random.Random]:
    """Draws for ``SECONDS``, each with the seed that ``add_note`` tells."""
    seed, end = seed_of(name), time.monotonic() + SECONDS
    while time.monotonic() < end:
        seed += 1
        draw = random.Random(seed)
        try:
            yield draw
        except Exception as error:
            error.add_note(f"{name}, seed {seed}")
            raise


@pytest.mark.parametrize("name", BODIES)
def test_damaged_bodies(client, name):
    sound, headers = BODIES[name]
    assert client.ask("POST", "/predict", sound, headers).status == 200
    for draw in rounds(name):
        body = mutated(sound, draw)
        answer = client.ask("POST", "/predict", body, headers)
        assert answer.status == 200 or 400 <= answer.status < 500, (body, answer.status, answer.body)
        if answer.status != 200:
            assert set(answer.json) == PARTS and all(answer.json.values()), (body, answer.json)
            assert "Traceback" not in answer.body.decode(), body
    assert client.is_alive()


REQUEST = (
    b"POST /predict HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nAccept: application/x-npz\r\n"
    b"Authorization: Bearer \xe9\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"
) % (len(BODIES["json"][0]), BODIES["json"][0])


def test_damaged_requests(client):
    """Bytes that may be no HTTP at all; the connection ends, and others are answered."""
    assert b" 200 OK" in sent(client, REQUEST)
    for draw in rounds("requests"):
        answer = sent(client, mutated(REQUEST, draw))
        status = answer.partition(b"\r\n")[0]
        assert not answer or status.startswith(b"HTTP/1.1 ") and status[9:10] in b"1234", answer
    assert client.is_alive()


def sent(client: Client, request: bytes) -> bytes:
    """What comes back until the server closes; it is told that no more comes where it waits for more."""
    found = bytearray()
    with socket.create_connection(("127.0.0.1", client.port), timeout=0.5) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(request)
            try:
                while part := connection.recv(1 << 16):
                    found += part
            except TimeoutError:
                connection.settimeout(60)
                connection.shutdown(socket.SHUT_WR)
                while part := connection.recv(1 << 16):
                    found += part
    return bytes(found)
