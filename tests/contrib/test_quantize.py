"""QuantizeTranspiler: programs, training, freezing; the expected op lists and numbers are Paddle 1.8.5's."""

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.contrib.quantize import QuantizeTranspiler, quantize_transpiler

CPU = fluid.CPUPlace()


def network():
    image, label = fluid.data("img", [4, 1, 5, 5]), fluid.data("lab", [4, 1], "int64")
    conv = fluid.layers.conv2d(image, 2, 3, act="relu", param_attr=fluid.ParamAttr("cw"), bias_attr="cb")
    out = fluid.layers.fc(conv, 3, act="softmax", param_attr=fluid.ParamAttr("fw"), bias_attr="fb")
    loss = fluid.layers.mean(fluid.layers.cross_entropy(out, label))
    fluid.optimizer.SGD(0.01).minimize(loss)
    return out, loss


def values():
    """Weights and a batch; drawn as they were for Paddle."""
    draw = np.random.RandomState(0)
    weights = {"cw": draw.rand(2, 1, 3, 3) - 0.5, "fw": draw.rand(18, 3) - 0.5}
    weights = {name: value.astype("float32") for name, value in weights.items()}
    return weights, {"img": draw.rand(4, 1, 5, 5).astype("float32"), "lab": draw.randint(0, 3, (4, 1)).astype("int64")}


def trained(kind):
    """Train three steps; (transpiler, the test program, its output, scope, feed, losses)."""
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    transpiler = QuantizeTranspiler(activation_quantize_type=kind)
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        out, loss = network()
        transpiler.training_transpile(main, startup)
    weights, feed = values()
    exe = fluid.Executor(CPU)
    with fluid.scope_guard(scope):
        exe.run(startup)
        for name, value in weights.items():
            scope.find_var(name).get_tensor().set(value, CPU)
        test = main.clone(for_test=True)
        losses = [float(exe.run(main, feed=feed, fetch_list=[loss])[0][0]) for _ in range(3)]
    return transpiler, test, out, scope, feed, losses


# The losses of three steps, and the first row that the frozen program gives.
RECORDED = {
    "abs_max": ([0.8674047, 0.856539, 0.84175193], [0.40933928, 0.17484103, 0.41581976]),
    "range_abs_max": ([0.8674047, 0.856539, 0.84175193], [0.4096771, 0.17479125, 0.41553172]),
    "moving_average_abs_max": ([0.8671024, 0.856297, 0.8413673], [0.4100239, 0.1741859, 0.41579017]),
}


@pytest.mark.parametrize("kind", sorted(RECORDED))
def test_training_and_freezing_give_paddles_numbers(kind):
    transpiler, test, out, scope, feed, losses = trained(kind)
    expected_losses, expected_row = RECORDED[kind]
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-6)
    transpiler.freeze_program(test, CPU, scope)
    types = [op.type for op in test.global_block().ops if op.type != "increment"]
    assert types[:4] == [f"fake_quantize_{kind}", "conv2d", "fake_dequantize_max_abs", "elementwise_add"]
    conv_weight = np.array(scope.find_var("cw").get_tensor())
    np.testing.assert_array_equal(conv_weight[0, 0], [[14, 59, 28], [13, -19, 40], [-15, 105, 124]])
    with fluid.scope_guard(scope):
        (found,) = fluid.Executor(CPU).run(test, feed=feed, fetch_list=[out])
    np.testing.assert_allclose(found[0], expected_row, rtol=1e-6)


def test_int8_weights_replace_the_float_ones():
    transpiler, test, _, scope, _, _ = trained("abs_max")
    transpiler.freeze_program(test, CPU, scope)
    transpiler.convert_to_int8(test, CPU, scope)
    variables = test.global_block().vars
    assert {"cw.int8", "fw.int8"} <= set(variables) and not {"cw", "fw", "cw.scale"} & set(variables)
    stored = np.array(scope.find_var("fw.int8").get_tensor())
    assert stored.dtype == np.int8
    np.testing.assert_array_equal(stored.ravel()[:9], [74, 95, 123, 79, -11, 72, -98, 35, -93])


def test_shared_inputs_are_quantized_once():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        x = fluid.data("x", [4, 4])
        for _ in range(2):
            fluid.layers.fc(x, 2, param_attr=fluid.ParamAttr("w"), bias_attr=False)
        QuantizeTranspiler(weight_bits=7).training_transpile(main)
    ops = main.global_block().ops
    assert [op.type for op in ops].count("fake_quantize_abs_max") == 2
    ranges = {op.input("X")[0]: op.attr("max_range") for op in ops if op.type == "fake_dequantize_max_abs"}
    assert ranges == {"x.quantized": 127.0, "w.quantized": 63.0}
    assert [op.input("X") + op.input("Y") for op in ops if op.type == "mul"] == 2 * [
        ["x.quantized.dequantized", "w.quantized.dequantized"]
    ]


def test_freezing_needs_one_weight_in_each_op():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        x = fluid.data("x", [4, 4])
        fluid.layers.mul(x, fluid.layers.scale(x, 2.0))
        transpiler = QuantizeTranspiler()
        transpiler.training_transpile(main, startup)
    with pytest.raises(ValueError, match="exactly one weight"):
        transpiler.freeze_program(main, CPU, fluid.Scope())


def test_a_name_leads_back_to_its_variable():
    names = quantize_transpiler
    quantized = names._quantized_var_name("w")
    for name in ("w", quantized, names._dequantized_var_name(quantized), names._quantized_scale_name("w")):
        assert names._original_var_name(name) == "w"
    assert names._original_var_name("w.scaled") == "w.scaled"


@pytest.mark.parametrize("argument", ["activation_quantize_type", "weight_quantize_type"])
def test_unknown_kind(argument):
    with pytest.raises(ValueError, match=f"{argument} 'channel' is unknown"):
        QuantizeTranspiler(**{argument: "channel"})


def test_weights_with_running_scales_are_frozen_by_them():
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    transpiler = QuantizeTranspiler(weight_quantize_type="moving_average_abs_max", weight_bits=7)
    with fluid.program_guard(main, startup):
        out = fluid.layers.fc(fluid.data("x", [4, 4]), 2, param_attr=fluid.ParamAttr("w"), bias_attr=False)
        transpiler.training_transpile(main, startup)
    weight, scale = np.array([[0.5, -0.2]] * 4, "float32"), np.array([0.8], "float32")
    exe = fluid.Executor(CPU)
    with fluid.scope_guard(scope):
        exe.run(startup)
        scope.find_var("w").get_tensor().set(weight, CPU)
        scope.find_var("w.scale").get_tensor().set(scale, CPU)
        test = main.clone(for_test=True)
        transpiler.freeze_program(test, CPU, scope)
        (found,) = exe.run(test, feed={"x": np.ones((4, 4), "float32")}, fetch_list=[out.name + ".dequantized"])
    np.testing.assert_array_equal(np.array(scope.find_var("w").get_tensor()), [[39, -16]] * 4)
    np.testing.assert_allclose(found, [[4 * 39 / 63 * 0.8, -4 * 16 / 63 * 0.8]] * 4, rtol=1e-6)
