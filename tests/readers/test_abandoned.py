"""Loaders that nobody reads to their end leave no thread behind."""

import gc
import threading
import time

import numpy as np
import pytest

import fluidjax as fluid


def threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("fluidjax-")}


def batches():
    while True:
        yield [np.ones((2, 3), np.float32)]


def samples():
    while True:
        yield (np.ones(3, np.float32),)


@pytest.mark.parametrize("kind", ["batch", "sample_list", "sample"])
def test_an_abandoned_loader_ends_its_thread(kind):
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 3], "float32")
    others = threads()  # of earlier tests: these may end at any time
    for _ in range(20):
        loader = fluid.io.DataLoader.from_generator(feed_list=[x], capacity=2)
        if kind == "batch":
            loader.set_batch_generator(batches, places=fluid.CPUPlace())
        elif kind == "sample":
            loader.set_sample_generator(samples, batch_size=2, places=fluid.CPUPlace())
        else:
            loader.set_sample_list_generator(fluid.io.batch(samples, 2), places=fluid.CPUPlace())
        for _ in loader:
            break
    assert threads() - others
    del loader
    gc.collect()
    deadline = time.monotonic() + 120
    while threads() - others and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not threads() - others
