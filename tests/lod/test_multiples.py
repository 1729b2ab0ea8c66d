"""Numbers of rows that are multiples of others, and feeds that have one row in every sequence."""

from __future__ import annotations

import gc
from typing import Any

import jax
import numpy as np

from fluidjax.execution.rooms.even import EvenFeeds, even_lengths
from lowering.sizes import multiples
from lowering.sizes.multiples import part, times


def test_a_traced_number_is_found_again() -> None:
    def traced(n: Any) -> Any:
        assert times(n, 2) is (double := times(n, 2))
        assert part(double, 2) is n
        six = times(double, 3)
        assert part(six, 3) is double
        assert part(six, 6) is n
        assert part(six, 4) is None
        assert part(n, 2) is None
        return double, six, part(times(n, 12), 2)

    double, six, again = jax.jit(traced)(np.int32(7))
    assert (double, six, again) == (14, 42, 42)


def test_nothing_is_kept_after_the_trace() -> None:
    jax.jit(lambda n: times(n, 5))(np.int32(3))
    gc.collect()
    assert not any(known.factor == 5 for known in multiples._PRODUCTS.values())


def test_known_numbers_are_divided() -> None:
    assert times(np.int32(4), 3) == 12
    assert part(np.int32(12), 4) == 3
    assert part(np.int32(12), 5) is None


def test_sequences_of_one_row() -> None:
    feeds = EvenFeeds(wanted=True)
    assert feeds.has("tag", [[0, 1, 2]], 2)
    assert feeds.has("tag", [[0, 1, 2, 3], [0, 1, 2, 3]], 3)
    assert not feeds.has("text", [[0, 2, 3]], 3)
    assert not feeds.has("even", [[0, 2, 2]], 2)
    assert not feeds.has("outer", [[0, 2], [0, 1, 2]], 2)
    assert not feeds.has("none", [[0]], 0)
    assert not feeds.has("text", [[0, 1, 2]], 2)  # it has had other sequences
    assert feeds.has("tag", [[0, 1]], 1)
    assert feeds.refuse()
    assert not feeds.has("tag", [[0, 1]], 1)
    assert not feeds.refuse()


def test_feeds_that_turn_out_to_be_sequences_are_few() -> None:
    feeds = EvenFeeds(wanted=True)
    assert all(feeds.has(name, [[0, 1, 2]], 2) for name in "abcd")
    assert not feeds.has("a", [[0, 2, 3]], 3)
    assert feeds.has("b", [[0, 1]], 1)
    assert not feeds.has("b", [[0, 2, 3]], 3)
    assert not feeds.has("c", [[0, 1]], 1)
    assert not EvenFeeds(wanted=False).has("a", [[0, 1]], 1)


def test_sequences_of_one_length_are_accepted_where_room_is_refused() -> None:
    feeds = EvenFeeds(wanted=True)
    assert not feeds.has("threes", [[0, 3, 6]], 6)
    assert not feeds.has("text", [[0, 3, 5]], 5)
    assert feeds.accept()
    assert feeds.has("threes", [[0, 3, 6, 9]], 9)
    assert not feeds.has("text", [[0, 3, 6]], 6)  # it has had other sequences
    assert not feeds.accept()  # once is all
    assert not feeds.has("threes", [[0, 2, 4]], 4)
    assert not feeds.has("threes", [[0, 3, 6]], 6)
    assert feeds.has("later", [[0, 2, 4], [0, 1, 2, 3, 4]], 4)
    assert feeds.refuse()
    assert not feeds.has("later", [[0, 2, 4], [0, 1, 2, 3, 4]], 4)


def test_nothing_to_accept() -> None:
    feeds = EvenFeeds(wanted=True)
    assert feeds.has("tag", [[0, 1, 2]], 2)
    assert not feeds.has("text", [[0, 2, 3]], 3)
    assert not feeds.accept()
    assert feeds.has("tag", [[0, 1]], 1)


def test_lengths_of_sequences() -> None:
    assert even_lengths([[0, 2, 4]], 4) == (2,)
    assert even_lengths([[0, 1, 2], [0, 3, 6]], 6) == (1, 3)
    assert even_lengths([[0, 2, 3]], 3) is None
    assert even_lengths([[0]], 0) is None
    assert even_lengths([[0, 0, 0]], 0) is None
