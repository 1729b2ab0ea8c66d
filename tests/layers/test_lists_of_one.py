"""A list with one variable where Fluid hands an argument on unchecked: the same op as for the variable itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid

layers = fluid.layers


def _data(name: str, *shape: int, lod: int = 0, dtype: str = "float32") -> Any:
    return fluid.data(name, list(shape), dtype, lod_level=lod)


def _image() -> Any:
    return _data("image", 1, 8, 6, 6)


def _boxes() -> Any:
    return _data("boxes", 2, 4, lod=1)


CALLS: list[tuple[Callable[..., Any], Callable[[], Any]]] = [
    (lambda x: layers.roi_pool(x, _boxes(), 2, 2), _image),
    (lambda x: layers.roi_pool(_image(), x, 2, 2), _boxes),
    (lambda x: layers.psroi_pool(x, _boxes(), 2, 1.0, 2, 2), _image),
    (lambda x: layers.prroi_pool(x, _boxes(), 1.0, 2, 2), _image),
    (lambda x: layers.prroi_pool(_image(), x, 1.0, 2, 2), _boxes),
    (lambda x: layers.anchor_generator(x, [32.0], [1.0], stride=[16.0, 16.0])[0], _image),
    (lambda x: layers.box_coder(_data("prior", 2, 4), [0.1, 0.1, 0.2, 0.2], x), _boxes),
    (lambda x: layers.sequence_expand(_data("rows", 2, 3), x), _boxes),
    (lambda x: layers.scatter_nd(x, _data("new", 2, 3), [4, 3]), lambda: _data("at", 2, 1, dtype="int64")),
    (lambda x: layers.scatter_nd_add(_data("old", 4), x, _data("new", 2)), lambda: _data("at", 2, 1, dtype="int64")),
]


@pytest.mark.parametrize(("layer", "argument"), CALLS)
def test_the_same_op(layer: Callable[..., Any], argument: Callable[[], Any]) -> None:
    found = []
    for wrap in (lambda x: x, lambda x: [x]):
        with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
            out = layer(wrap(argument()))
            ops = fluid.default_main_program().global_block().ops
            found.append((tuple(out.shape), [(op.type, op.input_arg_names, op.output_arg_names) for op in ops]))
    assert found[0] == found[1]


def test_regions_in_float64() -> None:
    """The dtype of ``roi_pool`` is the op's, as in Fluid: float64 too."""
    image, boxes = _data("x", 1, 1, 4, 4, dtype="float64"), _data("b", 1, 4, lod=1, dtype="float64")
    out = layers.roi_pool(image, boxes, 2, 2)
    regions = fluid.create_lod_tensor(np.array([[0.0, 0.0, 3.0, 3.0]]), [[1]], fluid.CPUPlace())
    feed = {"x": np.arange(16.0).reshape(1, 1, 4, 4), "b": regions}
    (found,) = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[out])
    np.testing.assert_array_equal(found, [[[[5.0, 7.0], [13.0, 15.0]]]])
    with pytest.raises(TypeError, match="roi_pool"):
        layers.roi_pool(np.ones((1, 1, 4, 4)), boxes, 2, 2)
