"""Models that Paddle 2.6 saved, through every door: loaded, predicted with, looked at, written again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fluidjax as fluid
import lowering
from fluidjax import framework_pb2 as pb
from fluidjax.command import cli
from fluidjax.paddle import inference, static

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


def test_commands_take_it(tmp_path, capsys) -> None:
    assert cli.main(["check", str(FOLDER)]) == 0
    assert cli.main(["info", str(FOLDER)]) == 0
    assert "rnn" in capsys.readouterr().out
    assert cli.main(["convert", str(FOLDER), "--to", "npz", str(tmp_path / "out.npz")]) == 0
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
