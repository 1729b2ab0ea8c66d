"""Each primitive on NumPy gives what XLA gives, at the edges of its domain too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fluidjax.eager.first.evaluator import Evaluator, Meter, Unknown
from lowering.engine.x64 import in_x64

INF, NAN = np.inf, np.nan
EDGES = [0.0, -0.0, 0.3, -0.3, 0.5, -0.5, 1.0, -1.0, 1.5, -1.5, 2.5, -2.5, 7.0, 1e10, -1e10, INF, -INF, NAN]
INTEGERS = [0, 1, -1, 2, -2, 3, -3, 7, -7, 100, -128, 127]


@in_x64
def evaluated(function: Callable[..., Any], *args: Any) -> list[Any]:
    closed = jax.jit(function).trace(*args).jaxpr
    found = Evaluator(closed, Meter())
    with np.errstate(all="ignore"):
        return found.run(args)


@in_x64
def compiled(function: Callable[..., Any], *args: Any) -> list[np.ndarray]:
    return list(map(np.asarray, jax.tree_util.tree_leaves(jax.jit(function)(*args))))


def agree(function: Callable[..., Any], *args: Any, ulps: int = 0) -> None:
    """Equal in shape, dtype and numbers, in the signs of zeros too; or so many units in the last place apart."""
    args = tuple(map(np.asarray, args))
    for found, wanted in zip(evaluated(function, *args), compiled(function, *args), strict=True):
        found = np.asarray(found)
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        if not ulps:
            np.testing.assert_array_equal(found, wanted)
            if found.dtype.kind == "f":
                numbers = ~np.isnan(found)
                np.testing.assert_array_equal(np.signbit(found[numbers]), np.signbit(wanted[numbers]))
        else:
            np.testing.assert_allclose(found, wanted, rtol=ulps * np.finfo(found.dtype).eps, atol=1e-37)


def pairs(numbers: Sequence[Any], dtype: str) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.meshgrid(np.array(numbers), np.array(numbers))
    return x.ravel().astype(dtype), y.ravel().astype(dtype)


def of_type(numbers: Sequence[int], dtype: str) -> np.ndarray:
    return np.array([n for n in numbers if np.iinfo(dtype).min <= n <= np.iinfo(dtype).max], dtype)


FLOATS = ["float32", "float64"]
INTS = ["int8", "int32", "int64", "uint8", "uint32"]

EXACT: dict[str, Callable[..., Any]] = {
    "abs": lax.abs, "ceil": lax.ceil, "floor": lax.floor, "is_finite": lax.is_finite, "neg": lax.neg,
    "round": lax.round, "round_even": lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), "sign": lax.sign,
    "square": lax.square, "cube": lambda x: lax.integer_pow(x, 2), "copy": jnp.copy, "stop_gradient": lax.stop_gradient,
    "sqrt": lax.sqrt, "optimization_barrier": lambda x: lax.optimization_barrier((x, x)),
}  # fmt: skip
CLOSE: dict[str, Callable[..., Any]] = {
    "acos": lax.acos, "acosh": lax.acosh, "asin": lax.asin, "asinh": lax.asinh, "atan": lax.atan, "atanh": lax.atanh,
    "cbrt": lax.cbrt, "cos": lax.cos, "cosh": lax.cosh, "exp": lax.exp, "exp2": lax.exp2, "expm1": lax.expm1,
    "log": lax.log, "log1p": lax.log1p, "logistic": lax.logistic, "rsqrt": lax.rsqrt, "sin": lax.sin, "sinh": lax.sinh,
    "tan": lax.tan, "tanh": lax.tanh, "power": lambda x: lax.integer_pow(x, -3), "erf": lax.erf, "erfc": lax.erfc,
    "erf_inv": lax.erf_inv, "lgamma": lax.lgamma, "digamma": lax.digamma,
}  # fmt: skip
ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": lax.add, "sub": lax.sub, "mul": lax.mul, "div": lax.div, "rem": lax.rem, "max": lax.max, "min": lax.min,
    "eq": lax.eq, "ne": lax.ne, "lt": lax.lt, "le": lax.le, "gt": lax.gt, "ge": lax.ge,
}  # fmt: skip
BITS: dict[str, Callable[..., Any]] = {
    "and": lax.bitwise_and, "or": lax.bitwise_or, "xor": lax.bitwise_xor, "shift_left": lax.shift_left,
    "shift_right_logical": lax.shift_right_logical, "shift_right_arithmetic": lax.shift_right_arithmetic,
}  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS)
def test_functions_of_one_float(dtype: str) -> None:
    x = np.array(EDGES, dtype)
    agree(lambda x: [function(x) for function in EXACT.values()], x)
    agree(lambda x: [function(x) for function in EXACT.values()], x[2])
    agree(lambda x: [function(x) for function in EXACT.values()], x[:0])
    close = [*CLOSE.values()][:: 1 if dtype == "float32" else 4]  # each of them is compiled
    agree(lambda x: [function(x) for function in close], x[:13], ulps=16)
    agree(lambda x: [CLOSE[name](x) for name in ("exp", "tanh", "logistic", "log", "sin")], x[-3:], ulps=16)


@pytest.mark.parametrize("dtype", INTS)
def test_functions_of_one_integer(dtype: str) -> None:
    x = of_type([*INTEGERS, np.iinfo(dtype).min, np.iinfo(dtype).max], dtype)
    agree(lambda x: [lax.sign(x), lax.neg(x), lax.integer_pow(x, 2), lax.integer_pow(x, 3), ~x], x)


@pytest.mark.parametrize("dtype", FLOATS)
def test_arithmetic_of_floats(dtype: str) -> None:
    x, y = pairs(EDGES[2:], dtype)
    agree(lambda x, y: [function(x, y) for function in ARITHMETIC.values()], x, y)
    agree(lambda x, y: [lax.pow(abs(x), y), lax.atan2(x, y)], *pairs(EDGES[2:13], dtype), ulps=64)
    agree(lambda x, y: lax.nextafter(x, y), x, y)
    agree(lambda low, x, high: lax.clamp(low, x, high), np.asarray(-1, dtype), x, np.asarray(1.5, dtype))


@pytest.mark.parametrize("dtype", INTS)
def test_arithmetic_of_integers_wraps_and_divides_towards_zero(dtype: str) -> None:
    info = np.iinfo(dtype)
    numbers = of_type([*INTEGERS, info.min, info.max], dtype)
    x, y = pairs(numbers, dtype)
    agree(lambda x, y: [function(x, y) for function in (ARITHMETIC | BITS).values()], x, y)


def test_truth_values() -> None:
    x, y = pairs([False, True], "bool")
    agree(lambda x, y: [x & y, x | y, x ^ y, ~x, lax.eq(x, y), lax.ne(x, y), jnp.where(x, y, ~y)], x, y)
    agree(lambda x: [jnp.all(x), jnp.any(x), jnp.all(x[:0]), jnp.any(x[:0]), x.astype("float32")], x)
    agree(lambda x: jnp.where(x, 1, 2), np.asarray(True))


@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_become_integers_within_their_range(dtype: str) -> None:
    x = np.array([*EDGES, 2.0**31, -(2.0**31), 2.0**63, -(2.0**63), 3e9, 300.0, -300.0], dtype)
    targets = ["int8", "int32", "int64", "uint8", "uint32", "bool", "float32", "float64"]
    agree(lambda x: [x.astype(target) for target in targets], x)


def test_integers_become_others() -> None:
    x = np.array([0, 1, -1, 255, 256, -129, 2**31, 2**40 + 1, -(2**62) - 1], "int64")
    agree(lambda x: [x.astype(t) for t in ("int8", "uint8", "int32", "uint32", "bool", "float32", "float64")], x)
    agree(lambda x: lax.bitcast_convert_type(x, jnp.float32), np.array([1, 2**30], "int32"))
    agree(lambda x: lax.reduce_precision(x, 8, 23) * 3, np.array(EDGES, "float32"))
    tiny = float(np.finfo("float32").tiny)
    agree(lambda x: lax.reduce_precision(x, 8, 23), np.array([*EDGES, 0.1, 1 / 3, 1e39, tiny, -tiny / 2, 3.4e38]))


MATRIX = np.arange(12, dtype="float32").reshape(3, 4) - 5.5


def test_layouts() -> None:
    x, y = MATRIX, np.float32(2)
    agree(lambda x: [x.reshape(4, 3), x.T, x[None], jnp.squeeze(x[:1]), lax.rev(x, (1,)), jnp.tile(x, (2, 3))], x)
    agree(lambda x: [lax.slice(x, (0, 1), (3, 4), (2, 3)), x[1], x[:, 1:3], x[3:]], x)
    agree(
        lambda x, y: [jnp.broadcast_to(y, (2, 3)), jnp.broadcast_to(x[:, None], (3, 2, 4)), jnp.full((), 3) + y], x, y
    )
    agree(lambda x: [*jnp.split(x, [1, 3], 1), *jnp.unstack(x), jnp.stack([x, x], 1), jnp.concatenate([x, x[:1]])], x)
    agree(lambda x: [jnp.concatenate([x[:0], x[:0]]), x[:0].reshape(4, 0), x[:0].sum(0)], x)
    agree(lambda: [lax.iota("int32", 5), lax.broadcasted_iota("float32", (2, 3), 1), lax.iota("uint8", 0)])
    agree(lambda x: lax.expand_dims(x, (0, 2)), x)


@pytest.mark.parametrize("config", [(1, 2, 0), (0, 0, 2), (-1, 1, 0), (2, -1, 1), (-1, -2, 1), (-3, 0, 0)])
def test_padding(config: tuple[int, int, int]) -> None:
    agree(lambda x, v: lax.pad(x, v, [config, (0, 1, 0)]), MATRIX, np.float32(9))
    agree(lambda x, v: lax.pad(x, v, [(1, 1, 1), (0, 0, 0)]), MATRIX[:0], np.float32(9))


@pytest.mark.parametrize("start", [-7, 0, 1, 2, 9])
def test_windows_at_computed_places_move_inwards(start: int) -> None:
    agree(lambda x, i: lax.dynamic_slice(x, (i, np.int32(1)), (2, 2)), MATRIX, np.int32(start))
    agree(lambda x, i: lax.dynamic_update_slice(x, x[:2, :2] * 0, (i, i)), MATRIX, np.int64(start))


MODES = ["clip", "fill", "promise_in_bounds"]


@pytest.mark.parametrize("mode", MODES)
def test_gathers(mode: str) -> None:
    rows = np.array([0, 2, 1, 1] if mode == "promise_in_bounds" else [0, 5, -9, 2, 3], "int64")
    agree(lambda x, i: [x.at[i].get(mode=mode), x.at[:, i].get(mode=mode), x.at[i[:0]].get(mode=mode)], MATRIX, rows)
    agree(lambda x, i: x.at[i, i[::-1]].get(mode=mode), MATRIX, rows)
    agree(lambda x, i: x.astype("int32").at[i[0]].get(mode=mode), MATRIX, rows)
    agree(lambda x, i: x.astype("uint8").at[i[1]].get(mode=mode), MATRIX + 6, rows)
    agree(lambda x, i: jnp.take_along_axis(x, i[:3, None], 1, mode=mode), MATRIX, rows)
    agree(lambda x, i: x.at[i[:, None], 1:3].get(mode=mode), MATRIX, rows)
    agree(lambda x, i: jax.vmap(lambda row, k: row.at[k].get(mode=mode))(x, i[:3]), MATRIX, rows)


SCATTERS = ["set", "add", "subtract", "multiply", "min", "max"]


@pytest.mark.parametrize("mode", MODES)
def test_scatters(mode: str) -> None:
    rows = np.array([0, 2, 1, 1] if mode == "promise_in_bounds" else [0, 5, -9, 2, 2], "int64")
    parts = np.arange(rows.size * 4, dtype="float32").reshape(-1, 4)

    def all_of(x: Any, rows: Any, parts: Any) -> list[Any]:
        found = []
        for name in SCATTERS:
            found.append(getattr(x.at[rows], name)(parts, mode=mode))
            found.append(getattr(x.at[:, rows[0]], name)(parts[0, :3], mode=mode))
            found.append(getattr(x.at[rows, 1], name)(parts[:, 0], mode=mode))
        return found

    agree(all_of, MATRIX, rows, parts)
    agree(lambda x, rows, parts: x.at[rows[:0]].add(parts[:0], mode=mode), MATRIX, rows, parts)
    agree(lambda x, rows, parts: jax.vmap(lambda row, k: row.at[k].add(1, mode=mode))(x, rows[:3]), MATRIX, rows, parts)


def test_sums_of_products_are_rounded_once() -> None:
    x, y = pairs(EDGES[2:14], "float32")
    a, b = pairs([0.1, -0.3, 1.7, 1e-9, 33.3, 1e300], "float64")
    for args in ((x, y, y[::-1].copy()), (a, b, b[::-1].copy())):
        agree(lambda x, y, z: x * y + z, *args)
        agree(lambda x, y, z: [z - x * y, z * 3], *args)
        agree(lambda x, y, z: x * y - z * 0.1, *args)
        agree(lambda x, y, z: [x * x + z, *(lambda p: (p, p + z))(x * y)], *args)  # a product that is a result too


def test_sums_of_quotients_by_a_constant_are_rounded_once() -> None:
    """XLA multiplies by the inverse; a quotient that is a result, reshaped or not, is made for it once more."""
    x, z = pairs([0.1, -0.3, 1.7, 33.3, 1e-3, 7.7], "float32")
    agree(lambda x, z: x / 40 + z, x, z)
    agree(lambda x, z: z - x / 40, x, z)
    agree(lambda x, z: [x / 40 - z, z / 3], x, z)
    agree(lambda x, z: (lambda p: [p, p + z])(x / 40), x, z)
    agree(lambda x, z: z[:, None] - (x / 40)[None], x, z)
    agree(lambda x, z: (lambda p: [p.reshape(-1), p + 1e-5])(x[:, None] / 40), x, z)
    agree(lambda x, z: (lambda p: [p, p.reshape(2, -1), z - p])(x / 40), x, z)
    agree(lambda x, z: (lambda p: (p + z) * p)(x / 40), x, z)  # which is rounded, as two read it


def test_reductions() -> None:
    x = np.array([[1, NAN, 3], [2, -5, INF]], "float32")
    agree(lambda x: [lax.reduce_max(x, (1,)), lax.reduce_min(x, (0,)), jnp.argmax(x, 1), jnp.argmin(x, 0)], x)
    agree(lambda x: [x[:0].sum(0), x[:0].prod(0), lax.reduce_max(x[:0], (0,)), lax.reduce_min(x[:0], (0,))], x)
    agree(lambda x: [x.sum((0, 1)), x.sum(1), x.prod(0), lax.reduce_sum(x, ())], MATRIX)
    n = np.array([[250, 7, 3], [6, 255, 9]], "uint8")
    agree(lambda n: [lax.reduce_sum(n, (1,)), lax.reduce_prod(n, (0,)), lax.reduce_max(n[:0], (0,))], n)
    agree(lambda n: [lax.reduce_and(n, (1,)), lax.reduce_or(n, (0,)), lax.reduce_min(n[:0], (0,))], n)
    agree(lambda n: [jnp.argmax(n, 1), jnp.argmax(n[:, :1], 0)], n)


def test_a_sum_behind_a_reshape_keeps_its_dimensions_of_one_number() -> None:
    x = MATRIX[:, None]
    agree(lambda x: [x.reshape(3, 1, 1, 1, 1, 4).sum((0, 2, 4)), (x * x).reshape(3, 1, 1, 1, 1, 4).sum((0, 2, 4))], x)
    agree(lambda x: [x[:, :, :1].reshape(3, 1, 1, 1, 1, 1).sum((0, 2, 4)), x.reshape(1, 1, 12, 1).sum(2)], x)
    agree(lambda x: [x[:, :0, :3].reshape(3, 1, 0, 3).sum((1, 2)), x[:0].reshape(1, 0, 4, 1).sum((0, 1))], x)
    square = x[:, :, :3].reshape(1, 3, 3)
    agree(lambda x: x[:, None, :0, None].reshape(1, 0, 3, 1, 0).sum((0, 1, 3)), square)
    agree(lambda x: jnp.concatenate([x[:0]] * 2).reshape(1, 1, 0, 3, 3).sum((0, 1, 2)), square)


@pytest.mark.parametrize("reverse", [False, True])
def test_running_ones(reverse: bool) -> None:
    functions = lax.cumsum, lax.cumprod, lax.cummax, lax.cummin
    agree(lambda x: [function(x, axis, reverse) for function in functions for axis in (0, 1)], np.round(MATRIX))
    agree(lambda x: [lax.cumsum(x, 0, reverse), lax.cumsum(x[:0], 0, reverse)], np.array([200, 100, 7], "uint8"))
    agree(lambda x: lax.cummax(x, 0, reverse), np.array([1, NAN, 3], "float32"))


def test_products() -> None:
    a, b = np.round(MATRIX), np.arange(8, dtype="float32").reshape(4, 2)
    c = np.arange(24, dtype="float32").reshape(2, 3, 4)
    agree(lambda a, b: [a @ b, a[0] @ b, a @ b[:, 0], a[:0] @ b, a[:, :0] @ b[:0], jnp.outer(a[0], b[0])], a, b)
    agree(
        lambda a, c: [
            jnp.einsum("ij,bij->bi", a, c),
            jnp.einsum("bij,bkj->bik", c, c),
            jnp.einsum("bij,ki->kbj", c, a[:, :3]),
        ],
        a,
        c,
    )
    agree(lambda a, c: jnp.einsum("aij,abij->jb", c, c[None].repeat(2, 0)), a, c)
    agree(lambda a: [a.astype("int32") @ a.T.astype("int32"), a.astype("uint8") @ a.T.astype("uint8")], np.abs(a))
    agree(lambda a: lax.dot_general(a, a.T, (((1,), (0,)), ((), ())), preferred_element_type=jnp.float64), a)


def test_sorting_is_stable_and_puts_nan_last() -> None:
    x = np.array([[3, NAN, -1, 3, -INF, 0.5], [INF, 2, 2, 2, NAN, -2]], "float32")
    agree(lambda x: [jnp.sort(x, 0), jnp.sort(x, 1), jnp.argsort(x, 1), jnp.sort(x[:0], 0)], x)
    agree(lambda x: [*lax.top_k(x, 3), *lax.top_k(x[:, ::-1], 1), *lax.top_k(x, 0)], x[:, [0, 2, 3, 4, 5]][:1])
    agree(lambda x: lax.top_k(x, 4), np.array([0, 255, 7, 255, 7], "uint8"))
    agree(lambda x: lax.sort((x, x * 2, lax.iota("int32", 5)), num_keys=1), np.array([2, 1, 2, 1, 0], "int32"))
    agree(lambda x: lax.sort((x, x[::-1], x * 2), dimension=0, num_keys=2), x)
    agree(lambda x: lax.sort((x, x[::-1], lax.iota("int32", 6)), num_keys=2), np.array([0, -0.0, NAN, 0, 1, NAN], "f"))


def test_loops_and_branches() -> None:
    x = np.round(MATRIX)
    agree(lambda x: lax.scan(lambda c, row: (c + row, (c * 2, row.sum())), x[0], x), x)
    agree(lambda x: lax.scan(lambda c, row: (c - row, c * row), x[0], x, reverse=True), x)
    agree(lambda x: lax.scan(lambda c, row: (c + row, c), x[0], x[:0]), x)
    agree(lambda x: lax.while_loop(lambda s: s[0] < x.shape[0], lambda s: (s[0] + 1, s[1] + x[s[0]]), (0, x[0])), x)
    for which in (-1, 0, 1, 7):
        agree(lambda i, x: lax.switch(i, [lambda x: x, lambda x: -x, lambda x: x * 2], x), np.int32(which), x)
    agree(lambda x: lax.platform_dependent(x, cpu=lambda x: x * 2, default=lax.cumlogsumexp), x)
    agree(lambda x: lax.platform_dependent(x, tpu=lambda x: x * 2, default=lambda x: x * 3), x)
    relu = jax.nn.relu
    agree(lambda x: [relu(x), relu(-relu(-x)), jax.grad(lambda y: (relu(y) * relu(y)).sum())(x)], x)
    agree(lambda x: jax.checkpoint(lambda y: y * y)(x), x)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "complex64"])
def test_half_precision_and_complex_numbers_are_left_to_xla(dtype: str) -> None:
    with pytest.raises(Unknown):
        evaluated(lambda x: x + x, jnp.ones(3, dtype))


def test_random_bits_are_left_to_xla() -> None:
    with pytest.raises(Unknown):
        evaluated(lambda words: jax.random.bits(jax.random.wrap_key_data(words)), np.zeros(2, "uint32"))
