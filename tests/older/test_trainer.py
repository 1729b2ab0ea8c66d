"""Training by events, numbered checkpoints, networks for several devices: scripts of Fluid 0.11 to 1.0."""

from __future__ import annotations

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.base.unbuilt import NotBuiltError
from fluidjax.legacy.trainer import Inferencer, Trainer

ROWS = [([x, y], [2 * x - y]) for x, y in np.random.RandomState(0).uniform(-1, 1, (8, 2)).astype("float32").tolist()]
ORDER = ["x", "y"]
reader = fluid.io.batch(lambda: iter(ROWS), 2)


def prediction():
    return fluid.layers.fc(fluid.layers.data("x", [2]), 1, param_attr="w", bias_attr="b")


def training():
    cost = fluid.layers.square_error_cost(prediction(), fluid.layers.data("y", [1]))
    return [fluid.layers.mean(cost), fluid.layers.reduce_max(cost)]


def trainer(**settings):
    return fluid.Trainer(training, lambda: fluid.optimizer.SGD(0.2), place=fluid.CPUPlace(), **settings)


def weights(one):
    return np.array(one.scope.find_var("w").get_tensor())


def test_events_of_a_training():
    one, seen = trainer(), []

    def handle(event):
        seen.append((type(event).__name__, event.epoch, getattr(event, "step", None)))
        if isinstance(event, fluid.BeginStepEvent):
            event.fetch_metrics = event.step != 1
        if isinstance(event, fluid.EndStepEvent):
            assert len(event.metrics) == (0 if event.step == 1 else 2)

    before = one.test(reader, ORDER)
    one.train(2, handle, reader, ORDER)
    after = one.test(reader, {"y": 1, "x": 0})
    assert len(after) == 2 and after[0] < before[0]
    names = ["BeginEpochEvent", *["BeginStepEvent", "EndStepEvent"] * 4, "EndEpochEvent"]
    assert [name for name, _, _ in seen] == names * 2
    assert [(epoch, step) for name, epoch, step in seen if name == "EndStepEvent"] == [
        (e, s) for e in range(2) for s in range(4)
    ]


def test_it_ends_when_it_is_told(monkeypatch):
    one, steps = trainer(), []

    def handle(event):
        if isinstance(event, fluid.EndStepEvent):
            steps.append(event.step)
            if event.step == 1:
                one.stop()

    one.train(3, handle, reader)  # no order: as the inputs are declared
    assert steps == [0, 1]
    monkeypatch.setenv("PADDLE_TRAINING_ROLE", "PSERVER")
    with pytest.raises(NotBuiltError, match="does not start clusters"):
        trainer()


def test_what_was_trained_predicts(tmp_path):
    one = trainer()
    one.train(1, lambda event: None, reader, ORDER)
    one.save_params(str(tmp_path))
    again = trainer(param_path=str(tmp_path))
    np.testing.assert_array_equal(weights(again), weights(one))
    x = np.array([[1, 2], [3, 4]], "float32")
    (found,) = fluid.contrib.Inferencer(prediction, str(tmp_path), fluid.CPUPlace()).infer({"x": x})
    held = np.array(one.scope.find_var("b").get_tensor())
    np.testing.assert_allclose(found, x @ weights(one) + held, rtol=1e-6)
    with pytest.raises(ValueError, match="a map of"):
        Inferencer(prediction, str(tmp_path)).infer([x])


def test_a_training_goes_on_from_its_newest_checkpoint(tmp_path):
    settings = fluid.CheckpointConfig(str(tmp_path), max_num_checkpoints=2, step_interval=1)
    whole = trainer()
    whole.train(2, lambda event: None, reader, ORDER)

    def fail(event):
        if isinstance(event, fluid.EndStepEvent) and (event.epoch, event.step) == (1, 1):
            raise KeyboardInterrupt

    cut = trainer(checkpoint_config=settings)
    cut.scope.find_var("w").get_tensor().set(np.zeros((2, 1), "float32"), fluid.CPUPlace())
    with pytest.raises(KeyboardInterrupt):
        cut.train(2, fail, reader, ORDER)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint_4", "checkpoint_5"]
    left, steps = weights(cut), []
    resumed = trainer(checkpoint_config=fluid.CheckpointConfig(str(tmp_path), step_interval=1))
    np.testing.assert_array_equal(weights(resumed), left)

    def note(event):
        if isinstance(event, fluid.EndStepEvent):
            steps.append((event.epoch, event.step))

    resumed.train(2, note, reader, ORDER)
    assert steps == [(1, 2), (1, 3)]
    assert not list(tmp_path.iterdir())  # a training that came to its end keeps none


def test_checkpoints_by_hand(tmp_path):
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        prediction()
        main, exe, where = fluid.default_main_program(), fluid.Executor(fluid.CPUPlace()), str(tmp_path / "kept")
        exe.run(fluid.default_startup_program())
        tensor = fluid.global_scope().find_var("w").get_tensor()
        first = np.array(tensor)
        for step in range(4):
            tensor.set(first + step, fluid.CPUPlace())
            notes = {"epoch_id": 7, "step_id": step}
            if step % 2:  # both orders that there were
                fluid.io.save_checkpoint(exe, where, 0, main, notes, max_num_checkpoints=2)
            else:
                fluid.io.save_checkpoint(exe, where, 0, notes, main, 2)
        assert fluid.io.get_latest_checkpoint_serial(where) == 3
        (tmp_path / "kept" / "checkpoint_3" / "__model__" / "_SUCCESS").unlink()  # cut off while it was written
        assert fluid.io.get_latest_checkpoint_serial(where) == 2
        fluid.io.load_checkpoint(exe, where, serial=2, main_program=main)
        np.testing.assert_array_equal(np.array(tensor), first + 2)
        fluid.io.load_checkpoint(exe, where, main)
        assert fluid.io.load_checkpoint(exe, where, main, load_trainer_args=["epoch_id", "step_id"]) == ["7", "2"]
        assert fluid.io.load_trainer_args(where, 2, 0, ["step_id"]) == ["2"]
        with pytest.raises(ValueError, match="no name of a file"):
            fluid.io.save_checkpoint(exe, where, 0, {"../../escape": 1}, main)
        with pytest.raises(ValueError, match="should not be None"):
            fluid.io.save_checkpoint(exe, None, 0, {}, main)
        with pytest.raises(TypeError, match="a dict and a Program"):
            fluid.io.save_checkpoint(exe, where, 0, "notes", main)
        (tmp_path / "kept" / "mine.txt").write_text("stays")
        fluid.io.clean_checkpoint(where, delete_dir=True)
        assert [path.name for path in (tmp_path / "kept").iterdir()] == ["mine.txt"]
        assert fluid.io.load_checkpoint(exe, where) is None


@pytest.mark.filterwarnings("ignore:API .get_places. is deprecated")
def test_networks_for_several_devices():
    x = np.arange(6, dtype="float32").reshape(3, 2)
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        given = fluid.layers.data("x", [2])
        parts = fluid.layers.ParallelDo(fluid.layers.get_places(), use_nccl=True)
        with parts.do():
            squares = fluid.layers.square(parts.read_input(given))
            parts.write_output(squares)
            parts.write_output(fluid.layers.mean(squares))
        rows, mean = parts()
        mean = fluid.layers.mean(mean)
        test = fluid.default_main_program().clone(for_test=True)
        fluid.InferenceTranspiler().transpile(test, fluid.CPUPlace())
        found = fluid.Executor(fluid.CPUPlace()).run(test, {"x": x}, [rows, mean])
        with pytest.raises(TypeError, match="Program type"):
            fluid.transpiler.InferenceTranspiler().transpile("main", fluid.CPUPlace())
    np.testing.assert_allclose(found[0], x**2)
    np.testing.assert_allclose(found[1], (x**2).mean(), rtol=1e-6)


def test_trainers_take_optimizers_and_places():
    with pytest.raises(TypeError, match="instance of Optimizer"):
        Trainer(training, lambda: "adam", place=fluid.CPUPlace())
    with pytest.raises(TypeError, match="CUDAPlace or CPUPlace"):
        Trainer(training, lambda: fluid.optimizer.SGD(0.1), place="cpu")
    with pytest.raises(AssertionError, match="step_interval"):
        fluid.CheckpointConfig(step_interval=0)
