"""The recurrent kernels as layers: LSTM, LSTM with projection, GRU, their single steps, and beam search."""

from __future__ import annotations

from typing import Any

from fluidjax.base.enums import VarType
from fluidjax.base.errors import explain
from fluidjax.framework import Variable
from fluidjax.layer_helper import LayerHelper
from fluidjax.layers import nn, tensor
from fluidjax.layers._sequence.checks import refuse_eager
from fluidjax.param_attr import ParamAttr
from fluidjax.writing.checks import FULL_FLOATS, check_type, check_variable_and_dtype

__all__ = [
    "beam_search",
    "beam_search_decode",
    "dynamic_gru",
    "dynamic_lstm",
    "dynamic_lstmp",
    "gru_unit",
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
    """Check that the input has ``size`` columns, as many for each gate."""
    if size % gates or input.shape[-1] not in (size, -1):
        raise ValueError(
            explain(
                f"{layer}: size does not fit the input",
                f"size = {gates} * hidden, and an input of that width",
                f"size {size}, input {input.name} {list(input.shape)}",
                f"project the input first: fluid.layers.fc(input, size={gates} * hidden)",
            )
        )


def _initial(inputs: dict, h_0: Variable | None, c_0: Variable | None, size: int, layer: str) -> None:
    """Add initial states to the op's inputs, checking that their width is that of the hidden state."""
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
    """[1, 4 * size], and three more vectors of peephole weights after it."""
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
    """LSTM over ragged sequences whose input is already multiplied by the input weights.

    With gates c, i, f, o of ``input + h W``:
    c' = f * c + i * act(candidate), h' = o * act_cell(c'), and with peepholes i, f see c and o sees c'.

    Args:
        input: LoD Variable [rows, 4 * hidden].
        size: 4 * hidden.
        h_0, c_0: Variables [sequences, hidden]; default zeros.
        param_attr: of the weight [hidden, 4 * hidden].
        bias_attr: of the bias [1, 4 * hidden], or [1, 7 * hidden] with peepholes.
        use_peepholes, is_reverse: see above; reverse runs from each sequence's end.
        gate_activation, cell_activation, candidate_activation: sigmoid, tanh, relu or identity.
        dtype: float32 or float64.
        name: prefix of the variables made.

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
    _initial(inputs, h_0, c_0, size, "dynamic_lstm")
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
    """LSTM with a projection: as `dynamic_lstm`, with r = act_proj(h W_p) [rows, proj_size] going around.

    Args:
        input, size, param_attr, bias_attr, use_peepholes, is_reverse, dtype, name and the activations: as there; the
            weights are [proj_size, 4 * hidden] and [hidden, proj_size].
        proj_size: width of the projection.
        proj_activation: applied to the projection.
        h_0, c_0: Variables [sequences, proj_size] and [sequences, hidden].
        cell_clip, proj_clip: clip cell and projection to [-clip, clip].

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
    _initial(inputs, h_0, None, proj_size, "dynamic_lstmp")
    _initial(inputs, None, c_0, size, "dynamic_lstmp")
    attrs: dict[str, Any] = {
        "use_peepholes": use_peepholes,
        "is_reverse": is_reverse,
        "gate_activation": gate_activation,
        "cell_activation": cell_activation,
        "candidate_activation": candidate_activation,
        "proj_activation": proj_activation,
    }
    attrs |= {key: value for key, value in (("cell_clip", cell_clip), ("proj_clip", proj_clip)) if value}
    outputs = {"Projection": projection, "Cell": cell, "BatchHidden": batch_hidden}
    outputs |= {"BatchGate": gate, "BatchCellPreAct": pre_act}
    helper.append_op(type="lstmp", inputs=inputs, outputs=outputs, attrs=attrs)
    return projection, cell


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
    """GRU over ragged sequences whose input is already multiplied by the input weights.

    u, r = act_gate(input + h W), c = act(input_c + (r h) W_c); h' = u h + (1 - u) c in origin_mode, else
    h' = (1 - u) h + u c.

    Args:
        input: LoD Variable [rows, 3 * size].
        size: width of the hidden state.
        param_attr: of the weight [size, 3 * size].
        bias_attr: of the bias [1, 3 * size].
        is_reverse: run from each sequence's end.
        gate_activation, candidate_activation: sigmoid, tanh, relu or identity.
        h_0: Variable [sequences, size]; default zeros.
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
    _initial(inputs, h_0, None, size, "dynamic_gru")
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


# Fluid writes these two into the op whatever the arguments say, so models trained with it have them.
_TANH, _SIGMOID = 2, 1


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
    """One step of a GRU; formulas as in `dynamic_gru`.

    Args:
        input: Variable [batch, 3 * hidden].
        hidden: Variable [batch, hidden], the state before.
        size: 3 * hidden.
        param_attr: of the weight [hidden, 3 * hidden].
        bias_attr: of the bias [1, 3 * hidden]; False for none.
        activation, gate_activation: without effect, as in Fluid: tanh and sigmoid are used.
        origin_mode: as in `dynamic_gru`.

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
            "activation": _TANH,
            "gate_activation": _SIGMOID,
            "origin_mode": origin_mode,
        },
    )
    return updated, reset, gate


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
        hidden_t_prev, cell_t_prev: Variables [batch, hidden].
        forget_bias: added to the forget gate.
        param_attr, bias_attr: of the fc.
        name: prefix of the variables made.

    Returns:
        (hidden, cell), [batch, hidden].

    Raises:
        ValueError: ranks other than 2, or batch sizes or widths that differ.
    """
    for value, arg in ((x_t, "x_t"), (hidden_t_prev, "hidden_t_prev"), (cell_t_prev, "cell_t_prev")):
        check_variable_and_dtype(value, arg, FULL_FLOATS, "lstm_unit")
        if len(value.shape) != 2:
            raise ValueError(f"lstm_unit: Rank of {arg} must be 2, received shape {list(value.shape)}.")
    for other, arg in ((hidden_t_prev, "hidden_t_prev"), (cell_t_prev, "cell_t_prev")):
        if x_t.shape[0] != other.shape[0]:
            raise ValueError(
                f"lstm_unit: The 1st dimensions of x_t and {arg} must be the same, received {x_t.shape[0]} and "
                f"{other.shape[0]}."
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
    """The number of weights of a stacked LSTM."""
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
    """A stacked LSTM over padded sequences, all weights in one parameter, as cuDNN keeps them.

    Args:
        input: Variable [time, batch, width].
        init_h, init_c: Variables [layers * directions, batch, hidden].
        max_len: the longest time.
        hidden_size, num_layers: of the LSTM.
        dropout_prob: of the inputs of the layers after the first.
        is_bidirec: run in both directions.
        is_test: no dropout.
        name: prefix of the variables made.
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


def beam_search(
    pre_ids: Variable,
    pre_scores: Variable,
    ids: Variable | None,
    scores: Variable,
    beam_size: int,
    end_id: int,
    level: int = 0,
    is_accumulated: bool = True,
    name: str | None = None,
    return_parent_idx: bool = False,
) -> tuple[Variable, ...]:
    """For each source the ``beam_size`` best continuations of its beams.

    Args:
        pre_ids, pre_scores: LoD Variables [beams, 1], int64 and float32, what was chosen in the step before.
        ids: int64 Variable [beams, K] of candidates; None for 0 .. K-1.
        scores: float32 LoD Variable [beams, K] of the candidates.
        beam_size: how many to keep for each source.
        end_id: the token that ends a sentence.
        level: the LoD level of sources.
        is_accumulated: scores are sums along the sentence; otherwise they are probabilities of the step.
        name: prefix of the variables made.
        return_parent_idx: return which beam each one came from, too.

    Returns:
        (chosen ids, their scores), with ``return_parent_idx`` also the beams, int32.
    """
    check_variable_and_dtype(pre_ids, "pre_ids", ("int64",), "beam_search")
    check_variable_and_dtype(pre_scores, "pre_scores", FULL_FLOATS, "beam_search")
    check_variable_and_dtype(scores, "scores", FULL_FLOATS, "beam_search")
    helper = LayerHelper("beam_search", name=name)
    inputs = {"pre_ids": pre_ids, "pre_scores": pre_scores, "scores": scores}
    if ids is not None:
        check_variable_and_dtype(ids, "ids", ("int64",), "beam_search")
        inputs["ids"] = ids
    selected_scores = helper.create_variable_for_type_inference(dtype=pre_scores.dtype)
    selected_ids = helper.create_variable_for_type_inference(dtype=pre_ids.dtype)
    parent_idx = helper.create_variable_for_type_inference(dtype="int32")
    helper.append_op(
        type="beam_search",
        inputs=inputs,
        outputs={
            "selected_ids": selected_ids,
            "selected_scores": selected_scores,
            "parent_idx": parent_idx,
        },
        attrs={"level": level, "beam_size": beam_size, "end_id": end_id, "is_accumulated": is_accumulated},
    )
    return (selected_ids, selected_scores, parent_idx) if return_parent_idx else (selected_ids, selected_scores)


def beam_search_decode(
    ids: Variable, scores: Variable, beam_size: int, end_id: int, name: str | None = None
) -> tuple[Variable, Variable]:
    """The sentences that `beam_search` has chosen, traced back through the arrays of its steps, best first.

    Args:
        ids, scores: arrays of what was chosen in each step.
        beam_size, end_id: as given to `beam_search`.
        name: prefix of the variables made.

    Returns:
        (token numbers, score of each token), with two LoD levels: sources to sentences, sentences to tokens.
    """
    check_variable_and_dtype(ids, "ids", ("int64",), "beam_search_decode")
    check_variable_and_dtype(scores, "scores", FULL_FLOATS, "beam_search_decode")
    helper = LayerHelper("beam_search_decode", name=name)
    sentence_ids = helper.create_variable_for_type_inference(dtype=ids.dtype)
    sentence_scores = helper.create_variable_for_type_inference(dtype=scores.dtype)
    helper.append_op(
        type="beam_search_decode",
        inputs={"Ids": ids, "Scores": scores},
        outputs={"SentenceIds": sentence_ids, "SentenceScores": sentence_scores},
        attrs={"beam_size": beam_size, "end_id": end_id},
    )
    return sentence_ids, sentence_scores
