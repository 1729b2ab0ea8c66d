"""paddle.reader and paddle.batch: the results of Paddle 1.8.5, and errors that arrive where they are due."""

import random
import threading

import pytest

import fluidjax as fluid
from fluidjax.paddle import reader as R
from fluidjax.paddle.batch import batch
from fluidjax.paddle.reader.processes import ReaderProcessError


def numbers(n, pairs=False):
    def read():
        for i in range(n):
            yield (i, i + 10) if pairs else i

    return read


def failing(after):
    def read():
        yield from range(after)
        raise KeyError("broken sample")

    return read


def test_compose_joins_and_flattens():
    assert list(R.compose(numbers(2), numbers(2, pairs=True))()) == [(0, 0, 10), (1, 1, 11)]


def test_compose_checks_that_readers_end_together():
    with pytest.raises(R.ComposeNotAligned, match="not aligned"):
        list(R.compose(numbers(3), numbers(4))())
    assert list(R.compose(numbers(2), numbers(4), check_alignment=False)()) == [(0, 0), (1, 1)]


def test_compose_names_an_unknown_argument():
    with pytest.raises(TypeError, match="chek"):
        R.compose(numbers(1), chek=True)


def test_map_readers_ends_with_the_shortest():
    assert list(R.map_readers(lambda a, b: a + b, numbers(3), numbers(4))()) == [0, 2, 4]


def test_chain_and_firstn():
    assert list(R.chain(numbers(3), numbers(2))()) == [0, 1, 2, 0, 1]
    assert list(R.firstn(numbers(3), 2)()) == [0, 1]
    assert list(R.firstn(numbers(3), 9)()) == [0, 1, 2]


def test_shuffle_draws_as_paddle_does():
    random.seed(0)
    assert list(R.shuffle(numbers(10), 4)()) == [2, 0, 1, 3, 4, 5, 7, 6, 8, 9]


def test_cache_reads_once_and_at_once():
    calls = []

    def read():
        calls.append(1)
        yield from (1, 2)

    cached = R.cache(read)
    assert calls == [1]
    assert list(cached()) == list(cached()) == [1, 2]
    assert calls == [1]


def test_buffered_keeps_order_and_passes_errors_on():
    assert list(R.buffered(numbers(100), 3)()) == list(range(100))
    got = []
    with pytest.raises(KeyError, match="broken sample"):
        for item in R.buffered(failing(2), 5)():
            got.append(item)
    assert got == [0, 1]


def test_a_buffered_reader_left_early_stops_its_thread():
    before = threading.active_count()
    samples = R.buffered(numbers(10**9), 2)()
    assert next(iter(samples)) == 0
    samples.close()
    assert threading.active_count() == before


@pytest.mark.parametrize("order", [False, True])
def test_xmap_maps_every_sample(order):
    got = list(R.xmap_readers(lambda x: x * 2, numbers(50), 3, 4, order)())
    assert (got if order else sorted(got)) == [2 * i for i in range(50)]


@pytest.mark.parametrize("order", [False, True])
def test_xmap_raises_errors_of_mapper_and_reader(order):
    with pytest.raises(ZeroDivisionError):
        list(R.xmap_readers(lambda x: 1 // (x - 5), numbers(50), 3, 4, order)())
    with pytest.raises(KeyError, match="broken sample"):
        list(R.xmap_readers(abs, failing(5), 2, 4, order)())


@pytest.mark.parametrize("use_pipe", [False, True])
def test_multiprocess_reader_joins_all_samples(use_pipe):
    read = R.multiprocess_reader([numbers(3), numbers(4)], use_pipe=use_pipe)
    for _ in range(2):
        assert sorted(read()) == [0, 0, 1, 1, 2, 2, 3]


def test_multiprocess_reader_says_what_failed():
    with pytest.raises(ReaderProcessError, match="broken sample"):
        list(R.multiprocess_reader([failing(1)])())
    with pytest.raises(ReaderProcessError, match="sample has None"):
        list(R.multiprocess_reader([lambda: [None]])())
    for kind in (ValueError, fluid.core.EnforceNotMet):
        with pytest.raises(kind, match="multiprocess reader raises an exception"):
            list(R.multiprocess_reader([failing(1)], use_pipe=False)())
    with pytest.raises(AssertionError, match="at least one reader"):
        R.multiprocess_reader([])


def test_batch():
    assert list(batch(numbers(5), 2)()) == [[0, 1], [2, 3], [4]]
    assert list(batch(numbers(5), 2, drop_last=True)()) == [[0, 1], [2, 3]]
    assert list(batch(numbers(4), 2, drop_last=True)()) == [[0, 1], [2, 3]]
    with pytest.raises(ValueError, match="batch_size=0"):
        batch(numbers(5), 0)


@pytest.mark.parametrize(
    "take",
    [
        lambda samples: batch(samples, 2),
        lambda samples: R.shuffle(samples, 2),
        lambda samples: R.buffered(samples, 2),
        lambda samples: R.firstn(samples, 2),
        lambda samples: R.cache(samples),
        lambda samples: R.map_readers(str, samples),
        lambda samples: R.chain(samples),
        lambda samples: R.compose(samples),
        lambda samples: R.xmap_readers(str, samples, 1, 1),
    ],
)
def test_the_result_of_a_reader_is_no_reader(take):
    with pytest.raises(TypeError, match="is no reader(.|\n)*give the reader itself, not the result of calling it"):
        take(i for i in range(3))
