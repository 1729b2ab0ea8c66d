"""One warm server for the tests of this folder that need nothing special."""

from __future__ import annotations

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("prometheus_client")

from fluidjax.serving.model import ServedModel  # noqa: E402
from fluidjax.serving.settings import Settings  # noqa: E402
from tests.serving.at_work import saved, serving, words_and_numbers  # noqa: E402


@pytest.fixture(scope="package")
def folder(tmp_path_factory):
    """A saved model with a dense and a ragged input."""
    return saved(tmp_path_factory.mktemp("model"), words_and_numbers)


@pytest.fixture(scope="package")
def client(folder):
    """A client of its server."""
    with serving(ServedModel(folder), Settings(max_batch=8)) as client:
        yield client
