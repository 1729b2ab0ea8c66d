"""Shares that differ, each on a physical device of its own, in stages; run by ``tests.parallel.physical``."""

from __future__ import annotations

from typing import Any

import numpy as np

import fluidjax as fluid
from fluidjax import layers
from tests.parallel.nets import conv_bn, lstm, mlp
from tests.parallel.test_data_parallel import Training, assert_same
from tests.parallel.ways import both, ways


def decayed() -> Any:
    """Sparse rows, noise, statistics of each device, and an update that reads all gradients and counts its steps."""
    ids, y = fluid.data("ids", [None, 1], "int64"), fluid.data("y", [None, 1], "float32")
    rows = layers.embedding(ids, [50, 4], is_sparse=True, param_attr="emb")
    names = {"moving_mean_name": "bn_mean", "moving_variance_name": "bn_var"}
    hidden = layers.batch_norm(layers.dropout(rows, 0.3), param_attr="bn_s", bias_attr="bn_b", **names)
    loss = layers.mean(layers.square_error_cost(layers.fc(hidden, 1, param_attr="w1", bias_attr="b1"), y))
    rate, clip = layers.exponential_decay(0.2, 2, 0.5), fluid.clip.GradientClipByGlobalNorm(0.05)
    fluid.optimizer.Momentum(rate, 0.9, regularization=fluid.regularizer.L2Decay(0.01), grad_clip=clip).minimize(loss)

    def feed(step: int, n: int = 8) -> dict[str, Any]:
        draw = np.random.RandomState(step)
        return {"ids": draw.randint(0, 50, (n, 1)), "y": draw.rand(n, 1).astype("float32")}

    return loss, feed, [rows, rate, "w1@GRAD", "emb", "ids"]


def agree(staged: Training, one: Training, feed: dict[str, Any]) -> None:
    """A batch gives the same in both ways, rows and sequences included."""
    found, wanted = (t.run(feed, [t.loss, *t.more], return_numpy=False) for t in (staged, one))
    for a, b in zip(found, wanted, strict=True):
        assert a.lod() == b.lod()
        np.testing.assert_allclose(np.array(a), np.array(b), rtol=2e-5, atol=1e-6)


def check_stages_train_as_the_program_for_one_device_does() -> None:
    """Whatever the shares, and whether batches before and after them are spread; so are each device's statistics."""
    staged, one = both(decayed, 2)
    for step, rows in enumerate([7, 8, 7]):
        agree(staged, one, staged.feed(step, rows))
    assert ways(staged) == ["staged", "spread"] and ways(one) == ["together"]
    assert_same(staged.values(), one.values(), 2e-5)
    local = [t.program._several.local for t in (staged, one)]
    names = sorted(local[0].local_var_names())
    assert names == sorted(local[1].local_var_names()) and "bn_mean@DEVICE_1" in names
    for name in names:
        np.testing.assert_allclose(*(np.array(s.find_var(name).get_tensor()) for s in local), rtol=2e-5, atol=1e-6)


def check_sequences_stay_on_their_devices() -> None:
    """Shares of sequences are staged too, where they are of one length by chance."""
    staged, one = both(lstm, 2)
    for step in (0, 4):
        agree(staged, one, staged.feed(step))
    assert ways(staged) == ["staged"]
    assert_same(staged.values(), one.values(), 2e-5)


def check_every_device_updates_its_own_copy() -> None:
    """The parameters that stages left are on their devices, until the user sets others."""
    training = Training(mlp, 2)
    training.run(training.feed(0, 7))
    (staged,) = training.program._several._written.values()
    assert [next(iter(a.devices())).id for a in staged._copies["w0"][1].values()] == [0, 1]
    first, second = (np.array(a) for a in staged._copies["w0"][1].values())
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first, training.value("w0"))
    kept = dict(staged._copies)
    training.scope.find_var("w0").get_tensor().set(np.zeros_like(first), fluid.CPUPlace())
    training.run(training.feed(1, 5))
    assert staged._copies["w0"] is not kept["w0"] and np.abs(training.value("w0")).max() < np.abs(first).max()
    training.run(training.feed(2, 8))
    assert not staged._copies


def check_a_bad_label_of_a_share_leaves_the_state() -> None:
    """An error of the last device is raised, and nothing is stored of what the others computed."""
    training = Training(mlp, 4)
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


def check_what_cannot_be_staged_is_written_for_one_device() -> None:
    """Batches normalised over all devices are one batch."""
    training = Training(conv_bn, 2, sync_batch_norm=True)
    training.run(training.feed(0, 7))
    assert ways(training) == ["together"]
