"""One warm server for the tests of this folder that need nothing special."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="package")
def folder(tmp_path_factory):
    """A saved model with a dense and a ragged input."""
    from tests.serving.at_work import saved, words_and_numbers

    return saved(tmp_path_factory.mktemp("model"), words_and_numbers)


@pytest.fixture(scope="package")
def client(folder):
    """A client of its server."""
    from tests.serving.at_work import ServedModel, Settings, serving

    with serving(ServedModel(folder), Settings(max_batch=8)) as client:
        yield client
