"""Layers that are told lengths work in eager mode; those that need a LoD are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid

dg, layers = fluid.dygraph, fluid.layers


def var(*rows: Any, dtype: str = "int64") -> Any:
    return dg.to_variable(np.array(rows, dtype))


def test_a_mask_of_lengths() -> None:
    with dg.guard():
        mask = layers.sequence_mask(var(1, 3), maxlen=4, dtype="float32")
        assert mask.stop_gradient and mask.numpy().tolist() == [[1, 0, 0, 0], [1, 1, 1, 0]]
        assert layers.sequence_mask(var(1, 3)).shape == [2, 3]


def test_distances_and_losses_of_padded_rows() -> None:
    with dg.guard():
        length = var(2)
        distance, _ = layers.edit_distance(var([1, 2]), var([1, 3]), input_length=length, label_length=length)
        assert distance.numpy().tolist() == [[0.5]]
        logits = dg.to_variable(np.zeros((3, 1, 4), "float32"))
        loss = layers.warpctc(logits, var([1], dtype="int32"), input_length=var(3), label_length=var(1))
        assert loss.shape == [1, 1] and np.isfinite(loss.numpy()).all()
        rows = dg.to_variable(np.ones((2, 3, 4), "float32"))
        assert layers.row_conv(rows, 2).shape == [2, 3, 4]


@pytest.mark.parametrize(
    "call",
    [
        lambda x: layers.sequence_pool(x, "sum"),
        lambda x: layers.sequence_concat([x, x]),
        lambda x: layers.sequence_conv(x, 3),
        lambda x: layers.dynamic_lstm(x, 8),
    ],
)
def test_what_needs_a_lod_is_refused(call: Callable[[Any], Any]) -> None:
    with dg.guard(), pytest.raises(AssertionError, match="not supported in dygraph mode"):
        call(dg.to_variable(np.ones((2, 8), "float32")))
