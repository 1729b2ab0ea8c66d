"""Passes find what they are for, leave what they must, and never change what is fetched."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fluidjax as fluid
from fluidjax.command import cli
from fluidjax.inference import passes
from fluidjax.ir import PASSES, optimize
from fluidjax.proto import framework_pb2 as pb
from lowering.errors import AttrError
from tests.golden.passes import TOLERANCE, Job
from tests.golden.recordings import DATA
from tests.golden.zoocase import ZooCase

layers = fluid.layers


def types(program):
    return [op.type for op in program.global_block().ops]


def run(feed, fetches, *names):
    """The types of ops after passes, with what is fetched compared."""
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    program, scope = fluid.default_main_program().clone(for_test=True), fluid.global_scope()
    wanted = [v.name for v in fetches]
    before = program.desc.serialize_to_string()
    found = optimize(program, list(feed), wanted, scope, names or None)
    assert program.desc.serialize_to_string() == before
    expected = exe.run(program, feed=feed, fetch_list=wanted)
    for a, b in zip(exe.run(found.program, feed=feed, fetch_list=wanted, scope=found.scope), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    return types(found.program), found


IMAGE = {"x": np.linspace(-1, 1, 2 * 3 * 6 * 6, dtype="float32").reshape(2, 3, 6, 6)}
ROWS = {"x": np.linspace(-1, 1, 8, dtype="float32").reshape(2, 4)}


@pytest.mark.parametrize("bias, groups", [(None, 1), (False, 3)])
def test_batch_normalisation_goes_into_filters(bias, groups):
    x = fluid.data("x", [None, 3, 6, 6])
    y = layers.batch_norm(layers.conv2d(x, 6, 3, groups=groups, bias_attr=bias), act="relu")
    uniform = fluid.initializer.Uniform(0.5, 2.0)
    for name in ("w_0", "b_0", "w_1", "w_2"):
        var = fluid.default_startup_program().global_block().var(f"batch_norm_0.{name}")
        uniform(var, fluid.default_startup_program().global_block())
    found, _ = run(IMAGE, [y], "conv_bn_fuse_pass")
    assert found == ["conv2d", "elementwise_add", "relu"]


@pytest.mark.parametrize("slot", ["Scale", "Bias", "Mean", "Variance"])
def test_batch_normalisation_stays_where_its_numbers_do_not_fit_the_filters(slot):
    y = layers.batch_norm(layers.conv2d(layers.data("x", [3, 8, 8]), 4, 3))
    fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program())
    program = fluid.default_main_program().clone(for_test=True)
    (name,) = program.global_block().ops[-1].input(slot)
    fluid.global_scope().var(name).get_tensor().set(np.ones(3, "float32"), fluid.CPUPlace())
    found = optimize(program, ["x"], [y.name], fluid.global_scope(), ["conv_bn_fuse_pass"])
    assert "batch_norm" in types(found.program)


def test_an_attribute_of_another_type_is_refused_in_words():
    y = layers.fc(layers.data("x", [3]), 2)
    fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program())
    program = pb.ProgramDesc.FromString(fluid.default_main_program().desc.serialize_to_string())
    (product,) = (op for op in program.blocks[0].ops if op.type == "mul")
    (split,) = (attr for attr in product.attrs if attr.name == "x_num_col_dims")
    split.type, split.s = pb.STRING, "x"
    damaged = fluid.Program.parse_from_string(program.SerializeToString())
    with pytest.raises(AttrError, match=r"(?s)op mul .*'x_num_col_dims'.*expected: INT.*received: 'x'.*what to do"):
        optimize(damaged, ["x"], [y.name], fluid.global_scope(), ["fc_fuse_pass"])


def test_batch_normalisation_stays_where_its_input_is_read_elsewhere():
    x = fluid.data("x", [None, 3, 6, 6])
    conv = layers.conv2d(x, 4, 3, bias_attr=False)
    y = layers.batch_norm(conv) + layers.batch_norm(conv)
    assert "batch_norm" in run(IMAGE, [y], "conv_bn_fuse_pass")[0]
    other = layers.conv2d(x, 4, 3)
    assert "batch_norm" in run(IMAGE, [layers.batch_norm(other), other], "conv_bn_fuse_pass")[0]


def test_products_and_sums_are_fc():
    x = fluid.data("x", [None, 4])
    y = layers.fc(layers.fc(x, 5, act="relu"), 3, act="tanh")
    assert run(ROWS, [y], "fc_fuse_pass")[0] == ["fc", "fc", "tanh"]
    hidden = layers.fc(x, 5)
    assert run(ROWS, [layers.relu(hidden), hidden], "fc_fuse_pass")[0] == ["fc", "relu"]


def test_what_changes_nothing_goes():
    x = fluid.data("x", [None, 4])
    y = layers.assign(layers.scale(layers.cast(x, "float32"), 1.0))
    y = layers.dropout(y, 0.5, dropout_implementation="upscale_in_train")
    y = layers.tanh(layers.scale(y, 1.0, bias=2.0))
    assert run(ROWS, [y], "identity_op_clean_pass")[0] == ["scale", "tanh"]


def test_a_copy_stays_where_the_original_is_written_later():
    x = fluid.data("x", [None, 4])
    y = layers.tanh(x)
    copy = layers.assign(y)
    layers.assign(layers.exp(x), y)
    assert "assign" in run(ROWS, [layers.exp(copy)], "identity_op_clean_pass")[0]
    assert "assign" in run(ROWS, [copy], "identity_op_clean_pass")[0]


def test_what_parameters_alone_decide_is_computed_once():
    x = fluid.data("x", [None, 4])
    w = layers.create_parameter([4, 4], "float32")
    y = layers.matmul(x, layers.transpose(layers.exp(w) + layers.fill_constant([4], "float32", 1.0), [1, 0]))
    found, made = run(ROWS, [y], "constant_folding_pass")
    assert found == ["matmul"] and made.steps[0].found >= 4
    noise = layers.elementwise_mul(x, layers.uniform_random([4]))
    program = fluid.default_main_program()
    kept = optimize(program, ["x"], [noise.name], fluid.global_scope(), ["constant_folding_pass"])
    assert "uniform_random" in types(kept.program)


def test_what_is_computed_twice_is_computed_once():
    x = fluid.data("x", [None, 4])
    y = layers.elementwise_add(layers.tanh(x), layers.tanh(x))
    y = layers.elementwise_mul(layers.scale(y, 2.0), layers.scale(y, 2.0))
    z = layers.elementwise_sub(layers.scale(y, 2.0), layers.scale(y, 3.0))
    found, _ = run(ROWS, [z], "common_subexpression_elimination_pass")
    assert found.count("tanh") == 1 and found.count("scale") == 3
    twice = [layers.tanh(x), layers.tanh(x)]
    assert run(ROWS, twice, "common_subexpression_elimination_pass")[0].count("tanh") == 2


def test_tests_are_told_so():
    x = fluid.data("x", [None, 3, 6, 6])
    y = layers.dropout(layers.batch_norm(x, momentum=0.5), 0.5)
    exe, main = fluid.Executor(fluid.CPUPlace()), fluid.default_main_program()
    exe.run(fluid.default_startup_program())
    exe.run(main, feed=IMAGE, fetch_list=[y])
    found = optimize(main, ["x"], [y.name], fluid.global_scope(), ["is_test_pass"])
    assert found.steps[0].found == 2
    expected = exe.run(main.clone(for_test=True), feed=IMAGE, fetch_list=[y])
    np.testing.assert_array_equal(exe.run(found.program, feed=IMAGE, fetch_list=[y], scope=found.scope), expected)


def test_loops_keep_what_they_read():
    x = fluid.data("x", [None, 4])
    copy, i = layers.assign(layers.tanh(x)), layers.fill_constant([1], "int64", 0)
    limit = layers.fill_constant([1], "int64", 3)
    total, more = layers.scale(copy, 1.0), layers.less_than(i, limit)
    loop = layers.While(more)
    with loop.block():
        layers.assign(total + copy, total)
        layers.increment(i)
        layers.less_than(i, limit, cond=more)
    assert run(ROWS, [total])[0].count("assign") == 1


def test_the_command(tmp_path, capsys):
    x = fluid.data("x", [None, 3, 6, 6])
    y = layers.fc(layers.batch_norm(layers.conv2d(x, 4, 3)), 2, act="relu")
    layers.exp(y)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    fluid.io.save_inference_model(str(tmp_path / "model"), ["x"], [y], exe, params_filename="params")
    words = ["optimize", str(tmp_path / "model"), str(tmp_path / "out"), "--draw", str(tmp_path / "drawn")]
    assert cli.main(words) == 0, capsys.readouterr().err
    said = capsys.readouterr().out
    assert "conv_bn_fuse_pass" in said and "found 1" in said
    assert sorted(p.name for p in (tmp_path / "drawn").iterdir()) == ["after.dot", "before.dot"]
    with fluid.scope_guard(fluid.Scope()):
        program, feeds, fetches = fluid.io.load_inference_model(str(tmp_path / "out"), exe, params_filename="params")
        assert "batch_norm" not in types(program) and "fc" in types(program)
        (found,) = exe.run(program, feed=IMAGE, fetch_list=fetches)
    (expected,) = exe.run(fluid.default_main_program().clone(for_test=True), feed=IMAGE, fetch_list=[y])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert cli.main([*words[:3], "--passes", "magic"]) == 2
    assert "there is no such pass" in capsys.readouterr().err


NETWORKS = (
    "book_recognize_digits_conv",
    "ctrl_ifelse",
    "book_t_machine_translation",
    "misc_tensor_ops",
    "nlp_sentiment_cnn",
)


@functools.cache
def job(name):
    return Job(ZooCase(DATA / "zoo" / name))


@settings(max_examples=10, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(NETWORKS), st.lists(st.sampled_from(sorted(PASSES)), unique=True, min_size=1))
def test_any_passes_in_any_order_leave_networks_as_they_are(name, passes):
    assert job(name).check(passes)[1] <= TOLERANCE


def test_a_loop_that_goes_on_from_a_fed_value_stays():
    x, i, n = fluid.data("x", [1]), layers.fill_constant([1], "float32", 0), layers.fill_constant([1], "float32", 3)
    more = layers.less_than(i, n)
    loop = layers.While(more)
    with loop.block():
        layers.assign(x * 2.0 + 1.0, x)
        layers.increment(i)
        layers.less_than(i, n, cond=more)
    found, optimized = run({"x": np.ones(1, "float32")}, [layers.scale(x, 1.5)])
    assert "while" in found
    program, _ = passes.optimized(optimized.program, ["x"], optimized.program.global_block().ops[-1].output("Out"),
                                  optimized.scope, ["fc_fuse_pass"])  # fmt: skip
    assert types(program) == ["feed", *found, "fetch"]
