"""What the recordings do not show of the cross entropies."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lowering


def loss_and_grad(logits, label, **attrs):
    op = lowering.get_op("softmax_with_cross_entropy")
    given = {"soft_label": False, "ignore_index": -100, "axis": -1, "use_softmax": True} | attrs
    with jax.enable_x64(True):
        softmax, loss = op(logits, label, **given)
        grad = op.gradient.fn(label, softmax, jnp.ones_like(loss), **given)
    return np.asarray(loss), np.asarray(grad)


@pytest.mark.parametrize("ignored", [2, -1, 99])
def test_ignored_rows_have_no_gradient(rng, ignored):
    label = np.array([[0], [ignored], [3]])
    loss, grad = loss_and_grad(rng.standard_normal((3, 4)), label, ignore_index=ignored)
    assert loss[1] == 0 and not grad[1].any()
    assert grad[0].any() and grad[2].any()


def test_soft_labels_need_not_add_up_to_one(rng):
    """The derivative of -sum(label log softmax) is sum(label) softmax - label; a row of zeros has none."""
    logits, label = rng.standard_normal((3, 4)), rng.random((3, 4))
    label[1] = 0
    loss, grad = loss_and_grad(logits, label, soft_label=True)
    assert loss[1] == 0 and not grad[1].any()
    with jax.enable_x64(True):
        true = jax.grad(lambda x: -(label * jax.nn.log_softmax(x)).sum())(jnp.asarray(logits))
    np.testing.assert_allclose(grad, true, atol=1e-12)


def test_far_logits_are_clipped():
    """Fluid clips x - max(x) at -64, so a hopeless label costs 64, not infinity."""
    loss, grad = loss_and_grad(np.array([[0.0, 1000.0]]), np.array([[0]]))
    np.testing.assert_allclose(loss, [[64.0]])
    assert np.isfinite(grad).all()


@pytest.mark.parametrize("op_type", ["cross_entropy", "cross_entropy2"])
def test_zero_probability_costs_1e20(op_type):
    with jax.enable_x64(True):
        out = lowering.get_op(op_type)(np.array([[0.0, 1.0]]), np.array([[0]]))
    cost = out[0] if isinstance(out, tuple) else out
    np.testing.assert_allclose(cost, [[1e20]])
