"""Random numbers in the size of a dim that changes: those that are drawn for each size alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fluidjax import layers
from lowering.draws import random_bits
from lowering.sizes.counts import RowSize
from lowering.values import Counted
from tests.stream.test_wide_sizes import LENGTHS, B, D, both, equal_to_exact_sizes, feeds_of, rows_of, size

pytestmark = pytest.mark.usefixtures("compiled_quickly")

DRAWS: dict[str, Callable[..., Any]] = {
    "uniform": lambda key, dims: random_bits.uniform(key, dims, np.float32, 0.5, 2.0),
    "normal": lambda key, dims: random_bits.normal(key, dims, np.float64, 1.0, 2.0),
    "truncated": lambda key, dims: random_bits.truncated_normal(key, dims, np.float32),
    "integers": lambda key, dims: random_bits.integers(key, dims, np.int64, 3, 90),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
@pytest.mark.parametrize("used", [1, 20, 160, 1400], ids=lambda n: f"{n * 204}")
def test_values_of_a_size_do_not_depend_on_its_room(draw: Callable[..., Any], used: int) -> None:
    """In chunks of each size, and in several of the largest."""

    def roomy(n: Any, key: Any) -> Any:
        return draw(key, [4, RowSize.of(n, Counted(1500, "n"), 1, 0), 51])[:, :used]

    with jax.enable_x64(True):
        key = jax.random.key(3)
        expected = jax.jit(lambda key: draw(key, [4, used, 51]))(key)
        found = jax.jit(roomy)(jnp.int32(used), key)
        np.testing.assert_array_equal(found, expected)


def uniform() -> Sequence[Any]:
    x, rows = rows_of()
    noise = layers.uniform_random([B, size(x), D], "float64", 0.5, 1.0)
    return [layers.mean(layers.square(rows * noise)), noise]


def normal() -> Sequence[Any]:
    """A latent that is drawn, and what is dropped of it."""
    x, rows = rows_of()
    noise = layers.gaussian_random([B, size(x), D], dtype="float64")
    rows = layers.dropout(rows + noise, 0.3)
    return [layers.mean(layers.square(rows)), noise, rows]


def alike() -> Sequence[Any]:
    """As many as a dim of another has, in front."""
    _, rows = rows_of()
    found = layers.uniform_random_batch_size_like(rows, [-1, D], "float64", input_dim_idx=1, min=0.5, max=1.0)
    normal = layers.gaussian_random_batch_size_like(rows, [B, -1], 1, 1, dtype="float64")
    loss = layers.mean(layers.square(layers.elementwise_mul(rows, found, axis=1)))
    return [loss + layers.mean(layers.elementwise_mul(rows, normal, axis=0)), found, normal]


def by_values() -> Sequence[Any]:
    """Draws that read values: chances, noise before a softmax, and slopes."""
    _, rows = rows_of()
    block = rows.block

    def drawn(type: str, x: Any, outs: str = "Out", **attrs: Any) -> Any:
        found = {slot: block.create_var(name=f"{type}_{slot}", dtype="float64", shape=x.shape) for slot in outs.split()}
        block.append_op(type, {"X": x}, found, attrs)
        return found["Out"]

    coins = drawn("bernoulli", layers.sigmoid(rows))
    coins.stop_gradient = True
    soft, leaky = drawn("gumbel_softmax", rows, temperature=0.5), drawn("rrelu", rows, "Out Noise")
    return [layers.mean(layers.square(soft + leaky)), coins, soft, leaky]


@pytest.mark.parametrize("build", [uniform, normal, alike, by_values], ids=lambda f: f.__name__)
def test_what_is_drawn_in_the_size_of_a_dim_is_wide(
    build: Callable[[], Sequence[Any]], rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    equal_to_exact_sizes(monkeypatch, build, feeds_of(rng, LENGTHS), 2)


def test_a_diagonal_of_what_is_drawn_has_the_size(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its places follow from the size."""

    def build() -> Sequence[Any]:
        _, rows = rows_of()
        found = layers.transpose(rows, [1, 0, 2])
        block = found.block
        drawn = block.create_var(name="drawn", dtype="float64")
        attrs = {"shape": [D, 1], "input_dim_idx": 0, "output_dim_idx": 1, "diag_num": 2, "diag_step": 0, "dtype": 6}
        block.append_op("uniform_random_batch_size_like", {"Input": found}, {"Out": drawn}, attrs)
        return [layers.mean(layers.square(rows)), drawn]

    found, exact = both(monkeypatch, build, feeds_of(rng, (3, 8, 4)))
    assert found.compilations == exact.compilations
