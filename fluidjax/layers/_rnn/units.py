"""Single steps of a GRU or LSTM built from basic layers, with parameters created at the first call."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from fluidjax import unique_name
from fluidjax.framework import Variable
from fluidjax.layer_helper import LayerHelper
from fluidjax.layers import nn, ops, tensor

__all__ = ["BasicGRUUnit", "BasicLSTMUnit"]


def named(attr: Any, suffix: str) -> Any:
    """A copy of a ParamAttr with ``suffix`` appended to its name, if it has one."""
    if attr is None or not getattr(attr, "name", None):
        return attr
    attr = copy.deepcopy(attr)
    attr.name += suffix
    return attr


class _Unit:
    """Names parameters ``<name_scope>/<class>_<n>.w_0`` and so on, and keeps track of them."""

    # What a subclass defines: the parameters for inputs of some width, and one step.
    _build_once: Callable[..., None]
    forward: Callable[..., Any]

    def __init__(self, name_scope: str, dtype: str):
        self._begin(f"{name_scope}/{type(self).__name__}", dtype)

    def _begin(self, name_scope: str, dtype: str) -> None:
        self._full_name = unique_name.generate(name_scope)
        self._dtype = dtype
        self._parameters: dict[str, Variable] = {}

    def full_name(self) -> str:
        """The prefix of the parameter names."""
        return self._full_name

    def parameters(self, include_sublayers: bool = True) -> list[Variable]:
        """The parameters created so far; a unit has no sublayers."""
        return list(self._parameters.values())

    def _parameter(self, key: str, attr: Any, shape: list[int], is_bias: bool = False) -> None:
        helper = LayerHelper("unit", name=self._full_name, param_attr=attr, bias_attr=attr)
        given = helper.bias_attr if is_bias else helper.param_attr
        made = helper.create_parameter(attr=given, shape=shape, dtype=self._dtype, is_bias=is_bias)
        assert made is not None, "a ParamAttr was given, so a parameter is made"
        self._parameters[key] = made

    def __getattr__(self, name: str) -> Variable:
        try:
            return self.__dict__["_parameters"][name]
        except KeyError:
            raise AttributeError(name) from None

    def __call__(self, *inputs: Variable, **kwargs: Variable) -> Any:
        if not self._parameters:
            self._build_once(*inputs, **kwargs)
        return self.forward(*inputs, **kwargs)


class BasicGRUUnit(_Unit):
    """r, u = act_gate(W [x, h] + b); c = act(W_c [x, r h] + b_c); h' = u h + (1 - u) c.

    Args:
        name_scope: prefix of the parameter names.
        hidden_size: size of h.
        param_attr, bias_attr: ParamAttr; ``_gate`` and ``_candidate`` are appended to its name.
        gate_activation, activation: layer functions; sigmoid and tanh by default.
        dtype: of the parameters.
    """

    def __init__(
        self,
        name_scope: str,
        hidden_size: int,
        param_attr: Any = None,
        bias_attr: Any = None,
        gate_activation: Any = None,
        activation: Any = None,
        dtype: str = "float32",
    ):
        super().__init__(name_scope, dtype)
        self._hidden_size = hidden_size
        self._param_attr = param_attr
        self._bias_attr = bias_attr
        self._gate_activation = gate_activation or ops.sigmoid
        self._activation = activation or ops.tanh

    def _build_once(self, input: Variable, pre_hidden: Variable) -> None:
        size, width = self._hidden_size, input.shape[-1]
        self._parameter("_gate_weight", named(self._param_attr, "_gate"), [width + size, 2 * size])
        self._parameter("_candidate_weight", named(self._param_attr, "_candidate"), [width + size, size])
        self._parameter("_gate_bias", named(self._bias_attr, "_gate"), [2 * size], is_bias=True)
        self._parameter("_candidate_bias", named(self._bias_attr, "_candidate"), [size], is_bias=True)

    def forward(self, input: Variable, pre_hidden: Variable) -> Variable:
        """The new hidden state [batch, hidden] from input [batch, width] and the previous state."""
        gates = nn.matmul(x=tensor.concat([input, pre_hidden], 1), y=self._gate_weight)
        gates = self._gate_activation(nn.elementwise_add(gates, self._gate_bias))
        r, u = nn.split(gates, num_or_sections=2, dim=1)
        reset = r * pre_hidden
        candidate = nn.matmul(tensor.concat([input, reset], 1), self._candidate_weight)
        c = self._activation(nn.elementwise_add(candidate, self._candidate_bias))
        return u * pre_hidden + (1 - u) * c


class BasicLSTMUnit(_Unit):
    """i, j, f, o = W [x, h] + b; c' = c sigmoid(f + forget_bias) + sigmoid(i) tanh(j); h' = tanh(c') sigmoid(o).

    Args:
        name_scope: prefix of the parameter names.
        hidden_size: size of h and c.
        param_attr, bias_attr: ParamAttr.
        gate_activation, activation: have no effect, as in Fluid, which always uses sigmoid and tanh.
        forget_bias: added to the forget gate.
        dtype: of the parameters.
    """

    def __init__(
        self,
        name_scope: str,
        hidden_size: int,
        param_attr: Any = None,
        bias_attr: Any = None,
        gate_activation: Any = None,
        activation: Any = None,
        forget_bias: float = 1.0,
        dtype: str = "float32",
    ):
        super().__init__(name_scope, dtype)
        self._hidden_size = hidden_size
        self._param_attr = param_attr
        self._bias_attr = bias_attr
        self._forget_bias = tensor.fill_constant([1], dtype=dtype, value=forget_bias)
        self._forget_bias.stop_gradient = False

    def _build_once(self, input: Variable, pre_hidden: Variable, pre_cell: Variable) -> None:
        size, width = self._hidden_size, input.shape[-1]
        self._parameter("_weight", self._param_attr, [width + size, 4 * size])
        self._parameter("_bias", self._bias_attr, [4 * size], is_bias=True)

    def forward(self, input: Variable, pre_hidden: Variable, pre_cell: Variable) -> tuple[Variable, Variable]:
        """(new hidden, new cell), [batch, hidden], from input [batch, width] and the previous states."""
        gates = nn.matmul(x=tensor.concat([input, pre_hidden], 1), y=self._weight)
        gates = nn.elementwise_add(gates, self._bias)
        i, j, f, o = nn.split(gates, num_or_sections=4, dim=-1)
        kept = nn.elementwise_mul(pre_cell, ops.sigmoid(nn.elementwise_add(f, self._forget_bias)))
        new_cell = nn.elementwise_add(kept, nn.elementwise_mul(ops.sigmoid(i), ops.tanh(j)))
        return ops.tanh(new_cell) * ops.sigmoid(o), new_cell
