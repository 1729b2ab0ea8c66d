"""Shares that differ, each on a physical device of its own, in stages; run by ``tests.parallel.physical``."""

from __future__ import annotations

from typing import Any

import numpy as np

import fluidjax as fluid
from fluidjax.execution.prepared import compilations
from tests.parallel.nets import lstm, mlp
from tests.parallel.test_data_parallel import Training, assert_same
from tests.parallel.ways import both, ways


def agree(staged: Training, one: Training, feed: dict[str, Any]) -> None:
    """A batch gives the same in both ways, rows and sequences included."""
    found, wanted = (t.run(feed, [t.loss, *t.more], return_numpy=False) for t in (staged, one))
    for a, b in zip(found, wanted, strict=True):
        assert a.lod() == b.lod()
        np.testing.assert_allclose(np.array(a), np.array(b), rtol=2e-5, atol=1e-6)


def check_sequences_stay_on_their_devices() -> None:
    """Shares of sequences are staged, also where they are of one length by chance."""
    staged, one = both(lstm, 2)
    agree(staged, one, staged.feed(0))
    assert_same(staged.values(), one.values(), 2e-5)
    several = staged.program._several
    several.written(several.shares(staged.feed(4)))
    assert ways(staged) == ["staged"]


def check_every_device_updates_its_own_copy() -> None:
    """The parameters that stages left are on their devices, until the user sets others; compiled once."""
    training = Training(mlp, 2)
    training.run(training.feed(0, 7))
    (staged,) = training.program._several._written.values()
    copies = [of_device["w0"] for of_device in staged._copies.on]
    assert [next(iter(copy.devices())).id for copy in copies] == [0, 1]
    first, second = map(np.array, copies)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first, training.value("w0"))
    assert compilations(training.main) == 4  # of two stages on two devices
    training.scope.find_var("w0").get_tensor().set(np.zeros_like(first), fluid.CPUPlace())
    assert not staged._copies.current(training.program._several.local)
    training.run(training.feed(1, 7))
    assert np.abs(training.value("w0")).max() < np.abs(first).max() and compilations(training.main) == 4
    training.run(training.feed(2, 8))
    assert not any(staged._copies.on)


def check_a_bad_label_of_a_share_leaves_the_state() -> None:
    """An error of the last device is raised, and nothing is stored of what the others computed."""
    training = Training(mlp, 2)
    training.run(training.feed(0, 7))
    before, feed = training.values(), training.feed(1, 7)
    feed["y"][-1] = 77
    try:
        training.run(feed)
    except fluid.core.EnforceNotMet as error:
        assert "77" in str(error)
    else:
        raise AssertionError("a label out of range was taken")
    assert_same(training.values(), before, 0)
    training.run(training.feed(1, 7))
    assert ways(training) == ["staged"]
