"""Methods that Fluid's C++ gives eager variables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.core import EnforceNotMet, VarDesc

dg, layers = fluid.dygraph, fluid.layers


@pytest.fixture(autouse=True)
def under_guard() -> Iterator[None]:
    """Each test has a guard of its own."""
    with dg.guard():
        yield


def test_backward_by_a_tracer_and_the_gradients_tensor() -> None:
    x = dg.to_variable(np.ones([2, 3], "float32"))
    x.stop_gradient = False
    loss: Any = layers.reduce_sum(x * 2.0)
    with pytest.raises(EnforceNotMet, match="no dense gradient"):
        x._grad_value()
    loss._run_backward(dg.BackwardStrategy(), fluid.framework._dygraph_tracer(), False)
    np.testing.assert_array_equal(np.array(x._grad_value()), np.full([2, 3], 2.0))
    assert (loss.__long__(), fluid.core.VarBase._alive_vars()) == (12, [])


def test_a_sparse_gradient_has_no_tensor() -> None:
    table = dg.Embedding([4, 2], is_sparse=True)
    table.weight._set_grad_type(VarDesc.VarType.SELECTED_ROWS)
    layers.reduce_sum(table(dg.to_variable(np.array([[1], [2]])))).backward()
    with pytest.raises(EnforceNotMet, match="SelectedRows"):
        table.weight._grad_value()
    with pytest.raises(TypeError, match="VarType"):
        table.weight._set_grad_type(3)


def test_a_layer_keeps_the_state_that_was_set_last() -> None:
    layer = dg.Linear(2, 2)
    assert layer._loaddict_holder == {}
    state = layer.state_dict()
    layer.set_dict(state)
    assert layer._loaddict_holder is state
