"""Recurrent cells, and the loop that runs a cell over padded sequences."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from fluidjax.framework import Variable
from fluidjax.layers import nn, sequence_lod, tensor
from fluidjax.layers._control_flow.static_rnn import StaticRNN
from fluidjax.layers._rnn.units import BasicGRUUnit, BasicLSTMUnit
from fluidjax.layers.utils import (
    assert_same_structure,
    flatten,
    is_sequence,
    map_structure,
    pack_sequence_as,
)
from fluidjax.writing.checks import FULL_FLOATS, check_dtype, check_type, check_variable_and_dtype

__all__ = ["GRUCell", "LSTMCell", "RNNCell", "rnn"]


class RNNCell:
    """One step of a recurrent network: (inputs, states) to (outputs, new states).

    A subclass defines ``call`` and, to support initial states, ``state_shape`` (and ``state_dtype``).
    """

    def call(self, inputs: Any, states: Any, **kwargs: Any) -> tuple[Any, Any]:
        """(outputs, new states) of one step; the new states have the structure of the old.

        Raises:
            NotImplementedError: not defined by the subclass.
        """
        raise NotImplementedError(f"{type(self).__name__} must define call(inputs, states) to be a cell.")

    def __call__(self, inputs: Any, states: Any, **kwargs: Any) -> tuple[Any, Any]:
        return self.call(inputs, states, **kwargs)

    def get_initial_states(
        self,
        batch_ref: Any,
        shape: Any = None,
        dtype: Any = "float32",
        init_value: float = 0,
        batch_dim_idx: int = 0,
    ) -> Any:
        """Constant states for the batch size of ``batch_ref``.

        Args:
            batch_ref: Variable, or nested Variables, the first of which determines the batch size.
            shape: nested lists of dimensions without the batch; ``state_shape`` by default.
            dtype: nested dtypes, or one for all; ``state_dtype`` or float32 by default.
            init_value: the fill value.
            batch_dim_idx: the batch dimension of ``batch_ref``.
        """
        ref = flatten(batch_ref)[0]
        shapes = self.state_shape if shape is None else shape
        places = _shape_leaves(shapes)
        kind = dtype
        if shape is None:
            try:
                kind = self.state_dtype
            except NotImplementedError:
                kind = dtype
        kinds = flatten(kind) if is_sequence(kind) else [kind] * len(places)
        made = [
            tensor.fill_constant_batch_size_like(
                input=ref,
                shape=list(dims) if dims and dims[0] == -1 else [-1, *dims],
                dtype=each,
                value=init_value,
                input_dim_idx=batch_dim_idx,
            )
            for dims, each in zip(places, kinds, strict=True)
        ]
        return _pack_by_shape(shapes, iter(made))

    @property
    def state_shape(self) -> Any:
        """Dimensions of the states without the batch, as nested lists.

        Raises:
            NotImplementedError: not defined by the subclass.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must define state_shape to be used in get_initial_states; or pass shape."
        )

    @property
    def state_dtype(self) -> Any:
        """Dtypes of the states, nested likewise.

        Raises:
            NotImplementedError: not defined by the subclass; float32 is then used.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define state_dtype.")


def _is_shape(value: Any) -> bool:
    return isinstance(value, Sequence) and all(isinstance(dim, int) for dim in value)


def _shape_leaves(shapes: Any) -> list[Sequence[int]]:
    if _is_shape(shapes):
        return [shapes]
    children = [shapes[key] for key in sorted(shapes)] if isinstance(shapes, dict) else list(shapes)
    return [leaf for child in children for leaf in _shape_leaves(child)]


def _pack_by_shape(shapes: Any, made: Any) -> Any:
    if _is_shape(shapes):
        return next(made)
    if isinstance(shapes, dict):
        return {key: _pack_by_shape(shapes[key], made) for key in sorted(shapes)}
    packed = [_pack_by_shape(child, made) for child in shapes]
    return type(shapes)(*packed) if hasattr(shapes, "_fields") else type(shapes)(packed)


class GRUCell(RNNCell):
    """Gated recurrent unit: r, u = sigmoid(W [x, h] + b); h' = u h + (1 - u) tanh(W_c [x, r h] + b_c).

    Args:
        hidden_size: size of the state.
        param_attr, bias_attr: ParamAttr of the weights and biases.
        gate_activation, activation: layer functions; sigmoid and tanh by default.
        dtype: of the parameters.
        name: prefix for the names of the parameters.
    """

    def __init__(
        self,
        hidden_size: int,
        param_attr: Any = None,
        bias_attr: Any = None,
        gate_activation: Any = None,
        activation: Any = None,
        dtype: str = "float32",
        name: str = "GRUCell",
    ):
        _check_cell(hidden_size, dtype, "GRUCell")
        self.hidden_size = hidden_size
        self.gru_unit = BasicGRUUnit(name, hidden_size, param_attr, bias_attr, gate_activation, activation, dtype)

    def call(self, inputs: Any, states: Any) -> tuple[Variable, Variable]:  # type: ignore[override]
        """(new hidden, new hidden) from inputs [batch, width] and the hidden state [batch, hidden_size]."""
        _check_floats(inputs, "inputs", "GRUCell")
        _check_floats(states, "states", "GRUCell")
        new_hidden = self.gru_unit(inputs, states)
        return new_hidden, new_hidden

    @property
    def state_shape(self) -> list[int]:
        """[hidden_size]: the state h of one sequence."""
        return [self.hidden_size]


class LSTMCell(RNNCell):
    """LSTM: i, j, f, o = W [x, h] + b; c' = c sigmoid(f + forget_bias) + sigmoid(i) tanh(j); h' = tanh(c') sigmoid(o).

    Args:
        hidden_size: size of the state.
        param_attr, bias_attr: ParamAttr of weight and bias.
        gate_activation, activation: layer functions; sigmoid and tanh by default.
        forget_bias: added to the forget gate.
        dtype: of the parameters.
        name: prefix for the names of the parameters.
    """

    def __init__(
        self,
        hidden_size: int,
        param_attr: Any = None,
        bias_attr: Any = None,
        gate_activation: Any = None,
        activation: Any = None,
        forget_bias: float = 1.0,
        dtype: str = "float32",
        name: str = "LSTMCell",
    ):
        _check_cell(hidden_size, dtype, "LSTMCell")
        self.hidden_size = hidden_size
        self.lstm_unit = BasicLSTMUnit(
            name, hidden_size, param_attr, bias_attr, gate_activation, activation, forget_bias, dtype
        )

    def call(self, inputs: Any, states: Any) -> tuple[Variable, list[Variable]]:  # type: ignore[override]
        """(new hidden, [new hidden, new cell]) from inputs [batch, width] and [hidden, cell] [batch, hidden_size]."""
        _check_floats(inputs, "inputs", "LSTMCell")
        check_type(states, "states", list, "LSTMCell")
        _check_floats(states, "states", "LSTMCell")
        pre_hidden, pre_cell = states
        new_hidden, new_cell = self.lstm_unit(inputs, pre_hidden, pre_cell)
        return new_hidden, [new_hidden, new_cell]

    @property
    def state_shape(self) -> list[list[int]]:
        """[[hidden_size], [hidden_size]]: the states h and c of one sequence."""
        return [[self.hidden_size], [self.hidden_size]]


def _check_cell(hidden_size: Any, dtype: Any, name: str) -> None:
    check_type(hidden_size, "hidden_size", int, name)
    check_dtype(dtype, "dtype", FULL_FLOATS, name)


def _check_floats(values: Any, what: str, name: str) -> None:
    """All of the nested values are Variables of floats."""
    for value in flatten(values):
        check_variable_and_dtype(value, what, FULL_FLOATS, name)


def _keep_ended(state: Variable, new_state: Variable, step_mask: Variable) -> Variable:
    """new_state where the mask is 1, state where it is 0."""
    fresh = nn.elementwise_mul(new_state, step_mask, axis=0)
    return fresh - nn.elementwise_mul(state, (step_mask - 1), axis=0)


def swap_batch_and_time(x: Variable) -> Variable:
    """Transpose [a, b, ...] to [b, a, ...]."""
    return nn.transpose(x, [1, 0, *range(2, len(x.shape))])


def _with_gradient(x: Variable) -> Variable:
    x.stop_gradient = False
    return x


def rnn(
    cell: RNNCell,
    inputs: Any,
    initial_states: Any = None,
    sequence_length: Variable | None = None,
    time_major: bool = False,
    is_reverse: bool = False,
    **kwargs: Any,
) -> tuple[Any, Any]:
    """Run a cell over padded sequences.

    Args:
        cell: the cell.
        inputs: Variables [batch, time, ...], or [time, batch, ...] if ``time_major``; nested as the cell expects.
        initial_states: nested like the cell's states; zeros by default.
        sequence_length: int Variable [batch]; beyond its end a sequence keeps its state.
        time_major: layout of inputs and outputs.
        is_reverse: run from the last step to the first.
        kwargs: passed on to ``cell.call``.

    Returns:
        (outputs of all steps, laid out like inputs; states after the last step).
    """
    check_type(inputs, "inputs", (Variable, list, tuple), "rnn")
    check_type(initial_states, "initial_states", (Variable, list, tuple, type(None)), "rnn")
    check_type(sequence_length, "sequence_length", (Variable, type(None)), "rnn")
    _check_floats(inputs, "inputs", "rnn")
    if initial_states is None:
        initial_states = cell.get_initial_states(batch_ref=inputs, batch_dim_idx=1 if time_major else 0)
    _check_floats(initial_states, "initial_states", "rnn")
    initial_states = map_structure(_with_gradient, initial_states)
    if not time_major:
        inputs = map_structure(swap_batch_and_time, inputs)
    mask = _time_mask(inputs, initial_states, sequence_length)
    if is_reverse:
        inputs = map_structure(lambda x: tensor.reverse(x, axis=[0]), inputs)
        mask = None if mask is None else tensor.reverse(mask, axis=[0])
    outputs, new_states, flat = _run_static(cell, inputs, initial_states, mask, kwargs)
    count = len(flatten(outputs))
    final_outputs = pack_sequence_as(outputs, flat[:count])
    final_states = pack_sequence_as(new_states, [x[-1] for x in flat[count:]])
    if is_reverse:
        final_outputs = map_structure(lambda x: tensor.reverse(x, axis=[0]), final_outputs)
    if not time_major:
        final_outputs = map_structure(swap_batch_and_time, final_outputs)
    return final_outputs, final_states


def _time_mask(inputs: Any, states: Any, sequence_length: Variable | None) -> Variable | None:
    """[time, batch]: 1 inside the sequences; None if every step is valid."""
    if sequence_length is None:
        return None
    steps = nn.shape(flatten(inputs)[0])[0]
    mask = sequence_lod.sequence_mask(sequence_length, maxlen=steps, dtype=flatten(states)[0].dtype)
    return nn.transpose(mask, [1, 0])


def _run_static(
    cell: RNNCell, inputs: Any, initial_states: Any, mask: Variable | None, kwargs: dict[str, Any]
) -> tuple[Any, Any, list[Variable]]:
    """(outputs and new states of one step, the same over all steps), both flattened."""
    network = StaticRNN()
    with network.step():
        inputs = map_structure(network.step_input, inputs)
        states = map_structure(network.memory, initial_states)
        outputs, new_states = cell.call(inputs, map_structure(lambda x: x, states), **kwargs)
        assert_same_structure(states, new_states)
        if mask is not None:
            step_mask = network.step_input(mask)
            new_states = map_structure(partial(_keep_ended, step_mask=step_mask), states, new_states)
        map_structure(network.update_memory, states, new_states)
        map_structure(network.step_output, outputs)
        map_structure(network.step_output, new_states)
    results = network()
    return outputs, new_states, results if isinstance(results, list) else [results]
