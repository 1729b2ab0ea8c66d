"""Loaders under a guard: lists of variables."""

from __future__ import annotations

import pickle
import queue
import signal
from collections.abc import Callable, Iterator
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.readers.shared_memory import remove_untaken

dg = fluid.dygraph


def samples() -> Iterator[tuple[np.ndarray, int]]:
    for i in range(5):
        yield np.full((2,), i, "float32"), i


def lists() -> Iterator[list[tuple[np.ndarray, int]]]:
    found = list(samples())
    yield found[:2]
    yield found[2:4]


def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for part in lists():
        yield np.array([x for x, _ in part]), np.array([y for _, y in part])


SOURCES: list[Callable[[Any], Any]] = [
    lambda loader: loader.set_sample_generator(samples, 2, places=fluid.CPUPlace()),
    lambda loader: loader.set_sample_list_generator(lists),
    lambda loader: loader.set_batch_generator(batches),
]


@pytest.mark.parametrize("source", SOURCES, ids=["samples", "lists", "batches"])
def test_batches_come_as_variables(source: Callable[[Any], Any]) -> None:
    with dg.guard():
        loader = fluid.io.DataLoader.from_generator(capacity=4, iterable=False, use_multiprocess=True)
        assert source(loader) is loader
        for _ in range(2):  # it can be read again
            found = list(loader())
            assert [[v.shape for v in item] for item in found] == [[[2, 2], [2]]] * 2
        assert all(isinstance(v, fluid.core.VarBase) and v.stop_gradient for item in found for v in item)
        assert str(found[0][1].dtype) == "VarType.INT64"
        np.testing.assert_array_equal(found[1][0].numpy(), [[2, 2], [3, 3]])


def test_a_last_part_is_kept_where_asked_for() -> None:
    with dg.guard():
        loader = fluid.io.DataLoader.from_generator(capacity=4)
        loader.set_sample_generator(samples, 2, drop_last=False)
        assert [item[0].shape[0] for item in loader] == [2, 2, 1]


def test_a_py_reader_is_such_a_loader() -> None:
    with dg.guard():
        reader = fluid.io.PyReader(capacity=2, return_list=True)
        reader.decorate_batch_generator(batches, fluid.CPUPlace())
        assert [x.shape for x, _ in reader()] == [[2, 2], [2, 2]]
        with pytest.raises(AttributeError, match="loop over it"):
            reader.start()


@pytest.mark.parametrize("workers", [0, 2])
def test_data_sets_are_read_as_variables(workers: int) -> None:
    class Numbers(fluid.io.Dataset):
        def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
            return np.full((2,), index, "float32"), np.array([index])

        def __len__(self) -> int:
            return 5

    with dg.guard():
        loader = fluid.io.DataLoader(
            Numbers(), places=fluid.CPUPlace(), batch_size=2, return_list=True, num_workers=workers
        )
        found = list(loader)
        assert len(loader) == 3 and [y.numpy().reshape(-1).tolist() for _, y in found] == [[0, 1], [2, 3], [4]]
        assert all(isinstance(v, fluid.core.VarBase) for item in found for v in item)


def test_what_is_wrong_is_said() -> None:
    def breaks() -> Iterator[Any]:
        yield [np.ones(2, "float32")]
        raise ValueError("the third file is damaged")

    with dg.guard():
        with pytest.raises(ValueError, match="capacity"):
            fluid.io.DataLoader.from_generator()
        loader = fluid.io.DataLoader.from_generator(capacity=2)
        with pytest.raises(AssertionError, match="has not set yet"):
            iter(loader)
        with pytest.raises(AssertionError, match="being iterated"):
            next(loader)
        with pytest.raises(ValueError, match="third file"):
            list(loader.set_batch_generator(breaks))
        iterator = iter(loader.set_batch_generator(batches))
    with pytest.raises(AssertionError, match="guard"):
        next(iterator)


def test_a_pass_is_put_into_a_queue() -> None:
    """What Fluid's loader process runs: tensors that another process can read, then None."""
    with dg.guard():
        loader = fluid.io.DataLoader.from_generator(capacity=3, use_multiprocess=True)
    loader.set_batch_generator(lambda: iter([(np.float32([[1, 2]]), np.int64([3]))]))
    loader._data_queue = queue.Queue()
    loader._reader_process_loop()
    tensors = pickle.loads(pickle.dumps(loader._data_queue.get_nowait()))
    assert [np.array(tensor).tolist() for tensor in tensors] == [[[1, 2]], [3]]
    assert loader._data_queue.get_nowait() is None
    loader.set_batch_generator(lambda: iter([None]))
    with pytest.raises(fluid.core.EnforceNotMet):
        loader._reader_process_loop()


def test_tensors_in_queues_of_processes_are_names_of_shared_memory() -> None:
    with dg.guard():
        fluid.io.DataLoader.from_generator(capacity=1, use_multiprocess=True)
    given = fluid.create_lod_tensor(np.float32(np.random.rand(64, 784)), [[60, 4]], fluid.CPUPlace())
    first, second = bytes(ForkingPickler.dumps(given)), bytes(ForkingPickler.dumps(given))
    assert len(first) < 1000  # many of them fit into a pipe that nobody reads
    found = pickle.loads(first)
    np.testing.assert_array_equal(found, given)
    assert found.lod() == [[0, 60, 64]]
    remove_untaken()
    for read in first, second:  # once it is read, or the process has ended, nothing is left
        with pytest.raises(FileNotFoundError):
            pickle.loads(read)
    assert pickle.loads(bytes(ForkingPickler.dumps(fluid.LoDTensor()))).shape() == [0]


def test_ends_of_processes_are_handled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    before, heard = signal.getsignal(signal.SIGCHLD), []
    monkeypatch.setattr(fluid.multiprocess_utils, "_SIGCHLD_handler_set", False)
    try:
        signal.signal(signal.SIGCHLD, lambda *given: heard.append(given))
        fluid.reader._set_SIGCHLD_handler()
        handler: Any = signal.getsignal(signal.SIGCHLD)
        fluid.reader._set_SIGCHLD_handler()
        assert signal.getsignal(signal.SIGCHLD) is handler
        handler(signal.SIGCHLD, None)
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert heard == [(signal.SIGCHLD, None)]


def test_each_epoch_of_a_shuffled_generator_has_an_order_of_its_own() -> None:
    """A forked process would begin each epoch with the same random state."""

    def shuffled():
        for i in np.random.permutation(6):
            yield [np.array([i])]

    with dg.guard():
        loader = fluid.io.DataLoader.from_generator(capacity=2, return_list=True, use_multiprocess=True)
        loader.set_batch_generator(shuffled)
        np.random.seed(1)
        epochs = [[np.array(batch[0]).item() for batch in loader()] for _ in range(2)]
    np.random.seed(1)
    assert epochs == [np.random.permutation(6).tolist() for _ in range(2)]
    assert epochs[0] != epochs[1]
