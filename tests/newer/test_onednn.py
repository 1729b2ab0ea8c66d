"""Models that 1.8.5 wrote after ``enable_mkldnn``, whose convolutions compute a bias, a sum and an activation, too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
import lowering
from fluidjax.framework import program_view
from fluidjax.ir import optimize
from lowering.engine.shapes.validate import problems

X = np.array([-2, -1, -0.25, 0.5, 2, 8], "float32").reshape(1, 1, 2, 3)
FILTER = np.array([[1, -0.5], [0.25, 2]], "float32").reshape(2, 2, 1, 1)
BIAS = np.array([0.5, -1], "float32")
HIDDEN = np.concatenate([X, -0.5 * X], 1)  # two channels
RESULT = np.einsum("oi,nihw->nohw", FILTER[:, :, 0, 0], HIDDEN)


def program(type: str, inputs: dict[str, np.ndarray], out: str = "Output", **attrs: Any) -> fluid.Program:
    """An op on variables that are named as its slots."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        block = main.global_block()
        for slot, value in inputs.items():
            block.create_var(name=slot, shape=value.shape, dtype="float32", is_data=True)
        block.create_var(name="out", dtype="float32")
        block.append_op(type=type, inputs={slot: [slot] for slot in inputs}, outputs={out: ["out"]}, attrs=attrs)
    return main


def ran(type: str, inputs: dict[str, np.ndarray], **attrs: Any) -> np.ndarray:
    main = program(type, inputs, **attrs)
    return fluid.Executor(fluid.CPUPlace()).run(main, inputs, ["out"], scope=fluid.Scope())[0]


BIASED = RESULT + BIAS.reshape(1, 2, 1, 1)
SWISH = BIASED / (1 + np.exp(-2 * BIASED))
ACTIVATED = {
    "relu": ({"fuse_activation": "relu"}, np.maximum(BIASED, 0)),
    "leaky_relu": ({"fuse_activation": "leaky_relu", "fuse_alpha": 0.1}, np.where(BIASED > 0, BIASED, 0.1 * BIASED)),
    "relu6": ({"fuse_activation": "relu6", "fuse_alpha": 4.0}, np.clip(BIASED, 0, 4)),
    "swish": ({"fuse_activation": "swish", "fuse_alpha": 2.0, "fuse_beta": 1.0}, SWISH),
    "before 1.7": ({"fuse_relu": True}, np.maximum(BIASED, 0)),
    "bounded before 1.7": ({"fuse_brelu": True, "fuse_brelu_threshold": 3.0}, np.clip(BIASED, 0, 3)),
    "nothing": ({}, BIASED),
}
INPUTS = {"Input": HIDDEN, "Filter": FILTER, "Bias": BIAS}


@pytest.mark.parametrize("case", ACTIVATED)
def test_a_convolution_adds_a_bias_and_applies_an_activation(case):
    attrs, expected = ACTIVATED[case]
    np.testing.assert_allclose(ran("conv2d", INPUTS, use_mkldnn=True, **attrs), expected, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(ran("conv2d", INPUTS, use_mkldnn=False, **attrs), RESULT, rtol=1e-6)


@pytest.mark.parametrize("data_format", ["NCHW", "NHWC"])
def test_a_sum_comes_before_the_activation(data_format):
    last = data_format == "NHWC"
    given = INPUTS | {"ResidualData": HIDDEN}
    given = {n: np.moveaxis(v, 1, -1) if last and n in ("Input", "ResidualData") else v for n, v in given.items()}
    attrs = {"use_mkldnn": True, "fuse_activation": "relu", "data_format": data_format}
    found = ran("conv2d", given, fuse_residual_connection=True, **attrs)
    found = np.moveaxis(found, -1, 1) if last else found
    np.testing.assert_allclose(found, np.maximum(BIASED + HIDDEN, 0), rtol=1e-6)
    unasked = ran("conv2d", given, fuse_residual_connection=False, **attrs)
    np.testing.assert_allclose(np.moveaxis(unasked, -1, 1) if last else unasked, np.maximum(BIASED, 0), rtol=1e-6)


def test_a_sum_of_other_shape_is_refused():
    given = INPUTS | {"ResidualData": HIDDEN[:, :, :1]}
    with pytest.raises(lowering.OpError, match=r"ResidualData \[1, 2, 1, 3\] is added to Output \[1, 2, 2, 3\]"):
        ran("conv2d", given, use_mkldnn=True, fuse_residual_connection=True)


def test_other_convolutions():
    each = np.array([1, -0.5], "float32").reshape(2, 1, 1, 1)
    attrs = {"use_mkldnn": True, "fuse_activation": "relu6", "fuse_alpha": 6.0}
    found = ran("depthwise_conv2d", INPUTS | {"Filter": each}, groups=2, **attrs)
    per_channel = HIDDEN * each.reshape(1, 2, 1, 1) + BIAS.reshape(1, 2, 1, 1)
    np.testing.assert_allclose(found, np.clip(per_channel, 0, 6), rtol=1e-6)
    found = ran("conv2d_transpose", INPUTS, use_mkldnn=True, fuse_activation="relu")
    adjoint = np.einsum("io,nihw->nohw", FILTER[:, :, 0, 0], HIDDEN) + BIAS.reshape(1, 2, 1, 1)
    np.testing.assert_allclose(found, np.maximum(adjoint, 0), rtol=1e-6)
    volume = {"Input": HIDDEN[:, :, None], "Filter": FILTER[..., None], "Bias": BIAS}
    found = ran("conv3d", volume, use_mkldnn=True, fuse_activation="leaky_relu", fuse_alpha=0.1)
    np.testing.assert_allclose(found[:, :, 0], ACTIVATED["leaky_relu"][1], rtol=1e-6)


def test_batch_normalisation_and_relu():
    ones, zeros = np.ones(2, "float32"), np.zeros(2, "float32")
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        block = main.global_block()
        for name, value in {"X": HIDDEN, "Scale": ones, "Bias": BIAS, "Mean": zeros, "Variance": ones}.items():
            block.create_var(name=name, shape=value.shape, dtype="float32", is_data=True)
        outputs = ("Y", "MeanOut", "VarianceOut", "SavedMean", "SavedVariance")
        for name in outputs:
            block.create_var(name=name.lower(), dtype="float32")
        block.append_op(
            type="batch_norm",
            inputs={name: [name] for name in ("X", "Scale", "Bias", "Mean", "Variance")},
            outputs={name: [name.lower()] for name in outputs},
            attrs={"is_test": True, "use_mkldnn": True, "fuse_with_relu": True, "epsilon": 0.0},
        )
    feed = {"X": HIDDEN, "Scale": ones, "Bias": BIAS, "Mean": zeros, "Variance": ones}
    found = fluid.Executor(fluid.CPUPlace()).run(main, feed, ["y"], scope=fluid.Scope())[0]
    np.testing.assert_allclose(found, np.maximum(HIDDEN + BIAS.reshape(1, 2, 1, 1), 0), rtol=1e-6)


def told(main: fluid.Program) -> str:
    return "\n".join(problems(program_view(main)))


def test_an_activation_that_1_8_does_not_know_is_refused_at_once():
    text = told(program("conv2d", INPUTS, use_mkldnn=True, fuse_activation="mish"))
    assert "attribute fuse_activation is 'mish', which oneDNN's kernel adds to the op" in text
    assert told(program("conv2d", INPUTS, use_mkldnn=True, fuse_activation="relu")) == ""
    assert "fuse_relu_before" in told(program("conv2d", INPUTS, use_mkldnn=True, fuse_relu_before_depthwise_conv=True))


def test_gradients_of_what_is_fused_are_refused():
    """1.8.5's kernels for them know no activation either."""
    gradients = {"Output@GRAD": RESULT}
    for more in ({"fuse_activation": "relu"}, {}):
        main = program("conv2d_grad", INPUTS | gradients, "Input@GRAD", use_mkldnn=True, **more)
        assert ("fuse_activation" if more else "input Bias is ['Bias']") in told(main)


def test_batch_normalisation_is_not_folded_into_what_is_fused():
    """A convolution's own activation comes before the normalisation, and a fused relu after it would be lost."""
    for conv, norm in (({"fuse_activation": "relu"}, {}), ({}, {"fuse_with_relu": True})):
        main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
        with fluid.program_guard(main, startup), fluid.scope_guard(scope), fluid.unique_name.guard():
            x = fluid.data("x", [None, 2, 2, 3])
            y = fluid.layers.batch_norm(fluid.layers.conv2d(x, 2, 1, bias_attr=False), is_test=True)
            for op in main.global_block().ops:
                for name, value in (conv if op.type == "conv2d" else norm).items():
                    op._set_attr("use_mkldnn", True)
                    op._set_attr(name, value)
            exe = fluid.Executor(fluid.CPUPlace())
            exe.run(startup)
            found = optimize(main, ["x"], [y.name], scope, ["conv_bn_fuse_pass"])
        assert [op.type for op in found.program.global_block().ops] == ["conv2d", "batch_norm"]
