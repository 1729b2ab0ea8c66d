"""Tensor, elementwise, reduction, shape, indexing and random layers write the programs of Paddle 1.8.5."""

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers
from tests.layers.programs import data, recorded, written

RECORDED = recorded("tensor_layers")
L = fluid.layers


@pytest.mark.parametrize("call", sorted(RECORDED))
def test_written_program(call):
    assert written(call) == RECORDED[call]


@pytest.fixture
def program():
    with fluid.unique_name.guard(), fluid.program_guard(fluid.Program(), fluid.Program()):
        yield


REJECTED = [
    ("elementwise_add of numbers", TypeError, lambda: L.elementwise_add(1, 2), "'x' in elementwise_add"),
    ("int8", TypeError, lambda: L.elementwise_add(data("x", [2], "int8"), data("y", [2], "int8")), "int8"),
    ("bool sum", TypeError, lambda: L.reduce_sum(data("x", [2], "bool")), "bool"),
    ("int relu", TypeError, lambda: L.relu(data("x", [2], "int32")), "int32"),
    ("axis text", TypeError, lambda: L.concat([data("x", [2])], axis="a"), "axis"),
    ("two unknowns", AssertionError, lambda: L.reshape(data("x", [2, 3]), [-1, -1]), "Only one"),
    ("matmul", ValueError, lambda: L.matmul(data("x", [2, 3]), data("y", [2, 3])), r"\(2, 3\)"),
    ("short perm", ValueError, lambda: L.transpose(data("x", [2, 3]), [0]), "perm"),
    ("slice text", ValueError, lambda: L.slice(data("x", [2, 3]), [0], "a", [1]), "starts"),
    ("unknown dtype", ValueError, lambda: L.cast(data("x", [2, 3]), "foo"), "foo"),
    ("shape text", TypeError, lambda: L.fill_constant("a", "float32", 1.0), "shape"),
    ("negative shape", ValueError, lambda: L.fill_constant([-1, 2], "float32", 1.0), "no less than 0"),
    ("uneven split", AssertionError, lambda: L.split(data("x", [2, 3]), 4), "4 pieces"),
    ("mean of a list", TypeError, lambda: L.mean([1]), "mean"),
    ("maxout axis", ValueError, lambda: L.maxout(data("x", [2, 4, 2, 2]), 2, axis=2), "axis"),
    ("prelu mode", ValueError, lambda: L.prelu(data("x", [2, 4]), "some"), "mode"),
    ("shard", ValueError, lambda: L.shard_index(data("x", [2, 1], "int64"), 20, 2, 2), "shard_id"),
    ("unknown unstack", ValueError, lambda: L.unstack(data("x", [-1, 3])), "num"),
    ("empty randint", ValueError, lambda: L.randint(5, 5), "low"),
    ("big array", TypeError, lambda: L.assign([1, 2]), "assign"),
]


@pytest.mark.parametrize(("error", "call", "text"), [r[1:] for r in REJECTED], ids=[r[0] for r in REJECTED])
def test_bad_arguments_are_named(program, error, call, text):
    with pytest.raises(error, match=text):
        call()


def test_clamp_without_a_lower_bound_keeps_negative_values(program):
    """Fluid 1.8.5 clips them to the smallest positive float: a listed deviation."""
    x = L.fill_constant([3], "float32", -2.0)
    out = L.clamp(x, max=1.0)
    (got,) = fluid.Executor(fluid.CPUPlace()).run(fluid.default_main_program(), fetch_list=[out])
    assert got.tolist() == [-2.0, -2.0, -2.0]


def test_uniform_random_keeps_its_dtype(program):
    """Fluid 1.8.5 writes float32 whatever is asked for: a listed deviation."""
    assert L.uniform_random([2], "float64").dtype == fluid.core.VarDesc.VarType.FP64
    for spelt in ("double", "float", "f8", float, np.float64):  # as NumPy spells it
        for draw in (L.uniform_random, L.gaussian_random):
            assert draw([2], dtype=spelt).dtype == fluid.core.VarDesc.VarType.FP64


def run(*outs):
    return fluid.Executor(fluid.CPUPlace()).run(fluid.default_main_program(), fetch_list=list(outs))


def test_randn_differs_between_runs(program):
    out = L.randn([4])
    assert (run(out)[0] != run(out)[0]).all()


def test_one_hot_out_of_range(program):
    ids = L.assign(np.array([[1], [5], [-1]], "int64"))
    (got,) = run(L.one_hot(ids, 3, allow_out_of_range=True))
    assert got.tolist() == [[0, 1, 0], [0, 0, 0], [0, 0, 0]]
    with pytest.raises(fluid.core.EnforceNotMet, match="cannot take the value 5 of"):
        run(L.one_hot(ids, 3))


def test_declared_shapes_are_true_or_unknown(program):
    x = data("x", [4, 6])
    assert L.topk(x, data("k", [1], "int32"))[0].shape == (4, -1)
    assert L.pad2d(data("i", [2, 3, 4, 5]), data("p", [4], "int32")).shape == (2, 3, -1, -1)
    assert L.expand_as(data("s", [2, 3]), data("t", [4, 3])).shape == (4, 3)


def test_slices_along_an_unknown_dim(program):
    x = data("x", [-1, 3])
    assert [v.shape for v in L.unstack(x, axis=0, num=2)] == [(3,), (3,)]
    block = fluid.default_main_program().global_block()
    for axis, shapes in ((0, [(3,), (3,)]), (-1, [(-1,)] * 3)):
        outs = [block.create_var(name=f"slice{axis}{i}") for i in range(len(shapes))]
        block.append_op(type="unbind", inputs={"X": [x]}, outputs={"Out": outs}, attrs={"axis": axis})
        assert [v.shape for v in outs] == shapes


def test_a_scale_tensor_decides_the_size_of_an_image(program):
    block = fluid.default_main_program().global_block()
    out = block.create_var(name="resized")
    inputs = {"X": [data("i", [-1, 3, 4, 5])], "Scale": [data("s", [1])]}
    block.append_op(type="bilinear_interp", inputs=inputs, outputs={"Out": [out]}, attrs={"out_h": 2, "out_w": 2})
    assert out.shape == (-1, 3, -1, -1)


def test_shapes_from_tensors_run(program):
    two = L.fill_constant([1], "int32", 2)
    x = L.fill_constant([4, 6], "float32", 1.0)
    outs = [
        L.fill_constant([two, 3], "float32", 5.0),
        L.reshape(x, [two, -1]),
        L.expand(x, [1, two]),
        L.slice(x, [0], [1], [two]),
        L.split(x, [two, 4], dim=1)[0],
        L.topk(x, two)[0],
        L.unsqueeze(x, [two]),
        L.crop_tensor(x, [two, 3], [0, two]),
    ]
    got = fluid.Executor(fluid.CPUPlace()).run(fluid.default_main_program(), fetch_list=outs)
    assert [g.shape for g in got] == [(2, 3), (2, 12), (4, 12), (1, 6), (4, 2), (4, 2), (4, 6, 1), (2, 3)]


def test_names_of_created_parameters_are_paddles():
    """A name without one in ``attr`` is the whole name; beside an ``attr`` it is what the name begins with."""
    given = fluid.ParamAttr(initializer=fluid.initializer.Constant(0.0))
    asked = [("weight_norm", given), ("w1", None), ("w2", fluid.ParamAttr(name="own")), (None, None), ("w1", given)]
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        names = [layers.create_parameter([2], "float32", name=n, attr=a).name for n, a in asked]
    assert names == ["weight_norm.w_0", "w1", "own", "create_parameter_0.w_0", "w1.w_0"]


@pytest.mark.parametrize("shape", [[None, 4, 3], [None, 4, 3, 2]])
def test_sequence_conv_takes_rows_of_numbers_alone(shape):
    with fluid.program_guard(fluid.Program(), fluid.Program()), pytest.raises(fluid.core.EnforceNotMet, match="rank 2"):
        layers.sequence_conv(fluid.data("x", shape, lod_level=1), 4, 3)


@pytest.mark.parametrize(
    "attr", ["centers", fluid.initializer.Constant(2.0), fluid.regularizer.L2Decay(0.1), None, True]
)
def test_parameters_of_layers_are_made_of_what_attributes_are(program, attr) -> None:
    x, label = fluid.data("x", [4, 3]), fluid.data("label", [4, 1], "int64")
    layers.center_loss(x, label, 5, 0.1, attr)
    (centers,) = fluid.default_main_program().all_parameters()
    assert centers.shape == (5, 3)


def test_any_number_of_dimensions_is_reversed(program) -> None:
    x = fluid.data("x", [2, 1, 1, 1, 1, 1, 2])
    fed = np.arange(4, dtype=np.float32).reshape(x.shape)
    (found,) = fluid.Executor(fluid.CPUPlace()).run(feed={"x": fed}, fetch_list=[layers.reverse(x, [0, 6])])
    np.testing.assert_array_equal(found, fed[::-1, ..., ::-1])
