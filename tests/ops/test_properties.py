"""Ops under shapes, axes and attributes that hypothesis chooses."""

import pytest
from hypothesis import HealthCheck, given, settings

from fluidjax import testing
from fluidjax.testing import strategies

pytestmark = pytest.mark.usefixtures("compiled_quickly")

FEW = settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


def check_drawn(strategy, bounds=FEW):
    """Forward and gradient of the cases that a strategy draws."""

    @bounds
    @given(strategy)
    def check(drawn):
        testing.check_forward(drawn.case, drawn.rng())
        testing.check_gradient(drawn.case, drawn.rng())

    check()


@pytest.mark.parametrize("op", strategies.shaped_ops())
def test_shapes_and_attributes(op):
    check_drawn(strategies.ops(op))


@pytest.mark.parametrize("op", strategies.attributed_ops())
def test_attributes_off_their_defaults(op):
    check_drawn(strategies.attributed(op))


@settings(max_examples=30, deadline=None, derandomize=True)
@given(strategies.broadcasts())
def test_broadcasts_are_valid(drawn):
    """The strategy keeps to Fluid's rule: Y's dims are X's from the axis on, or 1."""
    x, y, axis = drawn
    start = len(x) - len(y) if axis == -1 else axis
    assert all(n in (1, x[start + i]) for i, n in enumerate(y))


@settings(max_examples=30, deadline=None, derandomize=True)
@given(strategies.tensors(dtype="float32"))
def test_tensors_are_finite(drawn):
    assert drawn.dtype.name == "float32" and abs(drawn).max(initial=0) < 100
