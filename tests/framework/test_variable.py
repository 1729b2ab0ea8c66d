"""Variable and Parameter, ParamAttr, initializers: what they refuse, and what they share."""

from __future__ import annotations

import operator

import numpy as np
import pytest

import fluidjax as fluid
import lowering
from fluidjax.core import EnforceNotMet, VarDesc
from fluidjax.framework import Program

VarType = VarDesc.VarType


@pytest.fixture
def block():
    """The global block of an empty program."""
    program, startup = Program(), Program()
    with fluid.program_guard(program, startup), fluid.unique_name.guard():
        yield program.global_block()


def test_what_a_variable_knows(block) -> None:
    var = block.create_var(name="v", shape=[2, -1], dtype="int64", lod_level=2, persistable=True, stop_gradient=True)
    assert (var.name, var.shape, var.dtype, var.lod_level) == ("v", (2, -1), VarType.INT64, 2)
    assert var.persistable and var.stop_gradient and var.type == VarType.LOD_TENSOR
    assert var.grad_name == "v@GRAD" and var.block is block
    assert str(var.dtype) == "VarType.INT64" and var.dtype == 3
    var.persistable = False
    var.name = "renamed"
    assert not var.proto.persistable and var.proto.name == "renamed"
    assert block.create_var(dtype="float32").name == "_generated_var_0"
    assert block.create_var(name="bare").dtype == VarType.BOOL, "an element type never given reads as Fluid's first"
    var._set_info("key", 1)
    assert var._get_info("key") == 1 and var._get_info("other") is None


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("shape", {"shape": [1, 3]}),
        ("dtype", {"dtype": "int32"}),
        ("lod_level", {"lod_level": 1}),
        ("persistable", {"persistable": True}),
        ("type", {"type": VarType.SELECTED_ROWS}),
    ],
)
def test_a_name_keeps_its_description(block, field, change) -> None:
    block.create_var(name="v", shape=[1, 2], dtype="float32")
    again = block.create_var(name="v", shape=[1, 2], dtype="float32")
    assert block.vars["v"] is again and len(block.proto.vars) == 1
    with pytest.raises(ValueError, match=f"'v' has been created before. The previous {field} is"):
        block.create_var(name="v", **change)


def test_kinds_without_a_tensor(block) -> None:
    scopes = block.create_var(name="s", type=VarType.STEP_SCOPES)
    for field in ("shape", "dtype", "lod_level"):
        with pytest.raises(EnforceNotMet, match=f"Getting '{field}' is not supported by the type of var s"):
            getattr(scopes, field)
    with pytest.raises(EnforceNotMet):
        block.create_var(name="t", type=VarType.RAW, shape=[1])
    assert "t" not in block.vars and len(block.proto.vars) == 1, "what failed leaves no trace"
    assert block.create_var(name="r", type=VarType.SELECTED_ROWS, shape=[3, 2], dtype="float32").lod_level == 0
    array = block.create_var(name="a", type=VarType.LOD_TENSOR_ARRAY, dtype="float32")
    assert (array.shape, array.dtype) == ((), VarType.FP32)


def test_unknown_dtypes_are_told(block) -> None:
    with pytest.raises(ValueError, match="Not supported numpy dtype 'complex64'.*Expected one of"):
        block.create_var(name="v", dtype="complex64")


@pytest.mark.parametrize("method", ["detach", "numpy", "backward", "gradient", "clear_gradient"])
def test_eager_methods_say_what_to_do(block, method) -> None:
    var = block.create_var(name="v", dtype="float32")
    with pytest.raises(AssertionError, match=rf"{method}\(\) belongs to eager mode.*Executor.run"):
        getattr(var, method)()


def test_variables_are_keys_and_not_sequences(block) -> None:
    var = block.create_var(name="v", shape=[2], dtype="float32")
    assert {var: 1}[var] == 1
    with pytest.raises(TypeError, match="cannot be iterated"):
        list(var)
    with pytest.raises(TypeError, match="cannot be indexed with"):
        var[[0, 1]]
    with pytest.raises(TypeError, match="cannot be indexed with"):
        var[None]
    with pytest.raises(TypeError, match="more than one ellipsis"):
        var[..., ...]
    assert var[:] is var


def test_an_ellipsis_fills_the_axes_between(block) -> None:
    x = block.create_var(name="x", shape=[2, 3, 4], dtype="float32")
    assert (x[..., 1].shape, x[0, ..., 1].shape, x[...].shape) == ((2, 3), (3,), (2, 3, 4))


@pytest.mark.parametrize("other", ["a", None, [1]])
def test_operands_that_are_no_numbers(block, other) -> None:
    x = block.create_var(name="x", shape=[2], dtype="float32")
    with pytest.raises((TypeError, ValueError), match="neither a Variable nor a number"):
        x + other


@pytest.mark.parametrize(
    "number", [np.float64(2), np.float32(2), np.int64(2), np.array(2.0)], ids=lambda n: str(n.dtype)
)
def test_scalars_of_numpy_on_the_left_are_numbers(block, number) -> None:
    x = fluid.data("x", [2, 3], "float32")
    for write, attrs in [(operator.mul, (2, 0)), (operator.add, (1, 2)), (operator.sub, (-1, 2))]:
        op = write(number, x).block.ops[-1]
        assert op.type == "scale" and (op.attr("scale"), op.attr("bias")) == attrs
    assert [(number / x).shape, (number**x).shape, (number < x).shape] == [(2, 3)] * 3
    assert block.ops[-1].type == "greater_than"
    with pytest.raises(TypeError, match="neither a Variable nor a number"):
        np.ones((2, 3), "float32") * x
    with pytest.raises(TypeError, match="holds no value until the program runs"):
        np.exp(x)


def test_fractions_do_not_meet_integers(block) -> None:
    z = block.create_var(name="z", shape=[2], dtype="int64")
    with pytest.raises(AssertionError, match=r"float value 1.5 cannot convert to integer.*Cast the variable"):
        z + 1.5
    for operate, type in ((lambda v: v < 0.5, "less_than"), (lambda v: v / 1.5, "elementwise_div")):
        with pytest.warns(UserWarning, match=r"makes the number one of the variable's type, which is [01]") as warned:
            operate(z)
        assert warned[0].filename == __file__
        constant, made = block.ops[-2:]
        assert (constant.type, made.type) == ("fill_constant", type)


@pytest.mark.parametrize(
    ("shape", "told"), [(None, "should not be None"), ([], "greater than 0"), ([2, -1], "positive")]
)
def test_parameters_need_known_shapes(block, shape, told) -> None:
    with pytest.raises(ValueError, match=told):
        block.create_parameter(name="w", shape=shape, dtype="float32")
    with pytest.raises(ValueError, match="dtype of Parameter should not be None"):
        block.create_parameter(name="w", shape=[2], dtype=None)


def test_a_shared_parameter_is_initialised_once(block) -> None:
    helper = fluid.layer_helper.LayerHelper("fc")
    first = helper.create_parameter(fluid.ParamAttr("w"), [2, 3], "float32")
    second = helper.create_parameter(fluid.ParamAttr("w"), [2, 3], "float32")
    assert first.name == second.name == "w"
    startup = fluid.default_startup_program().global_block()
    assert [op.type for op in startup.ops] == ["uniform_random"]
    startup.append_op(type="scale", inputs={"X": "w"}, outputs={"Out": "w"})
    with pytest.raises(RuntimeError, match=r"inited by multiple init ops \['uniform_random', 'scale'\]"):
        helper.create_parameter(fluid.ParamAttr("w"), [2, 3], "float32")


def test_param_attr_from_what_layers_accept() -> None:
    make = fluid.ParamAttr._to_attr
    constant, decay = fluid.initializer.Constant(1.0), fluid.regularizer.L2Decay(0.1)
    given = fluid.ParamAttr("x")
    assert make(given) is given and make(False) is False
    assert make(None).name is None and make(True).trainable
    assert make("w").name == "w" and make(constant).initializer is constant and make(decay).regularizer is decay
    assert [attr.name for attr in make([None, "a"])] == [None, "a"]
    with pytest.raises(TypeError, match="cast to ParamAttr"):
        make(3)


@pytest.mark.parametrize(
    "settings",
    [{"name": 3}, {"learning_rate": "a"}, {"trainable": 3}, {"do_model_average": 3}],
    ids=lambda s: next(iter(s)),
)
def test_param_attr_refuses(settings) -> None:
    with pytest.raises(TypeError, match=f"The type of '{next(iter(settings))}' in ParamAttr must be"):
        fluid.ParamAttr(**settings)


def test_initializers_refuse(block) -> None:
    init = fluid.initializer
    integers = block.create_var(name="i", shape=[2, 3], dtype="int64")
    for maker in (init.Uniform(), init.Normal(), init.Xavier()):
        with pytest.raises(TypeError, match="must be float16, float32 or float64"):
            maker(integers, block)
    with pytest.raises(ValueError, match="unsupported dtype VarType.INT64"):
        init.NumpyArrayInitializer(np.zeros((2, 3)))(integers, block)
    for shape, told in (([2, 3], "length of shape must be 4"), ([1, 1, 3, 4], r"shape\[2\] must be equal")):
        with pytest.raises(ValueError, match=told):
            init.Bilinear()(block.create_var(shape=shape, dtype="float32"), block)
    with pytest.raises(ValueError, match="low <= high"):
        init.Uniform(3, 1)
    with pytest.raises(AssertionError, match="no NumPy array"):
        init.NumpyArrayInitializer([1])
    with pytest.raises(TypeError, match="Expected a Block"):
        init.Constant()(integers, "block")
    assert not block.ops


def test_helper_refuses(block) -> None:
    make = fluid.layer_helper.LayerHelper
    x = block.create_var(name="x", shape=[2, 3], dtype="float32")
    z = block.create_var(name="z", shape=[2, 3], dtype="int64")
    with pytest.raises(ValueError, match="takes one input, got 2"):
        make("fc", input=[x, x]).input()
    with pytest.raises(ValueError, match="Data Type mismatch"):
        make("fc", input=[x, z]).input_dtype()
    with pytest.raises(ValueError, match="parameter number mismatch"):
        make("fc", input=[x, x], param_attr=["a", "b", "c"]).multiple_param_attr(2)
    with pytest.raises(TypeError, match="should be a str"):
        make("fc", act=3).append_activation(x)
    with pytest.raises(TypeError, match="when dtype is not float type"):
        make("fc").create_parameter(fluid.ParamAttr(), [2], "int32")
    with pytest.raises(ValueError, match="no Parameter name x found"):
        make("fc").get_parameter("x")
    with pytest.raises(TypeError, match="must be str"):
        make("fc", size=3).is_instance("size", str)
    assert make("fc", name="given").name == "given"
    assert make("fc").create_parameter(False, [2], "float32") is None


def test_clips_and_decays_refuse(block) -> None:
    clip = fluid.clip
    with pytest.raises(TypeError, match="need_clip"):
        clip.GradientClipByNorm(1.0, need_clip=3)
    with pytest.raises(ValueError, match="without min it must be positive"):
        clip.GradientClipByValue(-1.0)
    with pytest.warns(UserWarning, match="not recommended"), pytest.raises(TypeError, match="GradientClipBase"):
        clip.set_gradient_clip(3)
    with pytest.raises(TypeError, match="adds no penalty"):
        fluid.regularizer.WeightDecayRegularizer()(None, None, block)
    param = block.create_parameter(name="w", shape=[2], dtype="float32")
    grad = block.create_var(name="w@GRAD", shape=[2], dtype="float32")
    param.gradient_clip_attr = "norm"
    with pytest.raises(TypeError, match="clip attribute of parameter w"):
        clip.append_gradient_clip_ops([(param, grad)])
    assert str(clip.GradientClipByGlobalNorm(1.0)) == "Gradient Clip By GlobalNorm, global_norm=1.000000"
    assert str(fluid.regularizer.L2Decay(0.1)) == "L2Decay, regularization_coeff=0.100000"


def test_parameters_are_copied_field_by_field(block) -> None:
    """As PaddleHub before 1.8 does; until 1.7 every parameter had a ``gradient_clip_attr``."""
    param = block.create_parameter(name="w", shape=[2], dtype="float32")
    fields = ("trainable", "optimize_attr", "regularizer", "gradient_clip_attr", "do_model_average")
    copy = block.create_parameter(name="v", shape=[2], dtype="float32", **{f: getattr(param, f) for f in fields})
    assert copy.gradient_clip_attr is None
    copy.gradient_clip_attr = fluid.clip.GradientClipByValue(1.0)
    assert block.program.clone().global_block().var("v").gradient_clip_attr is None


def test_a_global_norm_of_nothing_leaves_the_pairs(block) -> None:
    w = block.create_parameter([2], "float32", name="w")
    nothing = [(w, None)]
    assert fluid.clip.GradientClipByGlobalNorm(1.0)(nothing) == nothing
    unwanted = fluid.clip.GradientClipByGlobalNorm(1.0, need_clip=lambda param: False)
    assert unwanted([*nothing, (w, w)]) == [*nothing, (w, w)]
    assert fluid.clip.GradientClipByNorm(1.0)(nothing) == []


def test_clips_of_one_group_agree(block) -> None:
    pairs = []
    for name, norm in (("a", 1.0), ("b", 2.0)):
        param = block.create_parameter(name=name, shape=[2], dtype="float32")
        param.gradient_clip_attr = fluid.clip.GradientClipByGlobalNorm(norm)
        pairs.append((param, block.create_var(name=name + "@GRAD", shape=[2], dtype="float32")))
    with pytest.raises(ValueError, match="'clip_norm' of a same group should be the same"):
        fluid.clip.append_gradient_clip_ops(pairs)


def test_error_clip_is_written_after_the_gradient(block) -> None:
    var = block.create_var(name="h", shape=[2], dtype="float32")
    var._set_error_clip(fluid.clip.ErrorClipByValue(0.5))
    block.create_var(name="h@GRAD", shape=[2], dtype="float32")
    block._append_op_desc("relu_grad", {}, {"X@GRAD": ["h@GRAD"]})
    fluid.clip.error_clip_callback(block, {"h@GRAD": "h"})
    op = block.ops[-1]
    assert (op.type, op.input("X"), op.output("Out")) == ("clip", ["h@GRAD"], ["h@GRAD"])
    assert (op.attr("min"), op.attr("max")) == (-0.5, 0.5)
    var._set_error_clip("clip")
    block._append_op_desc("relu_grad", {}, {"X@GRAD": ["h@GRAD"]})
    with pytest.raises(TypeError, match="Expected an ErrorClipByValue"):
        fluid.clip.error_clip_callback(block, {"h@GRAD": "h"})


def test_steps_without_ends(block) -> None:
    x = block.create_var(name="x", shape=[6, 3], dtype="float32")
    assert x[::2].shape == (3, 3)
    assert x[1, ::-1].shape == (3,)
    reverse = block.ops[-1]
    assert reverse.type == "reverse" and reverse.attr("axis") == [0], "the axis as it is after the index dropped one"
    assert x[::-2].shape == (3, 3)


def test_nothing_subtracted_keeps_the_sign_of_zeros(block) -> None:
    """Paddle writes a bias of -0, and -0.0 + 0.0 were 0.0."""
    for nothing in (0, 0.0):
        op = (block.create_var(name="x", shape=[2], dtype="float32") - nothing).op
        assert np.signbit(op.attr("bias"))


def test_indices_and_operators_compute_what_numpy_does(block, rng) -> None:
    """One run of all of them; an index that Fluid drops to a scalar has shape [1]."""
    value = rng.uniform(1, 2, (6, 3, 4)).astype("float32")
    other = rng.uniform(1, 2, (3, 4)).astype("float32")
    x = block.create_var(name="x", shape=[-1, 3, 4], dtype="float32", is_data=True)
    y = block.create_var(name="y", shape=[3, 4], dtype="float32", is_data=True)
    expressions = [
        *(lambda a, b, i=index: a[i] for index in (0, -1, -2, slice(1, 4), slice(None, -1), slice(None, None, -1))),
        *(lambda a, b, i=index: a[i] for index in (slice(None, None, 2), slice(None, None, -2), slice(4, 1, -1))),
        *(lambda a, b, i=index: a[i] for index in (slice(-2, None, -2), slice(4, None, -3), slice(None, 1, -2))),
        *(
            lambda a, b, i=index: a[i]
            for index in ((slice(None), 1), (2, slice(None, None, -1), 3), (..., 0), (1, ..., 2))
        ),
        lambda a, b: a + b * 2.0 - 1.0,
        lambda a, b: (3.0 - a) / b,
        lambda a, b: 2.0 / a + 2.0**b,
        lambda a, b: a**2.0 - (-b),
    ]
    results = [make(x, y) for make in expressions] + [
        x < 1.5,
        x == x,
        (x * 10.0).astype("int64") % 3,
        x.astype("float64"),
    ]
    expected = [make(value, other) for make in expressions]
    expected += [value < 1.5, value == value, (value * np.float32(10)).astype("int64") % 3, value.astype("float64")]
    got = fluid.Executor(fluid.CPUPlace()).run(block.program, feed={"x": value, "y": other}, fetch_list=results)
    for made, wanted in zip(got, expected, strict=True):
        assert made.dtype == wanted.dtype and made.shape == wanted.shape
        np.testing.assert_allclose(made, wanted, rtol=1e-5)


@pytest.mark.parametrize(
    ("x", "y", "axis", "out"),
    [
        ((-1, 4, 5), (-1, 4, 5), -1, (-1, 4, 5)),
        ((4, -1, 12), (-1, 4, 12), -1, (4, 4, 12)),
        ((-1, 1), (-1, 3), -1, (-1, 3)),
        ((3,), (-1, 4, 5), 0, (3, 4, 5)),
        ((2, 3, 4, 5), (3, 4), 1, (2, 3, 4, 5)),
        ((2, 3, 4, 5), (3, 1, 1), 1, (2, 3, 4, 5)),
        ((2, 3), (1,), -1, (2, 3)),
        ((2, 3), (4,), -1, None),
        ((2, 3), (-1, 4), -1, None),
    ],
)
def test_broadcast_shapes(block, x, y, axis, out) -> None:
    """An unknown dim beside a known one above 1 is that one."""
    for name, shape in (("x", x), ("y", y)):
        block.create_var(name=name, shape=shape, dtype="float32", lod_level=0)
    result = block.create_var(name="out", dtype="float32")
    settings = {"inputs": {"X": "x", "Y": "y"}, "outputs": {"Out": result}, "attrs": {"axis": axis}}
    if out is None:
        with pytest.raises(lowering.OpError, match=r"do not broadcast(.|\n)*received: X \[2, 3\](.|\n)*to do"):
            block.append_op(type="elementwise_add", **settings)
        return
    block.append_op(type="elementwise_add", **settings)
    assert result.shape == out and result.dtype == VarType.FP32
    block.append_op(type="less_than", **settings)
    assert result.dtype == VarType.BOOL


def test_an_index_that_is_a_variable_may_count_from_the_end():
    """x[v] writes the bounds v and v + 1, -1 and 0 here."""
    numbers = np.arange(6, dtype="float32").reshape(3, 2)
    with fluid.program_guard(fluid.Program()):
        row = fluid.data("x", [3, 2])[fluid.layers.fill_constant([1], "int32", -1)]
        found = fluid.Executor(fluid.CPUPlace()).run(feed={"x": numbers}, fetch_list=[row])[0]
    np.testing.assert_array_equal(found, [4, 5])


def test_generated_names_pass_over_those_of_a_loaded_program():
    with fluid.unique_name.guard():
        program = Program()
        first = program.global_block().create_var(shape=[1], dtype="float32").name
    with fluid.unique_name.guard():
        loaded = Program.parse_from_string(program.desc.serialize_to_string())
        assert loaded.global_block().create_var(shape=[2], dtype="int64").name != first


@pytest.mark.parametrize("symbol", ["/", "**", "-"])
def test_a_number_before_a_variable_of_several_unknown_dims(rng, symbol: str) -> None:
    """The constant has the first unknown dim, and is broadcast along the others."""
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 3, None, None])
        x.stop_gradient = False
        out = {"/": lambda: 2.0 / x, "**": lambda: 2.0**x, "-": lambda: 2.0 - x}[symbol]()
        assert out.shape == (-1, 3, -1, -1)
        (grad,) = fluid.gradients([out], [x])
        fed = rng.uniform(0.5, 1.5, (2, 3, 4, 5)).astype("float32")
        result, slope = fluid.Executor(fluid.CPUPlace()).run(feed={"x": fed}, fetch_list=[out, grad])
    want = {"/": 2 / fed, "**": 2**fed, "-": 2 - fed}[symbol]
    np.testing.assert_allclose(result, want, rtol=1e-6)
    slopes = {"/": -2 / fed**2, "**": np.log(2) * 2**fed, "-": -np.ones_like(fed)}[symbol]
    np.testing.assert_allclose(slope, slopes, rtol=1e-5)
