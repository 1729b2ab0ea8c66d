"""A sparse gradient without rows changes nothing, whether that is known while tracing or not, as in the real kernel."""

from __future__ import annotations

import numpy as np
import pytest

from lowering import get_op
from lowering.values import SelectedRows

ONES = np.ones((3, 2), np.float32)
ONE = np.full(1, 0.9, np.float32)


@pytest.mark.parametrize("nrows", [None, np.int32(0)])
@pytest.mark.parametrize("lazy", [True, False])
def test_adam(nrows, lazy):
    room = 0 if nrows is None else 2
    grad = SelectedRows(np.zeros(room, np.int64), np.zeros((room, 2), np.float32), 3, nrows)
    found = get_op("adam").fn(ONES, grad, ONE, ONES, ONES, ONE, ONE, lazy_mode=lazy)
    for new, old in zip(found, (ONES, ONES, ONES, ONE, ONE), strict=True):
        np.testing.assert_array_equal(new, old)


@pytest.mark.parametrize("nrows", [None, np.int32(0)])
def test_momentum(nrows):
    room = 0 if nrows is None else 2
    grad = SelectedRows(np.zeros(room, np.int64), np.zeros((room, 2), np.float32), 3, nrows)
    for new in get_op("momentum").fn(ONES, grad, ONES, ONE, mu=0.9):
        np.testing.assert_array_equal(new, ONES)
