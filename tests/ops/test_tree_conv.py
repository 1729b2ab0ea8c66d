"""tree_conv over a batch of trees of unequal size, against each tree alone."""

import jax
import numpy as np

import lowering


def test_trees_do_not_mix(rng):
    """Paddle leaves rows of a longer tree after those of a shorter one."""
    edges = np.array([[[1, 2], [1, 3], [2, 4]], [[1, 2], [0, 0], [0, 0]]], np.int32)
    nodes, filters = rng.standard_normal((2, 4, 3)), rng.standard_normal((3, 3, 2, 2))
    op = lowering.get_op("tree_conv")
    with jax.enable_x64(True):
        both = op(nodes, edges, filters)
        alone = [op(nodes[i : i + 1], edges[i : i + 1], filters)[0] for i in range(2)]
    np.testing.assert_allclose(both, np.stack(alone), atol=1e-12)
    assert not np.asarray(both)[1, 2:].any()


def test_edges_of_any_element_type(rng):
    edges, nodes, filters = np.array([[[1, 2], [1, 3]]]), rng.standard_normal((1, 4, 3)), np.ones((3, 3, 2, 2))
    op = lowering.get_op("tree_conv")
    with jax.enable_x64(True):
        np.testing.assert_array_equal(op(nodes, edges.astype("float32"), filters), op(nodes, edges, filters))
