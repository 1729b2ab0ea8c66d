"""What the layers of eager mode take when a program is written with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid

dg = fluid.dygraph
FLOATS = {"float16", "float32", "float64"}
FULL = {"float32", "float64"}
DTYPES = (*sorted(FLOATS), "int8", "int32", "int64")

LAYERS: list[tuple[Callable[[], Any], list[int], set[str]]] = [
    (lambda: dg.Linear(4, 2), [3, 4], FLOATS),
    (lambda: dg.Conv2D(4, 2, 3), [2, 4, 6, 6], FLOATS),
    (lambda: dg.Conv2DTranspose(4, 2, 3), [2, 4, 6, 6], FLOATS),
    (lambda: dg.Pool2D(2), [2, 4, 6, 6], {"int8", *FLOATS}),
    (lambda: dg.BatchNorm(4), [2, 4, 6, 6], FLOATS),
    (lambda: dg.InstanceNorm(4), [2, 4, 6, 6], FULL),
    (lambda: dg.LayerNorm([6, 6]), [2, 4, 6, 6], FULL),
    (lambda: dg.SpectralNorm([2, 4, 6, 6]), [2, 4, 6, 6], FULL),
    (lambda: dg.PRelu("all"), [3, 4], {"float32"}),
    (lambda: dg.Embedding([5, 4]), [3, 1], {"int64"}),
    (lambda: dg.Conv3D(4, 2, 3), [2, 4, 6, 6, 6], set()),
    (lambda: dg.Conv3DTranspose(4, 2, 3), [2, 4, 6, 6, 6], set()),
    (lambda: dg.GroupNorm(4, 2), [2, 4, 6, 6], set()),
    (lambda: dg.Dropout(0.5), [3, 4], set()),
]


@pytest.mark.parametrize(("make", "shape", "taken"), LAYERS)
def test_a_layer_in_a_program_refuses_arrays_and_other_dtypes(
    make: Callable[[], Any], shape: list[int], taken: set[str]
) -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        layer = make()
        with pytest.raises(TypeError, match="is no variable"):
            layer(np.ones(shape, "float32"))
        for dtype in DTYPES:
            if taken and dtype not in taken:
                with pytest.raises(TypeError, match=dtype):
                    layer(fluid.data(dtype, shape, dtype))


def test_a_gru_unit_in_a_program_refuses_other_dtypes() -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        layer = dg.GRUUnit(6)
        x, h = fluid.data("x", [3, 6], "float32"), fluid.data("h", [3, 2], "float32")
        assert len(layer(x, h)) == 3
        with pytest.raises(TypeError, match="hidden"):
            layer(x, fluid.data("half", [3, 2], "float16"))
        with pytest.raises(TypeError, match="'input'"):
            layer(fluid.data("ints", [3, 6], "int32"), h)
