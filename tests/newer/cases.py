# ruff: noqa: E501
"""Programs of Paddle 2 by the calls that make them: name -> (function of (paddle, variables), arrays to feed)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

CASES: dict[str, tuple[Callable[..., Any], dict[str, np.ndarray], bool]] = {}


def case(name: str, fn: Callable[..., Any], grad: bool = True, **feeds: Any) -> None:
    """Enter a case; ``grad``: whether gradients by its floating-point feeds are recorded, too."""
    CASES[name] = (fn, {k: np.asarray(v) for k, v in feeds.items()}, grad)


def values(*shape: int, seed: int = 0, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    """Float32 numbers, rounded to two digits so that recordings are small."""
    return np.round(np.random.RandomState(seed).uniform(low, high, shape), 2).astype("float32")


def numbers(*shape: int, seed: int = 0, high: int = 5, dtype: str = "int64") -> np.ndarray:
    """Integers from 0 to ``high`` - 1."""
    return np.random.RandomState(seed).randint(0, high, shape).astype(dtype)


X23, X234, X2344 = values(2, 3), values(2, 3, 4), values(2, 3, 4, 4)

# ---- functions of one argument ----

for _name in "silu sinh asinh expm1 tan erfinv tanh abs sin cos exp square trunc angle".split():
    _x = values(2, 3, low=-0.9, high=0.9)
    case(_name, lambda p, x, n=_name: getattr(p.nn.functional if n == "silu" else p, n)(x), _name != "trunc", x=_x)
for _name in "log2 log10 lgamma digamma log1p rsqrt".split():
    case(_name, lambda p, x, n=_name: getattr(p, n)(x), x=values(2, 3, low=0.3, high=4))
case("cosh", lambda p, x: p.cosh(x), x=X23)
case("acosh", lambda p, x: p.acosh(x), x=values(2, 3, low=1.2, high=3))
case("atanh", lambda p, x: p.atanh(x), x=values(2, 3, low=-0.9, high=0.9))
case("logit", lambda p, x: p.logit(x, 0.1), x=values(2, 3, low=0.0, high=1.0))
case("i0", lambda p, x: p.i0(x), x=X23)
case("frac", lambda p, x: p.frac(x), False, x=X23)
for _name in "celu elu gelu hardshrink hardsigmoid hardswish hardtanh leaky_relu log_sigmoid mish relu relu6 selu softplus softshrink softsign swish tanhshrink thresholded_relu".split():
    case(f"act_{_name}", lambda p, x, n=_name: getattr(p.nn.functional, n)(x), x=values(3, 4, low=-4, high=4))
case("act_gelu_tanh", lambda p, x: p.nn.functional.gelu(x, approximate=True), x=X23)
case("act_leaky_above_one", lambda p, x: p.nn.functional.leaky_relu(x, 1.5), x=X23)
case("act_softplus_beta", lambda p, x: p.nn.functional.softplus(x, beta=3.0, threshold=2.0), x=X23)
case("act_prelu", lambda p, x, w: p.nn.functional.prelu(x, w), x=X2344, w=values(3, low=0.1, high=0.4))
case(
    "act_prelu_nhwc",
    lambda p, x, w: p.nn.functional.prelu(x, w, data_format="NHWC"),
    x=X2344,
    w=values(4, low=0.1, high=0.4),
)
case("act_glu", lambda p, x: p.nn.functional.glu(x), x=X234)
case("act_maxout", lambda p, x: p.nn.functional.maxout(x, 2), x=values(2, 4, 3, 3))
case("act_log_softmax", lambda p, x: p.nn.functional.log_softmax(x, axis=1), x=X234)
case("act_softmax", lambda p, x: p.nn.functional.softmax(x, axis=1), x=X234)

# ---- functions of two ----

for _name in "fmax fmin maximum minimum add subtract multiply divide heaviside".split():
    case(_name, lambda p, x, y, n=_name: getattr(p, n)(x, y), _name != "heaviside", x=X234, y=values(3, 4, seed=1))
case("atan2", lambda p, x, y: p.atan2(x, y), x=X23, y=values(2, 3, seed=1))
case("floor_divide", lambda p, x, y: p.floor_divide(x, y), False, x=[[-7, 7, 5]], y=[[2, -2, 3]])
case("floor_divide_float", lambda p, x, y: p.floor_divide(x, y), False, x=values(2, 3), y=values(2, 3, seed=1, low=0.5))
case("remainder", lambda p, x, y: p.remainder(x, y), False, x=[[-7, 7, 5]], y=[[2, -2, 3]])
case("pow_tensor", lambda p, x, y: p.pow(x, y), x=values(2, 3, low=0.5), y=values(3, seed=1))
case("lerp", lambda p, x, y, w: p.lerp(x, y, w), x=X23, y=values(2, 3, seed=1), w=values(2, 3, seed=2))
for _name in "equal not_equal less_than less_equal greater_than greater_equal".split():
    case(_name, lambda p, x, y, n=_name: getattr(p, n)(x, y), False, x=numbers(2, 3), y=numbers(3, seed=1))
for _name in "logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor".split():
    case(
        _name,
        lambda p, x, y, n=_name: getattr(p, n)(x, y),
        False,
        x=numbers(2, 3, high=2).astype(bool),
        y=numbers(2, 3, seed=1, high=2).astype(bool),
    )
for _name in "bitwise_and bitwise_or bitwise_xor".split():
    case(
        f"{_name}_int",
        lambda p, x, y, n=_name: getattr(p, n)(x, y),
        False,
        x=numbers(2, 3, high=16),
        y=numbers(2, 3, seed=1, high=16),
    )
case("bitwise_not", lambda p, x: p.bitwise_not(x), False, x=numbers(2, 3, high=16))
case("logical_not", lambda p, x: p.logical_not(x), False, x=numbers(2, 3, high=2).astype(bool))
_ODD = np.array([[1.0, np.nan, np.inf], [-np.inf, 0, 2]], "float32")
for _name in "isnan isinf isfinite".split():
    case(_name, lambda p, x, n=_name: getattr(p, n)(x), False, x=_ODD)
case("isclose", lambda p, x, y: p.isclose(x, y, equal_nan=True), False, x=_ODD, y=_ODD + np.float32(1e-9))
case("allclose", lambda p, x, y: p.allclose(x, y), False, x=X23, y=X23 + np.float32(1e-9))
case("equal_all", lambda p, x, y: p.equal_all(x, y), False, x=X23, y=X23)
case("clip", lambda p, x: p.clip(x, -0.5, 1.0), x=X23)
case("scale", lambda p, x: p.scale(x, 2.0, 1.0, bias_after_scale=False), x=X23)
case("dist_cross", lambda p, x, y: p.cross(x, y, axis=1), x=X23, y=values(2, 3, seed=1))

# ---- products ----

case("matmul", lambda p, x, y: p.matmul(x, y), x=X234, y=values(4, 5, seed=1))
case("matmul_transposed", lambda p, x, y: p.matmul(x, y, True, True), x=values(2, 4, 3), y=values(2, 5, 4, seed=1))
case("matmul_broadcast", lambda p, x, y: p.matmul(x, y), False, x=values(2, 1, 3, 4), y=values(5, 4, 2, seed=1))
case("matmul_vectors", lambda p, x, y: p.matmul(x, y), x=values(4), y=values(4, seed=1))
case("matmul_vector", lambda p, x, y: p.matmul(x, y), x=X234, y=values(4, seed=1))
case("mv", lambda p, x, y: p.mv(x, y), x=X23, y=values(3, seed=1))
case("bmm", lambda p, x, y: p.bmm(x, y), x=X234, y=values(2, 4, 3, seed=1))
case("dot", lambda p, x, y: p.dot(x, y), x=values(4), y=values(4, seed=1))
case("addmm", lambda p, i, x, y: p.addmm(i, x, y, 0.5, 2.0), i=values(2, 2, seed=2), x=X23, y=values(3, 2, seed=1))
case(
    "multi_dot", lambda p, x, y, z: p.linalg.multi_dot([x, y, z]), x=X23, y=values(3, 4, seed=1), z=values(4, 2, seed=2)
)
case("einsum", lambda p, x, y: p.einsum("bij,bkj->bik", x, y), False, x=X234, y=values(2, 5, 4, seed=1))
case("kron", lambda p, x, y: p.kron(x, y), x=X23, y=values(2, 2, seed=1))
case("trace", lambda p, x: p.trace(x, offset=1, axis1=1, axis2=2), x=X234)
case("cholesky", lambda p, x: p.linalg.cholesky(x), False, x=np.array([[4, 1], [1, 3]], "float32"))
case("inverse", lambda p, x: p.linalg.inv(x), x=np.array([[4, 1], [1, 3]], "float32"))
case("determinant", lambda p, x: p.linalg.det(x), False, x=np.array([[[4, 1], [1, 3]], [[2, 0], [1, 1]]], "float32"))

# ---- reductions ----

for _name in "sum mean max min prod amax amin".split():
    case(f"reduce_{_name}", lambda p, x, n=_name: getattr(p, n)(x, axis=1), x=X234)
    case(f"reduce_{_name}_all", lambda p, x, n=_name: getattr(p, n)(x), x=X23)
    case(
        f"reduce_{_name}_keep",
        lambda p, x, n=_name: getattr(p, n)(x, axis=[0, 2], keepdim=True),
        _name != "prod",
        x=X234,
    )
case("logsumexp", lambda p, x: p.logsumexp(x, axis=[1]), x=X234)
case("logsumexp_all", lambda p, x: p.logsumexp(x), x=X234)
case("all", lambda p, x: p.all(x, axis=1), False, x=numbers(2, 3, high=2).astype(bool))
case("any", lambda p, x: p.any(x), False, x=numbers(2, 3, high=2).astype(bool))
case("norm_fro", lambda p, x: p.norm(x), x=X234)
case("norm_p", lambda p, x: p.norm(x, p=3, axis=1), x=X234)
case("norm_vector", lambda p, x: p.norm(x, p=2), x=X234)
case("norm_inf", lambda p, x: p.norm(x, p=np.inf, axis=1), x=X234)
case("std", lambda p, x: p.std(x, axis=1), x=X234)
case("cumsum", lambda p, x: p.cumsum(x, axis=1), x=X234)
case("cumsum_flat", lambda p, x: p.cumsum(x), x=X23)
case("cumprod", lambda p, x: p.cumprod(x, dim=1), x=X234)
case("logcumsumexp", lambda p, x: p.logcumsumexp(x, axis=1), x=X234)
case("argmax", lambda p, x: p.argmax(x, axis=1), False, x=X234)
case("argmax_flat", lambda p, x: p.argmax(x), False, x=X234)
case("argmax_keep_int32", lambda p, x: p.argmax(x, axis=-1, keepdim=True, dtype="int32"), False, x=X234)
case("argmin", lambda p, x: p.argmin(x, axis=0), False, x=X234)
case("argsort", lambda p, x: p.argsort(x, axis=1, descending=True), False, x=X234)
case("sort", lambda p, x: p.sort(x, axis=1), x=X234)
case("topk", lambda p, x: p.topk(x, 2, axis=1)[0], x=values(2, 5, 3))
case("topk_indices", lambda p, x: p.topk(x, 2, largest=False)[1], False, x=values(2, 5, 3))
case("topk_tensor", lambda p, x, k: p.topk(x, k)[0], False, x=values(2, 5), k=np.array([3], "int32"))
case("kthvalue", lambda p, x: p.kthvalue(x, 2, axis=1)[0], x=values(2, 5, 3))
case("mode", lambda p, x: p.mode(x, axis=1)[0], False, x=numbers(3, 6, high=3).astype("float32"))
case("median", lambda p, x: p.median(x, axis=1), False, x=values(2, 5))
case("nonzero", lambda p, x: p.nonzero(x), False, x=numbers(3, 4, high=2))
case(
    "unique", lambda p, x: p.unique(x, return_index=True, return_inverse=True, return_counts=True), False, x=numbers(7)
)
case("bincount", lambda p, x: p.bincount(x, minlength=6), False, x=numbers(7))
case("searchsorted", lambda p, x, y: p.searchsorted(x, y, right=True), False, x=[1.0, 2, 3, 4], y=[[0.5, 2, 5]])
case("histogram", lambda p, x: p.histogram(x, bins=4, min=-1, max=1), False, x=X234)

# ---- shapes ----

case("flatten", lambda p, x: p.flatten(x, 1, 2), x=X2344)
case("flatten_all", lambda p, x: p.flatten(x), x=X234)
case("reshape", lambda p, x: p.reshape(x, [0, -1]), x=X234)
case("reshape_by_shape", lambda p, x: p.reshape(x, [p.shape(x)[0], 12]), x=X234)
case("transpose", lambda p, x: p.transpose(x, [2, 0, 1]), x=X234)
case("moveaxis", lambda p, x: p.moveaxis(x, 0, 2), x=X234)
case("squeeze", lambda p, x: p.squeeze(x, 1), x=values(2, 1, 3))
case("unsqueeze", lambda p, x: p.unsqueeze(x, [0, 2]), x=X23)
case("expand", lambda p, x: p.expand(x, [2, -1, 3]), False, x=values(4, 1))
case("expand_as", lambda p, x, y: p.expand_as(x, y), x=values(3, 1), y=X234[:, :, :2])
case("broadcast_tensors", lambda p, x, y: p.broadcast_tensors([x, y]), x=values(3, 1), y=values(1, 2, seed=1))
case("tile", lambda p, x: p.tile(x, [2, 1, 2]), x=X23)
case("stack", lambda p, x, y: p.stack([x, y], axis=1), x=X23, y=values(2, 3, seed=1))
case("unstack", lambda p, x: p.unstack(x, axis=1), x=X23)
case("unbind", lambda p, x: p.unbind(x, axis=1), x=X23)
case("split", lambda p, x: p.split(x, [1, -1], axis=2), x=X234)
case("chunk", lambda p, x: p.chunk(x, 2, axis=2), x=X234)
case("concat", lambda p, x, y: p.concat([x, y], axis=-1), x=X23, y=values(2, 2, seed=1))
case("flip", lambda p, x: p.flip(x, [0, 2]), x=X234)
case("roll", lambda p, x: p.roll(x, [1, -1], axis=[0, 2]), x=X234)
case("roll_flat", lambda p, x: p.roll(x, 2), x=X234)
case("rot90", lambda p, x: p.rot90(x), x=X23)
case("tril", lambda p, x: p.tril(x), x=X234)
case("triu", lambda p, x: p.triu(x, 1), x=X234)
case("diag", lambda p, x: p.diag(x, 1, padding_value=0.5), x=values(3))
case("diag_of_matrix", lambda p, x: p.diag(x), x=X23)
case("diagonal", lambda p, x: p.diagonal(x, 0, 1, 2), x=X234)
case("diag_embed", lambda p, x: p.nn.functional.diag_embed(x), False, x=X23)
case("meshgrid", lambda p, x, y: p.meshgrid(x, y), False, x=values(3), y=values(2, seed=1))
case("repeat_interleave", lambda p, x: p.repeat_interleave(x, 2, axis=1), x=X23)
case("as_complex", lambda p, x: p.as_real(p.as_complex(x)), False, x=values(2, 3, 2))
case("crop", lambda p, x: p.crop(x, [1, 2], [1, 1]), x=X23)
case("pad_nchw", lambda p, x: p.nn.functional.pad(x, [1, 0, 2, 1], value=0.5), x=X2344)
case("pad_reflect", lambda p, x: p.nn.functional.pad(x, [1, 1, 1, 1], mode="reflect"), x=X2344)
case("pad_replicate", lambda p, x: p.nn.functional.pad(x, [1, 2, 0, 1], mode="replicate"), x=X2344)
case("pad_circular", lambda p, x: p.nn.functional.pad(x, [1, 1, 2, 0], mode="circular"), x=X2344)
case("pad_all", lambda p, x: p.nn.functional.pad(x, [1, 0, 0, 2]), x=X23)
case("pad_ncdhw", lambda p, x: p.nn.functional.pad(x, [1, 0, 0, 1, 1, 1], data_format="NCDHW"), x=values(1, 2, 2, 3, 2))

# ---- parts ----

case("slice", lambda p, x: p.slice(x, [1, 2], [0, -3], [2, 4]), x=X234)
case("index_negative", lambda p, x: x[:, -1], x=X234)
case("index_all", lambda p, x: x[0, 1], x=X23)
case("index_steps", lambda p, x: x[:, ::2], x=X234)
case("index_none", lambda p, x: x[:, None, 1:], x=X234)
case("index_by_tensor", lambda p, x, i: x[:, i], False, x=X234, i=np.array([1], "int64"))
case("strided_slice", lambda p, x: p.strided_slice(x, [1, 2], [0, 3], [3, 0], [2, -1]), x=X234)
case("strided_slice_reversed", lambda p, x: x[::-1, :, ::-2], x=X234)
for _at, (_start, _end, _step) in enumerate([(4, 0, -2), (3, -1, -2), (4, -7, -2), (3, -6, -1), (-7, -1, -1)]):
    case(
        f"strided_slice_back_{_at}",
        lambda p, x, b=(_start, _end, _step): p.strided_slice(x, [0], *([n] for n in b)),
        x=values(5, 2),
    )
case("gather", lambda p, x, i: p.gather(x, i, axis=1), False, x=X234, i=np.array([2, 0, 2]))
case("gather_rows", lambda p, x, i: p.gather(x, i), x=X234, i=np.array([1, 1, 0]))
case("gather_nd", lambda p, x, i: p.gather_nd(x, i), x=X234, i=np.array([[1, 2], [0, 0]]))
case("index_select", lambda p, x, i: p.index_select(x, i, axis=2), x=X234, i=np.array([3, 0]))
case("index_sample", lambda p, x, i: p.index_sample(x, i), x=X23, i=np.array([[2, 0], [1, 1]]))
case("index_add", lambda p, x, i, v: p.index_add(x, i, 0, v), x=X23, i=np.array([1, 1]), v=values(2, 3, seed=1))
case("take_along_axis", lambda p, x, i: p.take_along_axis(x, i, 1), x=X23, i=np.array([[2, 0], [1, 1]]))
case(
    "put_along_axis",
    lambda p, x, i, v: p.put_along_axis(x, i, v, 1),
    False,
    x=X23,
    i=np.array([[2], [1]]),
    v=values(2, 1, seed=1),
)
case(
    "put_along_axis_add",
    lambda p, x, i, v: p.put_along_axis(x, i, v, 1, reduce="add"),
    False,
    x=X23,
    i=np.array([[2], [1]]),
    v=values(2, 1, seed=1),
)
case("masked_select", lambda p, x, m: p.masked_select(x, m), x=X23, m=numbers(2, 3, high=2).astype(bool))
MASK23 = np.array([[True, False, True], [False, False, True]])
case("put_mask", lambda p, x, m, v: p.index_put(x, (m,), v), x=X23, m=MASK23, v=values(1, seed=1))
case("put_mask_rows", lambda p, x, m, v: p.index_put(x, (m,), v), x=X234, m=MASK23, v=values(1, 4, seed=1))
case("put_mask_each", lambda p, x, m, v: p.index_put(x, (m,), v, True), x=X23, m=MASK23, v=values(3, seed=1))
case("put_mask_add", lambda p, x, m, v: p.index_put(x, (m,), v, True), x=X234, m=MASK23, v=values(4, seed=1))
case("where", lambda p, c, x, y: p.where(c, x, y), c=numbers(2, 3, high=2).astype(bool), x=X23, y=values(2, 3, seed=1))
case("scatter", lambda p, x, i, u: p.scatter(x, i, u), x=values(3, 2), i=np.array([2, 0]), u=values(2, 2, seed=1))
case(
    "scatter_add",
    lambda p, x, i, u: p.scatter(x, i, u, overwrite=False),
    x=values(3, 2),
    i=np.array([2, 2]),
    u=values(2, 2, seed=1),
)
case(
    "scatter_nd_add",
    lambda p, x, i, u: p.scatter_nd_add(x, i, u),
    x=values(3, 2),
    i=np.array([[2], [0]]),
    u=values(2, 2, seed=1),
)
case("embedding", lambda p, i, w: p.nn.functional.embedding(i, w, padding_idx=0), i=numbers(2, 3), w=values(5, 4))
case("one_hot", lambda p, i: p.nn.functional.one_hot(i, 5), False, i=numbers(2, 3))
case("sequence_mask", lambda p, i: p.nn.functional.sequence_mask(i, 4), False, i=np.array([1, 3]))


def _set(index: Any, value: Any) -> Callable[..., Any]:
    def fn(p: Any, x: Any, *more: Any) -> Any:
        return p.static.setitem(x, index, more[0] if more else value)

    return fn


case("set_value_number", _set((slice(None), slice(1, 3)), 0.5), False, x=X234)
case("set_value_one", _set((0, 1), 2.0), False, x=X234)
case("set_value_steps", _set((slice(None, None, -1), Ellipsis, slice(0, 4, 2)), 1.5), False, x=X234)
case("set_value_tensor", _set((slice(None), 1), None), x=X234, v=values(2, 4, seed=1))
case("set_value_broadcast", _set((slice(0, 1),), None), x=X234, v=values(4, seed=1))

# ---- making ----

case("full", lambda p, x: x + p.full([3], 2.5), x=X23)
case("full_like", lambda p, x: p.full_like(x, 3), False, x=X23)
case("ones_zeros", lambda p, x: p.ones_like(x) + p.zeros_like(x), False, x=X23)
case("arange", lambda p, x: p.arange(0, 3, dtype="float32") * x, x=X23)
case("linspace", lambda p, x: p.linspace(0, 1, 3) * x, x=X23)
case("eye", lambda p, x: p.matmul(x, p.eye(3)), x=X23)
case("to_tensor_floats", lambda p, x: x + p.assign(np.array([1.5, 2.5, 3.5], "float32")), x=X23)
case("to_tensor_ints", lambda p, x: x + p.cast(p.assign(np.array([1, 2, 3], "int64")), "float32"), x=X23)
case("assign", lambda p, x: p.assign(x), x=X23)
case("cast", lambda p, x: p.cast(p.cast(x, "int32"), "float64"), False, x=X23)
case("shape_numel", lambda p, x: [p.shape(x), p.numel(x)], False, x=X234)
case("increment", lambda p, x: p.increment(p.assign(x), 2.0), False, x=values(1))
case("shard_index", lambda p, x: p.shard_index(x, 10, 2, 1), False, x=numbers(3, 1, high=10))
case(
    "complex_parts",
    lambda p, x, y: [p.real(p.complex(x, y)), p.imag(p.conj(p.complex(x, y)))],
    False,
    x=X23,
    y=values(2, 3, seed=1),
)
case("tril_indices", lambda p, x: p.tril_indices(3, 4, 0) + p.cast(x, "int64"), False, x=values(1))

# ---- images ----


def _resize(mode: str, **options: Any) -> Callable[..., Any]:
    return lambda p, x: p.nn.functional.interpolate(x, mode=mode, **options)


case("nearest_scale", _resize("nearest", scale_factor=2), x=X2344)
case("nearest_fraction", _resize("nearest", scale_factor=[1.7, 2.3]), x=X2344)
case("nearest_size", _resize("nearest", size=[5, 7]), x=X2344)
case("nearest_nhwc", _resize("nearest", size=[5, 7], data_format="NHWC"), x=X2344)
case("bilinear_scale", _resize("bilinear", scale_factor=1.7), x=X2344)
case("bilinear_size", _resize("bilinear", size=[5, 7], align_corners=True), x=X2344)
case("bilinear_mode1", _resize("bilinear", size=[6, 3], align_mode=1), x=X2344)
case(
    "bilinear_by_tensor",
    lambda p, x, s: p.nn.functional.interpolate(x, size=s, mode="bilinear"),
    x=X2344,
    s=np.array([5, 6], "int32"),
)
case(
    "bilinear_by_shape",
    lambda p, x: p.nn.functional.interpolate(x, size=[p.shape(x)[2] * 2, p.shape(x)[3] + 1], mode="bilinear"),
    x=X2344,
)
case("bicubic_scale", _resize("bicubic", scale_factor=1.5), x=X2344)
case("bicubic_corners", _resize("bicubic", size=[6, 7], align_corners=True), x=X2344)
case("linear", _resize("linear", scale_factor=2, data_format="NCW"), x=X234)
case("trilinear", _resize("trilinear", size=[3, 4, 5], data_format="NCDHW"), x=values(1, 2, 2, 3, 3))
case("nearest_3d", _resize("nearest", scale_factor=2, data_format="NCDHW"), x=values(1, 2, 2, 3, 3))
case(
    "conv2d",
    lambda p, x, w: p.nn.functional.conv2d(x, w, padding="SAME", stride=2),
    x=X2344,
    w=values(4, 3, 3, 3, seed=1),
)
case(
    "conv2d_groups",
    lambda p, x, w: p.nn.functional.conv2d(x, w, padding=1, groups=3),
    x=X2344,
    w=values(6, 1, 3, 3, seed=1),
)
case(
    "conv2d_nhwc",
    lambda p, x, w: p.nn.functional.conv2d(x, w, data_format="NHWC"),
    False,
    x=X2344,
    w=values(2, 4, 2, 2, seed=1),
)
case("conv1d", lambda p, x, w: p.nn.functional.conv1d(x, w, padding=1), x=X234, w=values(2, 3, 3, seed=1))
case("conv3d", lambda p, x, w: p.nn.functional.conv3d(x, w), x=values(1, 2, 3, 3, 3), w=values(2, 2, 2, 2, 2, seed=1))
case(
    "conv_transpose",
    lambda p, x, w: p.nn.functional.conv2d_transpose(x, w, stride=2, padding=1),
    x=X2344,
    w=values(3, 2, 3, 3, seed=1),
)
case(
    "conv_transpose_more",
    lambda p, x, w: p.nn.functional.conv2d_transpose(x, w, stride=2, padding=1, output_padding=1),
    x=X2344,
    w=values(3, 2, 3, 3, seed=1),
)
case(
    "conv_transpose_groups",
    lambda p, x, w: p.nn.functional.conv2d_transpose(x, w, stride=2, groups=3),
    x=X2344,
    w=values(3, 1, 2, 2, seed=1),
)
case(
    "deform_conv",
    lambda p, x, o, m, w: p.vision.ops.deform_conv2d(x, o, w, mask=m),
    x=X2344,
    o=values(2, 8, 3, 3, seed=1),
    m=values(2, 4, 3, 3, seed=2, low=0),
    w=values(2, 3, 2, 2, seed=3),
)
case("max_pool", lambda p, x: p.nn.functional.max_pool2d(x, 2), x=X2344)
case("max_pool_ceil", lambda p, x: p.nn.functional.max_pool2d(x, 3, 2, ceil_mode=True), x=X2344)
case("avg_pool_pad", lambda p, x: p.nn.functional.avg_pool2d(x, 3, 2, padding=1, exclusive=False), x=X2344)
case("adaptive_avg", lambda p, x: p.nn.functional.adaptive_avg_pool2d(x, [3, 2]), x=X2344)
case("adaptive_global", lambda p, x: p.nn.functional.adaptive_avg_pool2d(x, 1), x=X2344)
case("adaptive_max", lambda p, x: p.nn.functional.adaptive_max_pool2d(x, 2), x=X2344)
case("max_pool_index", lambda p, x: p.nn.functional.max_pool2d(x, 2, return_mask=True), False, x=X2344)
case(
    "unpool",
    lambda p, x, i: p.nn.functional.max_unpool2d(x, i, 2),
    x=values(1, 1, 2, 2),
    i=np.array([[[[0, 2], [9, 15]]]], "int32"),
)
case(
    "grid_sample",
    lambda p, x, g: p.nn.functional.grid_sample(x, g),
    x=X2344,
    g=values(2, 3, 3, 2, seed=1, low=-1.2, high=1.2),
)
case(
    "grid_sample_edges",
    lambda p, x, g: p.nn.functional.grid_sample(x, g, padding_mode="border", align_corners=False),
    x=X2344,
    g=values(2, 3, 3, 2, seed=1, low=-1.2, high=1.2),
)
case(
    "grid_sample_mirrored",
    lambda p, x, g: p.nn.functional.grid_sample(x, g, padding_mode="reflection"),
    x=X2344,
    g=values(2, 3, 3, 2, seed=1, low=-1.7, high=1.7),
)
case(
    "grid_sample_nearest",
    lambda p, x, g: p.nn.functional.grid_sample(x, g, mode="nearest", align_corners=False),
    False,
    x=X2344,
    g=values(2, 3, 3, 2, seed=1),
)
case(
    "affine_grid",
    lambda p, t: p.nn.functional.affine_grid(t, [2, 1, 3, 4], align_corners=False),
    t=X23[None, :, :].repeat(2, 0),
)
case("pixel_shuffle", lambda p, x: p.nn.functional.pixel_shuffle(x, 2), x=values(1, 4, 2, 3))
case("pixel_shuffle_nhwc", lambda p, x: p.nn.functional.pixel_shuffle(x, 2, "NHWC"), x=values(1, 2, 3, 4))
case("pixel_unshuffle", lambda p, x: p.nn.functional.pixel_unshuffle(x, 2), x=values(1, 1, 4, 6))
case("channel_shuffle", lambda p, x: p.nn.functional.channel_shuffle(x, 2), x=values(1, 4, 2, 2))
case("unfold", lambda p, x: p.nn.functional.unfold(x, 2), x=X2344)
case("fold", lambda p, x: p.nn.functional.fold(x, [3, 3], 2), x=values(1, 8, 4))
case("temporal_shift", lambda p, x: p.nn.functional.temporal_shift(x, 2, 0.25), x=values(2, 4, 2, 2))
case("local_response", lambda p, x: p.nn.functional.local_response_norm(x, 3), False, x=X2344)

# ---- norms and losses ----

case(
    "layer_norm",
    lambda p, x, w, b: p.nn.functional.layer_norm(x, 4, w, b),
    x=X234,
    w=values(4, seed=1),
    b=values(4, seed=2),
)
case(
    "batch_norm",
    lambda p, x, m, v, w, b: p.nn.functional.batch_norm(x, m, v, w, b),
    x=X2344,
    m=values(3),
    v=values(3, low=0.5),
    w=values(3, seed=1),
    b=values(3, seed=2),
)
case("instance_norm", lambda p, x: p.nn.functional.instance_norm(x), False, x=X2344)
case("group_norm", lambda p, x: p.nn.GroupNorm(2, 4, weight_attr=False, bias_attr=False)(x), x=values(2, 4, 3, 3))
case("normalize", lambda p, x: p.nn.functional.normalize(x, axis=1), x=X234)
case("cross_entropy", lambda p, x, y: p.nn.functional.cross_entropy(x, y), x=values(4, 5), y=numbers(4))
case(
    "cross_entropy_soft",
    lambda p, x, y: p.nn.functional.cross_entropy(x, y, soft_label=True),
    x=values(4, 5),
    y=np.full((4, 5), 0.2, "float32"),
)
case(
    "cross_entropy_probabilities",
    lambda p, x, y: p.nn.functional.cross_entropy(x, y, use_softmax=False),
    False,
    x=values(4, 5, low=0.1, high=0.9),
    y=numbers(4),
)
case(
    "bce",
    lambda p, x, y: p.nn.functional.binary_cross_entropy_with_logits(x, y),
    x=X23,
    y=numbers(2, 3, high=2).astype("float32"),
)
case(
    "bce_weighted",
    lambda p, x, y, w: p.nn.functional.binary_cross_entropy_with_logits(x, y, pos_weight=w),
    x=X23,
    y=numbers(2, 3, high=2).astype("float32"),
    w=values(3, low=0.5),
)
case("smooth_l1", lambda p, x, y: p.nn.functional.smooth_l1_loss(x, y), x=X23, y=values(2, 3, seed=1))
case("mse", lambda p, x, y: p.nn.functional.mse_loss(x, y), x=X23, y=values(2, 3, seed=1))
case("kl_div", lambda p, x, y: p.nn.functional.kl_div(x, y), x=X23, y=values(2, 3, seed=1, low=0.1))
case("nll", lambda p, x, y: p.nn.functional.nll_loss(x, y), x=values(4, 5), y=numbers(4))
case("label_smooth", lambda p, x: p.nn.functional.label_smooth(x), x=X23)
case("cosine", lambda p, x, y: p.nn.functional.cosine_similarity(x, y), x=X23, y=values(2, 3, seed=1))

# ---- detection ----


def _nms(p: Any, boxes: Any, scores: Any) -> Any:
    helper = p.base.layer_helper.LayerHelper("nms3")
    out, index = (helper.create_variable_for_type_inference(t) for t in ("float32", "int32"))
    count = helper.create_variable_for_type_inference("int32")
    helper.append_op(
        type="multiclass_nms3",
        inputs={"BBoxes": boxes, "Scores": scores},
        outputs={"Out": out, "Index": index, "NmsRoisNum": count},
        attrs={
            "score_threshold": 0.05,
            "nms_top_k": 8,
            "keep_top_k": 5,
            "nms_threshold": 0.4,
            "normalized": True,
            "nms_eta": 1.0,
            "background_label": -1,
        },
    )
    return [out, index, count]


_CORNERS = values(2, 8, 2, low=0, high=0.6)
_BOXES = np.concatenate([_CORNERS, _CORNERS + values(2, 8, 2, seed=1, low=0.2, high=0.5)], -1)
_SCORES = np.random.RandomState(2).permutation(48).reshape(2, 3, 8).astype("float32") / np.float32(48)
case("multiclass_nms3", _nms, False, boxes=_BOXES, scores=_SCORES)
case(
    "matrix_nms",
    lambda p, b, s: p.vision.ops.matrix_nms(b, s, 0.05, 0.1, 8, 5, background_label=-1, return_index=True),
    False,
    b=_BOXES,
    s=_SCORES,
)
case(
    "yolo_box",
    lambda p, x, s: p.vision.ops.yolo_box(x, s, [10, 13, 16, 30], 2, 0.01, 32),
    False,
    x=values(1, 14, 2, 2),
    s=np.array([[64, 64]], "int32"),
)
case(
    "yolo_box_aware",
    lambda p, x, s: p.vision.ops.yolo_box(x, s, [10, 13, 16, 30], 2, 0.01, 32, iou_aware=True, scale_x_y=1.05),
    False,
    x=values(1, 16, 2, 2),
    s=np.array([[64, 64]], "int32"),
)
case(
    "prior_box",
    lambda p, x, i: p.vision.ops.prior_box(x, i, [4.0], aspect_ratios=[1.0, 2.0]),
    False,
    x=values(1, 2, 2, 2),
    i=values(1, 3, 8, 8),
)
case(
    "box_coder",
    lambda p, b, t: p.vision.ops.box_coder(b, [0.1, 0.1, 0.2, 0.2], t, "decode_center_size", axis=0),
    False,
    b=_BOXES[0],
    t=values(2, 8, 4),
)
case(
    "roi_align",
    lambda p, x, b, n: p.vision.ops.roi_align(x, b, n, 2, aligned=True),
    x=X2344,
    b=np.array([[0, 0, 3, 3], [1, 0, 3, 2], [0, 1, 2, 3]], "float32"),
    n=np.array([1, 2], "int32"),
)
case(
    "roi_align_plain",
    lambda p, x, b, n: p.vision.ops.roi_align(x, b, n, 2, aligned=False, sampling_ratio=2),
    x=X2344,
    b=np.array([[0, 0, 3, 3], [1, 0, 3, 2], [0, 1, 2, 3]], "float32"),
    n=np.array([2, 1], "int32"),
)
case(
    "roi_pool",
    lambda p, x, b, n: p.vision.ops.roi_pool(x, b, n, 2),
    False,
    x=X2344,
    b=np.array([[0, 0, 3, 3], [1, 0, 3, 2], [0, 1, 2, 3]], "float32"),
    n=np.array([1, 2], "int32"),
)
case("nms", lambda p, b: p.vision.ops.nms(b, 0.4), False, b=_BOXES[0])

# ---- recurrent ----


def _rnn(kind: str, **options: Any) -> Callable[..., Any]:
    def fn(p: Any, x: Any, *lengths: Any) -> Any:
        names = {"init": p.nn.initializer.Uniform(-0.5, 0.5)}
        attr = p.ParamAttr(initializer=names["init"])
        layer = getattr(p.nn, kind)(
            3, 4, weight_ih_attr=attr, weight_hh_attr=attr, bias_ih_attr=attr, bias_hh_attr=attr, **options
        )
        out, state = layer(x, sequence_length=lengths[0] if lengths else None)
        return [out, *(state if isinstance(state, tuple) else (state,))]

    return fn


_STEPS = values(2, 5, 3)
case("lstm", _rnn("LSTM"), x=_STEPS)
case("lstm_two_layers_both_ways", _rnn("LSTM", num_layers=2, direction="bidirect"), x=_STEPS)
case("lstm_lengths", _rnn("LSTM", direction="bidirect"), x=_STEPS, n=np.array([5, 3]))
case("gru", _rnn("GRU"), x=_STEPS)
case("gru_two_layers_both_ways", _rnn("GRU", num_layers=2, direction="bidirect"), x=_STEPS)
case("gru_time_major", _rnn("GRU", time_major=True), x=_STEPS)
case("simple_rnn", _rnn("SimpleRNN"), x=_STEPS)
case("simple_rnn_relu", _rnn("SimpleRNN", activation="relu", direction="bidirect"), x=_STEPS)

# ---- programs with blocks, random draws turned off, things that deployed models carry ----

case(
    "while_loop",
    lambda p, x: p.static.nn.while_loop(
        lambda i, s: i < 3, lambda i, s: [i + 1, s * 0.5 + x], [p.full([1], 0, "int64"), x]
    )[1],
    False,
    x=X23,
)
case("cond", lambda p, x: p.static.nn.cond(p.sum(x) > 0, lambda: x * 2, lambda: x - 1), False, x=X23)


def _skipping(x, k):
    """A sum of powers without the second, until it is large: Paddle marks variables without a value before the loop."""
    j, total = k * 0, x * 0
    while j < k:
        j = j + 1
        if j == 2:
            continue
        total = total + x**j
        if j > 3:
            break
    return total, j


def _converted(fn: Callable[..., Any]) -> Callable[..., Any]:
    def run(p: Any, *args: Any) -> Any:
        from paddle.jit.dy2static.program_translator import convert_to_static

        return convert_to_static(fn)(*args)

    return run


case("loop_continue", _converted(_skipping), False, x=X23, k=np.array([7]))
case("loop_no_step", _converted(_skipping), False, x=X23, k=np.array([0]))
case("dropout_test", lambda p, x: p.nn.functional.dropout(x, 0.5, training=False), False, x=X23)
case(
    "dropout_downscale",
    lambda p, x: p.nn.functional.dropout(x, 0.25, training=False, mode="downscale_in_infer"),
    grad=False,
    x=X23,
)
case("attention", lambda p, x: p.nn.functional.softmax(p.matmul(x, x, transpose_y=True) * 0.5) @ x, x=X234)

# ---- what whole exports carry ----


def _op(type: str, slots: str, outs: str, **attrs: Any) -> Callable[..., Any]:
    """An op as it stands in exported programs, which no public function writes."""

    def fn(p: Any, *given: Any) -> Any:
        helper = p.base.layer_helper.LayerHelper(type)
        made = {}
        for out in outs.split():
            slot, _, dtype = out.partition(":")
            made[slot] = helper.create_variable_for_type_inference(dtype or "float32")
        inputs = dict(zip(slots.split(), given, strict=True))
        helper.append_op(type=type, inputs=inputs, outputs={s: [v] for s, v in made.items()}, attrs=attrs)
        return list(made.values())

    return fn


_ANCHORS = np.array([[-4, -4, 5, 5], [0, 0, 9, 9], [2, -2, 13, 9]], "float32")[None, None] + np.array(
    [[[0, 0, 0, 0], [4, 0, 4, 0]], [[0, 4, 0, 4], [4, 4, 4, 4]]], "float32"
).reshape(2, 2, 1, 4)
_PROPOSALS = dict(
    s=np.random.RandomState(1).permutation(24).reshape(2, 3, 2, 2).astype("float32") / np.float32(24),
    d=values(2, 12, 2, 2, seed=2, low=-0.5, high=0.5),
    i=np.array([[16, 20], [12, 12]], "float32"),
    a=_ANCHORS,
    v=np.full((2, 2, 3, 4), 0.5, "float32"),
)
for _pixel in (False, True):
    for _name, _least in (("", 1.0), ("_large", 11.0), ("_none", 100.0)):
        case(
            f"generate_proposals_v2{_name}{'_pixel' * _pixel}",
            lambda p, s, d, i, a, v, pixel=_pixel, least=_least: p.vision.ops.generate_proposals(
                s, d, i, a, v, 10, 4, 0.4, least, 1.0, pixel_offset=pixel, return_rois_num=True
            ),
            False,
            **_PROPOSALS,
        )
case(
    "fpn_with_counts",
    lambda p, r, n: p.vision.ops.distribute_fpn_proposals(r, 2, 5, 4, 56, pixel_offset=False, rois_num=n),
    False,
    r=np.array([[0, 0, 10, 10], [0, 0, 200, 200], [3, 3, 60, 90], [0, 0, 400, 300]], "float32"),
    n=np.array([3, 1], "int32"),
)


def _collect(p: Any, a: Any, b: Any, s: Any, t: Any, n: Any, m: Any) -> Any:
    helper = p.base.layer_helper.LayerHelper("collect_fpn_proposals")
    out = helper.create_variable_for_type_inference("float32")
    count = helper.create_variable_for_type_inference("int32")
    inputs = {"MultiLevelRois": [a, b], "MultiLevelScores": [s, t], "MultiLevelRoIsNum": [n, m]}
    outputs = {"FpnRois": out, "RoisNum": count}
    helper.append_op(type="collect_fpn_proposals", inputs=inputs, outputs=outputs, attrs={"post_nms_topN": 5})
    return [out, count]


case(
    "fpn_collected",
    _collect,
    False,
    a=values(4, 4),
    b=values(3, 4, seed=1),
    s=values(4, 1, seed=2),
    t=values(3, 1, seed=3),
    n=np.array([1, 3], "int32"),
    m=np.array([2, 1], "int32"),
)
case(
    "batch_norm_plain",
    lambda p, x: p.nn.BatchNorm2D(3, weight_attr=False, bias_attr=False, use_global_stats=True)(x),
    False,
    x=X2344,
)
_WIDE, _TIES = values(3, 2, 2, 2, seed=4), np.array([[1.0, -0.5, 0.25, 2.0], [0.75, -2.0, 1.5, 0.0]], "float32")
for _round in (0, 1):
    _types = {"bit_length": 3, "round_type": _round}
    for _kind in ("quantize", "quantize_dequantize"):
        case(
            f"fake_{_kind}_abs_max_{_round}",
            _op(f"fake_{_kind}_abs_max", "X", "Out OutScale", **_types),
            False,
            x=_TIES,
        )
        for _axis in (0, 1):
            case(
                f"fake_channel_wise_{_kind}_{_round}_{_axis}",
                _op(f"fake_channel_wise_{_kind}_abs_max", "X", "Out OutScale", quant_axis=_axis, **_types),
                False,
                x=_WIDE,
            )
    for _axis, _scale in ((-1, [1.5]), (0, [1.5, 0.5, 1.0]), (1, [2.0, 0.7])):
        _given = dict(x=_WIDE, s=np.array(_scale, "float32"), z=np.zeros(len(_scale), "float32"))
        case(
            f"quantize_linear_{_round}_{_axis}",
            _op("quantize_linear", "X Scale ZeroPoint", "Y", quant_axis=_axis, is_test=True, **_types),
            False,
            **_given,
        )
        case(
            f"dequantize_linear_{_round}_{_axis}",
            _op("dequantize_linear", "X Scale ZeroPoint", "Y", quant_axis=_axis, is_test=True, **_types),
            False,
            **_given | {"x": numbers(3, 2, 2, 2, high=7, dtype="int8")},
        )
# x / scale * 127 a half, or the float beside one: the type of rounding and the order of the factors both show
_HALVES = np.array([-11.5, 0.5, 0.49999997, 1.5, 2.5, -2.5, 115.5, 74.5, -74.5, 126.5, 127.5, 12.25], "float32")
for _round in (0, 1):
    for _step in (1.0, 0.99846464, 3.7):
        _types = {"round_type": _round, "is_test": True}
        _given = dict(x=_HALVES * np.float32(_step / 127), s=np.array([_step], "float32"), z=np.zeros(1, "float32"))
        case(
            f"quantize_halves_{_round}_{_step}",
            _op("quantize_linear", "X Scale ZeroPoint", "Y", quant_axis=-1, **_types),
            False,
            **_given,
        )
case("round_halves", lambda p, x: p.round(x), False, x=_HALVES)
_EMISSION, _STEPS_OF_TAGS = values(3, 5, 4, seed=6), values(4, 4, seed=7)
for _tags in (True, False):
    case(
        f"viterbi_decode_{_tags}",
        lambda p, e, t, n, tags=_tags: p.text.viterbi_decode(e, t, n, tags),
        False,
        e=_EMISSION,
        t=_STEPS_OF_TAGS,
        n=np.array([5, 1, 3]),
    )
case(
    "viterbi_decode_short",
    lambda p, e, t, n: p.text.viterbi_decode(e, t, n),
    False,
    e=_EMISSION,
    t=_STEPS_OF_TAGS,
    n=np.array([3, 2, 1]),
)
for _name in "sum mean max min".split():
    case(
        f"segment_{_name}",
        lambda p, x, i, n=_name: getattr(p.geometric, f"segment_{n}")(x, i),
        x=values(4, 3),
        i=np.array([0, 0, 2, 2]),
    )
    _edges = dict(s=np.array([0, 1, 2, 0]), d=np.array([1, 2, 1, 0]))
    case(
        f"send_u_recv_{_name}",
        lambda p, x, s, d, n=_name: p.geometric.send_u_recv(x, s, d, n),
        x=values(4, 3),
        **_edges,
    )
    case(
        f"send_ue_recv_{_name}",
        lambda p, x, y, s, d, n=_name: p.geometric.send_ue_recv(x, y, s, d, "mul", n, out_size=5),
        False,
        x=values(4, 3),
        y=values(4, 3, seed=1),
        **_edges,
    )
case(
    "send_uv",
    lambda p, x, y, s, d: p.geometric.send_uv(x, y, s, d, "sub"),
    False,
    x=values(4, 3),
    y=values(4, 3, seed=1),
    **_edges,
)
_TIED = numbers(3, 6, high=4).astype("float32")
for _name in "cummax cummin".split():
    case(_name, lambda p, x, n=_name: getattr(p, n)(x, axis=1), False, x=_TIED)
    case(f"{_name}_flat", lambda p, x, n=_name: getattr(p, n)(x, dtype="int32"), False, x=_TIED)
_NODES = {"x": np.array([5, 1, 9]), "y": np.array([8, 9, 5, 4, 7, 6, 7]), "n": np.array([2, 3, 2], "int32")}
case("reindex_graph", lambda p, x, y, n: p.geometric.reindex_graph(x, y, n), False, **_NODES)
case(
    "reindex_heter_graph",
    lambda p, x, y, n, z, m: p.geometric.reindex_heter_graph(x, [y, z], [n, m]),
    False, **_NODES, z=np.array([0, 2, 9, 1]), m=np.array([1, 0, 3], "int32"),
)  # fmt: skip
case("unique_consecutive", lambda p, x: p.unique_consecutive(x, True, True), False, x=np.sort(numbers(8)))
case("unique_consecutive_rows", lambda p, x: p.unique_consecutive(x, axis=0), False, x=numbers(6, 2, high=2))
for _name in "i0e i1 i1e".split():
    case(_name, lambda p, x, n=_name: getattr(p, n)(x), x=X23)
case("polygamma", lambda p, x: p.polygamma(x, 1), False, x=values(2, 3, low=0.5, high=4))
case("nextafter", lambda p, x, y: p.nextafter(x, y), False, x=X23, y=values(2, 3, seed=1))
case(
    "nanmedian", lambda p, x: p.nanmedian(x, axis=1), False, x=np.where(values(3, 5) > 1, np.nan, values(3, 5, seed=1))
)
case("renorm", lambda p, x: p.renorm(x, 2.0, 1, 1.5), False, x=X234)
_SQUARE = values(2, 3, 3, seed=3) + 3 * np.eye(3, dtype="float32")
_SYMMETRIC = _SQUARE + _SQUARE.swapaxes(1, 2)
case("slogdet", lambda p, x: p.linalg.slogdet(x), False, x=_SQUARE)
case("svd_values", lambda p, x: p.linalg.svd(x)[1], False, x=X234)
case("svd_product", lambda p, x: (lambda u, s, v: p.matmul(u * s.unsqueeze(1), v))(*p.linalg.svd(x)), False, x=X234)
case("qr_product", lambda p, x: p.matmul(*p.linalg.qr(x)), False, x=_SQUARE)
case("eigh_values", lambda p, x: p.linalg.eigh(x)[0], False, x=_SYMMETRIC)
case("eigvalsh", lambda p, x: p.linalg.eigvalsh(x), False, x=_SYMMETRIC)
case("cholesky_solve", lambda p, x, y: p.linalg.cholesky_solve(x, y), False, x=values(3, 2), y=np.tril(_SQUARE[0]))
case(
    "matrix_rank",
    lambda p, x: p.linalg.matrix_rank(x),
    False,
    x=np.ones((2, 3, 3), "float32") + np.eye(3, dtype="float32") * [[[0]], [[1]]],
)
case("matrix_rank_tol", lambda p, x: p.linalg.matrix_rank(x, 1.0), False, x=_SQUARE.astype("float32"))
for _norm in "backward forward ortho".split():
    _many = dict(axes=(0, 1), norm=_norm)
    case(f"rfft_{_norm}", lambda p, x, n=_norm: p.as_real(p.fft.rfft(x, norm=n)), False, x=values(3, 8))
    case(f"rfft2_{_norm}", lambda p, x, o=_many: p.as_real(p.fft.rfft2(x, **o)), False, x=values(3, 8))
    case(f"ihfft_{_norm}", lambda p, x, n=_norm: p.as_real(p.fft.ihfft(x, norm=n)), False, x=values(3, 8))
    case(f"irfft_{_norm}", lambda p, x, n=_norm: p.fft.irfft(p.as_complex(x), norm=n), False, x=values(3, 5, 2))
    case(f"hfft_{_norm}", lambda p, x, n=_norm: p.fft.hfft(p.as_complex(x), norm=n), False, x=values(3, 5, 2))
    case(f"fft2_{_norm}", lambda p, x, o=_many: p.as_real(p.fft.fft2(p.as_complex(x), **o)), False, x=values(3, 5, 2))
    case(
        f"ifft_{_norm}", lambda p, x, n=_norm: p.as_real(p.fft.ifft(p.as_complex(x), norm=n)), False, x=values(3, 5, 2)
    )
case("irfft_odd", lambda p, x: p.fft.irfft(p.as_complex(x), n=9), False, x=values(3, 5, 2))
case("frame", lambda p, x: p.signal.frame(x, 4, 2), x=values(2, 11))
case("frame_first", lambda p, x: p.signal.frame(x, 4, 3, axis=0), x=values(11, 2))
case("overlap_add", lambda p, x: p.signal.overlap_add(x, 2), x=values(2, 4, 3))
case("overlap_add_first", lambda p, x: p.signal.overlap_add(x, 2, axis=0), x=values(3, 4, 2))
case("stft", lambda p, x: p.as_real(p.signal.stft(x, 8, 4)), False, x=values(2, 20))
case("fused_softmax_mask", _op("fused_softmax_mask", "X Mask", "Out"), False, x=X2344, m=values(2, 1, 4, 4, seed=1))
case("array_never_written", lambda p, x: p.tensor.array_length(p.tensor.create_array("float32")), False, x=X23)


def _found_in_a_branch(p: Any, x: Any) -> Any:
    """nonzero in a branch, as score thresholds are exported."""
    places = lambda: p.gather(x, p.nonzero(x > 0).flatten())  # noqa: E731
    return p.static.nn.cond(p.sum(x) > 0, places, lambda: x * 2)


case("found_in_a_branch", _found_in_a_branch, False, x=np.array([1, -1, 2, 0.5], "float32"))
_TWICE = np.array([[0, 0, 2, 2], [0, 0, 2, 2], [0, 0, 2, 2], [0, 1, 2, 3]], "float32")[None]
case(
    "matrix_nms_equal_boxes",
    lambda p, b, s: p.vision.ops.matrix_nms(b, s, 0.05, 0.1, 8, 5, background_label=-1, return_index=True),
    False,
    b=_TWICE,
    s=np.array([[[0.9, 0.8, 0.7, 0.6]]], "float32"),
)
_ROIS = np.array([[0, 0, 5, 4], [1, 2, 7, 7], [2, 1, 4, 6]], "float32")
case(
    "psroi_pool_counts",
    _op("psroi_pool", "X ROIs RoisNum", "Out", output_channels=2, pooled_height=2, pooled_width=2, spatial_scale=0.8),
    False,
    x=values(2, 8, 8, 8),
    b=_ROIS,
    n=np.array([1, 2], "int32"),
)
case(
    "fill_diagonal_tensor",
    lambda p, x, y: p.tensor.manipulation.fill_diagonal_tensor(x, y, 1, 0, 2),
    x=X234,
    y=values(3, 2, seed=2),
)
case(
    "fill_diagonal_tensor_below",
    lambda p, x, y: p.tensor.manipulation.fill_diagonal_tensor(x, y, -2, 2, 3),
    x=X2344,
    y=values(2, 3, 2, seed=2),
)
case("rrelu_test", lambda p, x: p.nn.functional.rrelu(x, 0.1, 0.4, training=False), x=X23)

# ---- training ----


def _trained(make: Callable[..., Any], amp: bool = False) -> Callable[..., Any]:
    """The loss and the parameters after a step of the optimizer that ``make`` makes."""

    def fn(p: Any, x: Any) -> Any:
        y = p.nn.functional.tanh(p.nn.Linear(3, 2)(x))
        loss = p.mean(y * y)
        optimizer = make(p)
        if amp:
            optimizer = p.static.amp.decorate(optimizer, init_loss_scaling=4.0, incr_every_n_steps=2)
        optimizer.minimize(loss)
        persistable = [v for v in loss.block.program.list_vars() if v.persistable and v.name not in ("feed", "fetch")]
        return [loss, *sorted(persistable, key=lambda v: v.name)]

    return fn


_OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "sgd": lambda p: p.optimizer.SGD(0.1, weight_decay=0.01),
    "momentum": lambda p: p.optimizer.Momentum(0.1),
    "momentum_decay": lambda p: p.optimizer.Momentum(0.1, weight_decay=0.1, use_nesterov=True),
    "momentum_merged": lambda p: p.optimizer.Momentum(0.1, weight_decay=0.1, use_multi_tensor=True),
    "adam": lambda p: p.optimizer.Adam(0.1, epsilon=0.1),
    "adam_merged": lambda p: p.optimizer.Adam(0.1, use_multi_tensor=True),
    "adamw": lambda p: p.optimizer.AdamW(0.1, epsilon=0.1, weight_decay=0.2),
    "adamw_some": lambda p: p.optimizer.AdamW(0.1, apply_decay_param_fun=lambda name: ".w_" in name),
    "adamax": lambda p: p.optimizer.Adamax(0.1),
    "adagrad": lambda p: p.optimizer.Adagrad(0.1),
    "adadelta": lambda p: p.optimizer.Adadelta(0.1),
    "rmsprop": lambda p: p.optimizer.RMSProp(0.1, centered=True, momentum=0.9),
    "lamb": lambda p: p.optimizer.Lamb(0.1),
    "lamb_plain": lambda p: p.optimizer.Lamb(0.1, lamb_weight_decay=0.0),
    "clip": lambda p: p.optimizer.Adam(0.1, grad_clip=p.nn.ClipGradByGlobalNorm(0.01), weight_decay=0.1),
    "clip_norm": lambda p: p.optimizer.SGD(0.1, grad_clip=p.nn.ClipGradByNorm(0.01)),
    "clip_value": lambda p: p.optimizer.SGD(0.1, grad_clip=p.nn.ClipGradByValue(0.01)),
    "scheduled": lambda p: p.optimizer.SGD(p.optimizer.lr.NoamDecay(4, 3)),
}
for _name, _make in _OPTIMIZERS.items():
    case(f"train_{_name}", _trained(_make), False, x=values(4, 3))


# ---- scaled losses ----


def _scaled(finite: bool, **state: Any) -> Callable[..., Any]:
    """What the ops of mixed precision make of gradients that are finite or not."""

    def fn(p: Any, x: Any, y: Any) -> Any:
        scale, good, bad = (
            p.assign(np.array([v], t)) for v, t in zip(state.values(), ("float32", "int32", "int32"), strict=True)
        )
        big = y if finite else y / p.zeros_like(y)
        outs, found = p.static.amp.amp_nn.check_finite_and_unscale([x, big], scale)
        outs = p.static.amp.amp_nn.update_loss_scaling(outs, found, scale, good, bad, 3, 2, 2.0, 0.25)
        return [outs, found, scale, good, bad]

    return fn


for _at, (_finite, *_state) in enumerate([(True, 8, 1, 1), (True, 8, 2, 0), (False, 8, 1, 0), (False, 2, 1, 1)]):
    _named = dict(zip(("scale", "good", "bad"), _state, strict=True))
    case(f"loss_scaling_{_at}", _scaled(_finite, **_named), False, x=X23, y=values(3, seed=1, low=1.0))

# ---- more of matrices, drawing, places ----

case("lu", lambda p, x: list(p.linalg.lu(x, get_infos=True)), False, x=values(2, 4, 3))
case("lu_singular", lambda p, x: p.linalg.lu(x, get_infos=True)[2], False, x=np.ones((3, 3), "float32"))
case("lu_unpack", lambda p, x: list(p.linalg.lu_unpack(*p.linalg.lu(x))), False, x=values(2, 3, 4))
case("eig_values", lambda p, x: p.as_real(p.linalg.eig(x)[0]), False, x=values(3, 3))
case("eig_vectors", lambda p, x: p.abs(p.linalg.eig(x)[1]), False, x=values(3, 3))
case("eigvals", lambda p, x: p.as_real(p.linalg.eigvals(x)), False, x=values(3, 3))
case("lstsq", lambda p, x, y: list(p.linalg.lstsq(x, y))[:3], False, x=values(2, 4, 3), y=values(2, 4, 2, seed=1))
case(
    "lstsq_gelsd",
    lambda p, x, y: list(p.linalg.lstsq(x, y, driver="gelsd")),
    False,
    x=values(4, 3),
    y=values(4, 2, seed=1),
)
case("logspace", lambda p, x: p.logspace(0, 2, 5, 3.0) + x, False, x=values(1))
case(
    "unpool3d",
    lambda p, x: p.nn.functional.max_unpool3d(*p.nn.functional.max_pool3d(x, 2, return_mask=True), 2),
    x=values(1, 2, 4, 2, 4),
)
case(
    "rnnt_loss",
    lambda p, x, y, n, m: p.nn.functional.rnnt_loss(x, y, n, m, fastemit_lambda=0.1, reduction="none"),
    x=values(2, 4, 3, 5),
    y=np.array([[1, 4], [2, 0]], "int32"),
    n=np.array([4, 3], "int32"),
    m=np.array([2, 1], "int32"),
)
case("fill_diagonal_rows", lambda p, x: p.diagonal_scatter(x, p.ones([3])), False, x=values(3, 3))
case(
    "c_embedding",
    _op("c_embedding", "W Ids", "Out", start_index=2),
    False,
    w=values(3, 2),
    i=np.array([1, 2, 4, 4, 5], "int64"),
)
case(
    "generate_proposals_one",
    lambda p, s, d: p.vision.ops.generate_proposals(
        s,
        d,
        p.assign(np.array([[32, 32]], "float32")),
        p.assign(np.tile(np.array([0, 0, 15, 15], "float32"), (2, 2, 3, 1))),
        p.ones([2, 2, 3, 4]),
        9,
        4,
        0.5,
        0.1,
        return_rois_num=True,
    ),
    False,
    s=values(1, 3, 2, 2, low=0.0, high=1.0),
    d=values(1, 12, 2, 2, low=-0.2, high=0.2),
)

# ---- volumes, triangles, sums ----

V12345, G12223 = values(1, 2, 3, 4, 5), values(1, 2, 2, 2, 3, low=-1.2, high=1.2)
for _mode in ("bilinear", "nearest"):
    for _padding in ("zeros", "border", "reflection"):
        case(
            f"grid_sample_3d_{_mode}_{_padding}",
            lambda p, x, g, m=_mode, pad=_padding: p.nn.functional.grid_sample(
                x, g, m, pad, align_corners=m == "nearest"
            ),
            _padding != "reflection",
            x=V12345,
            g=G12223,
        )
for _align in (True, False):
    case(
        f"affine_grid_3d_{_align}",
        lambda p, t, a=_align: p.nn.functional.affine_grid(t, [2, 3, 4, 2, 3], align_corners=a),
        t=values(2, 3, 4),
    )
case("triu_indices", lambda p, x: [x * 1, p.triu_indices(3, 4, 1), p.triu_indices(4, 3, -1)], x=X23)
case("dot_rows", lambda p, x, y: p.dot(x, y), x=X23, y=values(2, 3, seed=1))
case("sum_of_booleans", lambda p, x: [p.sum(x > 0), p.sum(x > 0, 1, keepdim=True)], False, x=X23)
for _number, _kind in enumerate(("sum", "mean", "none")):
    case(f"identity_loss_{_kind}", lambda p, x, n=_number: p.incubate.identity_loss(x, n), x=X23)

# ---- windows beyond the padding, sums of integers ----

for _exclusive in (True, False):
    for _padding in (0, 1):
        case(
            f"avg_pool_ceil_{_exclusive}_{_padding}",
            lambda p, x, e=_exclusive, n=_padding: p.nn.functional.avg_pool2d(x, 3, 2, n, True, e),
            x=values(1, 1, 6, 5),
        )
case("avg_pool_3d_ceil", lambda p, x: p.nn.functional.avg_pool3d(x, 3, 2, 1, True, False), x=values(1, 1, 4, 6, 5))
case(
    "sum_of_integers",
    lambda p, x: [p.sum(x), p.sum(x, 1), p.sum(x, dtype="int64"), p.sum(x, dtype="float32"), p.prod(x, 0)],
    False,
    x=numbers(2, 3, dtype="int32"),
)

# ---- weights of 8 and 4 bits, in the order in which GPUs read them; names of older ops ----

for _algo in ("weight_only_int8", "weight_only_int4", "llm.int8"):
    for _arch in (70, 80)[_algo == "llm.int8" :]:
        case(
            f"weight_quantize_{_algo}_{_arch}",
            lambda p, x, algo=_algo, arch=_arch: p.nn.quant.weight_quantize(x, algo, arch),
            False,
            x=values(64, 64, seed=7).astype("float16"),
        )
case("grad_add", _op("grad_add", "X Y", "Out"), False, x=X23, y=values(2, 3, seed=1))
for _mode in (0, 1):
    case(
        f"linear_interp_{_mode}",
        _op("linear_interp", "X", "Out", out_w=7, interp_method="linear", align_corners=False, align_mode=_mode),
        x=X234,
    )
for _name, _functors in {
    "relu": ["elementwise_add", "relu"],
    "scale": ["scale", "elementwise_add"],
    "gelu": ["gelu", "elementwise_add"],
}.items():
    case(
        f"fused_add_{_name}",
        _op("fused_elemwise_add_activation", "X Y", "Out IntermediateOut", functor_list=_functors, scale=0.5, axis=-1, save_intermediate_out=True),
        x=X234,
        y=values(3, 4, seed=1),
    )  # fmt: skip
