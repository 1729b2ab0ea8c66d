"""The passes of contrib.slim.quantization: programs, numbers and thresholds are Paddle 1.8.5's for the same net.

``data/quantization.json.gz`` has, for each kind of rounding, the programs after each pass, the losses of three steps,
of the tested and of the frozen program, and the sum of a frozen weight. Numbers are held to what rounding to whole
steps leaves equal: a last bit more or less moves single values by a step.
"""

from __future__ import annotations

import functools
import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.contrib.slim.quantization import (
    AddQuantDequantPass,
    ConvertToInt8Pass,
    OutScaleForInferencePass,
    OutScaleForTrainingPass,
    QuantizationFreezePass,
    QuantizationTransformPass,
    TransformForMobilePass,
)
from tests.contrib.quantized import CPU, batches, graph_of, initialized, layers, programs, types

pytestmark = pytest.mark.usefixtures("compiled_quickly")

RECORDED = json.loads(gzip.decompress((Path(__file__).parent / "data" / "quantization.json.gz").read_bytes()))
NOTED = (
    "bit_length max_range quant_bits window_size moving_rate out_threshold quantization_type activation_bits skip_quant"
    " is_test step"
).split()
GENERATED = re.compile(
    r"^(scale_state@|scale_accum@|quant_dequant\.state|quant_dequant\.accum|channel_scale|scales|state|accum)_\d+$"
)


def bound(slots):
    """Slots and their variables as text."""
    named = {slot: ",".join(GENERATED.sub(r"\1#", name) for name in names) for slot, names in slots.items() if names}
    return " ".join(sorted(f"{slot}={names}" for slot, names in named.items()))


def noted(program):
    """The ops, with generated names without their numbers and the attributes that passes write."""
    found = []
    for op in program.global_block().ops:
        ours = "quant" in op.type or "scale" in op.type
        attrs = {n: op.attr(n) for n in NOTED if op.desc.has_attr(n) and (ours or n not in ("is_test", "step"))}
        found.append([op.type, bound(op.desc.inputs()), bound(op.desc.outputs()), attrs])
    return found


def assert_recorded(program, expected):
    """Equal as sets of ops: where several orders are right, the reference takes any."""
    found = sorted(noted(program), key=lambda op: op[:3])
    expected = sorted(expected, key=lambda op: op[:3])
    assert [op[:3] for op in found] == [op[:3] for op in expected]
    for ours, theirs in zip(found, expected, strict=True):
        assert ours[3].keys() == theirs[3].keys(), ours
        for name, value in theirs[3].items():
            number = isinstance(value, float)
            assert ours[3][name] == (pytest.approx(value, rel=0.01) if number else value), (ours[0], name)


@functools.cache
def job(kinds):
    """All passes in the order of a script; (what was measured, the programs by their recorded names)."""
    activation, weight = kinds.split("/")
    main, startup, test, _, loss = programs()
    scope, exe = initialized(main, startup), fluid.Executor(CPU)
    trained, tested = graph_of(main), graph_of(test, for_test=True)
    found, losses = {}, []
    with fluid.unique_name.guard():
        rounding = QuantizationTransformPass(
            scope, CPU, activation_quantize_type=activation, weight_quantize_type=weight, window_size=5
        )
        others = AddQuantDequantPass(scope, CPU, quantizable_op_type=["elementwise_add", "pool2d", "matmul", "relu"])
        for graph in (trained, tested):
            rounding.apply(graph)
        for graph in (trained, tested):
            others.apply(graph)
        found["train"], found["test"] = trained.to_program(), tested.to_program()
        OutScaleForTrainingPass(scope, CPU).apply(trained)
        binary = fluid.CompiledProgram(trained.graph).with_data_parallel(loss.name, places=[CPU])
        with fluid.scope_guard(scope):
            losses += [exe.run(binary, feed, [loss.name])[0] for feed in batches()]
            losses += exe.run(found["test"], batches()[0], [loss.name])
            OutScaleForInferencePass(scope).apply(tested)
            QuantizationFreezePass(scope, CPU, weight_quantize_type=weight).apply(tested)
            found["frozen"] = tested.to_program()
            losses += exe.run(found["frozen"], batches()[0], [loss.name])
        frozen = np.array(scope.find_var("conv2d_0.w_0").get_tensor())
        ConvertToInt8Pass(scope, CPU).apply(tested)
        found["int8"] = tested.to_program()
        np.testing.assert_array_equal(np.array(scope.find_var("conv2d_0.w_0.int8").get_tensor()), frozen.astype("int8"))
        TransformForMobilePass().apply(tested)
        found["mobile"] = tested.to_program()
    return [float(np.ravel(v)[0]) for v in losses], np.abs(frozen).sum(), found


@pytest.mark.parametrize("kinds", sorted(RECORDED))
def test_training_testing_and_freezing_give_paddles_programs_and_numbers(kinds):
    losses, weight, found = job(kinds)
    np.testing.assert_allclose(losses, RECORDED[kinds]["losses"], rtol=1e-3)
    assert weight == pytest.approx(RECORDED[kinds]["weight"], abs=4)
    for stage, expected in RECORDED[kinds]["programs"].items():
        assert_recorded(found[stage], expected)


def test_weights_learn_through_functions_of_the_users():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = layers.data("x", [2, 3], append_batch_size=False)
        w = fluid.ParamAttr("w", initializer=fluid.initializer.Constant(0.4))
        loss = layers.mean(layers.fc(x, 2, param_attr=w, bias_attr=False))
        fluid.optimizer.SGD(0.5).minimize(loss)
    scope, exe, graph = fluid.Scope(), fluid.Executor(CPU), graph_of(main)
    with fluid.scope_guard(scope):
        exe.run(startup)
    QuantizationTransformPass(
        scope,
        CPU,
        weight_preprocess_func=lambda v: layers.scale(v, 3.0),
        act_quantize_func=lambda v: layers.scale(v, 2.0),
        optimizer_func=lambda: fluid.optimizer.SGD(0.1),
        executor=exe,
    ).apply(graph)
    feed = {"x": np.arange(6, dtype="float32").reshape(2, 3)}
    with fluid.scope_guard(scope):
        program = graph.to_program()
        (found,) = exe.run(program, feed, [loss.name])
    np.testing.assert_allclose(found, [2 * 1.2 * feed["x"].sum(1).mean()], rtol=1e-6)
    # d loss / d w = 3 * sum over rows of (2 x) / 4, as the scale and the product hand it on; by a rate of 0.5.
    expected = 0.4 - 0.5 * 3 * (2 * feed["x"]).sum(0)[:, None] / 4
    np.testing.assert_allclose(np.array(scope.find_var("w").get_tensor()), expected.repeat(2, 1), rtol=1e-6)


def test_functions_need_an_optimizer_where_they_are_trained():
    main, startup, _, _, _ = programs()
    rounding = QuantizationTransformPass(
        initialized(main, startup), CPU, act_quantize_func=lambda v: v, executor=fluid.Executor(CPU)
    )
    with pytest.raises(AssertionError, match="optimizer_func must be set"):
        rounding.apply(graph_of(main))


def test_steps_that_are_counted_are_not_counted_twice():
    main, startup, _, _, _ = programs()
    with fluid.program_guard(main, startup):
        layers.autoincreased_step_counter(begin=1)
    graph = graph_of(main)
    QuantizationTransformPass(initialized(main, startup), CPU, activation_quantize_type="range_abs_max").apply(graph)
    assert types(graph.to_program()).count("increment") == 1


@pytest.mark.parametrize(
    "make, error, words",
    [
        (lambda: QuantizationTransformPass(activation_quantize_type="channel_wise_abs_max"), AssertionError, "support"),
        (lambda: QuantizationTransformPass(activation_quantize_type="none"), ValueError, "Unknown activation_"),
        (lambda: QuantizationTransformPass(weight_quantize_type="none"), ValueError, "Unknown weight_quantize_type"),
        (lambda: QuantizationTransformPass(quantizable_op_type=["relu"]), AssertionError, "relu is not supported"),
        (lambda: AddQuantDequantPass(fluid.Scope(), CPU, quantizable_op_type=["conv2d"]), AssertionError, "conv2d is"),
        (lambda: AddQuantDequantPass(None, CPU), AssertionError, "scope cannot be set None"),
        (lambda: QuantizationFreezePass(fluid.Scope(), None), AssertionError, "place cannot be set None"),
        (lambda: OutScaleForTrainingPass().apply(fluid.Program()), AssertionError, "instance of IrGraph"),
        (lambda: QuantizationTransformPass(activation_quantize_type="range_abs_max").apply(graph_of(programs()[0])),
         AssertionError, "needs a value"),
        (lambda: OutScaleForInferencePass(fluid.Scope()).apply(graph_of(programs()[2])), AssertionError, "@scale"),
    ],
)  # fmt: skip
def test_what_is_not_supported_is_refused(make, error, words):
    with pytest.raises(error, match=words):
        make()
