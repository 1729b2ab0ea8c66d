"""Where the smaller of two operands begins."""

from __future__ import annotations

import numpy as np
import pytest

from lowering.engine.runner import Runner
from lowering.errors import OpError
from lowering.ops.math.broadcast import placed_pair
from lowering.program import BlockView, OpView, ProgramView


@pytest.mark.parametrize(("axis", "placed"), [(-1, (1, 3, 4)), (1, (1, 3, 4)), (0, (3, 4, 1))])
def test_dims_start_at_the_axis(axis, placed) -> None:
    assert placed_pair((2, 3, 4), (3, 4), axis)[1] == placed
    assert placed_pair((3, 4), (2, 3, 4), axis)[0] == placed


@pytest.mark.parametrize("axis", [-2, 2, 3, 4, 10**9, 2**31 - 1, -(2**31)])
def test_an_axis_where_nothing_fits_is_told_at_once(axis) -> None:
    """No shape of as many dims as the axis says is made."""
    assert len(placed_pair((2, 3, 4), (3, 4), axis)[1]) in (4, 5, 6)
    add = OpView("elementwise_add", {"X": ["x"], "Y": ["y"]}, {"Out": ["out"]}, {"axis": axis})
    runner = Runner(ProgramView((BlockView(0, -1, (add,), {}),)))
    with pytest.raises(OpError, match=r"(?s)elementwise_add.*no dims of the larger operand"):
        runner.run_op(add, {"x": np.ones((2, 3, 4)), "y": np.ones((3, 4))})
