"""Models in other formats: what is read back is what was written, by the other library and by the other platform."""

from __future__ import annotations

import json

import jax
import numpy as np
import pytest
import safetensors.numpy
from jax import export

import fluidjax as fluid
from fluidjax.export import ExportError
from fluidjax.export.files import Model
from tests.here import PLATFORM


def save(folder, feeds, targets):
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    fluid.io.save_inference_model(str(folder), feeds, targets, exe)
    return Model(folder, None, None)


@pytest.fixture
def model(tmp_path):
    image, label = fluid.data("image", [None, 1, 8, 8]), fluid.data("label", [None, 1], "int64")
    conv = fluid.layers.batch_norm(fluid.layers.conv2d(image, 4, 3, act="relu"), is_test=True)
    embedded = fluid.layers.reshape(fluid.embedding(label, [5, 6]), [-1, 6])
    both = fluid.layers.concat([fluid.layers.fc(fluid.layers.pool2d(conv, 2), 6), embedded], axis=1)
    return save(tmp_path / "model", ["image", "label"], [fluid.layers.softmax(both)])


def test_weights(model, tmp_path):
    weights = model.weights()
    model.write(str(tmp_path / "w.npz"), "npz")
    model.write(str(tmp_path / "deeper" / "w.safetensors"), "safetensors")
    with np.load(tmp_path / "w.npz", allow_pickle=False) as npz:
        found = {name: npz[name] for name in npz.files}
    for read in (found, safetensors.numpy.load_file(tmp_path / "deeper" / "w.safetensors")):
        assert {n: (a.dtype, a.tobytes()) for n, a in read.items()} == {
            n: (a.dtype, a.tobytes()) for n, a in weights.items()
        }


def test_stablehlo_serves_any_batch_on_every_platform(model, tmp_path):
    model.write(str(tmp_path / "out"), "stablehlo")
    loaded = export.deserialize(bytearray((tmp_path / "out" / "model.jax_export").read_bytes()))
    assert loaded.platforms == ("cpu", "cuda", "tpu")
    function, parameters = model.function()
    with np.load(tmp_path / "out" / "weights.npz") as weights:
        held = {name: weights[name] for name in weights.files}
    with jax.enable_x64(True):
        for batch in (1, 3):
            inputs = {
                "image": np.linspace(-1, 1, batch * 64, dtype="float32").reshape(batch, 1, 8, 8),
                "label": np.arange(batch).reshape(batch, 1),
            }
            (found,) = loaded.call(held, inputs)
            np.testing.assert_allclose(found, function(parameters, inputs)[0], rtol=1e-5)
    assert "stablehlo" in (tmp_path / "out" / "model.mlir").read_text()


def test_what_draws_takes_a_key(tmp_path):
    x = fluid.data("x", [None, 4])
    noise = fluid.layers.uniform_random([4], min=0.0, max=1.0)
    model = save(tmp_path / "model", ["x"], [fluid.layers.fc(x, 4) + noise])
    model.write(str(tmp_path / "out"), "stablehlo", platforms=[PLATFORM])
    loaded = export.deserialize(bytearray((tmp_path / "out" / "model.jax_export").read_bytes()))
    assert json.loads((tmp_path / "out" / "signature.json").read_text())["key"] is True
    function, parameters = model.function("cpu")
    key, given = np.array([3, 4], np.uint32), {"x": np.zeros((3, 4), np.float32)}
    with jax.enable_x64(True):
        (found,), (other,) = (loaded.call(parameters, given, np.array([3, n], np.uint32)) for n in (4, 5))
        np.testing.assert_allclose(found, function(parameters, given, key)[0], rtol=1e-6)
    assert 0 <= found.min() < found.max() <= 1 and np.abs(found - other).max() > 0.1


def test_what_draws_has_any_size(tmp_path):
    x = fluid.data("x", [None, 4])
    noise = fluid.layers.uniform_random_batch_size_like(x, [-1, 4], min=0.0, max=1.0)
    model = save(tmp_path / "model", ["x"], [fluid.layers.fc(x, 4, bias_attr=False) + noise])
    model.write(str(tmp_path / "out"), "stablehlo", platforms=[PLATFORM])
    loaded = export.deserialize(bytearray((tmp_path / "out" / "model.jax_export").read_bytes()))
    function, parameters = model.function("cpu")
    key = np.array([3, 4], np.uint32)
    with jax.enable_x64(True):
        given = {"x": np.zeros((5000, 4), np.float32)}
        (found,) = loaded.call(parameters, given, key)
        assert found.shape == (5000, 4) and 0 <= found.min() < 0.1 < 0.9 < found.max() < 1
        assert abs(found.mean() - 0.5) < 0.02 and len(np.unique(found)) > 15000
        given = {"x": np.zeros((3, 4), np.float32)}
        (few,), (wanted,) = loaded.call(parameters, given, key), function(parameters, given, key)
        np.testing.assert_allclose(few, wanted, rtol=1e-6)


def test_what_has_no_symbolic_batch_can_have_a_fixed_one(tmp_path):
    x = fluid.data("x", [None, 4])
    model = save(tmp_path / "model", ["x"], [fluid.layers.reshape(fluid.layers.fc(x, 4), [2, -1, 3])])
    with pytest.raises(ExportError, match="--batch N"):
        model.write(str(tmp_path / "out"), "stablehlo", platforms=[PLATFORM])
    assert not (tmp_path / "out").exists()
    model.write(str(tmp_path / "out"), "stablehlo", platforms=[PLATFORM], batch=3)
    assert (tmp_path / "out" / "model.jax_export").exists()


def test_what_a_platform_lacks_is_told(tmp_path):
    x = fluid.data("x", [2, 2])
    block = fluid.default_main_program().global_block()
    values, parts = (block.create_var(name=name, shape=[2], dtype="float32") for name in ("values", "parts"))
    block.append_op(type="eigvals", inputs={"X": x}, outputs={"Out": values})
    block.append_op(type="real", inputs={"X": values}, outputs={"Out": parts})
    model = save(tmp_path / "model", ["x"], [parts + fluid.layers.create_parameter([2], "float32")])
    with pytest.raises(ExportError, match="eig"):
        model.write(str(tmp_path / "out"), "stablehlo")


def test_what_takes_only_some_batches_can_have_one_of_these(tmp_path):
    x = fluid.data("x", [None, 4, 2, 2])
    model = save(tmp_path / "model", ["x"], [fluid.layers.temporal_shift(fluid.layers.conv2d(x, 4, 1), 2, 0.25)])
    with pytest.raises(ExportError, match="only some of the sizes[^$]*--batch N"):
        model.write(str(tmp_path / "out"), "jax")
    assert not (tmp_path / "out").exists()
