"""Predictors: the model's outputs are those of the Executor, whichever way they are asked for."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import core
from fluidjax.core import AnalysisConfig, PaddleTensor, create_paddle_predictor

X = np.arange(6, dtype="float32").reshape(2, 3)
WORDS = np.array([[1], [2], [3]], "int64")
LOD = [[0, 1, 3]]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model with a dense and a ragged input, as a folder and as two files, and what the Executor computes."""
    folder = tmp_path_factory.mktemp("model")
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        x, w = fluid.data("x", [None, 3]), fluid.data("w", [None, 1], "int64", lod_level=1)
        summed = fluid.layers.sequence_pool(fluid.layers.embedding(w, [10, 3]), "sum")
        hidden = fluid.layers.fc(fluid.layers.concat([x, summed], 1), 4, act="relu")
        targets = [fluid.layers.softmax(hidden), hidden]
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        args = (["x", "w"], targets, exe, main)
        fluid.io.save_inference_model(str(folder / "dir"), *args)
        fluid.io.save_inference_model(str(folder / "two"), *args, model_filename="m", params_filename="p")
        ragged = fluid.create_lod_tensor(WORDS, [[1, 2]], fluid.CPUPlace())
        outputs = exe.run(main, feed={"x": X, "w": ragged}, fetch_list=targets)
    return folder, outputs


def words(name=""):
    return PaddleTensor(WORDS, name, LOD)


def arrays(tensors):
    return [tensor.as_ndarray() for tensor in tensors]


def same(found, expected):
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def configs(folder):
    two = str(folder / "two" / "m"), str(folder / "two" / "p")
    contents = [(folder / "two" / name).read_bytes() for name in "mp"]
    buffered, native, moved = AnalysisConfig(), core.NativeConfig(), folder / "params_elsewhere"
    buffered.set_model_buffer(contents[0], len(contents[0]), contents[1], len(contents[1]))
    native.model_dir = str(folder / "dir")
    moved.write_bytes(contents[1])
    return {
        "folder": AnalysisConfig(str(folder / "dir")),
        "two files": AnalysisConfig(*two),
        "two folders": AnalysisConfig(two[0], str(moved)),
        "contents": buffered,
        "native": native,
        "copy": AnalysisConfig(AnalysisConfig(*two)),
        "via native": AnalysisConfig(*two).to_native_config(),
    }


@pytest.mark.parametrize("way", ["folder", "two files", "two folders", "contents", "native", "copy", "via native"])
def test_run(model, way):
    folder, expected = model
    predictor = create_paddle_predictor(configs(folder)[way])
    assert predictor.get_input_names() == ["x", "w"]
    results = predictor.run([PaddleTensor(X), words()])
    same(arrays(results), expected)
    assert [r.name for r in results] == predictor.get_output_names()
    assert [(r.shape, r.dtype, r.lod) for r in results] == [([2, 4], core.PaddleDType.FLOAT32, [])] * 2


@pytest.mark.parametrize("way", ["folder", "two files", "native"])
def test_run_in_eager_mode(model, way, tmp_path):
    """As an eager parser does that has its sentences cut by a deployed model."""
    folder, expected = model
    with fluid.dygraph.guard(fluid.CPUPlace()):
        predictor = create_paddle_predictor(configs(folder)[way])
        results = predictor.run([PaddleTensor(X), words()])
        again = predictor.clone().run([PaddleTensor(X), words()])
        predictor.SaveOptimModel(str(tmp_path))
        assert fluid.in_dygraph_mode()
    same(arrays(results), expected)
    same(arrays(again), expected)
    saved = create_paddle_predictor(AnalysisConfig(str(tmp_path / "model"), str(tmp_path / "params")))
    same(arrays(saved.run([PaddleTensor(X), words()])), expected)


def test_zero_copy(model):
    folder, expected = model
    config = AnalysisConfig(str(folder / "dir"))
    config.switch_use_feed_fetch_ops(False)
    predictor = create_paddle_predictor(config)
    with pytest.raises(ValueError, match=r"none for \['x', 'w'\]"):
        predictor.zero_copy_run()
    predictor.get_input_tensor("x").copy_from_cpu(X)
    w = predictor.get_input_tensor("w")
    w.copy_from_cpu(WORDS)
    w.set_lod(LOD)
    assert predictor.zero_copy_run()
    outputs = [predictor.get_output_tensor(name) for name in predictor.get_output_names()]
    same([output.copy_to_cpu() for output in outputs], expected)
    assert (outputs[0].shape(), outputs[0].type(), w.lod()) == ([2, 4], core.PaddleDType.FLOAT32, LOD)

    predictor.get_input_tensor("x").copy_from_cpu(X[:1])
    w.set_lod([[0, 3]])
    predictor.zero_copy_run()
    assert outputs[0].copy_to_cpu().shape == (1, 4)


def test_inputs_by_name(model):
    folder, expected = model
    config = AnalysisConfig(str(folder / "dir"))
    config.switch_specify_input_names(True)
    predictor = create_paddle_predictor(config)
    same(arrays(predictor.run([words("w"), PaddleTensor(X, "x")])), expected)
    with pytest.raises(ValueError, match=r"named \['w', 'q'\]"):
        predictor.run([words("w"), PaddleTensor(X, "q")])


def test_a_tensor_filled_field_by_field(model):
    folder, expected = model
    tensor = PaddleTensor()
    tensor.name, tensor.shape, tensor.lod = "w", [3, 1], LOD
    tensor.dtype, tensor.data = core.PaddleDType.INT64, core.PaddleBuf(WORDS.reshape(-1))
    assert tensor.data.int64_data() == [1, 2, 3]
    same(arrays(create_paddle_predictor(AnalysisConfig(str(folder / "dir"))).run([PaddleTensor(X), tensor])), expected)


def test_predictors_have_parameters_of_their_own(model):
    folder, expected = model
    first, second = (create_paddle_predictor(AnalysisConfig(str(folder / "dir"))) for _ in range(2))
    weight = first.scope().find_var("fc_0.w_0").get_tensor()
    weight.set(np.zeros_like(np.array(weight)), fluid.CPUPlace())
    assert fluid.global_scope().find_var("fc_0.w_0") is None
    same(arrays(second.run([PaddleTensor(X), words()])), expected)
    assert not arrays(first.run([PaddleTensor(X), words()]))[1].any()


def test_clones_in_threads(model):
    folder, _ = model
    predictor = create_paddle_predictor(AnalysisConfig(str(folder / "dir")))
    feeds = [np.full((2, 3), i, "float32") for i in range(4)]
    alone = [arrays(predictor.run([PaddleTensor(x), words()])) for x in feeds]
    found: dict[int, list] = {}

    def work(i, clone):
        for _ in range(20):
            found[i] = arrays(clone.run([PaddleTensor(feeds[i]), words()]))
            same(found[i], alone[i])

    threads = [threading.Thread(target=work, args=(i, predictor.clone())) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [0, 1, 2, 3]
    for i, results in found.items():
        same(results, alone[i])


def test_written_back(model, tmp_path):
    folder, expected = model
    config = AnalysisConfig(str(folder / "dir"))
    config.switch_ir_optim(False)
    predictor = create_paddle_predictor(config)
    predictor.SaveOptimModel(str(tmp_path))
    again = create_paddle_predictor(AnalysisConfig(str(tmp_path / "model"), str(tmp_path / "params")))
    same(arrays(again.run([PaddleTensor(X), words()])), expected)
    assert (tmp_path / "params").read_bytes() == (folder / "two" / "p").read_bytes()
    assert predictor.get_serialized_program() == (folder / "dir" / "__model__").read_bytes()


SWITCHES = [
    ("switch_ir_optim", (False,), "ir_optim", True, False),
    ("switch_use_feed_fetch_ops", (False,), "use_feed_fetch_ops_enabled", True, False),
    ("switch_specify_input_names", (True,), "specify_input_name", False, True),
    ("enable_mkldnn", (), "mkldnn_enabled", False, True),
    ("enable_tensorrt_engine", (1 << 20, 1, 3, AnalysisConfig.Half), "tensorrt_engine_enabled", False, True),
    ("enable_lite_engine", (), "lite_engine_enabled", False, True),
    ("disable_glog_info", (), "glog_info_disabled", False, True),
    ("set_cpu_math_library_num_threads", (3,), "cpu_math_library_num_threads", 1, 3),
    ("set_model", ("folder",), "model_dir", "", "folder"),
    ("set_model", ("p", "q"), "params_file", "", "q"),
    ("set_prog_file", ("p",), "prog_file", "", "p"),
    ("disable_gpu", (), "use_gpu", False, False),
]


@pytest.mark.parametrize(("switch", "args", "query", "before", "after"), SWITCHES)
def test_switches_keep_what_they_are_set_to(switch, args, query, before, after):
    config = AnalysisConfig()
    assert getattr(config, query)() == before
    getattr(config, switch)(*args)
    assert getattr(config, query)() == getattr(AnalysisConfig(config), query)() == after


@pytest.mark.parametrize(
    ("switch", "args"),
    [
        ("enable_memory_optim", ()),
        ("enable_profile", ()),
        ("enable_quantizer", ()),
        ("switch_ir_debug", (True,)),
        ("set_mkldnn_cache_capacity", (4,)),
        ("set_mkldnn_op", ({"conv2d"},)),
        ("set_optim_cache_dir", ("/nowhere",)),
        ("set_trt_dynamic_shape_info", ({"x": [1, 3]}, {"x": [9, 3]}, {"x": [4, 3]})),
        ("delete_pass", ("conv_bn_fuse_pass",)),
    ],
)
def test_switches_that_change_no_result(model, switch, args):
    folder, expected = model
    config = AnalysisConfig(str(folder / "dir"))
    getattr(config, switch)(*args)
    same(arrays(create_paddle_predictor(config).run([PaddleTensor(X), words()])), expected)


@pytest.mark.skipif(core.is_compiled_with_cuda(), reason="there is a GPU")
def test_without_a_gpu_the_model_runs_on_the_cpu(model):
    config = AnalysisConfig(str(model[0] / "dir"))
    with pytest.warns(UserWarning, match="JAX sees no GPU"):
        config.enable_use_gpu(100, 0)
    assert not config.use_gpu()
    same(arrays(create_paddle_predictor(config).run([PaddleTensor(X), words()])), model[1])


def test_passes_are_a_list_of_names():
    builder = core.PaddlePassBuilder(["a", "c"])
    builder.insert_pass(1, "b")
    builder.append_pass("d")
    builder.delete_pass("a")
    assert (builder.all_passes(), builder.debug_string()) == (["b", "c", "d"], "  - b\n  - c\n  - d\n")


def test_buffers():
    buffer = core.PaddleBuf([1.5, 2.5])
    assert (buffer.length(), buffer.tolist("float32"), buffer.empty()) == (8, [1.5, 2.5], False)
    buffer.resize(12)
    assert buffer.float_data() == [1.5, 2.5, 0.0]
    buffer.reset(np.array([7], "int32"))
    assert (buffer.int32_data(), core.PaddleBuf(0).empty(), core.PaddleBuf(8).length()) == ([7], True, 8)
    with pytest.raises(ValueError, match="int9"):
        buffer.tolist("int9")
    assert core.paddle_dtype_size(core.PaddleDType.INT64) == 8
    assert str(core.PaddleDType.INT64) == "PaddleDType.INT64"


def test_fractions_are_kept():
    """Fluid 1.8.5 takes a float64 array for int32; here it becomes float32."""
    tensor = PaddleTensor(np.array([0.5, 1.5]))
    assert (tensor.dtype, tensor.data.float_data()) == (core.PaddleDType.FLOAT32, [0.5, 1.5])
    with pytest.raises(TypeError, match="complex64"):
        PaddleTensor(np.zeros(2, "complex64"))


@pytest.mark.parametrize("kind", ["bool", "float64"])
def test_inputs_of_the_declared_type(tmp_path, kind):
    """Which PaddleDType has no name for, but models of Paddle 2 declare."""
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 2], kind)
        out = fluid.layers.reduce_all(x) if kind == "bool" else x * 2
        with pytest.warns(UserWarning, match="no variable"):
            fluid.io.save_inference_model(str(tmp_path), ["x"], [out], exe)
    predictor = create_paddle_predictor(AnalysisConfig(str(tmp_path)))
    given = np.array([[0.1, 0], [1, 1]]).astype(kind)
    predictor.get_input_tensor("x").copy_from_cpu(given)
    assert predictor.zero_copy_run()
    found = predictor.get_output_tensor(predictor.get_output_names()[0]).copy_to_cpu()
    assert found.dtype == kind
    np.testing.assert_array_equal(found, [given.all()] if kind == "bool" else given * 2)


def test_bad_use_says_what_to_do(model, tmp_path):
    predictor = create_paddle_predictor(AnalysisConfig(str(model[0] / "dir")))
    with pytest.raises(ValueError, match=r"2 tensors, for \['x', 'w'\]"):
        predictor.run([PaddleTensor(X)])
    with pytest.raises(ValueError, match="no input 'nosuch'"):
        predictor.get_input_tensor("nosuch")
    broken = PaddleTensor(X)
    broken.shape = [2, 4]
    with pytest.raises(ValueError, match="8 elements for shape"):
        predictor.run([broken, words()])
    with pytest.raises(ValueError, match="names no model"):
        create_paddle_predictor(AnalysisConfig())
    with pytest.raises(TypeError, match="AnalysisConfig or a NativeConfig"):
        create_paddle_predictor(str(model[0] / "dir"))
    with pytest.raises(TypeError, match="what names the model"):
        AnalysisConfig(3)
    with pytest.raises(ValueError, match="no directory"):
        create_paddle_predictor(AnalysisConfig(str(tmp_path / "none")))


@pytest.mark.parametrize("cut", [0, 1, 7, 100, -1])
def test_damaged_models_are_refused(model, tmp_path, cut):
    folder, _ = model
    program, parameters = ((folder / "two" / name).read_bytes() for name in "mp")
    for name, content in (("m", program), ("p", parameters[:cut])):
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match="expected"):
        create_paddle_predictor(AnalysisConfig(str(tmp_path / "m"), str(tmp_path / "p")))
