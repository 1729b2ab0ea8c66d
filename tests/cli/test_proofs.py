"""Commands that run a model, or a script up to its first training step: `verify`, `bench`, `draw`, `info --run`."""

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
    """A function that writes a script and gives it to a command, in this process: returns the exit status."""
    monkeypatch.setattr(run.leaving, "watch", lambda: None)  # its thread would end a process of interrupted tests
    monkeypatch.setattr(run.legacy, "install", lambda: None)
    monkeypatch.setattr(run.aliases, "serve", lambda: None)
    monkeypatch.setattr(run.cache, "enable", lambda: None)
    monkeypatch.setattr(run.os, "environ", dict(run.os.environ))
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))

    def command(text, *words):
        path = tmp_path / "train.py"
        path.write_text("import fluidjax as fluid, numpy as np\n" + text)
        with (
            fluid.program_guard(fluid.Program(), fluid.Program()),
            fluid.unique_name.guard(),
            fluid.scope_guard(fluid.Scope()),
        ):
            return cli.main([*(words or ["verify"]), str(path)])

    return command


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
    assert "no training step of" in said and "one that ended without a training step" in said


def test_an_exit_is_an_end_without_training(script, capsys):
    assert script("import sys; sys.exit(0)\n") == 2
    assert "one that ended without a training step" in capsys.readouterr().err
    assert script("import sys; sys.exit('no')\n") == 2
    assert "one that ended with an error" in capsys.readouterr().err


CARELESS = """
held = np.array(fluid.global_scope().find_var("fc_0.w_0").get_tensor())
for step in range(3):
    try:
        exe.run(feed={"x": np.full((2, 3), 0.5, "float32")}, fetch_list=[loss])
        print("went on")
    except:
        now = np.array(fluid.global_scope().find_var("fc_0.w_0").get_tensor())
        print("the same" if now.tobytes() == held.tobytes() else "changed")
"""


def test_a_script_that_catches_all_is_held_up_all_the_same(script, capsys):
    assert script(TRAIN.rsplit("exe.run", 1)[0] + CARELESS, "bench", "--seconds", "0") == 0
    said = capsys.readouterr().out
    assert said.count("the same") == 3 and "went on" not in said and "changed" not in said
    assert said.count("a step ") == 1


def test_what_goes_wrong_in_a_step_is_not_the_scripts_to_handle(script, capsys):
    text = (
        TRAIN.rsplit("exe.run", 1)[0] + "\ntry:\n    exe.run(fetch_list=[loss])\nexcept Exception:\n    print('caught')"
    )
    assert script(text, "bench", "--seconds", "0") == 2
    said = capsys.readouterr()
    assert "fluidjax bench: " in said.err and "'x'" in said.err and "caught" not in said.out


def test_bench_of_a_script(script, capsys):
    assert script(TRAIN, "bench", "--seconds", "0") == 0
    rows = [line.split("  ", 1) for line in capsys.readouterr().out.splitlines()]
    said = {label: text.strip() for label, text in rows}
    assert list(said) == ["on", "fed", "first step", "a step", "compilations", "peak memory"]
    assert "a training step of" in said["on"] and said["fed"] == "x 2x3"
    assert "median of 5" in said["a step"] and said["a step"].endswith("ms of processor time")
    assert said["compilations"] == "1 in the first step, 0 in later ones" and said["peak memory"].endswith("B")


def test_bench_reads_the_batch_of_a_loader_once(script, capsys):
    start, end = TRAIN.rsplit("exe.run", 1)[0].split("loss =")
    loader = (
        "loader = fluid.io.DataLoader.from_generator([x], 4, iterable=False)\n"
        "loader.set_batch_generator(lambda: iter([[np.ones((2, 3), 'float32')]]))\n"
    )
    assert script(start + loader + "loss =" + end + "loader.start()\nexe.run()\n", "bench", "--seconds", "0") == 0
    assert "x 2x3" in capsys.readouterr().out


def test_bench_of_several_devices(script, capsys):
    text = TRAIN.rsplit("exe.run", 1)[0] + (
        "both = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(\n"
        "    loss.name, places=[fluid.CPUPlace()] * 2)\n"
        "exe.run(both, feed={'x': np.full((4, 3), 0.5, 'float32')}, fetch_list=loss)\n"
    )
    assert script(text, "bench", "--seconds", "0") == 0
    assert "1 in the first step, 0 in later ones" in capsys.readouterr().out


EAGER = (
    "with fluid.dygraph.guard():\n    net = fluid.dygraph.Linear(3, 2)\n"
    "    fluid.layers.mean(net(fluid.dygraph.to_variable(np.ones((2, 3), 'float32')))).backward()\n"
    "    print('went on')\n"
)


EAGER_LOOP = """
with fluid.dygraph.guard():
    net = fluid.dygraph.Linear(3, 2)
    sgd = fluid.optimizer.SGD(0.1, parameter_list=net.parameters())
    for i in range(STEPS):
        loss = fluid.layers.mean(net(fluid.dygraph.to_variable(np.ones((2, 3), 'float32'))))
        loss.backward()
        sgd.minimize(loss)
        net.clear_gradients()
        print('step', i)
"""


def test_bench_of_an_eager_script(script, capsys):
    """The script goes on until there are enough steps, with gradients and updates as without the command."""
    check = "        assert i == 0 or loss.numpy() < last\n        last = loss.numpy()\n"
    assert script(EAGER_LOOP.replace("STEPS", "100") + check, "bench", "--seconds", "0") == 0
    said = capsys.readouterr().out
    assert "step 5" in said and "step 6" not in said
    found = dict(line.split(None, 1) for line in said.splitlines() if not line.startswith("step "))
    assert found["on"] == "CPUPlace, an eager training step" and "median of 5" in found["a"]


def test_bench_of_an_eager_script_that_ends_early(script, capsys):
    assert script(EAGER_LOOP.replace("STEPS", "2"), "bench") == 2
    said = capsys.readouterr()
    assert "ended too early" in said.err and "let it train for more steps" in said.err and "step 1" in said.out


@pytest.mark.parametrize(("text", "words"), [(TRAIN, ["tanh", "fc_0.w_0"]), (EAGER, ["linear_0.w_0", "mean"])])
def test_draw_and_info_of_a_script(script, tmp_path, capsys, text, words):
    assert script(text, "draw", "-o", str(tmp_path / "train.svg")) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'train.svg'}\n"
    drawn = (tmp_path / "train.svg").read_text()
    assert drawn.startswith("<svg") and all(word in drawn for word in words)
    assert script(text, "info", "--run") == 0
    said = capsys.readouterr().out
    assert all(word in said for word in words) and "runs here: yes" in said and "went on" not in said


def test_draw_of_a_script_that_only_predicts(script, tmp_path, capsys):
    text = TRAIN.replace("fluid.optimizer.SGD(0.1).minimize(loss)", "").replace("[loss]", "loss")
    assert script(text, "draw", "-o", str(tmp_path / "predict.svg")) == 0
    assert "went on" in capsys.readouterr().out and "tanh" in (tmp_path / "predict.svg").read_text()
    assert script(text, "bench", "--seconds", "0") == 2
    assert "one that ended without a training step" in capsys.readouterr().err


def test_a_scripts_own_options_come_after_dashes(script, tmp_path, capsys):
    path = tmp_path / "train.py"
    assert script("import sys; print(sys.argv[1:])\n", "verify") == 2
    capsys.readouterr()
    assert cli.main(["verify", str(path), "--", "--epochs", "3"]) == 2
    assert capsys.readouterr().out == "['--epochs', '3']\n"


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
    assert [line.split("  ")[0] for line in said.splitlines()] == [
        "on", "loading", "first run", "a run", "compilations", "peak memory", "samples",
    ]  # fmt: skip
    assert "median of 5" in said and "1 in the first run, 0 in later ones" in said and "3 samples a run" in said


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
