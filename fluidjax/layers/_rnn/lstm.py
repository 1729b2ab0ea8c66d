"""LSTMs computed by a single op: with or without projection, for one step, and stacked."""

from __future__ import annotations

from typing import Any

from fluidjax.base.enums import VarType
from fluidjax.base.errors import ArgumentError, explain
from fluidjax.framework import Variable
from fluidjax.layer_helper import LayerHelper
from fluidjax.layers import nn, tensor
from fluidjax.layers._sequence.checks import refuse_eager
from fluidjax.param_attr import ParamAttr
from fluidjax.writing.checks import FULL_FLOATS, check_type, check_variable_and_dtype

__all__ = [
    "dynamic_lstm",
    "dynamic_lstmp",
    "lstm",
    "lstm_unit",
]


def _require_bias(bias_attr: Any, layer: str) -> None:
    if bias_attr is False:
        raise AssertionError(
            f"{layer}: bias_attr should not be False: the bias holds the peephole weights too. "
            "Pass a ParamAttr, or None for the default."
        )


def _require_gates(input: Variable, size: int, gates: int, layer: str) -> None:
    """Check that the input has ``size`` columns, divided evenly among the gates."""
    if size % gates or input.shape[-1] not in (size, -1):
        raise ArgumentError(
            explain(
                f"{layer}: size does not fit the input",
                f"size = {gates} * hidden, and an input of that width",
                f"size {size}, input {input.name} {list(input.shape)}",
                f"project the input first: fluid.layers.fc(input, size={gates} * hidden)",
            )
        )


def initial(inputs: dict, h_0: Variable | None, c_0: Variable | None, size: int, layer: str) -> None:
    """Add the initial states to the op's inputs, checking that their width matches the hidden state."""
    for slot, state in (("H0", h_0), ("C0", c_0)):
        if state is None:
            continue
        check_type(state, slot.lower(), Variable, layer)
        if state.shape[-1] not in (size, -1):
            raise AssertionError(
                f"{layer}: the shape of {slot.lower()} should be (batch_size, {size}), received {list(state.shape)}."
            )
        inputs[slot] = state


def _lstm_bias(helper: LayerHelper, size: int, use_peepholes: bool, dtype: str) -> Variable | None:
    """A bias [1, 4 * size], followed by three vectors of peephole weights if used."""
    width = 7 * size if use_peepholes else 4 * size
    return helper.create_parameter(attr=helper.bias_attr, shape=[1, width], dtype=dtype, is_bias=True)


def dynamic_lstm(
    input: Variable,
    size: int,
    h_0: Variable | None = None,
    c_0: Variable | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    use_peepholes: bool = True,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
    dtype: str = "float32",
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """LSTM over variable-length sequences whose input has already been multiplied by the input weights.

    With gates c, i, f, o of ``input + h W``:
    c' = f * c + i * act(candidate), h' = o * act_cell(c'); with peepholes, i and f also see c, and o sees c'.

    Args:
        input: LoD Variable [rows, 4 * hidden].
        size: 4 * hidden.
        h_0, c_0: Variables [sequences, hidden]; zeros by default.
        param_attr: of the weight [hidden, 4 * hidden].
        bias_attr: of the bias [1, 4 * hidden], or [1, 7 * hidden] with peepholes.
        use_peepholes, is_reverse: see above; is_reverse runs each sequence from its end.
        gate_activation, cell_activation, candidate_activation: sigmoid, tanh, relu or identity.
        dtype: float32 or float64.
        name: prefix for the names of the variables created.

    Returns:
        (hidden, cell), [rows, hidden], with the LoD of the input.
    """
    refuse_eager("dynamic_lstm")
    check_variable_and_dtype(input, "input", FULL_FLOATS, "dynamic_lstm")
    _require_bias(bias_attr, "dynamic_lstm")
    _require_gates(input, size, 4, "dynamic_lstm")
    helper = LayerHelper("lstm", param_attr=param_attr, bias_attr=bias_attr, name=name)
    size = size // 4
    weight = helper.create_parameter(attr=helper.param_attr, shape=[size, 4 * size], dtype=dtype)
    bias = _lstm_bias(helper, size, use_peepholes, dtype)
    hidden, cell, gate, pre_act = (helper.create_variable_for_type_inference(dtype) for _ in range(4))
    inputs = {"Input": input, "Weight": weight, "Bias": bias}
    initial(inputs, h_0, c_0, size, "dynamic_lstm")
    helper.append_op(
        type="lstm",
        inputs=inputs,
        outputs={"Hidden": hidden, "Cell": cell, "BatchGate": gate, "BatchCellPreAct": pre_act},
        attrs={
            "use_peepholes": use_peepholes,
            "is_reverse": is_reverse,
            "gate_activation": gate_activation,
            "cell_activation": cell_activation,
            "candidate_activation": candidate_activation,
        },
    )
    return hidden, cell


def dynamic_lstmp(
    input: Variable,
    size: int,
    proj_size: int,
    param_attr: Any = None,
    bias_attr: Any = None,
    use_peepholes: bool = True,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
    proj_activation: str = "tanh",
    dtype: str = "float32",
    name: str | None = None,
    h_0: Variable | None = None,
    c_0: Variable | None = None,
    cell_clip: float | None = None,
    proj_clip: float | None = None,
) -> tuple[Variable, Variable]:
    """LSTM with a projection: `dynamic_lstm` whose recurrent state is r = act_proj(h W_p) [rows, proj_size].

    Args:
        input, size, param_attr, bias_attr, use_peepholes, is_reverse, dtype, name and the activations: as there; the
            weights are [proj_size, 4 * hidden] and [hidden, proj_size].
        proj_size: size of the projection.
        proj_activation: applied to the projection.
        h_0, c_0: Variables [sequences, proj_size] and [sequences, hidden].
        cell_clip, proj_clip: clip the cell and the projection to [-clip, clip].

    Returns:
        (projection [rows, proj_size], cell [rows, hidden]).
    """
    refuse_eager("dynamic_lstmp")
    check_variable_and_dtype(input, "input", FULL_FLOATS, "dynamic_lstmp")
    _require_bias(bias_attr, "dynamic_lstmp")
    helper = LayerHelper("lstmp", param_attr=param_attr, bias_attr=bias_attr, name=name)
    size = size // 4
    weight = helper.create_parameter(attr=helper.param_attr, shape=[proj_size, 4 * size], dtype=dtype)
    proj_weight = helper.create_parameter(attr=helper.param_attr, shape=[size, proj_size], dtype=dtype)
    bias = _lstm_bias(helper, size, use_peepholes, dtype)
    made = [helper.create_variable_for_type_inference(dtype) for _ in range(6)]
    # The third is a variable that Fluid makes and never uses.
    projection, cell, _, batch_hidden, gate, pre_act = made
    inputs = {"Input": input, "Weight": weight, "ProjWeight": proj_weight, "Bias": bias}
    initial(inputs, h_0, None, proj_size, "dynamic_lstmp")
    initial(inputs, None, c_0, size, "dynamic_lstmp")
    attrs: dict[str, Any] = {
        "use_peepholes": use_peepholes,
        "is_reverse": is_reverse,
        "gate_activation": gate_activation,
        "cell_activation": cell_activation,
        "candidate_activation": candidate_activation,
        "proj_activation": proj_activation,
    }
    for label, bound in (("cell_clip", cell_clip), ("proj_clip", proj_clip)):
        assert bound is None or bound >= 0, f"{label} of dynamic_lstmp should not be negative, received {bound}."
    attrs |= {key: value for key, value in (("cell_clip", cell_clip), ("proj_clip", proj_clip)) if value}
    outputs = {"Projection": projection, "Cell": cell, "BatchHidden": batch_hidden}
    outputs |= {"BatchGate": gate, "BatchCellPreAct": pre_act}
    helper.append_op(type="lstmp", inputs=inputs, outputs=outputs, attrs=attrs)
    return projection, cell


# Fluid writes these two into the op whatever the arguments say, so models trained with it have them.
TANH, SIGMOID = 2, 1


def lstm_unit(
    x_t: Variable,
    hidden_t_prev: Variable,
    cell_t_prev: Variable,
    forget_bias: float = 0.0,
    param_attr: Any = None,
    bias_attr: Any = None,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """One step of an LSTM: i, f, o, j = fc([x, h]); c' = c sigmoid(f + forget_bias) + sigmoid(i) tanh(j);
    h' = tanh(c') sigmoid(o).

    Args:
        x_t: Variable [batch, width].
        hidden_t_prev, cell_t_prev: Variables [batch, hidden], the previous state.
        forget_bias: added to the forget gate.
        param_attr, bias_attr: of the fc.
        name: prefix for the names of the variables created.

    Returns:
        (hidden, cell), [batch, hidden].

    Raises:
        ValueError: an argument is not of rank 2, or batch sizes or widths differ.
    """
    for value, arg in ((x_t, "x_t"), (hidden_t_prev, "hidden_t_prev"), (cell_t_prev, "cell_t_prev")):
        check_variable_and_dtype(value, arg, FULL_FLOATS, "lstm_unit")
        if len(value.shape) != 2:
            raise ArgumentError(f"lstm_unit: Rank of {arg} must be 2, received shape {list(value.shape)}.")
    for other, arg in ((hidden_t_prev, "hidden_t_prev"), (cell_t_prev, "cell_t_prev")):
        if x_t.shape[0] != other.shape[0]:
            raise ArgumentError(
                f"lstm_unit: The 1st dimensions of x_t and {arg} must be the same, received {x_t.shape[0]} and "
                f"{other.shape[0]}."
            )
    if hidden_t_prev.shape[1] != cell_t_prev.shape[1]:
        raise ArgumentError(
            "lstm_unit: The 2nd dimensions of hidden_t_prev and cell_t_prev must be the same, received "
            f"{hidden_t_prev.shape[1]} and {cell_t_prev.shape[1]}."
        )
    helper = LayerHelper("lstm_unit", name=name)
    size = cell_t_prev.shape[1]
    joined = tensor.concat(input=[x_t, hidden_t_prev], axis=1)
    gates = nn.fc(
        input=joined,
        size=4 * size,
        param_attr=param_attr,
        bias_attr=ParamAttr() if bias_attr is None else bias_attr,
    )
    cell = helper.create_variable_for_type_inference(x_t.dtype)
    hidden = helper.create_variable_for_type_inference(x_t.dtype)
    helper.append_op(
        type="lstm_unit",
        inputs={"X": gates, "C_prev": cell_t_prev},
        outputs={"C": cell, "H": hidden},
        attrs={"forget_bias": forget_bias},
    )
    return hidden, cell


def _weights_of(input_size: int, hidden: int, num_layers: int, is_bidirec: bool) -> int:
    """The total number of weights of a stacked LSTM."""
    total, directions = 0, 2 if is_bidirec else 1
    for layer in range(num_layers):
        width = input_size if layer == 0 else hidden * directions
        total += (4 * hidden * (width + hidden) + 8 * hidden) * directions
    return total


def lstm(
    input: Variable,
    init_h: Variable,
    init_c: Variable,
    max_len: int,
    hidden_size: int,
    num_layers: int,
    dropout_prob: float = 0.0,
    is_bidirec: bool = False,
    is_test: bool = False,
    name: str | None = None,
    default_initializer: Any = None,
    seed: int = -1,
) -> tuple[Variable, Variable, Variable]:
    """A stacked LSTM over padded sequences, with all weights packed into one parameter as cuDNN does.

    Args:
        input: Variable [time, batch, width].
        init_h, init_c: Variables [layers * directions, batch, hidden].
        max_len: the maximum sequence length.
        hidden_size, num_layers: of the LSTM.
        dropout_prob: applied to the inputs of every layer but the first.
        is_bidirec: run in both directions.
        is_test: disable dropout.
        name: prefix for the names of the variables created.
        default_initializer: of the weights.
        seed: of the dropout.

    Returns:
        (outputs [time, batch, hidden * directions], last hidden, last cell).
    """
    check_variable_and_dtype(input, "input", FULL_FLOATS, "lstm")
    check_variable_and_dtype(init_h, "init_h", FULL_FLOATS, "lstm")
    check_variable_and_dtype(init_c, "init_c", FULL_FLOATS, "lstm")
    helper = LayerHelper("cudnn_lstm", input=input, name=name)
    dtype, input_size = input.dtype, input.shape[-1]
    weight = helper.create_parameter(
        attr=helper.param_attr,
        shape=[_weights_of(input_size, hidden_size, num_layers, is_bidirec)],
        dtype=dtype,
        default_initializer=default_initializer,
    )
    out, last_h, last_c = (helper.create_variable_for_type_inference(dtype) for _ in range(3))
    cache = helper.create_variable(persistable=True, type=VarType.RAW, stop_gradient=True)
    helper.append_op(
        type="cudnn_lstm",
        inputs={"Input": input, "InitH": init_h, "InitC": init_c, "W": weight, "Cache": cache},
        outputs={"Out": out, "last_h": last_h, "last_c": last_c},
        attrs={
            "max_len": max_len,
            "is_bidirec": is_bidirec,
            "input_size": input_size,
            "hidden_size": hidden_size,
            "num_layers": num_layers,
            "is_test": is_test,
            "dropout_prob": dropout_prob,
            "seed": seed,
        },
    )
    return out, last_h, last_c
