"""Faults planted into rules, each in one precision, shape or attribute only, are caught by the checks of the corpus."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import Phase, settings

import lowering
from fluidjax import testing
from fluidjax.testing import strategies
from fluidjax.testing.float32 import tall_and_narrow
from lowering.values import data_of
from tests.ops.test_properties import FEW, check_drawn

WRONG = 1.001
FIRST = settings(FEW, phases=[Phase.generate])  # what is caught need not be made small


def plain(op):
    """The op's case without a label."""
    return next(c for c in testing.table() if c.op == op and not c.label)


def in_float32(x, out):
    return out * WRONG if x.dtype == np.float32 else out


def behind_eight_rows(x, out):
    return jnp.asarray(out).at[8:].multiply(WRONG)


def plant(monkeypatch, definition, fault):
    """Let a rule return ``fault(first input, its right result, attributes)``; of several results the first."""
    right = definition.fn

    def wrong(x, *args, **attrs):
        result = right(x, *args, **attrs)
        if isinstance(result, tuple):
            return fault(x, result[0], **attrs), *result[1:]
        return fault(x, result, **attrs)

    monkeypatch.setattr(definition, "fn", wrong)


@pytest.mark.parametrize("fault", [in_float32, behind_eight_rows])
@pytest.mark.parametrize("op", ["tanh", "elementwise_add", "layer_norm", "conv2d"])
def test_in_float32_or_on_many_rows(monkeypatch, rng, op, fault):
    plant(monkeypatch, lowering.get_op(op), lambda x, out, **attrs: fault(x, out))
    with pytest.raises(testing.Mismatch, match="in float32"):
        testing.check_float32(plain(op), rng)


@pytest.mark.parametrize("fault", [in_float32, behind_eight_rows])
def test_in_a_gradient_in_float32_or_on_many_rows(monkeypatch, rng, fault):
    plant(monkeypatch, lowering.get_op("tanh").gradient, lambda x, out, **attrs: fault(x, out))
    with pytest.raises(testing.Mismatch, match="@GRAD in float32"):
        testing.check_float32(plain("tanh"), rng)


def alpha_of_three_tenths(x, out, alpha, **attrs):
    return out * WRONG if abs(alpha - 0.3) < 1e-6 else out


def axis_0(x, out, axis, **attrs):
    return out * WRONG if axis == 0 else out


def two_dims(x, out, x_num_col_dims, **attrs):
    return out * WRONG if x_num_col_dims == 2 else out


def cube(x, out, axis, **attrs):
    """Permuted the other way round, where no shape shows it."""
    data = data_of(x)
    return jnp.transpose(data, np.argsort(axis)) if len(set(data.shape)) == 1 else out


ATTRIBUTES = {"leaky_relu": alpha_of_three_tenths, "softmax": axis_0, "mul": two_dims, "transpose2": cube}


@pytest.mark.parametrize("op", ATTRIBUTES)
def test_at_one_attribute(monkeypatch, op):
    plant(monkeypatch, lowering.get_op(op), ATTRIBUTES[op])
    with pytest.raises(testing.Mismatch):
        check_drawn(strategies.attributed(op), FIRST)


@pytest.mark.parametrize("op", ["leaky_relu", "softmax", "mul"])
def test_in_a_gradient_at_one_attribute(monkeypatch, op):
    plant(monkeypatch, lowering.get_op(op).gradient, ATTRIBUTES[op])
    with pytest.raises(testing.Mismatch):
        check_drawn(strategies.attributed(op), FIRST)


def test_row_wise_ops_are_checked_beyond_eight_rows(rng):
    for op in ("relu", "elementwise_add", "mul", "softmax", "cross_entropy", "conv2d", "lookup_table"):
        _, tall = tall_and_narrow(plain(op), rng)
        assert max(out.shape[0] for out in tall.values()) > 8, op
