"""A predictor runs the passes of its config, and gives what the model gives without them."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import fluidjax as fluid
import lowering
from fluidjax import core
from fluidjax.core import AnalysisConfig, PaddleTensor, create_paddle_predictor
from fluidjax.inference.passes import ALIASES, chosen
from fluidjax.ir import PASSES
from fluidjax.proto import framework_pb2 as pb

X = np.linspace(-1, 1, 2 * 3 * 6 * 6, dtype="float32").reshape(2, 3, 6, 6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two convolutions with batch normalisation, one of them with a bias, dropout and a product."""
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(scope):
        hidden = fluid.data("x", [None, 3, 6, 6])
        for bias in (None, False):
            hidden = fluid.layers.batch_norm(fluid.layers.conv2d(hidden, 4, 3, bias_attr=bias), act="relu")
        hidden = fluid.layers.dropout(hidden, 0.5, dropout_implementation="upscale_in_train")
        out = fluid.layers.fc(hidden, 5, act="relu")
        exe, draw = fluid.Executor(fluid.CPUPlace()), np.random.RandomState(0)
        exe.run(startup)
        for var in main.list_vars():
            if var.persistable:
                value = draw.uniform(0.5, 1.5, var.shape).astype("float32")
                scope.find_var(var.name).get_tensor().set(value, fluid.CPUPlace())
        where = str(tmp_path_factory.mktemp("model"))
        fluid.io.save_inference_model(where, ["x"], [out], exe, main)
    return where


def predictor(folder, *deleted, optimized=True):
    config = AnalysisConfig(folder)
    config.switch_ir_optim(optimized)
    for name in deleted:
        config.delete_pass(name)
    return create_paddle_predictor(config)


def types(one):
    block = one.program().block(0)
    return [block.op(at).type() for at in range(block.op_size())]


def output(one):
    return one.run([PaddleTensor(X)])[0].as_ndarray()


def test_passes_change_the_program_and_not_the_outputs(folder):
    plain, better = predictor(folder, optimized=False), predictor(folder)
    assert types(plain).count("batch_norm") == 2 and "fc" not in types(plain)
    assert types(better) == ["feed", *["conv2d", "elementwise_add", "relu"] * 2, "fc", "scale", "fetch"]
    np.testing.assert_allclose(output(better), output(plain), rtol=1e-5)
    np.testing.assert_array_equal(output(better.clone()), output(better))


def test_a_pass_that_was_deleted_does_not_run(folder):
    fewer = predictor(folder, "conv_bn_fuse_pass", "conv_eltwiseadd_bn_fuse_pass")
    assert types(fewer).count("batch_norm") == 2 and "fc" in types(fewer)
    assert "mul" in types(predictor(folder, "fc_fuse_pass"))
    np.testing.assert_allclose(output(fewer), output(predictor(folder, optimized=False)), rtol=1e-6)


def test_what_the_passes_made_is_saved_and_loaded(folder, tmp_path):
    better = predictor(folder)
    better.SaveOptimModel(str(tmp_path))
    again = create_paddle_predictor(AnalysisConfig(str(tmp_path / "model"), str(tmp_path / "params")))
    assert types(again) == types(better) and better.get_serialized_program() == (tmp_path / "model").read_bytes()
    np.testing.assert_array_equal(output(again), output(better))


def test_strategies():
    on_cpu, on_gpu = core.CpuPassStrategy(), core.GpuPassStrategy()
    assert (on_cpu.use_gpu(), on_gpu.use_gpu()) == (False, True)
    assert "ir_analysis_pass" in on_cpu.analysis_passes() and on_cpu.all_passes()[-1] == "runtime_context_cache_pass"
    for one in (on_cpu, on_gpu):
        before = one.all_passes()
        one.enable_mkldnn(), one.enable_mkldnn_quantizer(), one.enable_cudnn()
        assert one.all_passes() == before == type(one)(one).all_passes()
        assert {core.get_pass(name).type() for name in before} == set(before)
        assert chosen(before) == ["is_test_pass", "identity_op_clean_pass", "conv_bn_fuse_pass", "fc_fuse_pass"]
    config = AnalysisConfig("nowhere")
    config.delete_pass("fc_fuse_pass")
    assert "fc_fuse_pass" not in AnalysisConfig(config).pass_builder().all_passes()
    assert set(ALIASES.values()) <= set(PASSES)


def test_our_own_passes_run_where_they_are_named(folder):
    config = AnalysisConfig(folder)
    config.pass_builder().set_passes(["dead_code_elimination_pass", "constant_folding_pass"])
    assert types(create_paddle_predictor(config)).count("batch_norm") == 2
    config.pass_builder().append_pass("no_such_pass")
    with pytest.raises(ValueError, match="there is no such pass"):
        create_paddle_predictor(config)


def test_an_input_that_nothing_reads_stays_an_input(tmp_path):
    """Fluid saves no such model; exporters and people do."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x, unread = fluid.data("x", [None, 2]), fluid.data("unread", [None, 3])
        out = fluid.layers.scale(x, 3.0)
        fluid.io.prepend_feed_ops(main, ["x", "unread"])
        fluid.io.append_fetch_ops(main, [out.name])
    (tmp_path / "__model__").write_bytes(main.desc.serialize_to_string())
    for optimized in (True, False):
        one = predictor(str(tmp_path), optimized=optimized)
        assert one.get_input_names() == ["x", unread.name]
        values = one.run([PaddleTensor(np.ones((2, 2), "float32")), PaddleTensor(np.ones((2, 3), "float32"))])
        np.testing.assert_array_equal(values[0].as_ndarray(), np.full((2, 2), 3))


@pytest.mark.parametrize(("kind", "slot"), [("mul", "Out"), ("mul", "Y"), ("conv2d", "Output"), ("batch_norm", "Mean")])
def test_passes_leave_ops_that_lack_a_variable_alone(folder, tmp_path, kind, slot):
    """The op is told when it runs, as without passes."""
    message = pb.ProgramDesc.FromString(Path(folder, "__model__").read_bytes())
    op = next(op for op in message.blocks[0].ops if op.type == kind)
    for bound in (*op.inputs, *op.outputs):
        if bound.parameter == slot:
            del bound.arguments[:]
    shutil.copytree(folder, tmp_path / "damaged")
    (tmp_path / "damaged" / "__model__").write_bytes(message.SerializeToString())
    for optimized in (True, False):
        with pytest.raises((lowering.LoweringError, ValueError)):
            output(predictor(str(tmp_path / "damaged"), optimized=optimized))


def test_passes_take_attributes_that_a_program_does_not_say_to_be_the_ops_own(folder, tmp_path):
    """As programs of older releases, which knew fewer."""
    message = pb.ProgramDesc.FromString(Path(folder, "__model__").read_bytes())
    for op in message.blocks[0].ops:
        kept = [
            attr
            for attr in op.attrs
            if attr.name not in ("dropout_implementation", "axis", "data_format", "data_layout")
        ]
        del op.attrs[:]
        op.attrs.extend(kept)
    shutil.copytree(folder, tmp_path / "older")
    (tmp_path / "older" / "__model__").write_bytes(message.SerializeToString())
    plain, optimized = (output(predictor(str(tmp_path / "older"), optimized=way)) for way in (False, True))
    np.testing.assert_allclose(optimized, plain, rtol=1e-5, atol=1e-6)


def test_passes_leave_a_damaged_op_to_the_run(folder, tmp_path):
    """One with two values where it takes one; a pass would have taken it away as changing nothing."""
    message = pb.ProgramDesc.FromString(Path(folder, "__model__").read_bytes())
    scale = next(op for op in message.blocks[0].ops if op.type == "scale")
    scale.inputs[0].arguments.append("x")
    shutil.copytree(folder, tmp_path / "damaged")
    (tmp_path / "damaged" / "__model__").write_bytes(message.SerializeToString())
    for way in (False, True):
        with pytest.raises(core.EnforceNotMet):
            output(predictor(str(tmp_path / "damaged"), optimized=way))


def test_passes_leave_what_is_not_declared(folder, tmp_path):
    """The sum of a product that a pass would join runs without its declaration, with passes too."""
    message = pb.ProgramDesc.FromString(Path(folder, "__model__").read_bytes())
    product = next(op.outputs[0].arguments[0] for op in message.blocks[0].ops if op.type == "mul")
    kept = [var for var in message.blocks[0].vars if var.name != product]
    del message.blocks[0].vars[:]
    message.blocks[0].vars.extend(kept)
    shutil.copytree(folder, tmp_path / "undeclared")
    (tmp_path / "undeclared" / "__model__").write_bytes(message.SerializeToString())
    plain, optimized = (output(predictor(str(tmp_path / "undeclared"), optimized=way)) for way in (False, True))
    np.testing.assert_allclose(optimized, plain, rtol=1e-5, atol=1e-6)
