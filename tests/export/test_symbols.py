"""Models whose ops compute with the sizes of their inputs keep these open where they are given away."""

from __future__ import annotations

import importlib.util
import sys

import jax
import numpy as np
import pytest
from jax import export

import fluidjax as fluid
from fluidjax.export.files import Model
from fluidjax.export.python.texts import symbol_text
from lowering import symbols
from tests.here import PLATFORM

pytestmark = pytest.mark.usefixtures("compiled_quickly")

L = fluid.layers


def save(folder, feeds, targets):
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    fluid.io.save_inference_model(str(folder), feeds, targets, exe)
    return Model(folder, None, None)


def texts(tmp_path):
    """Ids and segments of equal length: sizes read, multiplied, divided, cut, and used as shape, end and bound."""
    ids, kinds = fluid.data("ids", [None, None], "int64"), fluid.data("kinds", [None, None], "int64")
    words = L.elementwise_add(fluid.embedding(ids, [9, 4]), fluid.embedding(kinds, [9, 4]))
    sizes = L.shape(words)
    batch, length = L.slice(sizes, [0], [0], [1]), L.slice(sizes, [0], [1], [2])
    rows = L.reshape(words, [L.elementwise_mul(batch, length), 4])
    again = L.reshape(rows, [batch, length, 2, 2])
    places = L.range(0, L.cast(length, "int64"), 1, "int64")
    half = L.elementwise_floordiv(length + L.fill_constant([1], "int32", 1), L.fill_constant([1], "int32", 2))
    front = L.slice(words, [1], [0], [half])
    last = L.slice(words, [1], [-1], [2**31 - 1])
    state = L.fill_constant([batch, 4], "float32", 2.0)
    out = [again, places, front, last, L.cast(L.elementwise_mul(state, L.cast(length, "float32")), "float32")]
    return save(tmp_path / "model", ["ids", "kinds"], out)


def drawn(batch, length):
    return {name: np.random.randint(0, 9, (batch, length)) for name in ("ids", "kinds")}


def images(tmp_path):
    """Widths that windows divide, and are padded for."""
    image = fluid.data("image", [None, 1, 8, None])
    conv = L.conv2d(image, 2, 3, stride=2, padding=1)
    mean = L.pool2d(L.pool2d(conv, 3, "avg", pool_stride=2, pool_padding=1), [1, 4])
    flat = L.flatten(L.pool2d(mean, 2, "max", pool_stride=1, pool_padding=1), 3)
    return save(tmp_path / "model", ["image"], [flat, L.pool2d(conv, pool_type="avg", global_pooling=True)])


def shown(batch, width):
    return {"image": np.random.rand(batch, 1, 8, width).astype("float32")}


def resized(tmp_path):
    """Images resized by a fraction, to given rows, and to the sizes of another, by each kind of interpolation."""
    given = fluid.data("image", [None, 1, 8, None])
    image = L.conv2d(given, 1, 1)
    shorter, wanted = L.pool2d(image, 2, pool_stride=2), L.slice(L.shape(image), [0], [2], [4])
    half = L.image_resize(image, scale=0.5, resample="NEAREST", align_corners=False)
    corners = L.image_resize(shorter, wanted, resample="BILINEAR", align_corners=True)
    middles = L.image_resize(shorter, wanted, resample="BILINEAR", align_corners=False, align_mode=0)
    cubes = image.block.create_var(name="cubes", dtype="float32")
    sizes = {"out_h": 5, "out_w": 7, "interp_method": "bicubic", "align_corners": False}
    image.block.append_op("bicubic_interp", {"X": [image]}, {"Out": [cubes]}, sizes)
    return save(tmp_path / "model", [given.name], [half, corners, middles, cubes, L.elementwise_add(image, middles)])


def pyramid(tmp_path):
    """What is halved and doubled again meets what it came from, as in a detector: widths are multiples of 32."""
    image = fluid.data("image", [None, 1, 8, None])
    quarter = L.conv2d(image, 2, 3, stride=4, padding=1)
    eighth = L.pool2d(quarter, 3, pool_stride=2, pool_padding=1)
    return save(tmp_path / "model", ["image"], [L.elementwise_add(L.resize_nearest(eighth, scale=2.0), quarter)])


def metrics(tmp_path):
    """What counts rows: an accuracy; and a mask as long as an input."""
    words, lengths = fluid.data("words", [None, None]), fluid.data("lengths", [None], "int64")
    label = fluid.data("label", [None, 1], "int64")
    mask = L.sequence_mask(lengths, L.slice(L.shape(words), [0], [1], [2]), "float32")
    share = L.softmax(L.fc(L.reduce_sum(words * mask, 1, keep_dim=True), 2))
    return save(tmp_path / "model", ["words", "lengths", "label"], [L.accuracy(share, label), mask])


def judged(batch, length):
    return {
        "words": np.random.randn(batch, length).astype("float32"),
        "lengths": np.random.randint(0, length, batch),
        "label": np.arange(batch).reshape(-1, 1) % 2,
    }


def executed(model, given):
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(model.scope):
        return exe.run(model.program, given, model.fetches)


CASES = {
    "texts": (texts, drawn, [(1, 1), (3, 7)]),
    "images": (images, shown, [(1, 16), (3, 21)]),
    "resized": (resized, shown, [(1, 17), (2, 31)]),
    "pyramid": (pyramid, shown, [(1, 32), (2, 96)]),
    "metrics": (metrics, judged, [(1, 1), (6, 5)]),
}


@pytest.mark.parametrize("case", CASES)
def test_a_model_for_any_size(case, tmp_path):
    made, draw, sizes = CASES[case]
    model = made(tmp_path)
    model.write(str(tmp_path / "hlo"), "stablehlo", platforms=[PLATFORM])
    loaded = export.deserialize(bytearray((tmp_path / "hlo" / "model.jax_export").read_bytes()))
    with np.load(tmp_path / "hlo" / "weights.npz") as weights:
        held = dict(weights)
    for size in sizes:
        given = draw(*size)
        with jax.enable_x64(True):
            found = loaded.call(held, given)
        for ours, expected in zip(found, executed(model, given), strict=True):
            assert ours.shape == expected.shape
            np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)


@pytest.fixture
def module_of(tmp_path, monkeypatch):
    """Writes a model as a module and imports it; the 64-bit types that it enables are off again after the test."""

    def imported(model):
        model.write(str(tmp_path / "out"), "jax")
        spec = importlib.util.spec_from_file_location("any_size", tmp_path / "out" / "model.py")
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        return module

    before = jax.enable_x64.get_global()
    yield imported
    jax.config.update("jax_enable_x64", before)


def test_a_module_for_any_size(tmp_path, module_of):
    model, given = texts(tmp_path), drawn(3, 7)
    module = module_of(model)
    for ours, expected in zip(module.predict(module.load(), **given), executed(model, given), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)


def test_a_module_for_multiples_says_so(tmp_path, module_of):
    model, given = pyramid(tmp_path), shown(2, 96)
    module = module_of(model)
    found = module.predict(module.load(), **given)
    np.testing.assert_allclose(found, executed(model, given)[0], rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="size 3 of image is 40; expected a multiple of 32"):
        module.predict(module.load(), **shown(1, 40))


def test_symbols_are_written_as_python():
    a, b = export.symbolic_shape("a, b")
    text = symbol_text(2 * a * ((b + a) // 3) + (a + 1) % 4 - a * a)
    assert eval(text, {}, {"a": 7, "b": 11}) == 2 * 7 * (18 // 3) + 8 % 4 - 49


def test_what_is_no_size_is_not_known():
    """An op of floating-point numbers, or of what a feed holds, stands for no expression."""
    found = {}

    def traced(x):
        sizes = symbols.tensor(x.shape, np.int32)
        found["sizes"] = symbols.known(sizes)
        (found["roots"],) = symbols.followed(lambda v: [jax.numpy.sqrt(v[0].astype("float32"))], [sizes], [x])
        (found["mixed"],) = symbols.followed(lambda v: [v[0] * v[1]], [sizes, x[0].astype(int)], [x])
        found["same"] = symbols.tensor([2, 3], np.int64)
        return sizes

    (shape,) = [jax.ShapeDtypeStruct(export.symbolic_shape("n, 2"), np.float32)]
    export.export(jax.jit(traced))(shape)
    assert [str(v) for v in found["sizes"]] == ["n", "2"]
    assert symbols.known(found["roots"]) is None and symbols.known(found["mixed"]) is None
    np.testing.assert_array_equal(found["same"], [2, 3])
