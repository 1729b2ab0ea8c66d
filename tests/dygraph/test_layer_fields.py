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


class Narrowed(fluid.Layer):
    """The first channels of a convolution and of its normalisation, by calls of the ops of both."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self._channels = channels
        self.conv, self.norm = filled(dg.Conv2D(2, 6, 3, padding=1)), filled(dg.BatchNorm(6, epsilon=1e-3))

    def forward(self, x: Any) -> Any:
        conv, norm, kept = self.conv, self.norm, slice(self._channels)
        sliding = ("strides", conv._stride, "paddings", conv._padding, "dilations", conv._dilation)
        run = getattr(fluid.core.ops, conv._l_type)
        out = run(x, conv.weight[kept], *sliding, "groups", conv._groups or 1, "use_cudnn", conv._use_cudnn)
        out = fluid.dygraph_utils._append_bias_in_dygraph(out, conv.bias[kept], 1)
        given = [each[kept] for each in (norm.weight, norm.bias, norm._mean, norm._variance)]
        attrs = {"momentum": norm._momentum, "epsilon": norm._epsilon, "is_test": not norm.training}
        attrs |= {"fuse_with_relu": norm._fuse_with_relu, "data_layout": norm._data_layout}
        return fluid.core.ops.batch_norm(out, *given, *given[2:], *sum(attrs.items(), ()))[0]


def test_scripts_call_the_ops_of_layers_by_their_fields() -> None:
    with dg.guard():
        x = dg.to_variable(IMAGE)
        narrow, conv, norm = Narrowed(4), dg.Conv2D(2, 4, 3, padding=1), dg.BatchNorm(4, epsilon=1e-3)
        of_the_wide = (narrow.conv.weight, narrow.conv.bias, narrow.norm.weight, narrow.norm.bias)
        for mine, wide in zip((conv.weight, conv.bias, norm.weight, norm.bias), of_the_wide, strict=True):
            mine.set_value(wide.numpy()[:4])
        np.testing.assert_allclose(narrow(x).numpy(), norm(conv(x)).numpy(), rtol=1e-5, atol=1e-5)


def test_the_type_of_a_layers_op_is_a_field() -> None:
    with dg.guard():
        layer = filled(dg.Conv2D(2, 2, 3, groups=2, use_cudnn=False))
        assert (layer._l_type, dg.Conv2D(2, 2, 3)._l_type) == ("depthwise_conv2d", "conv2d")
        assert dg.Pool2D(2)._l_type == "pool2d"
        x = dg.to_variable(IMAGE)
        before = [layer(x).numpy() for _ in range(4)][-1]
        layer._l_type = "conv2d"
        np.testing.assert_allclose(layer(x).numpy(), before, rtol=1e-5)


ATTR = fluid.ParamAttr(initializer=fluid.initializer.Constant(0.5))
WITH_ATTRS: dict[str, Callable[..., Any]] = {
    "Conv2D": lambda **given: dg.Conv2D(2, 3, 3, **given),
    "Conv3D": lambda **given: dg.Conv3D(2, 3, 3, **given),
    "Conv2DTranspose": lambda **given: dg.Conv2DTranspose(2, 3, 3, **given),
    "Conv3DTranspose": lambda **given: dg.Conv3DTranspose(2, 3, 3, **given),
    "BatchNorm": lambda **given: dg.BatchNorm(2, **given),
    "InstanceNorm": lambda **given: dg.InstanceNorm(2, **given),
    "LayerNorm": lambda **given: dg.LayerNorm(6, **given),
    "GroupNorm": lambda **given: dg.GroupNorm(2, 1, **given),
    "BilinearTensorProduct": lambda **given: dg.BilinearTensorProduct(2, 3, 4, **given),
    "NCE": lambda **given: dg.NCE(4, 3, **given),
    "TreeConv": lambda **given: dg.TreeConv(4, 3, **given),
}


@pytest.mark.parametrize("kind", WITH_ATTRS)
def test_a_layer_keeps_the_settings_of_its_parameters(kind: str) -> None:
    with dg.guard():
        layer, plain = WITH_ATTRS[kind](param_attr=ATTR), WITH_ATTRS[kind]()
        assert (layer._param_attr, layer._bias_attr) == (ATTR, None)
        assert (plain._param_attr, plain._bias_attr) == (None, None)


def test_what_else_layers_keep() -> None:
    with dg.guard():
        table, norm = dg.Embedding([4, 3], is_sparse=True, param_attr=ATTR), dg.LayerNorm(6, scale=False)
        assert (table._param_attr, table._remote_prefetch) == (ATTR, True)
        assert dg.Embedding([4, 3], is_sparse=True, is_distributed=True)._remote_prefetch is False
        assert (norm._scale, norm._shift) == (False, True)
        assert dg.GRUUnit(6, bias_attr=False)._bias_attr is False
        assert dg.PRelu("all", param_attr=ATTR)._param_attr is ATTR


@pytest.mark.parametrize("field", FIELDS)
def test_a_layers_dict_shows_its_fields(field: str) -> None:
    make, argument, before, after, _ = FIELDS[field]
    with dg.guard():
        layer = make(**{argument: before})
        assert layer.__dict__[field] == before
        setattr(layer, field, after)
        assert vars(layer)[field] == after


def test_writing_into_a_layers_dict_changes_no_call() -> None:
    with dg.guard():
        layer, x = filled(dg.Conv2D(2, 3, 3)), dg.to_variable(IMAGE)
        before = layer(x).numpy()
        layer.__dict__["_stride"] = [2, 2]
        assert layer._stride == [1, 1]
        np.testing.assert_array_equal(layer(x).numpy(), before)
