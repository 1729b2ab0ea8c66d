"""Fluid's own fields of layers: scripts of the model zoo read and set them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid

dg = fluid.dygraph


def filled(layer: Any) -> Any:
    """The layer with parameters that are the same in each of its kind."""
    for number, parameter in enumerate(layer.parameters()):
        values = np.linspace(0.1, 1, int(np.prod(parameter.shape))).reshape(parameter.shape)
        parameter.set_value((values + number).astype("float32"))
    return layer


IMAGE = np.float32(np.arange(2 * 2 * 6 * 6).reshape(2, 2, 6, 6) % 7)
FIELDS: dict[str, tuple[Callable[..., Any], str, Any, Any, Any]] = {
    "_momentum": (lambda **given: dg.BatchNorm(2, **given), "momentum", 0.9, 0.0, IMAGE),
    "_epsilon": (lambda **given: dg.BatchNorm(2, **given), "epsilon", 1e-5, 1e-3, IMAGE),
    "_stride": (lambda **given: dg.Conv2D(2, 3, 3, **given), "stride", [1, 1], [2, 2], IMAGE),
    "_padding": (lambda **given: dg.Conv2DTranspose(2, 3, 3, **given), "padding", [0, 0], [1, 1], IMAGE),
    "_dilation": (lambda **given: dg.Conv2D(2, 3, 3, **given), "dilation", [1, 1], [2, 2], IMAGE),
    "_output_size": (
        lambda **given: dg.Conv2DTranspose(2, 3, 2, stride=2, **given),
        "output_size",
        [],
        [13, 13],
        IMAGE,
    ),
    "_pool_type": (lambda **given: dg.Pool2D(2, **given), "pool_type", "max", "avg", IMAGE),
    "_pool_stride": (lambda **given: dg.Pool2D(2, **given), "pool_stride", [1, 1], [2, 2], IMAGE),
    "_padding_idx": (lambda **given: dg.Embedding([4, 3], **given), "padding_idx", 0, 2, np.int64([0, 2, 3])),
    "_power_iters": (lambda **given: dg.SpectralNorm([3, 4], **given), "power_iters", 1, 3, IMAGE[0, 0, :3, :4]),
}


@pytest.mark.parametrize("field", FIELDS)
def test_fields_are_read_and_set(field: str) -> None:
    make, argument, before, after, array = FIELDS[field]
    with dg.guard():
        x = dg.to_variable(array)
        layer, other = filled(make(**{argument: before})), filled(make(**{argument: after}))
        assert getattr(layer, field) == before and getattr(other, field) == after
        for _ in range(4):  # until calls of the layer are known
            layer(x).numpy()
        fresh = filled(make(**{argument: before}))
        layer.set_dict(fresh.state_dict())
        setattr(layer, field, after)
        assert getattr(layer, field) == after
        np.testing.assert_array_equal(layer(x).numpy(), other(x).numpy())
        for mine, theirs in zip(layer.parameters(), other.parameters(), strict=True):
            np.testing.assert_array_equal(mine.numpy(), theirs.numpy())


def test_a_convolutions_groups_are_a_field() -> None:
    with dg.guard():
        layer, other = filled(dg.Conv2D(4, 4, 1, groups=2)), filled(dg.Conv2D(2, 4, 1))
        for _ in range(4):
            layer(dg.to_variable(IMAGE.reshape(1, 4, 6, 6))).numpy()
        layer._groups = None
        x = dg.to_variable(IMAGE)
        np.testing.assert_array_equal(layer(x).numpy(), other(x).numpy())
        assert (layer._groups, other._groups) == (None, None)


def test_a_list_of_a_field_changes_in_place() -> None:
    with dg.guard():
        x = dg.to_variable(IMAGE)
        layer, other = filled(dg.Conv2D(2, 3, 3)), filled(dg.Conv2D(2, 3, 3, stride=[2, 1]))
        for _ in range(4):
            layer(x).numpy()
        layer._stride[0] = 2
        np.testing.assert_array_equal(layer(x).numpy(), other(x).numpy())


class SeveralInputs(fluid.Layer):
    """A product of each input, of the shapes that the first call has; as layers of the model zoo are written."""

    def __init__(self, size: int, param_attr: Any) -> None:
        super().__init__()
        self._size, self._attr = size, param_attr
        self._weights: list[Any] = []

    def _build_once(self, inputs: Any) -> None:
        for number, (x, attr) in enumerate(self._helper.iter_inputs_and_params(inputs, self._attr)):
            made = self.create_parameter([x.shape[1], self._size], attr=attr)
            self._weights.append(self.add_parameter(f"w{number}", made))

    def forward(self, inputs: Any) -> Any:
        dtype, products = self._helper.input_dtype(inputs), []
        for (x, _), weight in zip(self._helper.iter_inputs_and_params(inputs, self._attr), self._weights, strict=True):
            out = self._helper.create_variable_for_type_inference(dtype)
            self._helper.append_op(type="mul", inputs={"X": x, "Y": weight}, outputs={"Out": out})
            products.append(out)
        return fluid.layers.sums(products)


def test_a_layer_is_built_of_its_inputs_by_its_helper() -> None:
    first, second = np.ones([2, 3], "float32"), np.full([2, 4], 2, "float32")
    with dg.guard():
        layer = SeveralInputs(5, fluid.ParamAttr(initializer=fluid.initializer.Constant(0.5)))
        out = layer([dg.to_variable(first), second])
        np.testing.assert_allclose(out.numpy(), np.full([2, 5], 0.5 * 3 + 4))
        assert [name for name, _ in layer.named_parameters()] == ["w0", "w1"]
        helper = layer._helper
        assert list(helper.iter_inputs_and_params(None)) == [] and helper.input_dtype(None) is None
        with pytest.raises(ValueError, match="Param_attr should not be False"):
            list(helper.iter_inputs_and_params(first, False))
        with pytest.raises(ValueError, match="parameter number mismatch"):
            list(helper.iter_inputs_and_params([first] * 3, [None, None]))
        with pytest.raises(ValueError, match="Data Type mismatch"):
            helper.input_dtype([first, np.int64([1])])
        with pytest.raises(TypeError, match="must be list"):
            helper.is_instance(first, list)
