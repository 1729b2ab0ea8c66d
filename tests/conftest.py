"""Fixtures for every test."""

import zlib

import numpy as np
import pytest


def seed_of(name: str) -> int:
    """A seed that follows from a test's name, so that a test draws the same numbers alone or in a full run."""
    return zlib.crc32(name.encode())


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """A NumPy generator seeded from the test's node id."""
    return np.random.default_rng(seed_of(request.node.nodeid))
