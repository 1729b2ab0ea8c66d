"""Models to serve, and a server in a thread with a client of the standard library."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid

for package in ("starlette", "uvicorn", "prometheus_client"):
    pytest.importorskip(package)

from fluidjax.serving.model import ServedModel  # noqa: E402
from fluidjax.serving.server import Server  # noqa: E402
from fluidjax.serving.settings import Settings  # noqa: E402

JSON, NPZ = {"Content-Type": "application/json"}, {"Content-Type": "application/x-npz"}


def saved(folder: Any, build: Callable[[], tuple[list[str], list[Any]]], **files: str) -> str:
    """The folder of an inference model whose feeds and targets ``build`` returns."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        feeds, targets = build()
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        fluid.io.save_inference_model(str(folder), feeds, targets, exe, main, **files)
    return str(folder)


def words_and_numbers() -> tuple[list[str], list[Any]]:
    """A dense and a ragged input; a dense and a ragged output."""
    x, w = fluid.data("x", [None, 3]), fluid.data("w", [None, 1], "int64", lod_level=1)
    embedded = fluid.layers.embedding(w, [10, 3])
    summed = fluid.layers.sequence_pool(embedded, "sum")
    dense = fluid.layers.softmax(fluid.layers.fc(fluid.layers.concat([x, summed], 1), 4, act="relu"))
    return ["x", "w"], [dense, fluid.layers.sequence_softmax(fluid.layers.fc(embedded, 1))]


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        with np.load(io.BytesIO(self.body), allow_pickle=False) as read:
            return {name: read[name] for name in read.files}


class Client:
    """Talks to a server."""

    def __init__(self, server: Server):
        self.server = server
        self.port = urllib.parse.urlparse(server.url).port

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=240)
        with contextlib.closing(connection):
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, None, headers)

    def predict(self, inputs: Any, **headers: str) -> Answer:
        return self.ask("POST", "/predict", json.dumps({"inputs": inputs}), JSON | headers)

    def is_alive(self) -> bool:
        return self.get("/health").status == 200


@contextlib.contextmanager
def serving(model: ServedModel, settings: Settings | None = None, warm: bool = True) -> Iterator[Client]:
    """A client of a server that ends afterwards."""
    server = Server(model, settings or Settings())
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert not warm or server.ready.wait(240)
        yield Client(server)
    finally:
        server.stop()
        thread.join(240)
        assert not thread.is_alive()


def packed(arrays: dict[str, Any]) -> bytes:
    """An .npz."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()
