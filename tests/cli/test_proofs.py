"""`fluidjax verify` and `fluidjax bench`: what they say of a model, of a script, and of what they cannot use."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.command import cli, run
from fluidjax.executor import Executor


@pytest.fixture
def model(tmp_path):
    """A saved model over sequences, whose picture input is open."""
    with (
        fluid.program_guard(fluid.Program(), fluid.Program()),
        fluid.unique_name.guard(),
        fluid.scope_guard(fluid.Scope()),
    ):
        words = fluid.data("words", [None, 1], "int64", lod_level=1)
        picture = fluid.data("picture", [None, 2, None])
        pooled = fluid.layers.sequence_pool(fluid.embedding(words, [4, 3]), "sum")
        summed = fluid.layers.reduce_sum(picture, dim=2)
        out = fluid.layers.fc([fluid.layers.reshape(pooled, [-1, 3]), summed], 2)
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(fluid.default_startup_program())
        fluid.io.save_inference_model(str(tmp_path), ["words", "picture"], [out], exe)
    return str(tmp_path)


@pytest.fixture
def script(tmp_path, monkeypatch):
    """A function that writes a script and verifies it, in this process: returns the exit status."""
    monkeypatch.setattr(run.legacy, "install", lambda: None)
    monkeypatch.setattr(run.aliases, "serve", lambda: None)
    monkeypatch.setattr(run.cache, "enable", lambda: None)
    monkeypatch.setattr(run.os, "environ", dict(run.os.environ))
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))

    def verify(text):
        path = tmp_path / "train.py"
        path.write_text("import fluidjax as fluid, numpy as np\n" + text)
        with (
            fluid.program_guard(fluid.Program(), fluid.Program()),
            fluid.unique_name.guard(),
            fluid.scope_guard(fluid.Scope()),
        ):
            return cli.main(["verify", str(path)])

    return verify


TRAIN = """
x = fluid.data("x", [None, 3])
loss = fluid.layers.mean(fluid.layers.tanh(fluid.layers.fc(x, 2)))
fluid.optimizer.SGD(0.1).minimize(loss)
exe = fluid.Executor(fluid.CPUPlace())
exe.run(fluid.default_startup_program())
exe.run(feed={"x": np.full((2, 3), 0.5, "float32")}, fetch_list=[loss])
print("went on")
"""


def test_a_script_is_checked_at_its_first_training_step(script, capsys):
    before = Executor.run
    assert script(TRAIN) == 0
    said = capsys.readouterr().out
    assert "ok: everything was checked, and agrees" in said and "tanh (#2)" in said and "fc_0.w_0" in said
    assert "went on" not in said and Executor.run is before


def test_an_eager_script_is_checked_at_its_backward_pass(script, capsys):
    text = (
        "with fluid.dygraph.guard():\n    net = fluid.dygraph.Linear(3, 2)\n"
        "    fluid.layers.mean(net(fluid.dygraph.to_variable(np.ones((2, 3), 'float32')))).backward()\n"
    )
    assert script(text) == 0
    assert "linear_0.w_0" in capsys.readouterr().out


def test_a_wrong_rule_gives_status_1(script, capsys, monkeypatch):
    rule = fluid.gradcheck.check.lowering.get_op("tanh_grad")
    right = rule.fn
    monkeypatch.setattr(rule, "fn", lambda *args, **named: 2.0 * right(*args, **named))
    assert script(TRAIN) == 1
    assert "gradients DISAGREE: first tanh" in capsys.readouterr().out


def test_a_script_without_training(script, capsys):
    assert script("print('nothing')\n") == 2
    said = capsys.readouterr().err
    assert "no gradients of" in said and "one that ended without a training step" in said


def test_a_model(tmp_path, capsys):
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        out = fluid.layers.fc(fluid.data("x", [None, 3]), 2, act="tanh")
        with fluid.scope_guard(fluid.Scope()):
            exe = fluid.Executor(fluid.CPUPlace())
            exe.run(fluid.default_startup_program())
            fluid.io.save_inference_model(str(tmp_path), ["x"], [out], exe)
    assert cli.main(["verify", str(tmp_path), "--batch", "2"]) == 0
    said = capsys.readouterr().out
    assert "ok: everything was checked" in said and "fc_0.w_0" in said and "tanh (#" in said


def test_bench(model, capsys):
    assert cli.main(["bench", model, "--seconds", "0", "--batch", "3", "--shape", "picture=3,2,2"]) == 0
    said = capsys.readouterr().out
    assert [line.split("  ")[0] for line in said.splitlines()] == ["on", "loading", "first run", "a run", "samples"]
    assert "median of 5" in said and "3 samples a run" in said


def test_an_open_input_is_asked_for(model, capsys):
    assert cli.main(["bench", model]) == 2
    said = capsys.readouterr().err
    assert "open how large its input 'picture' is" in said and "--shape picture=1,2,1" in said


def test_made_up_inputs_fit(model):
    from fluidjax.command import samples
    from fluidjax.export.files import Model

    read = Model(model, None, None)
    made = samples.feed(read.program, read.feeds, 3, {"picture": (3, 2, 5)})
    assert made["picture"].shape == (3, 2, 5) and made["picture"].dtype == np.float32
    assert made["words"].recursive_sequence_lengths() == [[8, 8, 8]] and set(np.array(made["words"]).ravel()) == {0, 1}
