"""``fluidjax explain``: types, layouts, what cuts the compiled step, and what ops become on each place."""

from __future__ import annotations

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.command import cli, explain

layers = fluid.layers


@pytest.fixture(autouse=True)
def fresh():
    programs = fluid.program_guard(fluid.Program(), fluid.Program())
    with programs, fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        yield


def save(folder, feeds, targets):
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    fluid.io.save_inference_model(str(folder), feeds, targets, exe)
    return str(folder)


def test_a_model(tmp_path, capsys):
    image, label = fluid.data("image", [None, 3, 6, 6]), fluid.data("label", [None, 1], "int64")
    conv = layers.conv2d(image, 4, 1, bias_attr=False)
    out = layers.concat([layers.fc(conv, 4), layers.cast(label, "float32")], 1)
    model = save(tmp_path / "model", ["image", "label"], [out])
    said = {}
    for place in ("cpu", "gpu"):
        assert cli.main(["explain", model, "--place", place]) == 0, capsys.readouterr().err
        said[place] = capsys.readouterr().out
    line = {place: next(r for r in text.splitlines() if " conv2d " in r) for place, text in said.items()}
    assert "float32" in line["cpu"] and "NCHW" in line["cpu"] and "asks for cuDNN: XLA chooses its own" in line["cpu"]
    assert "XLA cpu" in line["cpu"] and "dot_general" in line["cpu"], "a 1 x 1 convolution is a product there"
    assert "XLA gpu" in line["gpu"] and "conv_general_dilated" in line["gpu"]
    cast = next(row for row in said["cpu"].splitlines() if " cast " in row)
    assert "int64" in cast and "convert_element_type" in cast
    assert "data transforms: none" in said["cpu"] and "compiled parts: 1" in said["cpu"]


def test_what_works_on_the_host_cuts_the_step(tmp_path):
    x = fluid.data("x", [None, 4])
    hidden = layers.fc(x, 3)
    made = fluid.default_main_program().current_block().create_var(name="made", dtype="float32", shape=[-1, 3])
    layers.py_func(lambda a: np.array(a), hidden, made)
    wide = layers.elementwise_add(layers.cast(layers.relu(made), "float64"), made)
    lines = list(explain.describe(fluid.default_main_program(), [wide.name], "gpu", "why not"))
    assert "compiled parts: 2, of 2, 3 ops; on the host: 1" in lines[0]
    assert "gpu to host ['fc_0.tmp_1'], host to gpu ['made']" in lines[1]
    assert "primitives: why not" in lines
    assert "mixed: float64, float32" in lines[-1] and "cuts the compiled step" in lines[-1]


def test_loops(tmp_path, capsys):
    x = fluid.data("x", [None, 4])
    i, limit = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 3)
    total, more = layers.tanh(x), layers.less_than(i, limit)
    loop = layers.While(more)
    with loop.block():
        layers.assign(total + total, total)
        layers.increment(i)
        layers.less_than(i, limit, cond=more)
    model = save(tmp_path / "model", ["x"], [layers.fc(total, 2)])
    assert cli.main(["explain", model]) == 0
    said = capsys.readouterr().out
    assert "block 1:" in said and "control cpu" in said and "int64" in said
