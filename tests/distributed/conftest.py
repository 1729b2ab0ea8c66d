"""What tests of jobs share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import fluidjax as fluid
from fluidjax.distributed.client import Client
from tests.ports import free_endpoints


@pytest.fixture(autouse=True)
def own_scope() -> Iterator[None]:
    """A global scope of the test's own."""
    with fluid.scope_guard(fluid.Scope()):
        yield


@pytest.fixture(autouse=True)
def servers_end_at_once() -> Iterator[None]:
    """No server waits for late readers."""
    before = fluid.get_flags(["FLAGS_rpc_server_linger"])
    fluid.set_flags({"FLAGS_rpc_server_linger": 0})
    yield
    fluid.set_flags(before)


@pytest.fixture
def endpoint() -> str:
    """An endpoint that nobody listens at."""
    (found,) = free_endpoints(1)
    return found


@pytest.fixture
def client() -> Iterator[Client]:
    """A trainer that leaves at the end."""
    found = Client()
    yield found
    found.leave()
