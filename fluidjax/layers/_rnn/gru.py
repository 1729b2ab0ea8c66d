"""Gated recurrent units computed by a single op."""

from __future__ import annotations

from typing import Any

from fluidjax.framework import Variable
from fluidjax.layer_helper import LayerHelper
from fluidjax.layers._rnn.lstm import SIGMOID, TANH, initial
from fluidjax.layers._sequence.checks import refuse_eager
from fluidjax.writing.checks import FULL_FLOATS, check_variable_and_dtype


def dynamic_gru(
    input: Variable,
    size: int,
    param_attr: Any = None,
    bias_attr: Any = None,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    candidate_activation: str = "tanh",
    h_0: Variable | None = None,
    origin_mode: bool = False,
) -> Variable:
    """GRU over variable-length sequences whose input has already been multiplied by the input weights.

    u, r = act_gate(input + h W), c = act(input_c + (r h) W_c); h' = u h + (1 - u) c in origin_mode, else
    h' = (1 - u) h + u c.

    Args:
        input: LoD Variable [rows, 3 * size].
        size: size of the hidden state.
        param_attr: of the weight [size, 3 * size].
        bias_attr: of the bias [1, 3 * size].
        is_reverse: run each sequence from its end.
        gate_activation, candidate_activation: sigmoid, tanh, relu or identity.
        h_0: Variable [sequences, size]; zeros by default.
        origin_mode: see above.

    Returns:
        The hidden states [rows, size], with the LoD of the input.
    """
    refuse_eager("dynamic_gru")
    check_variable_and_dtype(input, "input", FULL_FLOATS, "dynamic_gru")
    helper = LayerHelper("gru", input=input, param_attr=param_attr, bias_attr=bias_attr)
    dtype = helper.input_dtype()
    weight = helper.create_parameter(attr=helper.param_attr, shape=[size, 3 * size], dtype=dtype)
    bias = helper.create_parameter(attr=helper.bias_attr, shape=[1, 3 * size], dtype=dtype, is_bias=True)
    inputs = {"Input": input, "Weight": weight, "Bias": bias}
    initial(inputs, h_0, None, size, "dynamic_gru")
    hidden, gate, reset, batch_hidden = (helper.create_variable_for_type_inference(dtype) for _ in range(4))
    helper.append_op(
        type="gru",
        inputs=inputs,
        outputs={
            "Hidden": hidden,
            "BatchGate": gate,
            "BatchResetHiddenPrev": reset,
            "BatchHidden": batch_hidden,
        },
        attrs={
            "is_reverse": is_reverse,
            "gate_activation": gate_activation,
            "activation": candidate_activation,
            "origin_mode": origin_mode,
        },
    )
    return hidden


def gru_unit(
    input: Variable,
    hidden: Variable,
    size: int,
    param_attr: Any = None,
    bias_attr: Any = None,
    activation: str = "tanh",
    gate_activation: str = "sigmoid",
    origin_mode: bool = False,
) -> tuple[Variable, Variable, Variable]:
    """One step of a GRU; formulas as for `dynamic_gru`.

    Args:
        input: Variable [batch, 3 * hidden].
        hidden: Variable [batch, hidden], the previous state.
        size: 3 * hidden.
        param_attr: of the weight [hidden, 3 * hidden].
        bias_attr: of the bias [1, 3 * hidden]; False for none.
        activation, gate_activation: have no effect, as in Fluid, which always uses tanh and sigmoid.
        origin_mode: as for `dynamic_gru`.

    Returns:
        (new hidden [batch, hidden], r * hidden [batch, hidden], gates [batch, 3 * hidden]).
    """
    check_variable_and_dtype(input, "input", FULL_FLOATS, "gru_unit")
    check_variable_and_dtype(hidden, "hidden", FULL_FLOATS, "gru_unit")
    helper = LayerHelper("gru_unit", input=input, param_attr=param_attr, bias_attr=bias_attr)
    dtype = helper.input_dtype()
    size = size // 3
    weight = helper.create_parameter(attr=helper.param_attr, shape=[size, 3 * size], dtype=dtype)
    gate, reset, updated = (helper.create_variable_for_type_inference(dtype) for _ in range(3))
    inputs = {"Input": input, "HiddenPrev": hidden, "Weight": weight}
    if helper.bias_attr:
        bias = helper.create_parameter(attr=helper.bias_attr, shape=[1, 3 * size], dtype=dtype, is_bias=True)
        inputs["Bias"] = bias
    helper.append_op(
        type="gru_unit",
        inputs=inputs,
        outputs={"Gate": gate, "ResetHiddenPrev": reset, "Hidden": updated},
        attrs={
            "activation": TANH,
            "gate_activation": SIGMOID,
            "origin_mode": origin_mode,
        },
    )
    return updated, reset, gate
