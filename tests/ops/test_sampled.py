"""Random and sparse parts: dropout's rate, the samplers' distributions, SelectedRows gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lowering
from lowering.ops.loss import sampled as sampled_loss
from lowering.values import LoDArray, SelectedRows

KEY = 7


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_dropout_rate(rate):
    op = lowering.get_op("dropout")
    out, mask = op(jnp.ones((100, 100)), dropout_prob=rate, key=jax.random.key(KEY))
    kept = np.asarray(mask).mean()
    assert abs(kept - (1 - rate)) < 4 * np.sqrt(rate * (1 - rate) / 10_000)
    np.testing.assert_array_equal(out, mask)


def test_dropout_seed_fixes_the_mask():
    op = lowering.get_op("dropout")
    masks = [op(jnp.ones((8, 8)), fix_seed=True, seed_=3, key=jax.random.key(k))[1] for k in (1, 2)]
    np.testing.assert_array_equal(*masks)


def test_log_uniform_frequencies():
    with jax.enable_x64(True):
        drawn = np.asarray(sampled_loss._log_uniform_sample(jax.random.key(KEY), (200_000,), 10))
        expected = np.asarray(sampled_loss.log_uniform_probability(jnp.arange(10), 10, jnp.float64))
    assert expected.sum() == pytest.approx(1)
    np.testing.assert_allclose(np.bincount(drawn, minlength=10) / drawn.size, expected, atol=5e-3)


def test_alias_method_frequencies():
    from fluidjax.layers._loss.sampled import alias_tables

    wanted = np.array([0.1, 0.2, 0.3, 0.4])
    alias, keep = alias_tables(wanted.tolist())
    with jax.enable_x64(True):
        drawn = sampled_loss._alias_sample(jax.random.key(KEY), (200_000,), 4, alias, keep)
    np.testing.assert_allclose(np.bincount(np.asarray(drawn)) / drawn.size, wanted, atol=5e-3)


def test_unique_samples_are_unique_and_their_probabilities_follow_the_tries():
    with jax.enable_x64(True):
        samples, tries = jax.jit(lambda k: sampled_loss._unique_samples(k, 6, 10))(jax.random.key(KEY))
    assert len(set(np.asarray(samples).tolist())) == 6
    assert int(tries) >= 6


@pytest.mark.parametrize(("op_type", "shape"), [("lookup_table", (4, 1)), ("lookup_table_v2", (2, 2))])
def test_sparse_gradient_is_the_dense_one(rng, op_type, shape):
    table, ids = rng.standard_normal((6, 3)), np.array([1, 5, 1, 0]).reshape(shape)
    d_out = rng.standard_normal((*(shape[:1] if op_type == "lookup_table" else shape), 3))
    op = lowering.get_op(op_type).gradient
    with jax.enable_x64(True):
        sparse = op.fn(table, LoDArray(ids), d_out, is_sparse=True, padding_idx=-1)
        dense = op.fn(table, LoDArray(ids), d_out, is_sparse=False, padding_idx=-1)
        assert isinstance(sparse, SelectedRows)
        np.testing.assert_allclose(sparse.to_dense(), dense, atol=1e-12)
    assert sorted(np.asarray(sparse.rows).tolist()) == [0, 1, 1, 5]


def test_id_outside_the_table_shows():
    out = lowering.get_op("lookup_table_v2")(np.ones((3, 2), np.float32), np.array([2, 3, -1]))
    assert np.isfinite(out[0]).all() and np.isnan(out[1:]).all()


def test_sparse_tree_gradient_touches_path_nodes_only(rng):
    """Nodes that no path visits have no row, so that lazy optimizers leave them alone."""
    op = lowering.get_op("hierarchical_sigmoid")
    x, w = rng.standard_normal((2, 3)), rng.standard_normal((6, 3))
    table, code = np.array([[0, 1, 3], [2, -1, -1]]), np.array([[0, 1, 1], [1, -1, -1]])
    label, d_out = np.array([[0], [1]]), np.ones((2, 1))
    with jax.enable_x64(True):
        _, pre, _ = op(x, w, label, table, code, num_classes=4, is_sparse=True)
        attrs = {"num_classes": 4}
        _, sparse, _ = op.gradient.fn(x, w, label, pre, d_out, table, code, is_sparse=True, **attrs)
        _, dense, _ = op.gradient.fn(x, w, label, pre, d_out, table, code, is_sparse=False, **attrs)
        np.testing.assert_allclose(sparse.to_dense(), dense, atol=1e-12)
    assert np.asarray(sparse.rows)[: int(sparse.nrows)].tolist() == [0, 1, 2, 3]
