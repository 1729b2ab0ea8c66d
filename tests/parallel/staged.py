"""Shares that differ, each on a physical device of its own, in stages; run by ``tests.parallel.physical``."""

from __future__ import annotations

import contextlib
import io
import signal
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

import fluidjax as fluid
from examples import digits
from examples.job import train
from fluidjax import layers
from fluidjax.execution.devices import copies, meeting
from fluidjax.execution.devices.several import SeveralDevices
from fluidjax.execution.runs.prepared import compilations
from fluidjax.execution.steps.compiled import CompiledOps
from tests.executor.test_interrupts import Steps
from tests.parallel.nets import lstm, mlp, mlp_network
from tests.parallel.test_data_parallel import Training, assert_same
from tests.parallel.test_examples import losses
from tests.parallel.ways import both, repeated, ways


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


def histories() -> Any:
    """Dense histories, which are of another length in each batch."""
    ids, y = fluid.data("ids", [None, None], "int64"), fluid.data("y", [None, 1], "float32")
    rows = layers.reshape(fluid.embedding(ids, [50, 6], param_attr="emb"), [0, 0, 6])
    p = layers.fc(layers.reduce_sum(rows, 1), 1, param_attr="w1", bias_attr="b1")
    loss = layers.mean(layers.square_error_cost(p, y))
    fluid.optimizer.SGD(0.01).minimize(loss)

    def feed(step: int, n: int = 8) -> dict[str, Any]:
        draw = np.random.RandomState(step)
        return {"ids": draw.randint(0, 50, (n, 3 + 11 * step % 29)), "y": draw.rand(n, 1).astype("float32")}

    return loss, feed, [p]


def check_dims_that_change_get_room() -> None:
    """What is spread is compiled for each size; stages get room, once sizes were seen to change."""
    staged, one = both(histories, 2)
    for step in range(12):
        agree(staged, one, staged.feed(step))
    assert ways(staged) == ["spread", "staged"]
    assert compilations(staged.main) <= 8  # one spread; then three rooms of both devices at most, and their meeting


def check_dims_that_get_no_room_are_spread_again() -> None:
    """Images of which an op needs the exact size are compiled once for each, not once on every device."""
    staged, one = both(images, 2)
    counts = []
    for step in range(12):
        staged.run(staged.feed(step))
        counts.append(compilations(staged.main))
    assert ways(staged) == ["spread", "staged"]
    assert np.diff(counts)[-3:].tolist() == [1, 1, 1]
    one.scope.find_var("w1").get_tensor().set(staged.value("w1"), fluid.CPUPlace())
    one.scope.find_var("b1").get_tensor().set(staged.value("b1"), fluid.CPUPlace())
    agree(staged, one, staged.feed(0))


def images() -> Any:
    """Images of another size in each batch, which are turned around and pooled to one."""
    image, y = fluid.data("image", [None, 1, None, None], "float32"), fluid.data("y", [None, 1], "float32")
    pooled = layers.adaptive_pool2d(layers.reverse(image, [2, 3]), [2, 2], "avg")
    p = layers.fc(pooled, 1, param_attr="w1", bias_attr="b1")
    loss = layers.mean(layers.square_error_cost(p, y))
    fluid.optimizer.SGD(0.01).minimize(loss)

    def feed(step: int, n: int = 4) -> dict[str, Any]:
        draw = np.random.RandomState(step)
        size = 5 + step
        return {"image": draw.rand(n, 1, size, size).astype("float32"), "y": draw.rand(n, 1).astype("float32")}

    return loss, feed, [p]


@contextlib.contextmanager
def memories_of_their_own() -> Iterator[None]:
    """Devices do as those do that cannot read each other's arrays."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (meeting, copies):
            patch.setattr(module, "in_one_memory", lambda devices: False)
        yield


def check_every_device_updates_its_own_copy() -> None:
    """The parameters that stages left are on their devices, until the user sets others; compiled once."""
    with memories_of_their_own():
        updates_on_every_device()


def updates_on_every_device() -> None:
    """Train on two devices that have their own memories."""
    training = Training(mlp, 2)
    training.run(training.feed(0, 7))
    (staged,) = training.program._several._written.values()
    copies = [of_device["w0"] for of_device in staged._copies.on]
    assert [next(iter(copy.devices())).id for copy in copies] == [0, 1]
    first, second = map(np.array, copies)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first, training.value("w0"))
    assert compilations(training.main) == 3  # of the first stage on each device, and the second for both
    training.scope.find_var("w0").get_tensor().set(np.zeros_like(first), fluid.CPUPlace())
    assert not staged._copies.current(training.program._several.local)
    training.run(training.feed(1, 7))
    assert np.abs(training.value("w0")).max() < np.abs(first).max() and compilations(training.main) == 3
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


def momentum() -> tuple[Any, Any, list[Any]]:
    loss, feed = mlp_network()
    fluid.optimizer.Momentum(0.5, 0.9).minimize(loss)
    return loss, feed, []


def check_fetches_may_change_from_run_to_run() -> None:
    """What only the update reads is at hand, whatever is fetched, and whatever the user sets it to."""
    one, other = fetches_change()
    assert other.ctypes.data == one.unsafe_buffer_pointer()
    with memories_of_their_own():
        assert [copy.device.id for copy in fetches_change()] == [0, 1]


def fetches_change() -> list[Any]:
    """Steps of which some fetch a velocity, compared; what two devices then have of a parameter."""
    staged, one = both(momentum, 2)
    velocity = next(n for n in staged.scope.local_var_names() if "w1_velocity" in n)
    for step, more in enumerate([[], [velocity], [velocity], [], [velocity], []]):
        if step == 4:
            for training in (staged, one):
                for name in (velocity, "w1"):
                    tensor = training.scope.find_var(name).get_tensor()
                    tensor.set(np.full_like(training.value(name), 0.5), fluid.CPUPlace())
        feed = staged.feed(step, 7)
        found, wanted = staged.run(feed, [staged.loss, *more]), one.run(feed, [one.loss, *more])
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)
    assert ways(staged) == ["staged"] and repeated(staged) == 2
    assert_same(staged.values(), one.values(), 2e-5)
    (run,) = staged.program._several._written.values()
    assert velocity not in run._copies.on[1]
    return [of_device["w1"] for of_device in run._copies.on]


def check_an_update_that_fails_inside_of_xla_says_so() -> None:
    """It may have taken the state with it: the variables are then empty, and not those of some step or other."""
    training = Training(momentum, 2)
    feed = training.feed(0, 7)
    for _ in range(3):
        training.run(feed)
    (run,) = training.program._several._written.values()
    (update,) = run._joint[1]._compiled.values()
    called = CompiledOps.__call__

    def failing(ops: Any, replaced: Any, *args: Any) -> Any:
        if ops is update:
            for array in replaced:
                array.delete()
            raise jax.errors.JaxRuntimeError("out of memory")
        return called(ops, replaced, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CompiledOps, "__call__", failing)
        with pytest.raises(RuntimeError, match="had taken the program's state over"):
            training.run(feed)
    with pytest.raises(Exception, match="uninitialized"):
        training.run(feed)


def check_an_interrupt_leaves_whole_steps() -> None:
    """Wherever it arrives, in a run that compiles as in one like an earlier one, all devices have made it or none."""
    found, calm = Training(mlp, 2), Training(mlp, 2)
    feed, taken = found.feed(0, 7), 0
    net: Any = SimpleNamespace(run=lambda *_, **__: found.run(feed))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background may begin without

    def interrupted(at: int) -> None:
        nonlocal taken
        assert Steps(at).run(net)
        if any(not np.array_equal(value, calm.value(name)) for name, value in found.values().items()):
            calm.run(feed)
            taken += 1
        assert_same(found.values(), calm.values(), 0)

    for at in (20, 2000, 20_000):
        interrupted(at)
    for _ in range(2):
        found.run(feed)
        calm.run(feed)
    dry = Steps()
    assert not dry.run(net) and dry.count > 500 and repeated(found)
    calm.run(feed)
    places = range(0, dry.count, dry.count // 20)
    for at in places:
        interrupted(at)
    assert len(places) // 2 < taken <= len(places) + 3 and repeated(found) >= taken - 3
    (staged,) = found.program._several._written.values()
    for name, value in staged._copies.on[1].items():
        np.testing.assert_array_equal(value, found.value(name))


def _losses(devices: int, way: str) -> list[float]:
    """What the example of digits prints for three batches of 63 rows on devices that run in this way."""
    told = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(told), fluid.unique_name.guard():
        patch.setenv("CPU_NUM", str(devices))
        found, chosen = set(), SeveralDevices._way
        patch.setattr(SeveralDevices, "_way", lambda *args: found.add(chosen(*args)) or way)
        with fluid.scope_guard(fluid.Scope()), fluid.program_guard(fluid.Program(), fluid.Program()):
            train(digits.network, fluid.optimizer.Momentum(0.05, 0.9), digits.digits(3, 63))
    assert found == {"staged" if devices > 1 else "together"}
    return losses(told.getvalue())


def check_an_example_trains_alike_on_eight_devices() -> None:
    """The script's text is the same; the last device has a row less, so its rows count an eighth more."""
    staged = _losses(8, "staged")
    np.testing.assert_allclose(staged, _losses(8, "together"), rtol=2e-5)
    np.testing.assert_allclose(staged, _losses(1, "together"), rtol=1e-3)
    assert staged[-1] < staged[0]
