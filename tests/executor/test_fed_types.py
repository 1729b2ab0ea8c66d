"""Feeds of ``layers.data`` are taken as they are: ops compute in the type that they find, or refuse."""

from __future__ import annotations

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers

X = np.arange(6).reshape(2, 3)


def data(name: str = "x", shape=(2, 3), dtype: str = "float32"):
    return layers.data(name, list(shape), dtype=dtype, append_batch_size=False)


def ones(shape=(2, 3)):
    return layers.fill_constant(list(shape), "float32", 1.0)


def run(build, **feed):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        out = build()
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        return exe.run(main, feed=feed, fetch_list=[out])[0]


# What Paddle 1.8.5 gives, case by case.
TAKEN = {
    "scale of int32": (lambda: data() * 2.0, "int32", "int32", X * 2),
    "scale of int64 by a fraction": (lambda: data() * 2.5, "int64", "int64", X * 2),
    "scale of uint8": (lambda: data() * 2.0, "uint8", "uint8", X * 2),
    "relu of float64": (lambda: layers.relu(data()), "float64", "float64", X),
    "mean of float64": (lambda: layers.mean(data()), "float64", "float64", [2.5]),
    "sum of int32": (lambda: layers.reduce_sum(data()), "int32", "int32", [15]),
    "cast": (lambda: layers.cast(data(), "int32"), "float64", "int32", X),
    "cast of bool": (lambda: layers.cast(data(), "float32"), "bool", "float32", X != 0),
    "twice the same": (lambda: (lambda x: x + x)(data()), "int32", "int32", X + X),
    "transpose": (lambda: layers.transpose(data(), [1, 0]), "int32", "int32", X.T),
    "reshape": (lambda: layers.reshape(data(), [3, 2]), "float64", "float64", X.reshape(3, 2)),
    "largest": (lambda: layers.argmax(data(), 1), "float64", "int64", [2, 2]),
    "part": (lambda: data()[0], "int32", "int32", X[0]),
    "the feed itself": (lambda: data(), "int32", "int32", X),
    "a type that is said": (
        lambda: layers.fill_constant_batch_size_like(data(), [2, 1], "float32", 3.0), "float64", "float32", [[3], [3]],
    ),
}  # fmt: skip


LABELS, SHARES = np.array([[1], [0]]), np.array([[0.25, 0.5, 0.25], [0.5, 0.25, 0.25]], "float32")
NUMBERED = {
    "classes": (lambda: layers.cross_entropy(data(), data("y", (2, 1))), np.log([[2], [2]])),
    "classes of logits": (
        lambda: layers.softmax_with_cross_entropy(layers.log(data()), data("y", (2, 1))), np.log([[2], [2]])
    ),
    "right answers": (lambda: layers.accuracy(data(), data("y", (2, 1))), [1.0]),
    "rows": (lambda: layers.gather(data(), layers.reshape(data("y", (2, 1)), [-1])), SHARES[[1, 0]]),
}  # fmt: skip


@pytest.mark.parametrize("case", NUMBERED)
def test_numbers_of_classes_and_rows_may_be_declared_otherwise(case):
    """Kernels look for integers there, whatever was declared."""
    build, expected = NUMBERED[case]
    result = run(build, x=SHARES, y=LABELS)
    assert result.dtype == "float32"
    np.testing.assert_allclose(result, expected, rtol=1e-5)


# Sizes, axes and numbers of rows, declared float32: the layer, what is fed, the shape and sum of what ones [2, 3] give.
COUNTED = {
    "repetitions": (layers.expand, [2, 3], (4, 9), 36),
    "a repetition in a list": (lambda x, n: layers.expand(x, [n, 2]), [2], (4, 6), 24),
    "starts": (lambda x, n: layers.slice(x, [0, 1], n, [2, 3]), [0, 1], (2, 2), 4),
    "a shape": (layers.reshape, [3, 2], (3, 2), 6),
    "a dim in a list": (lambda x, n: layers.reshape(x, [n, -1]), [3], (3, 2), 6),
    "a shape to crop to": (lambda x, n: layers.crop_tensor(x, shape=n), [1, 2], (1, 2), 2),
    "places of new axes": (layers.unsqueeze, [1], (2, 1, 3), 6),
    "how many are on top": (lambda x, n: layers.topk(x, n)[0], [2], (2, 2), 4),
    "an output size": (
        lambda x, n: layers.resize_nearest(layers.reshape(x, [1, 1, 2, 3]), out_shape=n), [4, 6], (1, 1, 4, 6), 24
    ),
    "an axis to join along": (lambda x, n: layers.concat([x, x], n), [1], (2, 6), 12),
    "an axis to split along": (lambda x, n: layers.split(x, 3, n)[0], [1], (2, 1), 2),
    "a part's size": (lambda x, n: layers.split(x, [n, 1], 1)[0], [2], (2, 2), 4),
    "margins": (lambda x, n: layers.pad2d(layers.reshape(x, [1, 1, 2, 3]), n), [1, 1, 1, 1], (1, 1, 4, 5), 6),
    "rows added to": (
        lambda x, n: layers.scatter_nd_add(x, layers.reshape(n, [1, 1]), layers.slice(x, [0], [0], [1])), [1], (2, 3), 9
    ),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("case", COUNTED)
def test_sizes_may_be_declared_otherwise(case, dtype):
    """Their kernels read integers; the gradient, which reads them too, is found."""
    build, counts, shape, total = COUNTED[case]

    def summed():
        x = ones()
        x.stop_gradient = False
        out = build(x, data("n", [len(counts)]))
        (grad,) = fluid.gradients([out], [x]) if "top" not in case else (ones(),)
        assert grad.shape == (2, 3)
        return layers.concat([layers.reshape(out, [-1]), layers.reshape(grad, [-1])])

    result = run(summed, n=np.array(counts, dtype))
    assert result.dtype == "float32" and len(result) == np.prod(shape) + 6
    assert result[:-6].sum() == total


@pytest.mark.parametrize("case", TAKEN)
def test_ops_compute_in_the_type_that_is_fed(case):
    build, fed, dtype, expected = TAKEN[case]
    result = run(build, x=X.astype(fed))
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, expected)


REFUSED = {
    "fc of float64": (lambda: layers.fc(data(), 2), "float64", "wrong type"),
    "fc of int32": (lambda: layers.fc(data(), 2), "int32", "no kernel"),
    "relu of int32": (lambda: layers.relu(data()), "int32", "no kernel"),
    "square root of int32": (lambda: layers.sqrt(data()), "int32", "no kernel"),
    "sum of two types": (lambda: data() + ones(), "float64", "wrong type"),
    "the other way round": (lambda: ones() + data(), "int32", "wrong type"),
    "join of two types": (lambda: layers.concat([data(), ones()]), "float64", "wrong type"),
    "product of two types": (lambda: layers.matmul(ones([3, 2]), data()), "float64", "wrong type"),
    "comparison of two types": (lambda: layers.less_than(data(), ones()), "float64", "wrong type"),
    "after other ops": (lambda: layers.reshape(data(), [6]) * 2.0 + ones([6]), "float64", "wrong type"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_ops_refuse_two_types_and_types_without_kernels(case):
    build, fed, reason = REFUSED[case]
    with pytest.raises(fluid.core.EnforceNotMet, match=reason) as error:
        run(build, x=X.astype(fed))
    assert "'x'" in str(error.value) or "tmp" in str(error.value)
    assert "astype('float32')" in str(error.value)


def test_variables_of_fluid_data_are_checked():
    with pytest.raises(ValueError, match="data type of fed Variable"):
        run(lambda: fluid.data("x", [2, 3]) * 2.0, x=X)


def test_a_declaration_does_not_count_the_rows_of_sequences():
    rows = fluid.create_lod_tensor(np.ones((5, 3), "float32"), [[2, 3]], fluid.CPUPlace())
    sums = run(lambda: layers.sequence_pool(fluid.data("x", [4, 3], lod_level=1), "sum"), x=rows)
    np.testing.assert_array_equal(sums, [[2.0] * 3, [3.0] * 3])
    with pytest.raises(ValueError, match=r"shape = \(2, 4\), but received fed shape \[-1, 3\]"):
        run(lambda: fluid.data("x", [2, 4], lod_level=1) * 2.0, x=rows)


def test_a_program_takes_one_type_after_another():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        out = data() * 3.0
    exe = fluid.Executor(fluid.CPUPlace())
    for dtype in ("float32", "float64", "int32", "float32", "float64"):
        (result,) = exe.run(main, feed={"x": X.astype(dtype)}, fetch_list=[out])
        assert result.dtype == dtype
        np.testing.assert_array_equal(result, X * 3)


def test_branches_and_loops_see_the_type_too():
    def build():
        x = data(shape=[1])
        return layers.cond(layers.less_than(x, x * 2.0), lambda: layers.relu(x), lambda: x)

    assert run(build, x=np.float64([3])).dtype == np.float64
    with pytest.raises(fluid.core.EnforceNotMet, match="no kernel"):
        run(build, x=np.int32([3]))


def test_what_a_kernel_declares_otherwise_is_not_of_the_feeds_doing():
    """The places of the largest rows are integers, declared like X: 1.8.5 passes them on, whatever is fed beside."""

    def build():
        x = layers.data("rows", [1], lod_level=1)
        x.stop_gradient = False
        top = layers.sequence_pool(x * layers.cast(data(shape=[1]), "float32"), "max")
        return layers.reduce_sum(fluid.gradients([layers.reduce_sum(top)], [x])[0] * x)

    rows = fluid.create_lod_tensor(np.float32([[1], [3], [2], [4]]), [[3, 1]], fluid.CPUPlace())
    for fed in ("int64", "float64", "float32"):
        assert run(build, rows=rows, x=np.full(1, 2, fed)) == 2 * 3 + 2 * 4


def test_gradients_are_refused_with_their_ops():
    def build():
        loss = layers.mean(layers.square_error_cost(layers.fc(ones([2, 3]), 1), data(shape=[2, 1])))
        fluid.optimizer.SGD(0.1).minimize(loss)
        return loss

    with pytest.raises(fluid.core.EnforceNotMet, match="wrong type"):
        run(build, x=np.ones([2, 1]))


def test_a_type_that_fluid_lacks_is_refused_by_the_variables_name():
    with pytest.raises(ValueError, match="(?s)fed Variable 'x' must be 'float32', but received.*Convert it"):
        run(lambda: layers.relu(data()), x=np.zeros((2, 3), [("a", "<f4")]))
