"""Stacked GRUs and LSTMs over padded sequences, built from basic layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fluidjax.dygraph.layers import Layer
from fluidjax.framework import Variable
from fluidjax.layers import nn, sequence_lod, tensor
from fluidjax.layers._control_flow.static_rnn import StaticRNN
from fluidjax.layers._rnn import units
from fluidjax.layers._rnn.units import named

__all__ = ["BasicGRUUnit", "BasicLSTMUnit", "basic_gru", "basic_lstm"]


class _AsLayer:
    """A unit as a Layer: its parameters are those of the network that it is assigned to."""

    __call__, full_name, parameters = Layer.__call__, Layer.full_name, Layer.parameters
    __getattr__ = Layer.__getattr__

    def _begin(self: Any, name_scope: str, dtype: str) -> None:
        Layer.__init__(self, name_scope, dtype)

    def _parameter(self: Any, key: str, attr: Any, shape: list[int], is_bias: bool = False) -> None:
        setattr(self, key, self.create_parameter(shape, attr, self._dtype, is_bias))


class BasicGRUUnit(_AsLayer, units.BasicGRUUnit, Layer):
    __doc__ = units.BasicGRUUnit.__doc__


class BasicLSTMUnit(_AsLayer, units.BasicLSTMUnit, Layer):
    __doc__ = units.BasicLSTMUnit.__doc__


def _units(make: Callable[[str, Any, Any], Any], name: str, count: int, param: Any, bias: Any, tag: str) -> list:
    """One unit per layer; direction and layer are appended to the names of named attributes."""
    middle = "_layers_" if tag == "fw" else "_reverse_layers_"
    return [
        make(f"{name}{middle}{i}", named(param, f"_{tag}_w_{i}"), named(bias, f"_{tag}_b_{i}")) for i in range(count)
    ]


class _Stack:
    """The layers of one basic_gru or basic_lstm; a state is a list of Variables, a single one for a GRU."""

    def __init__(
        self, hidden_size: int, num_layers: int, dropout_prob: float, init: list[Variable | None], directions: int
    ):
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.dropout_prob = dropout_prob
        self.directions = directions
        shape = [num_layers, directions, -1, hidden_size]
        self.init = [None if state is None else nn.reshape(state, shape=shape) for state in init]

    def _memories(self, network: StaticRNN, rnn_input: Variable, layer: int, direction: int) -> list[Variable]:
        found = []
        for state in self.init:
            if state is None:
                found.append(network.memory(batch_ref=rnn_input, shape=[-1, self.hidden_size]))
            else:
                found.append(network.memory(init=state[layer, direction]))
        return found

    def run(
        self, rnn_input: Variable, units: list, mask: Variable | None, direction: int
    ) -> tuple[Variable, list[Variable]]:
        """(outputs [time, batch, hidden], last states [layers, batch, hidden]) of one direction."""
        network = StaticRNN()
        with network.step():
            step_input = network.step_input(rnn_input)
            step_mask = None if mask is None else network.step_input(mask)
            for layer, unit in enumerate(units):
                before = self._memories(network, rnn_input, layer, direction)
                after = unit(step_input, *before)
                after = list(after) if isinstance(after, tuple) else [after]
                if step_mask is not None:
                    after = [_masked(new, old, step_mask) for new, old in zip(after, before, strict=True)]
                for old, new in zip(before, after, strict=True):
                    network.update_memory(old, new)
                for new in after:
                    network.step_output(new)
                step_input = after[0]
                if self.dropout_prob is not None and self.dropout_prob > 0.0:
                    step_input = nn.dropout(step_input, dropout_prob=self.dropout_prob)
            network.step_output(step_input)
        results = network()
        kinds = len(self.init)
        last = [state[-1] for state in results[: kinds * self.num_layers]]
        return results[-1], [self._joined(last[kind::kinds]) for kind in range(kinds)]

    def _joined(self, states: list[Variable]) -> Variable:
        joined = tensor.concat(states, axis=0)
        return nn.reshape(joined, shape=[self.num_layers, -1, self.hidden_size])

    def both(self, forward: list[Variable], backward: list[Variable]) -> list[Variable]:
        """Final states of both directions, [layers * 2, batch, hidden]."""
        shape = [self.num_layers * self.directions, -1, self.hidden_size]
        pairs = zip(forward, backward, strict=True)
        return [nn.reshape(tensor.concat([fw, bw], axis=1), shape=shape) for fw, bw in pairs]


def _masked(new: Variable, old: Variable, mask: Variable) -> Variable:
    """``new`` inside the sequence, ``old`` beyond its end."""
    return nn.elementwise_mul(new, mask, axis=0) - nn.elementwise_mul(old, (mask - 1), axis=0)


def _run(
    make: Callable[[str, Any, Any], Any],
    input: Variable,
    init: list[Variable | None],
    hidden_size: int,
    num_layers: int,
    sequence_length: Variable | None,
    dropout_prob: float,
    bidirectional: bool,
    batch_first: bool,
    param_attr: Any,
    bias_attr: Any,
    name: str,
) -> tuple[Variable, ...]:
    units = _units(make, name, num_layers, param_attr, bias_attr, "fw")
    reverse_units = _units(make, name, num_layers, param_attr, bias_attr, "bw") if bidirectional else []
    if batch_first:
        input = nn.transpose(input, [1, 0, 2])
    mask = None
    if sequence_length is not None:
        steps = nn.shape(input)[0]
        mask = sequence_lod.sequence_mask(sequence_length, maxlen=steps, dtype="float32")
        mask = nn.transpose(mask, [1, 0])
    stack = _Stack(hidden_size, num_layers, dropout_prob, init, 2 if bidirectional else 1)
    out, last = stack.run(input, units, mask, 0)
    if bidirectional:
        back_input = tensor.reverse(input, axis=[0])
        back_mask = None if mask is None else tensor.reverse(mask, axis=[0])
        back_out, back_last = stack.run(back_input, reverse_units, back_mask, 1)
        out = tensor.concat([out, tensor.reverse(back_out, axis=[0])], axis=2)
        last = stack.both(last, back_last)
    if batch_first:
        out = nn.transpose(out, [1, 0, 2])
    return (out, *last)


def basic_gru(
    input: Variable,
    init_hidden: Variable | None,
    hidden_size: int,
    num_layers: int = 1,
    sequence_length: Variable | None = None,
    dropout_prob: float = 0.0,
    bidirectional: bool = False,
    batch_first: bool = True,
    param_attr: Any = None,
    bias_attr: Any = None,
    gate_activation: Any = None,
    activation: Any = None,
    dtype: str = "float32",
    name: str = "basic_gru",
) -> tuple[Variable, Variable]:
    """A stacked GRU over padded sequences; formulas as for `BasicGRUUnit`.

    Args:
        input: Variable [batch, time, width], or [time, batch, width] without ``batch_first``.
        init_hidden: Variable [layers * directions, batch, hidden]; None for zeros.
        hidden_size, num_layers: of the GRU.
        sequence_length: int Variable [batch]; beyond its end a sequence keeps its state.
        dropout_prob: applied to the output of each layer.
        bidirectional: run in both directions.
        batch_first: layout of input and output.
        param_attr, bias_attr: ParamAttr; direction and layer are appended to names.
        gate_activation, activation: layer functions; sigmoid and tanh by default.
        dtype: of the parameters.
        name: prefix for parameter names.

    Returns:
        (outputs, [..., hidden * directions], laid out like input; final hidden [layers * directions, batch, hidden]).
    """

    def make(scope: str, param: Any, bias: Any) -> BasicGRUUnit:
        return BasicGRUUnit(scope, hidden_size, param, bias, gate_activation, activation, dtype)

    out, last_hidden = _run(
        make,
        input,
        [init_hidden],
        hidden_size,
        num_layers,
        sequence_length,
        dropout_prob,
        bidirectional,
        batch_first,
        param_attr,
        bias_attr,
        name,
    )
    return out, last_hidden


def basic_lstm(
    input: Variable,
    init_hidden: Variable | None,
    init_cell: Variable | None,
    hidden_size: int,
    num_layers: int = 1,
    sequence_length: Variable | None = None,
    dropout_prob: float = 0.0,
    bidirectional: bool = False,
    batch_first: bool = True,
    param_attr: Any = None,
    bias_attr: Any = None,
    gate_activation: Any = None,
    activation: Any = None,
    forget_bias: float = 1.0,
    dtype: str = "float32",
    name: str = "basic_lstm",
) -> tuple[Variable, Variable, Variable]:
    """A stacked LSTM over padded sequences; formulas as for `BasicLSTMUnit`.

    Args:
        init_hidden, init_cell: Variables [layers * directions, batch, hidden]; None for zeros.
        forget_bias: added to the forget gate.
        gate_activation, activation: have no effect, as in Fluid.
        Other arguments as for `basic_gru`.

    Returns:
        (outputs, final hidden, final cell), shaped as in `basic_gru`.
    """

    def make(scope: str, param: Any, bias: Any) -> BasicLSTMUnit:
        return BasicLSTMUnit(scope, hidden_size, param, bias, gate_activation, activation, forget_bias, dtype)

    out, last_hidden, last_cell = _run(
        make,
        input,
        [init_hidden, init_cell],
        hidden_size,
        num_layers,
        sequence_length,
        dropout_prob,
        bidirectional,
        batch_first,
        param_attr,
        bias_attr,
        name,
    )
    return out, last_hidden, last_cell
