"""Where the rows that trainers send stand while a server's blocks compute on them."""

from collections.abc import Iterator

import jax
import numpy as np
import pytest

from fluidjax.distributed.rooms import Rooms, padded
from fluidjax.execution.steps.in_place import MOST
from lowering.values import SelectedRows


@pytest.fixture(autouse=True)
def as_on_a_server() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def sent(rng: np.random.Generator, count: int, width: int = 3) -> SelectedRows:
    """So many rows of 100, of a message that ends there."""
    rows = rng.permutation(100)[:count].astype(np.int64) if count <= 100 else np.arange(count)
    return SelectedRows(rows, rng.random((count, width), np.float32), 100)


@pytest.mark.parametrize("count", [0, 1, 8, 11])
def test_rows_are_given_as_with_padding_of_their_own(rng: np.random.Generator, count: int) -> None:
    rooms = Rooms()
    for _ in range(2):  # the second time, others stand there
        value = sent(rng, count)
        taken, own = rooms.taken("w@GRAD", value), padded(value)
        assert taken.height == own.height == 100
        assert len(taken.rows) == len(own.rows) >= count and int(taken.nrows) == int(own.nrows) == count
        np.testing.assert_array_equal(taken.rows, own.rows)
        np.testing.assert_array_equal(taken.values, own.values)


def test_what_was_computed_stays_when_other_rows_come(rng: np.random.Generator) -> None:
    rooms, dense = Rooms(), jax.jit(SelectedRows.to_dense)
    values = [sent(rng, 9) for _ in range(3)]
    found = [jax.block_until_ready(dense(rooms.taken("w@GRAD", value))) for value in values]
    for value, result in zip(values, found, strict=True):
        expected = np.zeros((100, 3), np.float32)
        expected[value.rows] = value.values
        np.testing.assert_array_equal(result, expected)


def test_gradients_of_one_run_stand_apart(rng: np.random.Generator) -> None:
    rooms = Rooms()
    values = {name: sent(rng, 9) for name in ("v@GRAD", "w@GRAD")}
    taken = {name: rooms.taken(name, value) for name, value in values.items()}
    for name, value in values.items():
        np.testing.assert_array_equal(taken[name].values[:9], value.values)


def test_memory_is_kept_for_what_is_small(rng: np.random.Generator) -> None:
    rooms, many = Rooms(), MOST // 4 // 64 + 1
    small = [rooms.taken("w@GRAD", sent(rng, count)) for count in (11, 12)]
    assert small[0].values is small[1].values
    large = [rooms.taken("w@GRAD", sent(rng, many, 64)) for _ in range(2)]
    assert large[0].values is not large[1].values


def test_other_values_are_given_as_they_are(rng: np.random.Generator) -> None:
    value = rng.random((4, 3), np.float32)
    assert Rooms().taken("w@GRAD", value) is value
