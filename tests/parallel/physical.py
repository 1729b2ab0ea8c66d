"""Runs on several physical devices against the same program written out for one; started by test_physical.

``python -m tests.parallel.physical`` needs XLA_FLAGS=--xla_force_host_platform_device_count=8 or more.
"""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import jax
import numpy as np

import fluidjax as fluid
from fluidjax import layers
from fluidjax.execution.executables.allocator import keep_freed_memory
from tests.parallel import divided, pipelined, placed, staged, stood
from tests.parallel.nets import conv_bn, mlp, own_rates
from tests.parallel.test_data_parallel import Training, assert_same
from tests.parallel.test_recordings import test_recording
from tests.parallel.ways import both, repeated, ways

DATA = Path(__file__).parent / "data"
Scale = fluid.BuildStrategy.GradientScaleStrategy


def noisy() -> Any:
    x, y = fluid.data("x", [None, 12], "float32"), fluid.data("y", [None, 1], "int64")
    hidden = layers.dropout(layers.fc(x, 16, act="relu", param_attr="w0", bias_attr="b0"), 0.5)
    loss = layers.mean(layers.cross_entropy(layers.fc(hidden, 5, act="softmax", param_attr="w1", bias_attr="b1"), y))
    rate, clip = layers.exponential_decay(0.05, 2, 0.5), fluid.clip.GradientClipByGlobalNorm(0.05)
    fluid.optimizer.Adam(rate, grad_clip=clip).minimize(loss)
    return loss, mlp_feed, [hidden, rate]


def widened() -> Any:
    x = fluid.data("x", [None, 12], "float32")
    fluid.data("y", [None, 1], "int64")
    hidden = layers.fc(x, 1 << 16, act="relu", param_attr="w0", bias_attr="b0")
    loss = layers.mean(layers.reduce_sum(hidden * hidden, dim=1))
    fluid.optimizer.SGD(1e-6).minimize(loss)
    return loss, mlp_feed, []


def mlp_feed(step: int, n: int = 8) -> dict[str, Any]:
    x = np.random.RandomState(step).uniform(-1, 1, (n, 12)).astype("float32")
    return {"x": x, "y": np.abs(x[:, :1] * 9).astype("int64") % 5}


def embedded() -> Any:
    ids, y = fluid.data("ids", [None, 1], "int64"), fluid.data("y", [None, 1], "float32")
    table = layers.embedding(ids, [50, 4], is_sparse=True, param_attr="emb")
    loss = layers.mean(layers.square_error_cost(layers.fc(table, 1, param_attr="w1", bias_attr="b1"), y))
    fluid.optimizer.Adam(0.1, lazy_mode=True).minimize(loss)

    def feed(step: int, n: int = 8) -> dict[str, Any]:
        draw = np.random.RandomState(step)
        return {"ids": draw.randint(0, 50, (n, 1)), "y": draw.rand(n, 1).astype("float32")}

    return loss, feed, [table]


def check_recordings() -> None:
    """Two devices give what Fluid's did."""
    import pytest

    with pytest.MonkeyPatch.context() as patch:
        test_recording(DATA / "mlp_uneven.json", patch)


def check_both_ways_agree() -> None:
    """Each network trains alike in both ways, whatever the shares; and the scope is told apart from its devices."""
    cases: list[Any] = [(noisy, 2, {}), (embedded, 2, {"gradient_scale_strategy": Scale.One}), (conv_bn, 2, {})]
    cases += [(conv_bn, 2, {"sync_batch_norm": True}), (own_rates, 2, {})]
    for net, devices, settings in cases:
        spread, one = both(net, devices, **settings)
        for step, rows in enumerate([8, 7, 7, 8]):  # the third like the second
            feed = spread.feed(step, rows)
            for found, wanted in zip(
                spread.run(feed, [spread.loss, *spread.more]), one.run(feed, [one.loss, *one.more]), strict=True
            ):
                np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=1e-6, err_msg=f"{net.__name__} {step}")
        joint = settings.get("sync_batch_norm")
        assert repeated(spread) == (not joint)
        assert ways(spread) == ["spread", "together" if joint else "staged"] and ways(one) == ["together"]
        assert_same(spread.values(), one.values(), 2e-5)
        local = [t.program._several.local for t in (spread, one)]
        assert local[0].local_var_names() == local[1].local_var_names()
        for name in local[0].local_var_names():
            np.testing.assert_allclose(*(np.array(s.find_var(name).get_tensor()) for s in local), rtol=2e-5, atol=1e-6)


def check_declared_rows_are_those_of_a_share() -> None:
    """A variable of 4 rows is fed 8 for two devices; where shares have other rows than declared, the error says so.

    So is one of 1 that persists: of 2 rows, each device is fed its own.
    """
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        rate = fluid.data("rate", [1], "float32")
        rate.persistable = True
        y = layers.elementwise_mul(fluid.data("x", [4, 3], "float32"), rate)
    program = fluid.CompiledProgram(main).with_data_parallel(places=fluid.cpu_places(2))
    x, rates = np.random.RandomState(0).rand(8, 3).astype("float32"), np.float32([2, 3])
    (found,) = fluid.Executor().run(program, {"x": x, "rate": rates}, [y])
    np.testing.assert_array_equal(found, x * rates.repeat(4)[:, None])
    try:
        fluid.Executor().run(program, {"x": x[:6], "rate": rates}, [y])
    except ValueError as error:
        assert "received fed shape [3, 3] on each device" in str(error)
    else:
        raise AssertionError("shares of other rows than declared were taken")


def check_fetches() -> None:
    """Merged fetches are those of the devices behind one another; a learning rate is one."""
    training = Training(mlp, 4)
    feed = training.feed(0)
    rate = training.main.global_block().var("learning_rate_0")
    names = [training.loss, *training.more, rate]
    lists = training.run(feed, names, return_merged=False)
    assert [len(parts) for parts in lists] == [4] * len(names)
    training = Training(mlp, 4)
    merged = training.run(feed, names, return_numpy=False)
    for parts, whole in zip(lists, merged, strict=True):
        np.testing.assert_array_equal(np.concatenate(parts), np.array(whole))


def check_other_programs_share_the_scope() -> None:
    """A program of one device reads what devices trained, and the user sets what they train next."""
    training = Training(mlp, 2)
    test = training.main.clone(for_test=True)
    feed = training.feed(0)
    for _ in range(3):
        training.run(feed)
        (found,) = training.executor.run(test, feed, [training.loss.name], scope=training.scope)
    weight = training.value("w0")
    assert len(training.scope.find_var("w0").get_tensor()._array.sharding.device_set) == 1
    training.scope.find_var("w0").get_tensor().set(np.zeros_like(weight), fluid.CPUPlace())
    training.run(feed)
    assert np.abs(training.value("w0")).max() < np.abs(weight).max()
    assert found[0] > 0


def check_a_bad_label_leaves_the_state() -> None:
    """An error of one device is raised, and no device has changed anything."""
    training = Training(mlp, 2)
    training.run(training.feed(0))
    before = training.values()
    feed = training.feed(1)
    feed["y"][-1] = 77
    try:
        training.run(feed)
    except fluid.core.EnforceNotMet as error:
        assert "77" in str(error)
    else:
        raise AssertionError("a label out of range was taken")
    assert_same(training.values(), before, 0)
    training.run(training.feed(1))
    assert ways(training) == ["spread"]


def check_steps_compile_once() -> None:
    """Steps of one form are one compilation."""
    training = Training(mlp, 2)
    for step in range(4):
        training.run(training.feed(step))
    (prepared,) = training.main._prepared_cache.values()
    assert prepared.compilations == 1


def check_steps_keep_their_memory() -> None:
    """Devices compute in threads, whose scratch memory (8 MB of each here) is not mapped anew for every step.

    The heap may still grow where steps of threads meet otherwise than before, so one undisturbed run is enough.
    """
    training = Training(widened, 2)
    least = min(_page_faults_of_steps(training) for _ in range(6))
    pages = 5 * 2 * (8 << 20) // resource.getpagesize()
    assert ways(training) == ["spread"]
    assert not keep_freed_memory() or least < pages // 10


def _page_faults_of_steps(training: Training) -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for step in range(5):
        training.run(training.feed(step, 64))
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def main() -> None:
    assert len(jax.devices("cpu")) >= 8
    modules = (divided, pipelined, placed, staged, stood)
    for name, check in [*globals().items(), *(item for m in modules for item in vars(m).items())]:
        if name.startswith("check_"):
            print(name, flush=True)
            check()
    print("all is well")


if __name__ == "__main__":
    main()
