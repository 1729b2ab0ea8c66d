"""Programs as C: compiled without a warning, run, and compared with the Executor; what is not covered is listed."""

from __future__ import annotations

import subprocess

import jax
import numpy as np
import pytest
from jax import lax
from safetensors.numpy import load_file

import fluidjax as fluid
from fluidjax.command import cli
from fluidjax.export import ExportError, to_jax
from fluidjax.export.c import source_of, trace
from fluidjax.export.c.build import compile_c, compiler, difference, load_outputs, run_c, save_inputs
from fluidjax.export.c.convert import draw_feeds
from fluidjax.export.c.types import c_string, comment
from fluidjax.export.files import Model
from fluidjax.export.function import JaxFunction
from tests.export.cases import FLAGS, MATRICES, M, N, X, Y, convolutions, factorisations, primitives

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C compiler: install gcc, or name one in $CC")


def save(folder, feeds, targets, program=None):
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    fluid.io.save_inference_model(str(folder), feeds, targets, exe, program)
    return str(folder)


def trainable(folder):
    """A training program with dropout, a ragged input, Adam and a schedule, as files; the loss' name."""
    x, y = fluid.data("x", [None, 3]), fluid.data("y", [None, 1], "int64")
    words = fluid.data("words", [None, 1], "int64", lod_level=1)
    read = fluid.layers.sequence_pool(fluid.embedding(words, [10, 4]), "max")
    p = fluid.layers.softmax(fluid.layers.fc([fluid.layers.dropout(x, 0.3), read], 4))
    loss = fluid.layers.mean(fluid.layers.cross_entropy(p, y))
    fluid.optimizer.Adam(fluid.layers.exponential_decay(0.1, 2, 0.5)).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    main = fluid.default_main_program()
    fluid.io.save_persistables(exe, str(folder), main)
    (folder / "__model__").write_bytes(main.desc.serialize_to_string())
    return loss.name


def test_a_training_step_on_the_command_line(tmp_path, capsys):
    """Three steps with dropout are compared with the Executor's before anything is written."""
    loss = trainable(tmp_path)
    options = ["--to", "c", "--batch", "3", "--train", "--fetch", loss, "--weights", "beside"]
    assert cli.main(["convert", str(tmp_path), str(tmp_path / "out"), *options]) == 0, capsys.readouterr().err
    assert [line.rpartition("/")[2] for line in capsys.readouterr().out.split()] == [
        "model.c",
        "model.safetensors",
        "model",
    ]
    before = load_file(tmp_path / "out" / "model.safetensors")
    held = {n: np.array(fluid.global_scope().find_var(n).get_tensor()) for n in before}
    assert all(np.array_equal(before[n], held[n]) for n in before)
    program = str(tmp_path / "out" / "model")
    shown = subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout
    assert "input  words.npy: words, i8 (48, 1) at most, with lengths" in shown
    feed = {"x": np.ones((3, 3), "float32"), "y": np.array([[0], [1], [2]])}
    rows = np.arange(6).reshape(6, 1)
    for name, array in {**feed, "words": rows, "words.lengths": np.array([2, 0, 4])}.items():
        np.save(tmp_path / f"{name}.npy", array)
    after = str(tmp_path / "after.safetensors")
    (tmp_path / "run").mkdir()
    run_c(tmp_path / "out" / "model", tmp_path, tmp_path / "run", "--steps", "5", "--seed", "9", "--save", after)
    main, exe = fluid.default_main_program(), fluid.Executor(fluid.CPUPlace())
    main.random_seed = 9
    feed["words"] = fluid.create_lod_tensor(rows, [[2, 0, 4]], fluid.CPUPlace())
    for step in range(5):
        (expected,) = exe.run(main, feed=feed, fetch_list=[loss])
        np.testing.assert_allclose(np.load(tmp_path / "run" / f"{loss}.{step}.npy"), expected, rtol=1e-5)
    for name, array in load_file(after).items():
        now = np.array(fluid.global_scope().find_var(name).get_tensor())
        np.testing.assert_allclose(array, now, rtol=1e-4, atol=1e-6, err_msg=name)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The folder of a converted network: convolution, pooling, normalisation, a table; weights inside."""
    folder = tmp_path_factory.mktemp("small")
    with (
        fluid.program_guard(fluid.Program(), fluid.Program()),
        fluid.unique_name.guard(),
        fluid.scope_guard(fluid.Scope()),
    ):
        image, label = fluid.data("image", [None, 2, 9, 9]), fluid.data("label", [None, 1], "int64")
        conv = fluid.layers.conv2d(image, 4, 3, stride=2, padding=1, groups=2, act="relu")
        conv = fluid.layers.batch_norm(fluid.layers.pool2d(conv, 3, pool_stride=2), is_test=True)
        table = fluid.layers.reshape(fluid.embedding(label, [5, 6]), [-1, 6])
        both = fluid.layers.concat([fluid.layers.fc(conv, 6), table], axis=1)
        model = save(folder / "model", ["image", "label"], [fluid.layers.softmax(both)])
    Model(model, None, None).write(str(folder / "out"), "c", batch=2)
    return folder / "out"


def test_a_network_of_convolutions(small):
    assert sorted(path.name for path in small.iterdir()) == ["model", "model.c"]


@pytest.mark.parametrize(
    "name, array, message",
    [
        ("image", np.zeros((3, 2, 9, 9), "float32"), "wrong array for input image"),
        ("image", np.zeros((2, 2, 9, 9)), "received: f8 (2, 2, 9, 9)"),
        ("image", np.zeros((2, 2, 9), "float32"), "received: f4 (2, 2, 9)"),
        ("label", np.asfortranarray(np.zeros((2, 3), "int64")), "no .npy array of C order"),
        ("label", b"\x93NUMPY\x01\x00\xff\xff{'descr': '<i8'", "no .npy array of C order"),
        (
            "label",
            b"\x93NUMPY\x01\x00\x40\x00" + b"{'descr': '<i8', 'fortran_order': False, 'shape': (2, 1), }\n".ljust(64),
            "cut off: the file of input label",
        ),
        (
            "label",
            b"\x93NUMPY\x01\x00\x58\x00"
            + b"{'descr': '<i8', 'fortran_order': False, 'shape': (99999999999, 99999999999), }\n".ljust(88),
            "too large",
        ),
        ("label", b"", "no .npy array"),
        ("label", None, "no file for input label"),
    ],
)
def test_wrong_inputs_of_the_executable(small, tmp_path, name, array, message):
    np.save(tmp_path / "image.npy", np.zeros((2, 2, 9, 9), "float32"))
    np.save(tmp_path / "label.npy", np.zeros((2, 1), "int64"))
    path = tmp_path / f"{name}.npy"
    path.unlink()
    if isinstance(array, bytes):
        path.write_bytes(array)
    elif array is not None:
        np.save(path, array)
    done = subprocess.run([str(small / "model"), str(tmp_path), str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 1 and message in done.stderr, done.stderr
    assert all(part in done.stderr for part in ("expected:", "received:", "what to do:"))


def run_function(function, arguments, folder):
    """A JAX function of arrays through C: its outputs."""
    names = [f"x{i}" for i in range(len(arguments))]

    class Plain(JaxFunction):
        def __init__(self):
            self.feeds, self.fetches = tuple(names), ()
            self.written, self.random = (), False

        def with_runner(self, runner):
            return self

        def step(self, parameters, inputs, key=None):
            outputs = function(*[inputs[n] for n in names])
            self.fetches = tuple(f"y{i}" for i in range(len(outputs)))
            return list(outputs), {}

    plain = Plain()
    values = dict(zip(names, arguments, strict=True))
    source = source_of(trace(plain, {}, values, False), "model")
    (folder / "model.c").write_text(source.text)
    compile_c(folder / "model.c", folder / "model")
    save_inputs(folder, source.inputs, {n: (a, []) for n, a in values.items()})
    run_c(folder / "model", folder, folder)
    outputs = load_outputs(folder, source.outputs)
    return [outputs[name][0] for name in plain.fetches]


def differentiated(*arguments):
    """Primitives that occur in gradients, and the others."""
    window = lambda v: lax.reduce_window(v, np.float32(-np.inf), lax.max, (2, 2), (1, 1), "VALID")  # noqa: E731
    return (jax.grad(lambda v: (window(v) ** 2).sum())(arguments[0]), *primitives(*arguments))


def test_primitives_are_those_of_xla(tmp_path):
    arguments = (X, Y, N, M, FLAGS)
    with jax.enable_x64(True):
        found = run_function(differentiated, arguments, tmp_path)
        expected = jax.jit(differentiated)(*arguments)
    apart = {i: difference(a, b) for i, (a, b) in enumerate(zip(found, expected, strict=True))}
    wrong = {i: (found[i], np.asarray(expected[i])) for i, d in apart.items() if not d < 2e-6}
    assert not wrong, wrong
    assert len(found) > 80


def test_convolutions_and_products(tmp_path):
    rng = np.random.default_rng(0)
    arguments = [
        rng.standard_normal(s).astype("float32") for s in ((2, 4, 7, 6), (3, 4, 3, 2), (6, 2, 3, 3), (9, 10, 70))
    ]
    found = run_function(convolutions, arguments, tmp_path)
    for a, b in zip(found, jax.jit(convolutions)(*arguments), strict=True):
        assert difference(a, b) < 1e-5


def test_factors_have_the_signs_and_pivots_of_lapack(tmp_path):
    found = run_function(factorisations, MATRICES, tmp_path)
    for at, (a, b) in enumerate(zip(found, jax.jit(factorisations)(*MATRICES), strict=True)):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5, err_msg=str(at))


def test_the_same_program_is_the_same_text_each_time():
    """Arrays of one size that live for the whole step get their places in the order of the inputs."""
    words = [fluid.data(f"words{i}", [None, 2], lod_level=1) for i in range(6)]
    pools = [fluid.layers.sequence_pool(each, "sum") for each in words]
    program, names = fluid.default_main_program(), [each.name for each in words]
    given = {name: feed.value(32) for name, feed in draw_feeds(program, names, 2, None).items()}
    texts = {source_of(trace(*to_jax(program, names, pools), given, False), "model").text for _ in range(3)}
    assert len(texts) == 1


def test_what_is_not_covered_is_listed_with_op_and_line_before_anything_is_written(tmp_path, capsys):
    x = fluid.data("x", [None, 4])
    half = fluid.layers.cast(fluid.layers.fc(x, 4), "float16")
    model = save(tmp_path / "model", ["x"], [fluid.layers.cast(half * half, "float32")])
    assert cli.main(["convert", model, str(tmp_path / "out"), "--to", "c"]) == 2
    said = capsys.readouterr().err
    for part in (
        "op cast (#",
        "test_c.py",
        "convert_element_type of float16",
        "op elementwise_mul (#",
        "mul of float16",
        "expected:",
        "what to do:",
    ):
        assert part in said, said
    assert not (tmp_path / "out").exists()


def test_without_a_compiler_nothing_is_written_but_unchecked(tmp_path, monkeypatch, capsys):
    model = save(tmp_path / "model", ["x"], [fluid.layers.fc(fluid.data("x", [None, 4]), 2)])
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    words = ["convert", model, str(tmp_path / "out"), "--to", "c"]
    assert cli.main(words) == 2
    assert "no C compiler" in capsys.readouterr().err and not (tmp_path / "out").exists()
    assert cli.main([*words, "--no-check"]) == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["model.c"]


HOSTILE = [
    "*/ int system(char *); /*",
    '"; abort(); //',
    "../../escape",
    "\\",
    "a\nb",
    "%s%n",
    "名",
    "con/x",
    "x" * 300,
    "",
]


def test_hostile_names_stay_names(tmp_path):
    """Names of variables are no code, no path and no format; two that look alike keep apart."""
    names = [name for name in HOSTILE if name] + ["model", "MODEL"]
    block = fluid.default_main_program().global_block()
    for name in names:
        block.create_var(name=name, shape=[2], dtype="float32", is_data=True)
    out = block.create_var(name="*/ out \\", dtype="float32", shape=[2])
    block.append_op(type="sum", inputs={"X": names}, outputs={"Out": out})
    function, parameters = to_jax(fluid.default_main_program(), names, [out])
    feeds = {name: np.full(2, i, "float32") for i, name in enumerate(names)}
    source = source_of(trace(function, parameters, feeds, False), "model")
    assert not any(name in source.text for name in HOSTILE[:3])
    (tmp_path / "model.c").write_text(source.text)
    compile_c(tmp_path / "model.c", tmp_path / "model")
    files = [port.file for port in source.inputs]
    assert len({file.lower() for file in files}) == len(names) and all("/" not in file for file in files)
    save_inputs(tmp_path, source.inputs, {n: (a, []) for n, a in feeds.items()})
    run_c(tmp_path / "model", tmp_path, tmp_path)
    assert load_outputs(tmp_path, source.outputs)[out.name][0].tolist() == [sum(range(len(names)))] * 2


@pytest.mark.parametrize("name", HOSTILE)
def test_texts_in_c(name):
    assert "*/" not in comment(name) and "\\" not in comment(name)
    inside = c_string(name)[1:-1]
    assert '"' not in inside and "?" not in inside and "\n" not in inside
    assert inside.encode().decode("unicode_escape").encode("latin1").decode() == name


def test_absurd_sizes_are_refused(tmp_path):
    x = fluid.data("x", [None, 4])
    big = fluid.layers.expand(fluid.layers.reshape(fluid.layers.fc(x, 4), [-1, 1, 4]), [1, 1 << 30, 1])
    model = Model(save(tmp_path / "model", ["x"], [fluid.layers.concat([big, big], 1)]), None, None)
    for batch in (4096, (1 << 31) - 1):
        with pytest.raises(ExportError, match="more memory than any machine has"):
            model.write(str(tmp_path / "out"), "c", check=False, batch=batch)


def test_an_input_that_a_damaged_program_does_not_declare():
    with pytest.raises(ExportError, match="is fed 'x', which it does not declare\n  expected: .*\n  received: "):
        draw_feeds(fluid.Program(), ["x"], 2, None)


def test_an_empty_input_of_an_absurd_dim_is_refused():
    program = fluid.Program()
    program.global_block().create_var(name="x", shape=[0, 1 << 62], dtype="float32")
    with pytest.raises(ExportError, match="more memory than any machine has"):
        draw_feeds(program, ["x"], 2, None)
