"""VarBase: values, operators, indices, Python's own protocols, names."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.core import EnforceNotMet, VarDesc

dg, layers = fluid.dygraph, fluid.layers


@pytest.fixture(autouse=True)
def under_guard() -> Iterator[None]:
    """Each test has a guard of its own."""
    with dg.guard():
        yield


def var(values: Any, dtype: str = "float32") -> Any:
    return dg.to_variable(np.array(values, dtype))


def same(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-6)


def test_what_a_variable_is() -> None:
    x = var([[1.0, 2.0]])
    assert isinstance(x, fluid.Variable)
    assert (x.shape, x.type, x.stop_gradient, x.persistable) == ([1, 2], VarDesc.VarType.LOD_TENSOR, True, False)
    assert x.block is fluid.default_main_program().global_block()
    p = dg.Linear(2, 3).weight
    assert isinstance(p, fluid.framework.ParamBase)
    assert isinstance(p, fluid.framework.Parameter)
    assert not isinstance(x, fluid.framework.Parameter)
    assert (p.trainable, p.optimize_attr, p.regularizer, p.is_distributed) == (
        True,
        {"learning_rate": 1.0},
        None,
        False,
    )


def test_static_variables_are_of_their_own_kind() -> None:
    with fluid.framework._dygraph_guard(None), fluid.program_guard(fluid.Program()):
        x = fluid.data("x", [2], "float32")
    assert isinstance(x, fluid.Variable)
    assert not isinstance(x, fluid.core.VarBase)


ABSENT = "item size ndim T mean clone grad __iter__ __setitem__ __matmul__ __and__ __invert__ __abs__ __iadd__".split()


@pytest.mark.parametrize("name", ABSENT)
def test_what_fluid_lacks_is_lacking(name: str) -> None:
    assert not hasattr(var([1.0]), name)


def test_reductions_have_one_element_and_scalars_none() -> None:
    assert layers.mean(var([1.0, 2.0])).shape == [1]
    assert layers.reduce_sum(var([1.0, 2.0])).shape == [1]
    assert var(1.0).shape == []
    assert var(1.0).numpy().shape == ()


@pytest.mark.parametrize("wrong", [[1.0], 1.0, np.float32(1)])
def test_to_variable_takes_arrays_and_variables(wrong: Any) -> None:
    x = var([1.0])
    assert dg.to_variable(x) is x
    assert dg.to_variable(np.ones(1), name="mine").name == "mine"
    with pytest.raises(TypeError, match="numpy"):
        dg.to_variable(wrong)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "bool", "uint8", "int8", "int16"])
def test_dtypes_stay(dtype: str) -> None:
    x = dg.to_variable(np.ones([2], dtype))
    assert x.numpy().dtype == np.dtype(dtype)
    assert (layers.assign(x) if dtype in ("float32", "int64") else x).numpy().dtype == np.dtype(dtype)


# Operators.


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_scalars_of_numpy_keep_their_fractions(dtype: Any) -> None:
    x = var([1.0, 2.0])
    same((x * dtype(2.5)).numpy(), [2.5, 5.0])
    same((x + dtype(0.5)).numpy(), [1.5, 2.5])
    assert (x < dtype(1.5)).numpy().tolist() == [True, False]


BINARY: dict[str, tuple[Callable[[Any, Any], Any], list[float]]] = {
    "+": (lambda a, b: a + b, [6.0, -4.0]),
    "-": (lambda a, b: a - b, [4.0, -2.0]),
    "*": (lambda a, b: a * b, [5.0, 3.0]),
    "/": (lambda a, b: a / b, [5.0, 3.0]),
    "**": (lambda a, b: a**b, [5.0, -1 / 3]),
    "%": (lambda a, b: a % b, [0.0, 0.0]),
}


@pytest.mark.parametrize("name", BINARY)
def test_operators_of_two_variables(name: str) -> None:
    function, expected = BINARY[name]
    same(function(var([5.0, -3.0]), var([1.0, -1.0])).numpy(), expected)


NUMBERS: dict[str, tuple[Callable[[Any], Any], list[float]]] = {
    "x+2": (lambda x: x + 2, [3.0, 6.0]),
    "2+x": (lambda x: 2 + x, [3.0, 6.0]),
    "x-2": (lambda x: x - 2.0, [-1.0, 2.0]),
    "2-x": (lambda x: 2 - x, [1.0, -2.0]),
    "x*2": (lambda x: x * 2, [2.0, 8.0]),
    "x/2": (lambda x: x / 2, [0.5, 2.0]),
    "2/x": (lambda x: 2 / x, [2.0, 0.5]),
    "x**2": (lambda x: x**2, [1.0, 16.0]),
    "2**x": (lambda x: 2**x, [2.0, 16.0]),
    "-x": (lambda x: -x, [-1.0, -4.0]),
    "-x%3": (lambda x: -x % 3, [2.0, 2.0]),
    "x*float32(2)": (lambda x: x * np.float32(2), [2.0, 8.0]),
    "x+int64(2)": (lambda x: x + np.int64(2), [3.0, 6.0]),
    "float32(2)*x": (lambda x: np.float32(2) * x, [2.0, 8.0]),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_operators_with_a_number(name: str) -> None:
    function, expected = NUMBERS[name]
    same(function(var([1.0, 4.0])).numpy(), expected)


COMPARED = {"<": [False, True], "<=": [True, True], ">": [False, False], "==": [True, False], "!=": [False, True]}


@pytest.mark.parametrize("name", COMPARED)
def test_a_number_of_numpys_is_compared_as_any_number(name: str) -> None:
    asked = eval(f"np.float32(1) {name} x", {"np": np, "x": var([1.0, 4.0])})
    assert isinstance(asked, fluid.core.VarBase)
    same(asked.numpy(), COMPARED[name])


def test_functions_of_numpy_take_the_values() -> None:
    x = var([1.0, 4.0])
    assert (np.sum(x), np.max(x), np.mean(x)) == (5, 4, 2.5)
    same(np.sqrt(x), [1.0, 2.0])
    same(np.maximum(x, 2), [2.0, 4.0])
    same(np.equal(x, x), [True, True])
    same(np.add(1, x).numpy(), [2.0, 5.0])
    same((np.array(3.0) * x).numpy(), [3.0, 12.0])


def test_arrays_and_texts_are_no_operands() -> None:
    with pytest.raises(fluid.core.EnforceNotMet, match="__radd__ with variable .*\n.*\n.*received: ndarray"):
        np.ones(2) + var([1.0, 4.0])
    with pytest.raises(fluid.core.EnforceNotMet, match="__add__ with variable .*\n.*\n.*received: str '1'"):
        var([1.0, 4.0]) + "1"


INTEGERS: dict[str, tuple[Callable[[Any], Any], list[int]]] = {
    "i+1.0": (lambda i: i + 1.0, [8, -2]),
    "i/2": (lambda i: i / 2, [3, -1]),
    "i//2": (lambda i: i // 2, [3, -1]),
    "i%2": (lambda i: i % 2, [1, -1]),
    "7/i": (lambda i: 7 / i, [1, -2]),
    "i**2": (lambda i: i**2, [49, 9]),
    "scale 1.5": (lambda i: layers.scale(i, 1.5), [7, -3]),
}


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_stay_integers_as_in_c(name: str) -> None:
    function, expected = INTEGERS[name]
    found = function(var([7, -3], "int64"))
    assert found.numpy().tolist() == expected
    assert found.dtype == VarDesc.VarType.INT64


WRONG: dict[str, tuple[type[Exception], Callable[[], Any]]] = {
    "fraction": (AssertionError, lambda: var([1], "int64") + 1.5),
    "mixed": (TypeError, lambda: var([1.0]) + var([1], "int64")),
    "two floats": (TypeError, lambda: var([1.0]) * var([1.0], "float64")),
    "mixed layer": (EnforceNotMet, lambda: layers.elementwise_add(var([1.0]), var([1], "int64"))),
    "string": (EnforceNotMet, lambda: var([1.0]) + "a"),
    "array": (EnforceNotMet, lambda: var([1.0]) + np.ones(1, "float32")),
    "array first": (EnforceNotMet, lambda: np.ones(1, "float32") + var([1.0])),
    "none": (EnforceNotMet, lambda: var([1.0]) == None),  # noqa: E711
    "float floordiv": (EnforceNotMet, lambda: var([1.0]) // 2),
    "2 // x": (TypeError, lambda: 2 // var([1.0])),
    "2 % x": (TypeError, lambda: 2 % var([1.0])),
    "shapes": (EnforceNotMet, lambda: var([1.0, 2.0, 3.0]) * var([1.0, 2.0])),
    "mean of integers": (EnforceNotMet, lambda: layers.mean(var([1], "int64"))),
    "astype": (TypeError, lambda: var([1.0]).astype(VarDesc.VarType.FP32)),
    "set_value shape": (AssertionError, lambda: var([1.0]).set_value(np.ones(2, "float32"))),
    "set_value dtype": (AssertionError, lambda: var([1.0]).set_value(np.ones(1, "int64"))),
    "set_value list": (AssertionError, lambda: var([1.0]).set_value([1.0])),
    "bool": (AssertionError, lambda: bool(var([1.0, 2.0]))),
    "float": (AssertionError, lambda: float(var([1.0, 2.0]))),
    "int": (AssertionError, lambda: int(var([1.0, 2.0]))),
    "len": (IndexError, lambda: len(var(1.0))),
    "format": (TypeError, lambda: f"{var([1.0]):.2f}"),
    "round": (TypeError, lambda: round(var([1.0]))),
    "deepcopy": (TypeError, lambda: copy.deepcopy(var([1.0]))),
    "pickle": (TypeError, lambda: pickle.dumps(var([1.0]))),
    "foreign attribute": (AttributeError, lambda: setattr(var([1.0]), "foo", 1)),
    "shape is fixed": (AttributeError, lambda: setattr(var([1.0]), "shape", [2])),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_use_is_refused(name: str) -> None:
    error, function = WRONG[name]
    with pytest.raises(error):
        function()


def test_broadcasting_is_numpys() -> None:
    a, b = np.arange(3, dtype="float32"), np.arange(6, dtype="float32").reshape(2, 3)
    same((var(a) + var(b)).numpy(), a + b)
    same((var(b) - var(a)).numpy(), b - a)
    column, row = b[:, :1], a[None]
    same((var(column) + var(row)).numpy(), column + row)


COMPARISONS: list[Callable[[Any, Any], Any]] = [
    lambda a, b: a == b, lambda a, b: a != b, lambda a, b: a < b,
    lambda a, b: a <= b, lambda a, b: a > b, lambda a, b: a >= b,
]  # fmt: skip


@pytest.mark.parametrize("compare", COMPARISONS)
def test_comparisons(compare: Callable[[Any, Any], Any]) -> None:
    a, b = np.array([1.0, 2, 3], "float32"), np.array([3.0, 2, 1], "float32")
    assert compare(var(a), var(b)).numpy().tolist() == compare(a, b).tolist()
    assert compare(var(a), 2.0).numpy().tolist() == compare(a, 2.0).tolist()


def test_truth_is_positivity() -> None:
    assert [bool(var([v])) for v in (1.0, 0.0, -1.0)] == [True, False, False]
    assert var([2.0]) in [var([1.0]), var([2.0])]


def test_variables_serve_as_numbers() -> None:
    i, x = var([2], "int64"), var([1.5])
    assert [10, 20, 30][i] == 30
    assert list(range(i)) == [0, 1]
    assert (float(x), int(x), "%.2f" % x) == (1.5, 1, "1.50")  # noqa: UP031
    assert sorted([var([3.0]), var([1.0])])[0].numpy() == 1
    same(sum([var([1.0]), var([2.0])]).numpy(), [3])
    assert len(var(np.zeros([4, 2]))) == 4


def test_variables_are_keys_by_identity() -> None:
    x, y = var([1.0]), var([1.0])
    assert {x: 1, y: 2}[x] == 1


def test_arrays_are_made_of_values() -> None:
    same(np.array(var([1.0, 2.0])), [1, 2])


# Indices.

INDICES = [
    0, -1, slice(1, 3), slice(None, None, 2), slice(None, None, -1), slice(3, 0, -2), (slice(None), 1),
    (0, 1), (1, slice(0, 2)), (slice(0, 100), slice(-2, None)), (slice(None), slice(None)), (2, -1),
]  # fmt: skip


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_indices_are_numpys(index: Any) -> None:
    array = np.arange(12, dtype="float32").reshape(4, 3)
    x = var(array)
    x.stop_gradient = False
    found, expected = x[index], array[index]
    assert found.shape == (list(np.shape(expected)) or [1])
    same(found.numpy().reshape(-1), np.reshape(expected, -1))
    (found * 1.0).backward()
    marks = np.zeros_like(array)
    marks[index] = 1
    same(x.gradient(), marks)


@pytest.mark.parametrize(
    "index", [Ellipsis, None, [0, 1], True, np.int64(1), slice(3, 1), slice(9, None), (0, 0, 0)], ids=str
)
def test_other_indices_are_refused(index: Any) -> None:
    with pytest.raises(EnforceNotMet):
        var(np.zeros([4, 3]))[index]


def test_a_variable_is_no_index() -> None:
    with pytest.raises(EnforceNotMet):
        var(np.zeros([4, 3]))[var([1], "int64")]


def test_indices_end_in_an_index_error() -> None:
    x = var(np.zeros([2, 3]))
    with pytest.raises(IndexError):
        x[2]
    assert [t.shape for t in x] == [[3], [3]]


@pytest.mark.parametrize("index", [slice(None), slice(-2, 2), (slice(None), slice(None)), slice(None, None, 1)])
def test_all_of_a_variable_is_the_variable(index: Any) -> None:
    x = var(np.zeros([2, 3]))
    assert x[index] is x
    assert x[::-1] is not x
    assert x[:9] is not x  # an op cuts it off


@pytest.mark.parametrize(
    ("index", "shape"),
    [
        ((0, slice(None, None, 2)), [1, 2]),
        ((slice(None, None, -1), 1), [4, 1]),
        ((0, slice(0, 2)), [2]),
    ],
)
def test_an_index_beside_a_step_keeps_its_axis(index: Any, shape: list[int]) -> None:
    x = var(np.arange(12).reshape(4, 3))
    x.stop_gradient = False
    found = x[index]
    same(found.numpy(), np.arange(12).reshape(4, 3)[index].reshape(shape))
    assert found.shape == shape
    found.backward()
    assert x.gradient().sum() == np.prod(shape)


@pytest.mark.parametrize(
    ("bounds", "expected"), [((-7, None), [3, 4]), ((None, -6), [0, 1, 2, 3]), ((-12, None), [0, 1, 2, 3, 4])]
)
def test_bounds_before_the_first_element_wrap_twice(bounds: tuple[Any, Any], expected: list[int]) -> None:
    assert var(np.arange(5))[slice(*bounds)].numpy().tolist() == expected


# Text, values.


def test_text_is_fluids() -> None:
    x = var([1.5])
    text = (
        "name {}, dtype: VarType.FP32 shape: [1] \tlod: {{}}\n\tdim: 1\n\tlayout: NCHW\n\tdtype: float\n\tdata: [1.5]\n"
    )
    assert str(x) == text.format(x.name)
    p = dg.Linear(1, 1).weight
    assert repr(p) == str(p)
    assert repr(x).startswith("<")


def test_astype_casts() -> None:
    x = var([1.7, -1.7])
    assert x.astype("int64").numpy().tolist() == [1, -1]
    assert x.astype(np.float64).dtype == VarDesc.VarType.FP64


def test_set_value_takes_arrays_and_variables() -> None:
    x = var([1.0, 2.0])
    x.set_value(var([3.0, 4.0]))
    same(x.numpy(), [3, 4])
    x.value().get_tensor().set(np.array([5.0, 6.0], "float32"), fluid.CPUPlace())
    same(x.numpy(), [5, 6])
    same(np.array(x.value().get_tensor()), [5, 6])


def test_pending_values_show_what_was_there_when_they_were_recorded() -> None:
    x = var([1.0, 2.0])
    y = x * 2.0
    x.set_value(np.zeros(2, "float32"))
    same(y.numpy(), [2, 4])


# Names.


def test_names_are_counted_together() -> None:
    x = var([1.0])
    y = x * 2.0
    z = layers.relu(y)
    assert (x.name, y.name, z.name) == ("generated_var_0", "tmp_1", "tmp_2")
    assert layers.fill_constant([1], "float32", 1.0).name == "generated_var_3"
    assert (x > 1.0).name == "tmp_5"  # generated_var_4 is the number
    with fluid.unique_name.guard():
        assert (x + y).name == "tmp_6"


def test_layers_with_a_helper_have_a_count_of_their_own() -> None:
    x = var([[1.0, 2.0]])
    for _ in range(3):  # an op's first time and later ones
        before = int((x + x).name.split("_")[1])
        assert layers.softmax(x).name == f"tmp_{before + 1}"
        assert x.astype("int64").name == f"tmp_{before + 2}"
    assert [layers.elu(x).name, layers.cast(x, "int64").name, layers.elu(x).name] == ["tmp_0", "tmp_1", "tmp_2"]
    assert fluid.unique_name.generate("tmp") == "tmp_3"


@pytest.mark.parametrize(
    ("make", "shape", "name"),
    [
        (lambda: dg.Linear(4, 2, act="elu"), [3, 4], "tmp_3"),
        (lambda: dg.Conv2D(4, 2, 3, act="relu"), [1, 4, 6, 6], "tmp_3"),
        (lambda: dg.LayerNorm(4), [3, 4], "tmp_1"),
        (lambda: dg.BatchNorm(4), [3, 4], "tmp_1"),
        (lambda: dg.InstanceNorm(4), [1, 4, 6, 6], "tmp_1"),
        (lambda: dg.PRelu("all"), [3, 4], "tmp_0"),
    ],
)
def test_what_layers_compute_is_numbered(make: Callable[[], Any], shape: list[int], name: str) -> None:
    layer, array = make(), np.ones(shape, "float32")
    assert layer(dg.to_variable(array)).name == name


def test_variables_of_one_name_are_told_apart_in_a_trace() -> None:
    x = var([[1.0, 2.0]])
    one = x * 3.0
    layers.elu(x)
    two = layers.elu(x * -1.0)
    assert one.name == two.name == "tmp_1"

    class Difference(dg.Layer):
        def forward(self, x: Any) -> Any:
            return x + one - two

    out, traced = dg.TracedLayer.trace(Difference(), [x])
    same(traced([x])[0], out.numpy())
    same(out.numpy(), x.numpy() + one.numpy() - two.numpy())


def test_functions_that_call_their_op_number_no_layer() -> None:
    class Softmax(dg.Layer):
        pass

    class Elu(dg.Layer):
        pass

    for _ in range(3):
        layers.softmax(var([[1.0, 2.0]]))
        layers.elu(var([1.0]))
    assert (Softmax().full_name(), Elu().full_name()) == ("softmax_0", "elu_3")


def test_copies_are_named_after_what_they_copy() -> None:
    x = var([1.0])
    y = x + x
    assert [v.detach().name for v in (x, y, x)] == ["generated_var_00", "tmp_10", "generated_var_01"]
    assert (x + x).name == "tmp_2"


@pytest.mark.parametrize("create_graph", [False, True])
def test_gradients_are_named_after_what_they_are_of(create_graph: bool) -> None:
    x = var([1.0])
    x.stop_gradient = False
    (found,) = dg.grad(x * x, x, create_graph=create_graph)
    assert found.name == "generated_var_0@GRAD"
    assert (x + x).name == "tmp_2"


def test_parameters_are_named_after_their_layers() -> None:
    one, two = dg.Linear(2, 2), dg.Linear(2, 2)
    assert [p.name for p in one.parameters()] == ["linear_0.w_0", "linear_0.b_0"]
    assert [p.name for p in two.parameters()] == ["linear_1.w_0", "linear_1.b_0"]


def test_a_parameters_name_is_used_once_in_a_guard() -> None:
    dg.Linear(2, 2, param_attr=fluid.ParamAttr(name="mine"))
    with pytest.raises(ValueError, match="mine"):
        dg.Linear(2, 2, param_attr=fluid.ParamAttr(name="mine"))


def test_guards_count_names_afresh() -> None:
    with dg.guard():
        assert var([1.0]).name == "generated_var_0"
        net = dg.Linear(2, 2)
    assert net.weight.name == "linear_0.w_0"
    assert var([1.0]).name == "generated_var_0"
    assert net(var([[1.0, 2.0]])).shape == [1, 2]


def test_the_default_program_stays_empty() -> None:
    net = dg.Linear(2, 2)
    layers.reduce_sum(net(var([[1.0, 2.0]]))).backward()
    assert fluid.default_main_program().global_block().ops == []
    assert list(fluid.default_main_program().list_vars()) == []


def test_what_an_op_does_not_have_is_left_out_with_a_warning() -> None:
    with fluid.dygraph.guard():
        x = fluid.dygraph.to_variable(np.float32([-1, 2]))
        helper = fluid.layer_helper.LayerHelper("relu")
        for _ in range(2):
            out, other = [helper.create_variable_for_type_inference("float32") for _ in range(2)]
            with pytest.warns(UserWarning, match="op relu: .* is not one of the op's") as told:
                helper.append_op("relu", {"X": [x], "Y": [x]}, {"Out": [out], "Mask": other}, {"axis": 1})
            assert out.numpy().tolist() == [0, 2]
            assert {str(each.message).split()[2] for each in told} >= {"input", "output"}


def test_bytes_wrap_around() -> None:
    for number in (1, 2, 3):  # one that changes becomes an operand
        x = var([1, 2, 250], "uint8")
        assert (x - number).numpy().tolist() == [(n - number) % 256 for n in (1, 2, 250)]
        assert (number - x).numpy().tolist() == [(number - n) % 256 for n in (1, 2, 250)]
        assert (x * -number).numpy().tolist() == [-number * n % 256 for n in (1, 2, 250)]


def test_variables_are_declared_or_share_memory_as_fluids_binding_has_it() -> None:
    kinds = fluid.core.VarDesc.VarType
    declared = fluid.core.VarBase(kinds.INT64, [2, 3], "declared", kinds.SELECTED_ROWS, True)
    assert (declared.name, declared.shape, declared.dtype, declared.type) == (
        "declared", [2, 3], kinds.INT64, kinds.SELECTED_ROWS,
    )  # fmt: skip
    assert declared.persistable and declared._value is None
    assert fluid.core.VarBase(kinds.FP32, [], "", kinds.LOD_TENSOR, False).name == ""
    array = np.ones(2, "float32")
    shared, copied = (fluid.core.VarBase(array, fluid.CPUPlace(), zero_copy=share) for share in (True, False))
    array[0] = 5
    assert shared.numpy().tolist() == [5, 1] and copied.numpy().tolist() == [1, 1]
    shared.set_value(np.zeros(2, "float32"))
    assert array.tolist() == [0, 0]


@pytest.mark.parametrize("array", [np.array(["a"]), np.array([None])], ids=str)
def test_texts_and_objects_are_no_values(array: np.ndarray) -> None:
    with pytest.raises(fluid.core.EnforceNotMet, match="element type"):
        dg.to_variable(array)
