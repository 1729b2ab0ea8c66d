"""Models that Paddle 2.6 saved, through every door: loaded, predicted with, looked at, written again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fluidjax as fluid
import lowering
from fluidjax.command import cli
from fluidjax.files.tensor import DenseValue, encode
from fluidjax.paddle import inference, static
from fluidjax.proto import framework_pb2 as pb
from tests.newer.families import families

FOLDER = Path(__file__).with_name("model")


@pytest.fixture(scope="module")
def recorded() -> dict[str, np.ndarray]:
    with np.load(FOLDER / "recorded.npz") as arrays:
        return dict(arrays)


def test_the_executor_runs_it(recorded) -> None:
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        program, feeds, fetches = static.load_inference_model(str(FOLDER / "inference"), exe)
        (out,) = exe.run(program, {feeds[0]: recorded["image"]}, fetches)
    np.testing.assert_allclose(out, recorded["out"], rtol=1e-5, atol=1e-6)


def test_a_predictor_runs_it(recorded) -> None:
    config = inference.Config(str(FOLDER / "inference.pdmodel"), str(FOLDER / "inference.pdiparams"))
    config.disable_gpu()
    config.enable_memory_optim()
    config.delete_pass("conv_transpose_eltwiseadd_bn_fuse_pass")
    predictor = inference.create_predictor(config)
    predictor.get_input_handle(predictor.get_input_names()[0]).copy_from_cpu(recorded["image"])
    assert predictor.run() is True
    out = predictor.get_output_handle(predictor.get_output_names()[0]).copy_to_cpu()
    np.testing.assert_allclose(out, recorded["out"], rtol=1e-5, atol=1e-6)
    (again,) = predictor.clone().run([recorded["image"]])
    np.testing.assert_array_equal(out, again)


def test_synchronized_batch_norm_is_batch_norm_to_a_predictor(tmp_path, recorded) -> None:
    """Exports made on a GPU have it: of PaddleSeg, PaddleX, fine-tuned SLANet."""
    message = pb.ProgramDesc.FromString((FOLDER / "inference.pdmodel").read_bytes())
    for norm in (op for op in message.blocks[0].ops if op.type == "batch_norm"):
        norm.type = "sync_batch_norm"
    (tmp_path / "inference.pdmodel").write_bytes(message.SerializeToString())
    config = inference.Config(str(tmp_path / "inference.pdmodel"), str(FOLDER / "inference.pdiparams"))
    for optimized in (False, True):
        config.switch_ir_optim(optimized)
        (out,) = inference.create_predictor(config).run([recorded["image"]])
        np.testing.assert_allclose(out, recorded["out"], rtol=1e-5, atol=1e-6)


def test_commands_take_it(tmp_path, capsys) -> None:
    assert cli.main(["check", str(FOLDER)]) == 0
    assert cli.main(["info", str(FOLDER)]) == 0
    assert "rnn" in capsys.readouterr().out
    assert cli.main(["convert", str(FOLDER / "inference"), "--to", "npz", str(tmp_path / "out.npz")]) == 0
    with np.load(tmp_path / "out.npz") as arrays:
        assert len(arrays.files) == 16


def test_it_is_written_as_it_was_read(tmp_path, recorded) -> None:
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        program, feeds, fetches = static.load_inference_model(str(FOLDER / "inference"), exe)
        assert program.desc.serialize_to_string() == (FOLDER / "inference.pdmodel").read_bytes()
        names = [program.global_block().var(name) for name in feeds]
        static.save_inference_model(str(tmp_path / "again"), names, fetches, exe, program=program)
        assert (tmp_path / "again.pdiparams").read_bytes() == (FOLDER / "inference.pdiparams").read_bytes()
        program, feeds, fetches = static.load_inference_model(str(tmp_path / "again"), exe)
        assert program.proto.version.version >= 2_000_000
        (out,) = exe.run(program, {feeds[0]: recorded["image"]}, fetches)
    np.testing.assert_allclose(out, recorded["out"], rtol=1e-5, atol=1e-6)


def changed(*changes) -> fluid.Program:
    """The model's program after changes to its message."""
    message = pb.ProgramDesc.FromString((FOLDER / "inference.pdmodel").read_bytes())
    for change in changes:
        change(message)
    return fluid.Program.parse_from_string(message.SerializeToString())


def op(message: pb.ProgramDesc, kind: str) -> pb.OpDesc:
    return next(op for op in message.blocks[0].ops if op.type == kind)


def attr(message: pb.ProgramDesc, kind: str, name: str) -> pb.OpDesc.Attr:
    return next(attr for attr in op(message, kind).attrs if attr.name == name)


def raised_version(message: pb.ProgramDesc) -> None:
    message.op_version_map.pair.add(op_name="conv2d").op_version.version = 99


def other_type(message: pb.ProgramDesc) -> None:
    attr(message, "conv2d", "strides").CopyFrom(pb.OpDesc.Attr(name="strides", type=2, s="two"))


def unknown_input(message: pb.ProgramDesc) -> None:
    op(message, "conv2d").inputs.add(parameter="Mystery", arguments=["image"])


def unknown_op(message: pb.ProgramDesc) -> None:
    op(message, "hard_swish").type = "hard_swoosh"


@pytest.mark.parametrize("family", families())
def test_every_op_of_the_families_is_there(family: str) -> None:
    ops = families()[family]["ops"]
    assert len(ops) > 10
    assert [name for name in ops if not lowering.has_op(name)] == []


def test_all_that_is_unknown_is_told_at_once() -> None:
    program = changed(raised_version, other_type, unknown_input, unknown_op)
    with pytest.raises(lowering.UnknownOpError) as caught:
        fluid.Executor(fluid.CPUPlace()).run(program, {"image": np.zeros((1, 3, 8, 4), "float32")}, [])
    text = str(caught.value)
    for part in ("conv2d: version 99", "strides is 'two', expected INTS", "input Mystery", "hard_swoosh"):
        assert part in text


def test_commands_tell_it_too(tmp_path, capsys) -> None:
    program = changed(raised_version, other_type, unknown_input)
    (tmp_path / "inference.pdmodel").write_bytes(program.desc.serialize_to_string())
    assert cli.main(["check", str(tmp_path)]) == 1
    told = capsys.readouterr().out
    assert "version 99" in told and "strides" in told and "Mystery" in told


def quantised(version: int) -> fluid.Program:
    """Y = dequantize_linear(w, s), of weights declared as floating-point numbers."""
    message = pb.ProgramDesc(version=pb.Version(version=version))
    block = message.blocks.add(idx=0, parent_idx=-1)
    for name, dims in (("s", [2]), ("w", [2, 3]), ("y", [2, 3])):
        var = block.vars.add(name=name, persistable=name != "y")
        var.type.type = pb.VarType.LOD_TENSOR
        var.type.lod_tensor.tensor.data_type = pb.VarType.FP32
        var.type.lod_tensor.tensor.dims.extend(dims)
    dequantize = block.ops.add(type="dequantize_linear")
    for slot, name in (("X", "w"), ("Scale", "s"), ("ZeroPoint", "s")):
        dequantize.inputs.add(parameter=slot, arguments=[name])
    dequantize.outputs.add(parameter="Y", arguments=["y"])
    return fluid.Program.parse_from_string(message.SerializeToString())


def test_quantised_weights_are_integers_in_the_file(tmp_path) -> None:
    weights, scales = np.array([[127, -127, 0], [64, 1, 2]], "int8"), np.array([1, 2], "float32")
    chunks = [chunk for array in (scales, weights) for chunk in encode(DenseValue(array))]
    (tmp_path / "held").write_bytes(b"".join(chunks))
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        fluid.io.load_persistables(exe, str(tmp_path), quantised(2006002), "held")
        (y,) = exe.run(quantised(2006002), fetch_list=["y"])
        with pytest.raises(ValueError, match="the program requires float32"):
            fluid.io.load_persistables(exe, str(tmp_path), quantised(1008005), "held")
    np.testing.assert_allclose(y, weights * scales[:, None] / 127, rtol=1e-6)


def test_half_precision_weights_of_a_float32_program_are_refused_when_loaded(tmp_path) -> None:
    """Paddle 2.6 loads them, and fails at the first op that reads them."""
    weights, scales = np.ones((2, 3), "int8"), np.array([1, 2], "float16")
    (tmp_path / "held").write_bytes(b"".join(c for a in (scales, weights) for c in encode(DenseValue(a))))
    with fluid.scope_guard(fluid.Scope()), pytest.raises(ValueError, match="'s' does not match\n.*float32\n.*float16"):
        fluid.io.load_persistables(fluid.Executor(fluid.CPUPlace()), str(tmp_path), quantised(2006002), "held")


def test_scales_of_channels_may_be_saved_as_a_row(tmp_path) -> None:
    weights, scales = np.array([[127, -127, 0], [64, 1, 2]], "int8"), np.array([[1, 2]], "float32")
    exe = fluid.Executor(fluid.CPUPlace())
    held = tmp_path / "held"
    with fluid.scope_guard(fluid.Scope()):
        held.write_bytes(b"".join(chunk for array in (scales, weights) for chunk in encode(DenseValue(array))))
        fluid.io.load_persistables(exe, str(tmp_path), quantised(2006002), "held")
        (y,) = exe.run(quantised(2006002), fetch_list=["y"])
        longer = np.ones((1, 3), "float32")
        held.write_bytes(b"".join(chunk for array in (longer, weights) for chunk in encode(DenseValue(array))))
        with pytest.raises(ValueError, match="shape of 's' does not match"):
            fluid.io.load_persistables(exe, str(tmp_path), quantised(2006002), "held")
    np.testing.assert_allclose(y, weights * scales.reshape(2, 1) / 127, rtol=1e-6)


def test_a_loop_that_goes_on_from_a_fed_value_is_saved(tmp_path) -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.scope_guard(fluid.Scope()):
        x, i, n = fluid.data("x", [1]), *(fluid.layers.fill_constant([1], "float32", v) for v in (0, 3))
        more = fluid.layers.less_than(i, n)
        loop = fluid.layers.While(more)
        with loop.block():
            fluid.layers.assign(x * 2.0 + 1.0, x)
            fluid.layers.increment(i)
            fluid.layers.less_than(i, n, cond=more)
        one = fluid.layers.create_global_var([1], 1.0, "float32", persistable=True, name="one")
        out = x * one
        main.proto.version.version = 2006002
        exe = fluid.Executor(fluid.CPUPlace())
        fluid.global_scope().var("one").get_tensor().set(np.ones(1, "float32"), fluid.CPUPlace())
        static.save_inference_model(str(tmp_path / "m"), [x], [out], exe, program=main)
        program, feeds, fetches = static.load_inference_model(str(tmp_path / "m"), exe)
        (y,) = exe.run(program, {feeds[0]: np.ones(1, "float32")}, fetches)
    assert y.tolist() == [15]


def drawn(type: str, x: np.ndarray, **attrs) -> np.ndarray:
    """What a random op of Paddle 2 draws."""
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        block = fluid.default_main_program().global_block()
        given = fluid.data("x", x.shape, str(x.dtype))
        out = block.create_var(name="out", dtype="float32" if type != "multinomial" else "int64")
        outputs = {"Out": out} | ({"Noise": block.create_var(name="noise")} if type == "rrelu" else {})
        slot = lowering.get_op(type).inputs[0].name
        outputs = {lowering.get_op(type).outputs[0].name: out} if type != "rrelu" else outputs
        block.append_op(type=type, inputs={slot: given}, outputs=outputs, attrs=attrs)
        return np.asarray(fluid.Executor(fluid.CPUPlace()).run(feed={"x": x}, fetch_list=[out])[0])


def test_draws_follow_their_weights() -> None:
    weights = np.tile(np.array([[1, 0, 3]], "float32"), (400, 1))
    many = drawn("multinomial", weights, num_samples=5, replacement=True)
    assert many.shape == (400, 5) and many.dtype == np.int64
    assert set(np.unique(many)) == {0, 2} and abs((many == 2).mean() - 0.75) < 0.05
    once = drawn("multinomial", weights, num_samples=2)
    assert (np.sort(once, 1) == [0, 2]).all()
    ones = drawn("bernoulli", np.full((50, 40), 0.3, "float32"))
    assert set(np.unique(ones)) == {0, 1} and abs(ones.mean() - 0.3) < 0.05
    soft = drawn("gumbel_softmax", np.log(weights + 1e-6), temperature=0.5)
    np.testing.assert_allclose(soft.sum(1), 1, rtol=1e-5)
    hard = drawn("gumbel_softmax", np.log(weights + 1e-6), hard=True)
    assert set(np.unique(hard.round(5))) == {0, 1} and abs(hard[:, 2].mean() - 0.75) < 0.1
    slopes = drawn("rrelu", np.full((30, 30), -1, "float32"), lower=0.1, upper=0.4)
    assert -0.4 <= slopes.min() < -0.35 and -0.15 < slopes.max() <= -0.1


def test_distributions_have_their_means_and_spreads() -> None:
    threes = np.full((60, 50), 3, "float32")
    waits = drawn("exponential", threes, **{"lambda": 2.0})
    assert waits.min() >= 0 and abs(waits.mean() - 0.5) < 0.05 and abs(waits.std() - 0.5) < 0.05
    counts = drawn("poisson", threes)
    assert (counts == counts.round()).all() and abs(counts.mean() - 3) < 0.15 and abs(counts.var() - 3) < 0.3
    points = drawn("dirichlet", np.tile(np.array([[1, 2, 5]], "float32"), (500, 1)))
    np.testing.assert_allclose(points.sum(1), 1, rtol=1e-5)
    np.testing.assert_allclose(points.mean(0), [1 / 8, 2 / 8, 5 / 8], atol=0.03)
    even = drawn("uniform_random_inplace", threes, min=2.0, max=4.0)
    assert even.min() >= 2 and even.max() < 4 and abs(even.mean() - 3) < 0.05
    bell = drawn("gaussian_inplace", threes, mean=5.0, std=0.5)
    assert abs(bell.mean() - 5) < 0.05 and abs(bell.std() - 0.5) < 0.03


def test_assertions_end_a_run() -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        x = fluid.data("x", [3])
        out = fluid.layers.scale(x, 2.0)
        holds = fluid.layers.reduce_all(fluid.layers.less_than(x, fluid.layers.fill_constant([3], "float32", 5.0)))
        fluid.default_main_program().global_block().append_op(
            type="assert", inputs={"Cond": holds, "Data": [x]}, outputs={}, attrs={"summarize": 2}
        )
        exe = fluid.Executor(fluid.CPUPlace())
        (found,) = exe.run(feed={"x": np.ones(3, "float32")}, fetch_list=[out])
        with pytest.raises(lowering.OpError, match=r"(?s)condition does not hold.*\[\[9.0, 1.0\]\]"):
            exe.run(feed={"x": np.array([9, 1, 1], "float32")}, fetch_list=[out])
    assert found.tolist() == [2, 2, 2]
