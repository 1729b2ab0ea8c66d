"""The verbs of the command that look at models and scripts."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.command import cli, doctor
from fluidjax.command.terms import table
from fluidjax.execution.executables import kept
from fluidjax.execution.executables.store import Store
from fluidjax.proto import framework_pb2 as pb


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        x = fluid.data("x", [None, 3])
        y = fluid.layers.softmax(fluid.layers.fc(x, 4))
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        fluid.io.save_inference_model(str(folder), ["x"], [y], exe, main)
    return folder


def spoil(model, tmp_path):
    """A program with an operator that nobody has."""
    program = pb.ProgramDesc.FromString((model / "__model__").read_bytes())
    next(op for op in program.blocks[0].ops if op.type == "softmax").type = "softmix"
    (tmp_path / "__model__").write_bytes(program.SerializeToString())
    return tmp_path


def test_info_of_a_model(model, capsys):
    assert cli.main(["info", str(model)]) == 0
    said = capsys.readouterr().out
    for line in ("inputs: 1", "x  float32  [-1, 3]", "outputs: 1", "parameters: 2\n", "fc_0.w_0", "[3, 4]", "48 B",
                 "ops: 4 in 1 block", "runs here: yes"):  # fmt: skip
        assert line in said, said


def test_check(model, tmp_path, capsys):
    assert cli.main(["check", str(model)]) == 0
    spoilt = spoil(model, tmp_path)
    assert cli.main(["check", str(spoilt)]) == 1
    assert "operator softmix: not registered (1 time, first op" in capsys.readouterr().out
    assert cli.main(["info", str(spoilt / "__model__")]) == 0
    assert "runs here: no" in capsys.readouterr().out


SCRIPT = """
import paddle
import paddle.fluid as fluid
from paddle.fluid import layers as L, ParamAttr
from paddle.fluid.layers import fc, no_such_layer

x = fluid.data('x', [None, 2])
h = L.fc(fluid.layers.rellu(x), 3, param_attr=ParamAttr(name='w'))
y = fluid.layers.rellu(h)
reader = paddle.batch(paddle.dataset.mnist.train(), 8)
"""


def test_check_of_a_script_reads_it_without_running_it(tmp_path, capsys):
    script = tmp_path / "old.py"
    script.write_text(SCRIPT)
    assert cli.main(["check", str(script)]) == 1
    first, second = capsys.readouterr().out.strip().splitlines()
    assert first.endswith("old.py:5: paddle.fluid.layers.no_such_layer: paddle.fluid.layers has no no_such_layer")
    assert "old.py:8: paddle.fluid.layers.rellu" in second and "did you mean relu? (and 1 more lines)" in second
    script.write_text(SCRIPT.replace("rellu", "relu").replace(", no_such_layer", ""))
    assert cli.main(["check", str(script)]) == 0
    assert cli.main(["info", str(script)]) == 0
    assert "paddle.dataset.mnist.train" in capsys.readouterr().out


def test_convert(model, tmp_path, capsys):
    weights = {name: np.array(value) for name, value in fluid.to_jax(model)[1].items()}
    assert cli.main(["convert", str(model), str(tmp_path / "w.npz"), "--to", "npz"]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "w.npz")
    with np.load(tmp_path / "w.npz") as read:
        assert {n: read[n].tobytes() for n in read.files} == {n: w.tobytes() for n, w in weights.items()}
    assert cli.main(["convert", str(model), str(tmp_path / "out"), "--to", "stablehlo", "--platforms", "cpu"]) == 0
    signature = json.loads((tmp_path / "out" / "signature.json").read_text())
    assert signature["inputs"] == {"x": [["batch", "3"], "float32"]}
    words = ["convert", str(model), str(tmp_path / "fixed"), "--to", "stablehlo", "--platforms", "cpu", "--size"]
    assert cli.main([*words, "x=5"]) == 0
    signature = json.loads((tmp_path / "fixed" / "signature.json").read_text())
    assert signature["inputs"] == {"x": [["5", "3"], "float32"]}
    assert cli.main([*words, "x=5,3"]) == 2
    assert "1, of its dims [0]" in capsys.readouterr().err


def test_cache_and_doctor(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FLUIDJAX_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "entry").write_bytes(b"x" * 1500)
    assert cli.main(["cache"]) == 0
    assert "1 files, 1.5 kB" in capsys.readouterr().out
    Store(tmp_path / "cache" / kept.FOLDER).put("key", b"x" * 952)
    assert cli.main(["cache", "--clear"]) == 0
    assert "1 whole steps of programs, 1.0 kB of at most 1.1 GB" in capsys.readouterr().out
    assert not (tmp_path / "cache").exists()
    assert cli.main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert doctor._absent("export") == [] and doctor._absent("nosuch") == []
    monkeypatch.setattr(doctor, "_version", lambda name: None if name == "flatbuffers" else "1")
    assert ("extras", "not installed: export (flatbuffers)") in list(doctor.facts())
    assert "speaks Fluid 1.8.5" in said and "FLUIDJAX_CACHE_DIR" in said and "device" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["info", "/nowhere"], "no model at '/nowhere'"),
        (["check", "/nowhere.py"], "cannot read the script"),
        (["convert", "/nowhere", "out", "--to", "npz"], "no model at '/nowhere'"),
        (["run", "/nowhere.py"], "cannot run '/nowhere.py'"),
        (["run", "-m", "no.such.module"], "cannot run the module 'no.such.module'"),
    ],
)
def test_bad_use_is_one_message_without_a_traceback(arguments, words, capsys):
    assert cli.main(arguments) == 2
    said = capsys.readouterr().err
    assert said.startswith("fluidjax: ") and words in said and "what to do:" in said
    assert "Traceback" not in said


def test_a_damaged_model_is_one_message(tmp_path, capsys):
    (tmp_path / "__model__").write_bytes(b"\xff" * 40)
    assert cli.main(["info", str(tmp_path)]) == 2
    assert "fluidjax info: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["check"], "fluidjax check: the following arguments are required: MODEL|SCRIPT"),
        (["run"], "fluidjax run: the following arguments are required: SCRIPT;"),
        (["draw"], "fluidjax draw: the following arguments are required: MODEL|SCRIPT;"),
        (["nosuch"], "fluidjax: argument COMMAND: invalid choice: 'nosuch'"),
        (["cache", "--no-such"], "fluidjax: unrecognized arguments: --no-such"),
    ],
)
def test_arguments_that_do_not_fit_are_one_line(arguments, words, capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(arguments)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(words) and line.endswith("--help' shows what there is")


def test_columns_of_whole_numbers_end_where_they_end():
    assert table([(12, "mul"), (3, "add")]) == "  12  mul\n   3  add"
    assert table([("a", 1), ("bc", 23)], indent="") == "a   1\nbc  23"
