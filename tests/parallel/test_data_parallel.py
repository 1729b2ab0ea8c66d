"""What programs on several devices compute, against the same arithmetic on one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers
from tests.parallel.nets import conv_bn, lstm, mlp, own_rates, start

pytestmark = pytest.mark.usefixtures("compiled_quickly")

Scale = fluid.BuildStrategy.GradientScaleStrategy


class Training:
    """A network with its own scope, started from the same values each time."""

    def __init__(self, net: Any, devices: int = 0, **strategy: Any):
        self.main, startup, self.scope = fluid.Program(), fluid.Program(), fluid.Scope()
        with fluid.unique_name.guard(), fluid.program_guard(self.main, startup):
            self.loss, self.feed, self.more = net()
        self.executor = fluid.Executor(fluid.CPUPlace())
        self.executor.run(startup, scope=self.scope)
        self.parameters = start(self.main, self.scope)
        self.program: Any = self.main
        if devices:
            build = fluid.BuildStrategy()
            for name, value in strategy.items():
                setattr(build, name, value)
            places = fluid.cpu_places(devices)
            self.program = fluid.CompiledProgram(self.main).with_data_parallel(
                self.loss.name, build_strategy=build, places=places
            )

    def run(self, feed: Any, fetches: Any = None, **options: Any) -> list[Any]:
        return self.executor.run(self.program, feed, fetches or [self.loss], scope=self.scope, **options)

    def value(self, name: str) -> np.ndarray:
        return np.array(self.scope.find_var(name).get_tensor())

    def values(self) -> dict[str, np.ndarray]:
        return {name: self.value(name) for name in self.parameters}


def assert_same(one: dict[str, Any], other: dict[str, Any], tolerance: float = 1e-6) -> None:
    assert one.keys() == other.keys() and one
    for name in one:
        np.testing.assert_allclose(one[name], other[name], rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("merged", [True, False])
def test_a_fetch_that_nothing_writes_is_refused_before_the_step(merged: bool) -> None:
    """1.8.5 gives a float32 array of shape [0] whatever was declared, or None for each device."""
    several = Training(mlp, 2)
    several.main.global_block().create_var(name="nobody", shape=[5], dtype="int64")
    before = several.values()
    with pytest.raises(fluid.core.EnforceNotMet, match="'nobody' has no value"):
        several.run(several.feed(0), ["nobody", several.loss], return_merged=merged)
    assert_same(several.values(), before, 0)


def test_a_value_set_between_runs_reaches_all_devices() -> None:
    one, several = Training(mlp), Training(mlp, 2)
    for step in range(3):
        for training in (one, several):
            training.scope.find_var("w0").get_tensor().set(training.value("w0") * 0.5, fluid.CPUPlace())
        (whole,) = one.run(one.feed(step))
        (losses,) = several.run(several.feed(step))
        np.testing.assert_allclose(losses.mean(), whole[0], rtol=1e-6)
    assert_same(one.values(), several.values())


@pytest.mark.parametrize("devices", [1, 2, 4])
def test_equal_shares_train_as_the_whole_batch_does(devices: int) -> None:
    one, several = Training(mlp), Training(mlp, devices)
    for step in range(3):
        (whole,) = one.run(one.feed(step))
        (losses,) = several.run(several.feed(step))
        assert losses.shape == (devices,)
        np.testing.assert_allclose(losses.mean(), whole[0], rtol=1e-6)
    assert_same(one.values(), several.values())


def gradients(net: Any, feeds: list[Any]) -> list[dict[str, np.ndarray]]:
    """The gradients of each feed alone, from the first values."""
    names = [f"{p}@GRAD" for p in Training(net).parameters]
    return [dict(zip(names, Training(net).run(feed, names), strict=True)) for feed in feeds]


@pytest.mark.parametrize(("scale", "weights"), [("CoeffNumDevice", (1 / 2, 1 / 2)), ("One", (1, 1))])
def test_each_device_counts_the_same_whatever_its_share(scale: str, weights: tuple[float, float]) -> None:
    several = Training(mlp, 2, gradient_scale_strategy=getattr(Scale, scale))
    feed = several.feed(0, 7)
    first, second = gradients(mlp, [{k: v[:4] for k, v in feed.items()}, {k: v[4:] for k, v in feed.items()}])
    for name, found in zip(first, several.run(feed, list(first)), strict=True):
        expected = weights[0] * first[name] + weights[1] * second[name]
        np.testing.assert_allclose(found, np.concatenate([expected] * 2), rtol=1e-5, atol=1e-7, err_msg=name)


def test_each_device_may_learn_at_a_rate_of_its_own() -> None:
    """Their parameters part, and with them what decays and is added to the summed gradient."""
    training = Training(own_rates, 2)
    weights = np.stack([training.value("w0")] * 2)
    for step in range(3):
        feed = training.feed(step)
        (found,) = training.run(feed, training.more, return_merged=False)
        halves = feed["x"].reshape(2, 4, 3)
        gradient = sum(x.T @ x @ w * 2 / 8 for x, w in zip(halves, weights, strict=True)) / 2
        weights = np.stack([w - rate * (gradient + 0.1 * w) for w, rate in zip(weights, feed["rate"], strict=True)])
        np.testing.assert_allclose(found, weights, rtol=1e-5, atol=1e-6)
        assert training.value("rate") == feed["rate"][:1]


def test_the_user_feeds_the_gradient_of_the_loss() -> None:
    several = Training(mlp, 2, gradient_scale_strategy=Scale.Customized)
    feed = several.feed(0)
    first, second = gradients(mlp, [{k: v[:4] for k, v in feed.items()}, {k: v[4:] for k, v in feed.items()}])
    given = {**feed, f"{several.loss.name}@GRAD": np.array([0.25, 3.0], "float32")}
    for name, found in zip(first, several.run(given, list(first)), strict=True):
        expected = 0.25 * first[name] + 3 * second[name]
        np.testing.assert_allclose(found[: len(found) // 2], expected, rtol=1e-5, atol=1e-6, err_msg=name)


def test_sequences_stay_whole() -> None:
    several = Training(lstm, 2)
    feed = several.feed(0)
    s, h = several.run(feed, several.more, return_numpy=False)
    assert np.array(s).shape[0] == 5 and h.recursive_sequence_lengths() == [[3, 1, 4, 2, 2]]
    parts = several.run(feed, several.more, return_numpy=False, return_merged=False)
    assert [p.recursive_sequence_lengths() for p in parts[1]] == [[[3, 1, 4]], [[2, 2]]]
    assert [np.array(p).shape[0] for p in parts[0]] == [3, 2]


def test_two_levels_of_sequences_are_split() -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        x = fluid.data("x", [None, 1], "float32", lod_level=2)
        program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(places=fluid.cpu_places(2))
        tensor = fluid.create_lod_tensor(
            np.arange(10, dtype="float32")[:, None], [[2, 1, 1], [1, 3, 2, 4]], fluid.CPUPlace()
        )
        executor = fluid.Executor(fluid.CPUPlace())
        doubled = layers.scale(x, 2.0)
        (merged,) = executor.run(program, {"x": tensor}, [doubled], return_numpy=False)
        (parts,) = executor.run(program, {"x": tensor}, [doubled], return_numpy=False, return_merged=False)
        assert merged.recursive_sequence_lengths() == [[2, 1, 1], [1, 3, 2, 4]]
        assert [p.recursive_sequence_lengths() for p in parts] == [[[2, 1], [1, 3, 2]], [[1], [4]]]
        np.testing.assert_array_equal(np.array(merged)[:, 0], 2 * np.arange(10))


def test_statistics_of_batches_are_each_device_s_own() -> None:
    several, half = Training(conv_bn, 2), Training(conv_bn)
    feed = several.feed(0)
    several.run(feed)
    half.run({k: v[:4] for k, v in feed.items()})
    for name in ("bn_mean", "bn_var"):
        np.testing.assert_allclose(several.value(name), half.value(name), rtol=1e-6)
    first, second = several.run(feed, ["bn_mean"], return_merged=False)[0]
    assert not np.allclose(first, second)


@pytest.mark.parametrize("rows", [8, 7])
def test_synchronized_batch_norm_sees_all_devices(rows: int) -> None:
    several, whole = Training(conv_bn, 2, sync_batch_norm=True), Training(conv_bn)
    feed = several.feed(0, rows)
    (found,), (expected,) = (t.run(feed, t.more) for t in (several, whole))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert_same(
        {n: several.value(n) for n in ("bn_mean", "bn_var")}, {n: whole.value(n) for n in ("bn_mean", "bn_var")}
    )
    if rows == 8:
        for step in (1, 2):
            several.run(several.feed(step)), whole.run(whole.feed(step))
        assert_same(several.values(), whole.values(), 1e-5)


def test_the_op_of_synchronized_batch_norm_needs_no_strategy() -> None:
    several, whole = Training(conv_bn, 2), Training(conv_bn)
    for op in several.main.global_block().ops:
        if op.type in ("batch_norm", "batch_norm_grad"):
            op.proto.type = f"sync_{op.type}"
    program = fluid.Program.parse_from_string(several.main.desc.serialize_to_string())
    several.program = fluid.CompiledProgram(program).with_data_parallel(several.loss.name, places=fluid.cpu_places(2))
    for step in range(3):
        several.run(several.feed(step)), whole.run(whole.feed(step))
    assert_same(several.values(), whole.values(), 1e-5)
    assert_same(
        {n: several.value(n) for n in ("bn_mean", "bn_var")}, {n: whole.value(n) for n in ("bn_mean", "bn_var")}, 1e-5
    )


def recurrent() -> tuple[Any, Any, list[Any]]:
    w, y = fluid.data("w", [None, 1], "int64", lod_level=1), fluid.data("y", [None, 1], "float32")
    words = layers.embedding(w, [20, 6], param_attr="emb")
    rnn = layers.DynamicRNN()
    with rnn.block():
        word = rnn.step_input(words)
        before = rnn.memory(shape=[6], value=0.0)
        state = layers.fc([word, before], 6, act="tanh", param_attr=["u", "v"], bias_attr="b")
        rnn.update_memory(before, state)
        rnn.output(state)
    p = layers.fc(layers.sequence_pool(rnn(), "last"), 1, param_attr="w1", bias_attr="b1")
    loss = layers.mean(layers.square_error_cost(p, y))
    fluid.optimizer.SGD(0.2).minimize(loss)
    return loss, lambda step: {k: v for k, v in lstm_feed(step).items()}, [p]


def lstm_feed(step: int) -> dict[str, Any]:
    lengths = [[3, 1, 4, 2], [1, 5, 2, 1]][step % 2]
    rng = np.random.default_rng(step)
    words = rng.integers(0, 20, (sum(lengths), 1)).astype("int64")
    y = rng.uniform(-1, 1, (len(lengths), 1)).astype("float32")
    return {"w": fluid.create_lod_tensor(words, [lengths], fluid.CPUPlace()), "y": y}


def test_blocks_inside_are_run_on_each_device() -> None:
    one, several = Training(recurrent), Training(recurrent, 2)
    for step in range(2):
        (whole,), (parts,) = one.run(one.feed(step), one.more), several.run(several.feed(step), several.more)
        np.testing.assert_allclose(parts, whole, rtol=1e-5, atol=1e-6)
    assert_same(one.values(), several.values(), 1e-5)


def schedule() -> tuple[Any, Any, list[Any]]:
    x, y = fluid.data("x", [None, 12], "float32"), fluid.data("y", [None, 1], "float32")
    loss = layers.reduce_sum(layers.square_error_cost(layers.fc(x, 1, param_attr="w1", bias_attr="b1"), y))
    rate = layers.exponential_decay(0.02, 2, 0.5)
    clip, decay = fluid.clip.GradientClipByGlobalNorm(1.0), fluid.regularizer.L2Decay(0.1)
    fluid.optimizer.Momentum(rate, 0.9, regularization=decay, grad_clip=clip).minimize(loss)

    def feed(step: int) -> dict[str, Any]:
        x = np.random.default_rng(step).uniform(-1, 1, (8, 12)).astype("float32")
        return {"x": x, "y": x[:, :1] * 2}

    return loss, feed, [rate]


def test_clip_decay_and_schedule_follow_the_sum_once() -> None:
    one, several = Training(schedule), Training(schedule, 2, gradient_scale_strategy=Scale.One)
    for step in range(3):
        (rate,), (rates,) = one.run(one.feed(step), one.more), several.run(several.feed(step), several.more)
        np.testing.assert_array_equal(rates, np.concatenate([rate, rate]))
    assert_same(one.values(), several.values(), 1e-5)


def test_a_share_without_rows_adds_nothing_to_a_sum() -> None:
    one, several = Training(schedule), Training(schedule, 2, gradient_scale_strategy=Scale.One)
    for step in range(2):
        feed = one.feed(step)
        one.run(feed)
        several.run([feed, {name: rows[:0] for name, rows in feed.items()}])
    assert_same(one.values(), several.values())


def counted() -> tuple[Any, Any, list[Any]]:
    step = layers.autoincreased_step_counter()
    return *mlp()[:2], [step]


def test_devices_count_a_step_once_whatever_the_strategy() -> None:
    training = Training(counted, 2, reduce_strategy=fluid.BuildStrategy.ReduceStrategy.Reduce)
    found = [training.run(training.feed(step), training.more)[0].tolist() for step in range(3)]
    assert found == [[1, 1], [2, 2], [3, 3]]


def inference(places: int) -> tuple[Any, Any]:
    x = fluid.data("x", [None, 3], "float32")
    rate = layers.create_global_var([1], 1.0, "float32", persistable=True, name="rate")
    y = layers.elementwise_mul(x, rate)
    program = fluid.CompiledProgram(fluid.default_main_program())
    return program.with_data_parallel(places=fluid.cpu_places(places)), y


@pytest.fixture
def executor() -> Any:
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        yield fluid.Executor(fluid.CPUPlace())


@pytest.mark.parametrize("rows", [1, 5, 8])
def test_inference_may_leave_devices_idle(executor: Any, rows: int) -> None:
    program, y = inference(4)
    executor.run(fluid.default_startup_program())
    x = np.arange(3 * rows, dtype="float32").reshape(rows, 3)
    np.testing.assert_array_equal(executor.run(program, {"x": x}, [y])[0], x)


def test_one_row_of_a_persistable_variable_is_for_all(executor: Any) -> None:
    program, y = inference(2)
    executor.run(fluid.default_startup_program())
    x = np.ones((4, 3), "float32")
    found, rate = executor.run(program, {"x": x, "rate": np.array([3], "float32")}, [y, "rate"])
    np.testing.assert_array_equal(found, 3 * x)
    np.testing.assert_array_equal(rate, [3, 3])
    assert np.array(fluid.global_scope().find_var("rate").get_tensor()) == 3
    np.testing.assert_array_equal(executor.run(program, {"x": x}, [y])[0], 3 * x)


def test_dropout_draws_on_each_device(executor: Any) -> None:
    x = fluid.data("x", [None, 64], "float32")
    dropped, fixed = layers.dropout(x, 0.5), layers.dropout(x, 0.5, seed=3)
    program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(places=fluid.cpu_places(2))
    found, same = executor.run(program, {"x": np.ones((2, 64), "float32")}, [dropped, fixed])
    assert (found[0] != found[1]).any() and (same[0] == same[1]).all()


def test_what_is_refused(executor: Any) -> None:
    x = fluid.data("x", [None, 3], "float32")
    y = layers.fc(x, 2)
    loss, across = layers.mean(y), layers.transpose(x, [1, 0])
    fluid.optimizer.SGD(0.1).minimize(loss)
    executor.run(fluid.default_startup_program())
    main, places = fluid.default_main_program(), fluid.cpu_places(2)
    batch = np.ones((3, 3), "float32")

    def fresh(**options: Any) -> Any:
        return fluid.CompiledProgram(main).with_data_parallel(loss.name, places=places, **options)

    program = fresh()
    refused = [
        (fluid.core.EnforceNotMet, "expected a share", {"feed": {"x": batch[:1]}}),
        (fluid.core.EnforceNotMet, "expected a share", {"feed": [{"x": batch}]}),
        (IndexError, "3 feeds for 2 devices", {"feed": [{"x": batch}] * 3}),
        (TypeError, "should be a dict", {"feed": [batch, batch]}),
        (TypeError, "received ndarray", {"feed": batch}),
        (fluid.core.EnforceNotMet, "differ in more than their rows", {"feed": {"x": batch}, "fetch_list": [across]}),
        (ValueError, "different scope", {"feed": {"x": batch}, "scope": fluid.Scope()}),
    ]
    executor.run(program, {"x": batch}, [loss])
    for error, words, given in refused:
        with pytest.raises(error, match=words):
            executor.run(program, **{"fetch_list": [loss], **given})
    parts = executor.run(program, {"x": batch}, [across], return_merged=False)[0]
    assert [p.shape for p in parts] == [(3, 2), (3, 1)]
    with pytest.raises(AssertionError, match="loss name of CompiledProgram is None"):
        fluid.CompiledProgram(main).with_data_parallel(places=places)
    assert program._local_scopes == []
    with pytest.raises(AssertionError, match="cannot be recompiled"):
        program.with_data_parallel(loss.name)
    with pytest.raises(ValueError, match="is not data parallel"):
        executor.run(fresh(share_vars_from=fluid.CompiledProgram(main)), {"x": batch}, [loss])
    with pytest.raises(ValueError, match="not compiled and executed"):
        executor.run(fresh(share_vars_from=fresh()), {"x": batch}, [loss])


def test_lists_of_feeds_with_gaps(executor: Any) -> None:
    x, kept = fluid.data("x", [None, 2], "float32"), fluid.data("kept", [None, 2], "float32")
    kept.persistable = True
    y = layers.elementwise_add(layers.relu(x), kept)
    program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(places=fluid.cpu_places(2))

    def run(*feed: Any) -> Any:
        named = [{name: np.full((1, 2), value, "float32") for name, value in part.items()} for part in feed]
        return executor.run(program, named, [y])[0][:, 0].tolist()

    assert run({"x": 1, "kept": 2}, {"x": 3, "kept": 4}) == [3, 7]
    assert run({"x": 5, "kept": 6}, {"x": 7}) == [11, 11], "what stays between runs stands where nothing is fed"
    assert run({"x": 1, "kept": 2}, {}) == [3], "a device without a feed is idle"
    with pytest.raises(fluid.core.EnforceNotMet, match="feed 'x': expected a value for each device"):
        run({"x": 1, "kept": 2}, {"kept": 1})
    with pytest.raises(ValueError, match="var other not in this block"):
        run({"x": 1, "kept": 2, "other": 3}, {"x": 1, "kept": 2, "other": 3})


def test_scopes_of_devices_are_told_as_dropped(executor: Any) -> None:
    x = fluid.data("x", [None, 2], "float32")
    y = layers.scale(x, 2.0)
    program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(places=fluid.cpu_places(2))
    for _ in range(2):
        executor.run(program, {"x": np.ones((2, 2), "float32")}, [y])
        assert not program._executor._need_create_local_exe_scopes()
        program._executor.drop_local_exe_scopes()
        assert program._executor._need_create_local_exe_scopes()
    assert program._executor.device_count() == 2


def test_what_a_finalized_strategy_still_takes() -> None:
    strategy = fluid.BuildStrategy()
    assert strategy.fuse_broadcast_ops and strategy.enable_backward_optimizer_op_deps, "Fluid's defaults"
    strategy._finalize_strategy_and_create_passes()
    strategy.enable_inplace, strategy.num_trainers = False, 2
    with pytest.raises(fluid.core.EnforceNotMet, match="has been finalized"):
        strategy.sync_batch_norm = True


def test_a_loader_gives_each_device_a_batch(executor: Any) -> None:
    x = fluid.data("x", [None, 3], "float32")
    loader = fluid.io.DataLoader.from_generator([x], capacity=4, iterable=False)
    doubled = layers.scale(x, 2.0)
    program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(places=fluid.cpu_places(2))
    sizes = [4, 4, 3, 4, 2]
    loader.set_batch_generator(lambda: iter([(np.ones((n, 3), "float32"),) for n in sizes]), places=fluid.cpu_places())
    loader.start()
    assert [executor.run(program, fetch_list=[doubled])[0].shape for _ in range(2)] == [(8, 3), (7, 3)]
    with pytest.raises(fluid.core.EOFException):
        executor.run(program, fetch_list=[doubled])
    loader.reset()


@pytest.mark.parametrize("trains", [False, True])
def test_the_last_batches_of_a_loader_may_be_too_few(executor: Any, trains: bool) -> None:
    x = fluid.data("x", [None, 3], "float32")
    loader = fluid.io.DataLoader.from_generator([x], capacity=4, iterable=False, drop_last=False)
    y = layers.fc(x, 1)
    loss = layers.mean(y)
    if trains:
        fluid.optimizer.SGD(0.1).minimize(loss)
    executor.run(fluid.default_startup_program())
    program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        loss.name if trains else None, places=fluid.cpu_places(2)
    )
    loader.set_batch_generator(lambda: iter([(np.ones((n, 3), "float32"),) for n in (4, 4, 3)]))
    loader.start()
    shapes = []
    with pytest.raises(fluid.core.EOFException):
        while True:
            shapes.append(executor.run(program, fetch_list=[y])[0].shape)
    assert shapes == ([(8, 1)] if trains else [(8, 1), (3, 1)]), "a step of training needs all devices"


def test_parallel_executors_share_the_devices_variables(executor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPU_NUM", "2")
    loss, feed, more = conv_bn()
    executor.run(fluid.default_startup_program())
    test = fluid.default_main_program().clone(for_test=True)
    trainer = fluid.ParallelExecutor(use_cuda=False, loss_name=loss.name)
    assert trainer.device_count == 2
    assert trainer.run([loss.name], feed(0))[0].shape == (2,)
    tester = fluid.ParallelExecutor(False, main_program=test, share_vars_from=trainer)
    means = trainer.run(["bn_mean"], feed(1))[0]
    (seen,) = tester.run(["bn_mean"], feed(1))
    np.testing.assert_array_equal(seen, means)
    alone = fluid.ParallelExecutor(False, main_program=test)
    (copied,) = alone.run(["bn_mean"], feed(1))
    np.testing.assert_array_equal(copied, np.concatenate([means[:4]] * 2))


def test_as_many_compilations_as_shapes() -> None:
    several = Training(mlp, 2)
    for step, rows in enumerate([8, 8, 7, 8, 7]):
        several.run(several.feed(step, rows))
    (prepared,) = several.main._prepared_cache.values()
    assert prepared.compilations == 2


def test_gradients_of_the_reduce_strategy_are_sums_on_all_devices() -> None:
    """Fluid has them on one device only; on the others, what these have computed themselves."""
    reduced = Training(mlp, 2, reduce_strategy=fluid.BuildStrategy.ReduceStrategy.Reduce)
    each = reduced.run(reduced.feed(0), ["w0@GRAD"], return_merged=False)[0]
    other = Training(mlp, 2)
    for found, wanted in zip(each, other.run(other.feed(0), ["w0@GRAD"], return_merged=False)[0], strict=True):
        np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(each[0], each[1])


def recomputing() -> Any:
    optimizer = fluid.optimizer.RecomputeOptimizer(fluid.optimizer.SGD(0.1))
    optimizer._set_checkpoints(["hidden.tmp_2"])
    return optimizer


def warming_up() -> Any:
    return fluid.optimizer.Adam(layers.linear_lr_warmup(layers.piecewise_decay([2, 4], [0.1, 0.05, 0.01]), 2, 0.0, 0.1))


def looking_ahead() -> Any:
    return fluid.optimizer.LookaheadOptimizer(fluid.optimizer.SGD(0.1), 0.5, 2)


@pytest.mark.parametrize("make", [recomputing, warming_up, looking_ahead])
def test_optimizers_with_more_than_updates(make: Any) -> None:
    def net() -> tuple[Any, Any, list[Any]]:
        x, y = fluid.data("x", [None, 12], "float32"), fluid.data("y", [None, 1], "float32")
        h = layers.fc(layers.fc(x, 16, act="tanh", param_attr="w0", name="hidden"), 16, act="tanh", param_attr="w1")
        loss = layers.mean(layers.square_error_cost(layers.fc(h, 1, param_attr="w2"), y))
        make().minimize(loss)

        def feed(step: int) -> dict[str, Any]:
            x = np.random.default_rng(step).uniform(-1, 1, (8, 12)).astype("float32")
            return {"x": x, "y": x[:, :1]}

        return loss, feed, []

    one, several = Training(net), Training(net, 2)
    for step in range(4):
        one.run(one.feed(step))
        several.run(several.feed(step))
    assert_same(one.values(), several.values(), 1e-5)
