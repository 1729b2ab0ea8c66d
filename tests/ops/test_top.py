"""The k largest of each row: every way to find them gives what jax.lax.top_k gives, bit by bit."""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowering.ops.tensor import top

FLOATS = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.5, 1e-45, -3e38]
WIDTHS = {160: 4, 167: 5, 96: 8, 240: 1}  # with and without a rest that fills no group


@pytest.fixture(autouse=True)
def small_rows_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of any dtype are cut into groups, and so are the rows of maxima and of candidates."""
    monkeypatch.setattr(top, "_WIDE", 16)
    monkeypatch.setattr(top, "_MANY", 0)
    monkeypatch.setattr(top, "_WIDE_WITHOUT", 16)


@cache
def compiled(k: int, platform: str):
    return jax.jit(lambda x: top.largest(x, k, platform))


def same(x: np.ndarray, k: int) -> None:
    with jax.enable_x64(True):
        got, want = compiled(k, "cpu")(x), compiled(k, "other")(x)
    for one, other in zip(got, want, strict=True):
        assert one.dtype == other.dtype and np.asarray(one).tobytes() == np.asarray(other).tobytes()


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(WIDTHS)),
    st.sampled_from(["float32", "float64", "float16"]),
    st.lists(st.sampled_from(FLOATS), min_size=1, max_size=5),
    st.integers(0, 2**32 - 1),
)
def test_ties_infinities_zeros_and_nans(width: int, dtype: str, values: list[float], seed: int) -> None:
    rng = np.random.default_rng(seed)
    drawn = rng.choice(np.array(values), (3, width))
    few = np.where(rng.random((3, width)) < 0.03, drawn, values[0])
    with np.errstate(over="ignore"):
        same(np.stack([drawn, few, rng.normal(size=(3, width))]).astype(dtype), WIDTHS[width])


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(sorted(WIDTHS)), st.sampled_from(["int32", "int64", "uint8"]), st.integers(0, 2**32 - 1))
def test_integers(width: int, dtype: str, seed: int) -> None:
    rng, info = np.random.default_rng(seed), np.iinfo(dtype)
    few = rng.integers(0, 3, (3, width))
    same(np.stack([few, rng.choice([info.min, info.max, 1], (3, width))]).astype(dtype), WIDTHS[width])


@pytest.mark.parametrize("value", FLOATS)
def test_of_equal_values_the_first_count(value: float) -> None:
    _, places = compiled(4, "cpu")(np.full((2, 3, 160), value, np.float32))
    np.testing.assert_array_equal(places, np.broadcast_to(np.arange(4), (2, 3, 4)))


def test_gradients_go_where_the_values_came_from(rng: np.random.Generator) -> None:
    x, weights = rng.normal(size=(3, 160)).astype("float32"), rng.normal(size=(3, 4)).astype("float32")
    got, want = (
        jax.grad(lambda v, way=way: (top.largest(v, 4, way)[0] * weights).sum())(x) for way in ("cpu", "other")
    )
    np.testing.assert_array_equal(got, want)
    assert np.count_nonzero(got) == weights.size


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="reads what XLA:CPU makes of it")
def test_a_slice_of_the_result_does_not_sort_whole_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """XLA merges a slice of a top_k into it and then knows it as a sort only: 80 times slower."""
    monkeypatch.setattr(top, "_WIDE", 1000)

    def first(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        values, places = top.largest(x, 4, "cpu")
        return values[:, :1], places[:, :2]

    text = jax.jit(first).lower(jnp.zeros((8, 512), jnp.float32)).compile().as_text()
    assert 'custom_call_target="TopK"' in text and " sort(" not in text


def test_group_sizes_divide_the_width_where_they_can() -> None:
    assert top.group_size(2000, 4) == 20
    for width in range(16, 3000, 7):
        for k in (1, 3, width // 12):
            assert k < 1 or width < 12 * k or width // top.group_size(width, k) >= k
