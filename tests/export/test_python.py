"""Programs as Python modules: run where no fluidjax is and compared; readable; what is not covered is listed."""

from __future__ import annotations

import ast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name

import fluidjax as fluid
from fluidjax.command import cli
from fluidjax.export import ExportError
from fluidjax.export.c.build import difference
from fluidjax.export.files import Model
from fluidjax.export.function import JaxFunction
from fluidjax.export.python import convert
from fluidjax.export.python.functions import RULES
from fluidjax.export.python.page import write
from fluidjax.export.python.texts import identifier, lines_of, number_text, split_top
from tests.export.cases import FLAGS, MATRICES, M, N, X, Y, convolutions, factorisations, primitives, spectra

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def save(folder, feeds, targets):
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    fluid.io.save_inference_model(str(folder), feeds, targets, exe)
    return str(folder)


def test_a_model_on_the_command_line(tmp_path, capsys):
    """Any batch; equal ops are one function, whose arguments are what differs."""
    image, label = fluid.data("class", [None, 1, 8, 8]), fluid.data("label", [None, 1], "int64")
    conv = fluid.layers.conv2d(image, 4, 3, act="relu", bias_attr=False)
    conv = fluid.layers.batch_norm(fluid.layers.conv2d(conv, 4, 3, stride=2, bias_attr=False), is_test=True)
    read = fluid.layers.reshape(fluid.embedding(label, [5, 6]), [-1, 6])
    both = fluid.layers.concat([fluid.layers.fc(fluid.layers.pool2d(conv, 2), 6), read], axis=1)
    model = save(tmp_path / "model", ["class", "label"], [fluid.layers.softmax(both)])
    assert cli.main(["convert", model, str(tmp_path / "out"), "--to", "jax"]) == 0, capsys.readouterr().err
    assert sorted(line.rpartition("/")[2] for line in capsys.readouterr().out.split()) == ["model.py", "weights.npz"]
    text = (tmp_path / "out" / "model.py").read_text()
    assert "def predict(p, class_, label):" in text and "class_: float32[batch, 1, 8, 8]" in text
    assert text.count("def conv2d(input, filter, *, window_strides):") == 1, text
    assert "window_strides=(2, 2))" in text and "conv2d_0 = jnp.where(conv2d_0 < 0.0, 0.0, conv2d_0)" in text, text
    assert "batch = " not in text
    assert "import fluidjax" not in text and max(map(len, text.splitlines())) <= 130


def test_loops_and_sequences(tmp_path):
    words = fluid.data("words", [None, 1], "int64", lod_level=1)
    embedded = fluid.embedding(words, [10, 4])
    rnn = fluid.layers.DynamicRNN()
    with rnn.block():
        word = rnn.step_input(embedded)
        memory = rnn.memory(shape=[4])
        new = fluid.layers.fc([word, memory], 4, act="tanh")
        rnn.update_memory(memory, new)
        rnn.output(new)
    last = fluid.layers.sequence_last_step(rnn())
    i = fluid.layers.fill_constant([1], "int64", 0)
    total = fluid.layers.fill_constant_batch_size_like(last, [-1, 4], "float32", 0)
    more = fluid.layers.less_than(i, fluid.layers.fill_constant([1], "int64", 3))
    loop = fluid.layers.While(more)
    with loop.block():
        fluid.layers.assign(fluid.layers.tanh(total + last), total)
        fluid.layers.increment(i)
        fluid.layers.less_than(i, fluid.layers.fill_constant([1], "int64", 3), cond=more)
    model = Model(save(tmp_path / "model", ["words"], [total, rnn()]), None, None)
    model.write(str(tmp_path / "out"), "jax", batch=3)
    text = (tmp_path / "out" / "model.py").read_text()
    assert "lax.while_loop(" in text and "# words: ragged(rows, *lengths, capacity=" in text
    names = [node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    assert names[:2] == ["load", "ragged"] and names[-1] == "predict"


class Plain(JaxFunction):
    """A JAX function of arrays as one that came of a program without ops."""

    def __init__(self, function, arguments):
        self.feeds, self.fetches = tuple(f"x{i}" for i in range(len(arguments))), ()
        self.written, self.random, self.function = (), False, function

    def with_runner(self, runner):
        return self

    def step(self, parameters, inputs, key=None):
        outputs = self.function(*[inputs[n] for n in self.feeds])
        self.fetches = tuple(f"y{i}" for i in range(len(outputs)))
        return list(outputs), {}


@pytest.mark.parametrize(
    "function, arguments",
    [
        (primitives, (X, Y, N, M, FLAGS)),
        (
            convolutions,
            tuple(
                np.random.default_rng(0).standard_normal(s).astype("float32")
                for s in ((2, 4, 7, 6), (3, 4, 3, 2), (6, 2, 3, 3), (9, 10, 70))
            ),
        ),
        (factorisations, MATRICES),
        (spectra, (X, MATRICES[0])),
    ],
)
def test_primitives_are_those_of_jax(function, arguments, tmp_path):
    plain = Plain(function, arguments)
    with jax.enable_x64(True):
        written = write(plain, {}, dict(zip(plain.feeds, arguments, strict=True)), "primitives")
        expected = jax.jit(function)(*arguments)
    (tmp_path / "model.py").write_text(written.text)
    np.savez(tmp_path / "weights.npz", **written.weights)
    ((*found,),) = convert.run_alone(tmp_path, [[[x] for x in arguments]], written)
    wrong = {i: (a, b) for i, ((a,), b) in enumerate(zip(found, expected, strict=True)) if not difference(a, b) < 2e-6}
    assert not wrong, wrong


def test_names_of_loops_hide_none_from_outside():
    def function(x):
        rows, carry = checkpoint_name(jnp.sin(x), "rows"), checkpoint_name(jnp.cos(x), "carry")
        total, _ = jax.lax.scan(lambda state, row: (state + row * rows.sum() + carry.sum(), None), x.sum(), x)
        return [
            jax.lax.while_loop(lambda s: s < carry.sum() + 9, lambda s: s + rows.max() ** 2 + 1, total),
            rows,
            carry,
        ]

    plain, module = Plain(function, (X[0],)), {"__file__": __file__}
    exec(write(plain, {}, {"x0": X[0]}, "loops").text, module)
    for got, want in zip(module["predict"]({}, X[0]), function(X[0]), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.fixture
def model(tmp_path):
    x = fluid.data("x", [None, 4])
    return save(tmp_path / "model", ["x"], [fluid.layers.tanh(fluid.layers.fc(x, 4))])


def test_what_has_no_rule_is_listed_with_op_and_line(model, tmp_path, monkeypatch, capsys):
    monkeypatch.delitem(RULES, "tanh")
    assert cli.main(["convert", model, str(tmp_path / "out"), "--to", "jax"]) == 2
    said = capsys.readouterr().err
    assert all(part in said for part in ("op tanh (#", "test_python.py", "expected:", "what to do:")), said
    assert not (tmp_path / "out").exists()


def test_a_module_that_computes_something_else_is_not_written(model, tmp_path, monkeypatch):
    monkeypatch.setitem(RULES, "tanh", RULES["sin"])
    with pytest.raises(ExportError, match="computes another"):
        Model(model, None, None).write(str(tmp_path / "out"), "jax")
    assert not (tmp_path / "out").exists()


def test_modules_do_without_fluidjax(tmp_path):
    written = write(Plain(lambda x: (x,), (X,)), {}, {"x0": X}, "nothing")
    (tmp_path / "model.py").write_text("import fluidjax\n" + written.text)
    with pytest.raises(ExportError, match="has to do without fluidjax"):
        convert.run_alone(tmp_path, [[[X]]], written)


def test_hostile_names_stay_names(tmp_path):
    names = ['"""; import os; """', "a\nb", "lambda", "名", "1x", "p", "batch", "jnp", "\\"]
    block = fluid.default_main_program().global_block()
    for name in names:
        block.create_var(name=name, shape=[2], dtype="float32", is_data=True)
    weight = fluid.layers.create_parameter([2], "float32", name='w"]\n; import os')
    out = block.create_var(name='"""\nimport os', dtype="float32", shape=[2])
    block.append_op(type="sum", inputs={"X": [*names, weight.name]}, outputs={"Out": out})
    fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program())
    draw = {n: convert.Feed(np.full(2, i, "float32")) for i, n in enumerate(names)}
    program, scope = fluid.default_main_program(), fluid.global_scope()
    files = convert.files_of(program, names, [out.name], scope, draws=[draw], name='"""\nimport os')
    imported = {a.name for n in ast.walk(ast.parse(files["model.py"])) if isinstance(n, ast.Import) for a in n.names}
    assert imported == {"jax", "jax.numpy", "numpy"}


def test_texts():
    assert [identifier(name) for name in ("fc_0.w@GRAD", "lambda", "")] == ["fc_0_w_GRAD", "lambda_", "value"]
    assert [number_text(np.float32(x)) for x in (0.1, 2, np.inf, -np.inf)] == ["0.1", "2.0", "jnp.inf", "-jnp.inf"]
    assert [float(number_text(np.float64(x))) for x in (0.1, 1 / 3, 1e300)] == [0.1, 1 / 3, 1e300]
    assert split_top("a, (b, c), 'd, e', f[g, h]") == ["a", "(b, c)", "'d, e'", "f[g, h]"]
    long = f"y = f({', '.join(f'argument_{i}' for i in range(20))})"
    held = f"y = {'a' * 60} + ({'b' * 30} @ {'c' * 30})"
    for text in (long, held, held[:-1] + ",)"):
        assert ast.dump(ast.parse("\n".join(lines_of(text, 0)))) == ast.dump(ast.parse(text))
