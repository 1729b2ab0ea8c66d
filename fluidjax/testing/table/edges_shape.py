"""Edge cases of much used ops that move, join, cut and reduce: sizes 0 and 1, negative axes, lists of one."""

import numpy as np

from fluidjax.testing.case import case, distinct, flags, integers, normal, positive


def _xs(*draws):
    return {"X": list(draws)}


def _softmax(v, axis=-1):
    e = np.exp(v - v.max(axis, keepdims=True, initial=-np.inf))
    return e / e.sum(axis, keepdims=True)


def _one(v):
    return np.asarray(v).reshape(1)


def _dot(X, Y):
    return (X * Y).sum(1, keepdims=True, dtype=np.int32)


def _trace(Input):
    return np.array([np.trace(Input)], np.int32)


def _trunc_mean(X):
    """Integers are summed and divided as C++ does, towards zero."""
    total = X.sum(1)
    return np.sign(total) * (np.abs(total) // X.shape[1])


def _joining():
    return [
        case("concat", _xs(normal(4, 3)), {"axis": 1}, "one", reference=lambda X, axis: X[0]),
        case("concat", _xs(normal(2, 0), normal(2, 3)), {"axis": -1}, "size-0", reference=lambda X, axis: X[1]),
        case("concat", _xs(normal(1), normal(1)), label="size-1", reference=lambda X: np.concatenate(X)),
        case(
            "concat", _xs(integers(0, 9, 2, 2), integers(0, 9, 1, 2)), {"axis": -2}, "int64",
            reference=lambda X, axis: np.concatenate(X),
        ),
        case("stack", _xs(normal(4, 3)), label="one", reference=lambda X: X[0][None]),
        case(
            "stack", _xs(normal(2, 3), normal(2, 3)), {"axis": -1}, "negative",
            reference=lambda X, axis: np.stack(X, -1),
        ),
        case("stack", _xs(normal(0, 3), normal(0, 3)), {"axis": 1}, "size-0", reference=lambda X, axis: np.stack(X, 1)),
        case("stack", _xs(normal(1), normal(1)), {"axis": -2}, "size-1", reference=lambda X, axis: np.stack(X, 0)),
        case(
            "split", normal(4, 5), {"sections": [-1, 2, 1], "axis": -1}, "negative", counts={"Out": 3},
            reference=lambda X, **a: np.split(X, [2, 4], 1),
        ),
        case("split", normal(4, 3), {"num": 1, "axis": 0}, "one", counts={"Out": 1}, reference=lambda X, **a: [X]),
        case(
            "split", normal(0, 4), {"num": 2, "axis": 1}, "size-0", counts={"Out": 2},
            reference=lambda X, **a: np.split(X, 2, 1),
        ),
        case(
            "unstack", normal(2, 3), {"axis": -1, "num": 3}, "negative", counts={"Y": 3},
            reference=lambda X, **a: list(X.T),
        ),
    ]  # fmt: skip


def _reshaping():
    both = [
        case(name + two, draw, attrs, label, reference=reference)
        for two in ("", "2")
        for name, draw, attrs, label, reference in (
            ("reshape", normal(0, 3), {"shape": [3, 0]}, "size-0", lambda X, shape: np.zeros((3, 3))[:, :0]),
            ("reshape", normal(1), {"shape": [1, 1, -1]}, "size-1", lambda X, shape: X.reshape(1, 1, 1)),
            ("reshape", integers(0, 9, 2, 3), {"shape": [-1]}, "int64", lambda X, shape: X.reshape(6)),
            ("squeeze", normal(1, 3, 1), {"axes": [0, -1]}, "ends", lambda X, axes: X.reshape(3)),
            ("squeeze", normal(1), {"axes": [0]}, "size-1", lambda X, axes: X.reshape(())),
            ("squeeze", normal(0, 1), {"axes": [-1]}, "size-0", lambda X, axes: X[:, 0]),
            ("unsqueeze", normal(3), {"axes": [-1]}, "negative", lambda X, axes: X[:, None]),
            ("unsqueeze", normal(1), {"axes": [0, 1]}, "size-1", lambda X, axes: X.reshape(1, 1, 1)),
            ("unsqueeze", normal(0, 3), {"axes": [1]}, "size-0", lambda X, axes: X[:, None]),
            ("flatten", normal(0, 3, 2), {"axis": 1}, "size-0", lambda X, axis: X.reshape(0, 6)),
            ("flatten", normal(1), {"axis": 0}, "size-1", lambda X, axis: X.reshape(1, 1)),
            ("flatten", normal(2, 3), {"axis": 2}, "all", lambda X, axis: X.reshape(6, 1)),
            ("transpose", normal(0, 3), {"axis": [1, 0]}, "size-0", lambda X, axis: X.T),
            ("transpose", normal(1), {"axis": [0]}, "size-1", lambda X, axis: X),
            ("transpose", flags(2, 3), {"axis": [1, 0]}, "bool", lambda X, axis: X.T),
        )
        if (name, label) != ("reshape", "size-0")
    ]
    return [
        *both,
        case("expand", normal(1), {"expand_times": [3]}, "size-1", reference=lambda X, expand_times: np.tile(X, 3)),
        case("expand", normal(0, 2), {"expand_times": [2, 2]}, "size-0", reference=lambda X, **a: np.tile(X, (2, 2))),
        case("expand", integers(0, 9, 2, 3), {"expand_times": [1, 2]}, "int64", reference=lambda X, **a: np.tile(X, 2)),
        case(
            "sign", np.array([-0.0, 0.0, np.nan, -3.0]), label="nan", smooth=False,
            reference=lambda X: np.array([0.0, 0, 0, -1]),
        ),
        case("reverse", normal(2, 3), {"axis": [-1]}, "negative", reference=lambda X, axis: X[:, ::-1]),
    ]  # fmt: skip


def _cut(label, draw, reference, **attrs):
    return case("slice", {"Input": draw}, attrs, label, reference=lambda Input, **a: reference(Input))


def _cutting():
    return [
        _cut("past-the-end", normal(5, 4), lambda v: v[3:], axes=[0], starts=[3], ends=[100]),
        _cut("before-the-start", normal(5, 4), lambda v: v[:2], axes=[0], starts=[-100], ends=[2]),
        _cut("last", normal(5), lambda v: v[-1:], axes=[0], starts=[-1], ends=[100], decrease_axis=[0]),
        _cut("size-1", normal(1), lambda v: v, axes=[0], starts=[0], ends=[1]),
        _cut("int64", integers(0, 9, 5, 4), lambda v: v[:, 1:-1], axes=[1], starts=[1], ends=[-1]),
        case(
            "strided_slice", {"Input": normal(5, 4)},
            {"axes": [0], "starts": [4], "ends": [-100], "strides": [-1]}, "reversed",
            reference=lambda Input, **a: Input[::-1],
        ),
        case(
            "strided_slice", {"Input": normal(5, 4)},
            {"axes": [1], "starts": [-100], "ends": [100], "strides": [3]}, "past-the-ends",
            reference=lambda Input, **a: Input[:, ::3],
        ),
    ]  # fmt: skip


def _reducing(name, fn, draw):
    return [
        case(
            name, draw(3, 4), {"dim": [0], "reduce_all": True, "keep_dim": True}, "all-and-dim",
            reference=lambda X, **a: _one(fn(X)).reshape(1, 1),
        ),
        case(name, draw(1), {"dim": [-1]}, "size-1", reference=lambda X, dim: _one(fn(X))),
        case(
            name, draw(2, 3, 4), {"dim": [-1, 1], "keep_dim": True}, "negative",
            reference=lambda X, **a: fn(X, axis=(1, 2), keepdims=True),
        ),
    ]  # fmt: skip


def _of_nothing():
    """A batch without rows: sums are 0, products 1, extrema infinite."""
    return [
        case(
            name,
            np.zeros((0, 3)),
            {"dim": [0]},
            "size-0",
            smooth=False,
            reference=lambda X, dim, want=want: np.full(3, want),
        )
        for name, want in (("reduce_sum", 0.0), ("reduce_prod", 1.0), ("reduce_max", -np.inf), ("reduce_min", np.inf))
    ]


def _integer_sums():
    return [
        case(name, integers(-9, 9, 3, 4, dtype=dtype), {"dim": [1]}, dtype, reference=lambda X, dim, fn=fn: fn(X))
        for name, fn in (
            ("reduce_sum", lambda v: v.sum(1, dtype=v.dtype)),
            ("reduce_max", lambda v: v.max(1)),
            ("reduce_min", lambda v: v.min(1)),
            ("reduce_prod", lambda v: v.prod(1, dtype=v.dtype)),
        )
        for dtype in ("int32", "int64")
    ]


def _ordering():
    return [
        case("cumsum", normal(2, 3, 4), {"axis": -2}, "negative", reference=lambda X, axis: np.cumsum(X, -2)),
        case("cumsum", normal(4), {"exclusive": True}, "exclusive", reference=lambda X, **a: np.cumsum(X) - X),
        case("cumsum", normal(1), {"reverse": True}, "size-1", reference=lambda X, **a: X),
        case("cumsum", normal(0, 3), {"axis": 1}, "size-0", reference=lambda X, **a: X),
        case("cumsum", integers(-9, 9, 3, 4), {"axis": 0}, "int64", reference=lambda X, axis: np.cumsum(X, 0)),
        case("argsort", distinct(2, 3, 4), {"axis": -2}, "negative",
             reference=lambda X, axis: (np.sort(X, 1), np.argsort(X, 1))),
        case("argsort", np.array([[1.0, 0, 1, 0, 1]]), {"axis": -1}, "ties", smooth=False,
             reference=lambda X, axis: (np.sort(X, 1), np.argsort(X, 1, kind="stable"))),
        case("top_k", normal(3, 1), {"k": 1}, "size-1", reference=lambda X, k: (X, np.zeros((3, 1), np.int64))),
        case("top_k", distinct(2, 3, 4), {"k": 4}, "all-of-three-dims",
             reference=lambda X, k: (-np.sort(-X, -1), np.argsort(-X, -1))),
        case("arg_max", distinct(2, 3, 4), {"axis": -2}, "negative", reference=lambda X, axis: X.argmax(1)),
        case("arg_max", normal(1), {"axis": 0}, "size-1", reference=lambda X, axis: np.array(0)),
        case("arg_max", np.array([[1, 3, 3, 0]]), {"axis": 1, "keepdims": True}, "ties",
             reference=lambda X, **a: np.array([[1]])),
        case("arg_min", distinct(2, 3, 4), {"axis": -1}, "negative", reference=lambda X, axis: X.argmin(-1)),
        case("gather", {"X": normal(5, 3), "Index": np.array([4], np.int32)}, label="size-1",
             reference=lambda X, Index: X[[4]]),
        case("gather", {"X": normal(5), "Index": np.array([1, 1, 0])}, {"overwrite": False}, "vector",
             reference=lambda X, Index, overwrite: X[Index]),
        case("gather", {"X": integers(0, 9, 5, 2), "Index": np.array([0, 2])}, label="int64",
             reference=lambda X, Index: X[Index]),
        case("gather_nd", {"X": normal(3, 4), "Index": np.array([[[2]], [[0]]])}, label="rows",
             reference=lambda X, Index: X[[2, 0]][:, None]),
    ]  # fmt: skip


def _products():
    return [
        case("mul", {"X": normal(0, 3), "Y": normal(3, 2)}, label="size-0", reference=lambda X, Y: X @ Y),
        case("mul", {"X": normal(1, 1), "Y": normal(1, 1)}, label="size-1", reference=lambda X, Y: X @ Y),
        case("matmul", {"X": normal(1, 1), "Y": normal(1, 1)}, label="size-1", reference=lambda X, Y: X @ Y),
        case("matmul", {"X": normal(3), "Y": normal(3, 2)}, label="row", reference=lambda X, Y: X @ Y),
        case("matmul", {"X": normal(2, 2, 3, 4), "Y": normal(2, 2, 4, 1)},
             label="four-dims", reference=lambda X, Y: X @ Y),
    ]  # fmt: skip


CASES = [
    *_joining(),
    *_reshaping(),
    *_cutting(),
    *(
        c
        for name, fn, draw in (
            ("reduce_sum", np.sum, normal),
            ("reduce_mean", np.mean, normal),
            ("reduce_max", np.max, distinct),
            ("reduce_min", np.min, distinct),
            ("reduce_prod", np.prod, positive),
        )
        for c in _reducing(name, fn, draw)
    ),
    *_integer_sums(),
    *_of_nothing(),
    *_ordering(),
    *(
        case(name, inputs, label="int32", reference=fn)
        for name, inputs, fn in (
            ("dot", {"X": integers(0, 9, 2, 3, dtype="int32"), "Y": integers(0, 9, 2, 3, dtype="int32")}, _dot),
            ("trace", {"Input": integers(0, 9, 3, 3, dtype="int32")}, _trace),
        )
    ),
    *_products(),
    case("mean", normal(1), label="size-1", reference=lambda X: X),
    case("reduce_mean", integers(-9, 9, 3, 4), {"dim": [1]}, "int64", reference=lambda X, dim: _trunc_mean(X)),
    case("assign", integers(0, 9, 3), label="int64", reference=lambda X: X),
    case("reverse", normal(0, 3), {"axis": [0]}, "size-0", reference=lambda X, axis: X),
    case("reverse", normal(1), {"axis": [0]}, "size-1", reference=lambda X, axis: X),
    case("arg_min", normal(1), {"axis": 0}, "size-1", reference=lambda X, axis: np.array(0)),
    case("argsort", normal(1), label="size-1", reference=lambda X: (X, np.array([0]))),
    case("argsort", normal(0, 3), label="size-0", reference=lambda X: (X, np.zeros((0, 3), np.int64))),
    case("top_k", normal(0, 3), {"k": 2}, "size-0", reference=lambda X, k: (X[:, :2], np.zeros((0, 2), np.int64))),
    case("top_k", np.array([[3, 9, 1]]), {"k": 2}, "int64", reference=lambda X, k: (X[:, 1::-1], np.array([[1, 0]]))),
    case("top_k", np.array([[2.5]]), {"k": 1}, "single", reference=lambda X, k: (X, np.array([[0]]))),
    case("gather", {"X": normal(1), "Index": np.array([0])}, label="single", reference=lambda X, Index: X),
    case(
        "gather", {"X": normal(3, 2), "Index": np.zeros(0, np.int64)}, label="size-0", reference=lambda X, Index: X[:0]
    ),
    case(
        "split", normal(2), {"num": 2, "axis": 0}, "vector", counts={"Out": 2}, reference=lambda X, **a: [X[:1], X[1:]]
    ),
    case("split", normal(1), {"num": 1, "axis": -1}, "size-1", counts={"Out": 1}, reference=lambda X, **a: [X]),
    case(
        "slice",
        {"Input": normal(0, 3)},
        {"axes": [1], "starts": [1], "ends": [3]},
        "size-0",
        reference=lambda Input, **a: Input[:, 1:],
    ),
    case("softmax", normal(1), label="single", reference=lambda X: np.ones(1)),
    case("is_empty", normal(1), label="size-1", reference=lambda X: np.array([False])),
    case(
        "one_hot", integers(0, 4, 1, 1), {"depth": 4}, "size-1", reference=lambda X, depth: np.eye(4, dtype="f4")[X[0]]
    ),
    case(
        "one_hot", np.zeros((0, 1), np.int64), {"depth": 4}, "size-0", reference=lambda X, depth: np.zeros((0, 4), "f4")
    ),
    *(
        case(name, {"W": normal(5, 2), "Ids": ids}, label=label, reference=lambda W, Ids, at=at: W[at])
        for name, ids, label, at in (
            ("lookup_table", np.zeros((0, 1), np.int64), "size-0", slice(0, 0)),
            ("lookup_table", np.array([[3]]), "size-1", [3]),
            ("lookup_table_v2", np.zeros(0, np.int64), "size-0", slice(0, 0)),
            ("lookup_table_v2", np.array([3]), "size-1", [3]),
        )
    ),
    *(
        case(name, {"X": draw, "Y": draw}, label=label, reference=lambda X, Y, fn=fn: fn(X, Y))
        for name, fn in (("logical_and", np.logical_and), ("logical_or", np.logical_or))
        for draw, label in ((flags(0, 3), "size-0"), (flags(1), "size-1"))
    ),
    case("softmax", normal(2, 3, 4), {"axis": -2}, "negative", reference=lambda X, axis: _softmax(X, -2)),
    case("softmax", normal(3, 1), label="size-1", reference=lambda X: np.ones((3, 1))),
    case("softmax", normal(0, 4), label="size-0", reference=lambda X: X),
    case("shape", {"Input": normal(0, 3)}, label="size-0", reference=lambda Input: np.array([0, 3], np.int32)),
    case("shape", {"Input": normal(1)}, label="size-1", reference=lambda Input: np.array([1], np.int32)),
    *(
        case(
            "cast",
            np.array([-2.7, -0.5, 0.0, 0.5, 2.7, 300.9, -200.0, 1e10, np.nan]),
            {"in_dtype": 6, "out_dtype": out},
            np.dtype(dtype).name,
            reference=lambda X, expected=expected, dtype=dtype, **a: np.array(expected, dtype),
        )
        for out, dtype, expected in (
            (0, "bool", [1, 1, 0, 1, 1, 1, 1, 1, 1]),
            (1, "int16", [-2, 0, 0, 0, 2, 300, -200, 0, 0]),
            (2, "int32", [-2, 0, 0, 0, 2, 300, -200, -(2**31), -(2**31)]),
            (3, "int64", [-2, 0, 0, 0, 2, 300, -200, 10**10, -(2**63)]),
            (20, "uint8", [254, 0, 0, 0, 2, 44, 56, 0, 0]),
            (21, "int8", [-2, 0, 0, 0, 2, 44, 56, 0, 0]),
        )
    ),
]
