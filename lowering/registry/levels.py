"""The declared LoD level of gradients: that of the input whose LoD Fluid's shape inference shares with them.

Most of Fluid's gradient ops share none, whatever their kernels do, and their outputs are declared with level 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lowering.program import GRAD
from lowering.registry.definition import OpDef

X_SHAPE = "XShape"  # where an op keeps the shape of what it rewrites

# Gradients of these share the LoD of Out@GRAD.
_FROM_OUT = frozenset((
    "abs", "acos", "asin", "atan", "brelu", "ceil", "cos", "dropout", "elu", "exp", "floor", "hard_shrink",
    "hard_sigmoid", "hard_swish", "leaky_relu", "log", "log1p", "logsigmoid", "pow", "reciprocal", "relu", "relu6",
    "round", "rsqrt", "shuffle_batch", "sigmoid", "sin", "soft_relu", "softplus", "softshrink", "softsign", "sqrt",
    "square", "stanh", "swish", "tanh", "tanh_shrink", "thresholded_relu",
))  # fmt: skip

# Gradients of these share the LoD of the variable they belong to.
_FROM_OWN = frozenset((
    "argsort", "bce_loss", "bpr_loss", "concat", "cross_entropy", "dot", "elementwise_add", "elementwise_div",
    "elementwise_max", "elementwise_min", "elementwise_mul", "elementwise_pow", "elementwise_sub", "erf", "flatten",
    "frobenius_norm", "fused_elemwise_activation", "gather", "gather_nd", "gelu", "linear_chain_crf", "lod_reset",
    "mean", "pad_constant_like", "partial_concat", "partial_sum", "reduce_max", "reduce_mean", "reduce_min",
    "reduce_prod", "reduce_sum", "rnn_memory_helper", "sequence_expand_as", "sequence_pad", "sequence_pool",
    "sequence_reshape", "sequence_topk_avg_pooling", "sequence_unpad", "shrink_rnn_memory", "squeeze",
    "teacher_student_sigmoid_loss", "unsqueeze", "warpctc",
))  # fmt: skip

# As above, but gradients of the other inputs, which are parameters, share none.
_OWN_ROWS = {
    "hierarchical_sigmoid": ("X",), "match_matrix_tensor": ("X", "Y"), "sequence_conv": ("X",), "var_conv_2d": ("X",),
}  # fmt: skip

# Gradients of gradient ops: what DOut and DDOut share their LoD with.
_SECOND = {
    "elementwise_add": "DOut", "elementwise_sub": "DOut", "elementwise_mul": "DOut", "elementwise_div": "DX",
    "elu": "X", "square": "X", "relu": "Out", "leaky_relu": "Out", "sqrt": "Out",
}  # fmt: skip


def level_source(definition: OpDef, slot: str) -> str | None:
    """The input slot that determines the LoD level of a gradient in ``slot`` of gradient op ``definition``, or None."""
    forward = definition.forward
    if forward is None:
        return definition.lod.get(slot)
    own = slot.removesuffix(GRAD)
    if forward.forward is not None:
        second = _SECOND.get(forward.root.type)
        return second if second is None or own == slot else own
    if any(s.name == X_SHAPE for s in definition.inputs):
        return X_SHAPE
    if forward.type in _FROM_OUT:
        return "Out" + GRAD
    if own == "IntermediateOut":  # of fused_elemwise_activation, as long as Y
        return "Y"
    shares = forward.type in _FROM_OWN or own in _OWN_ROWS.get(forward.type, ())
    return own if shares else None


def level_from(definition: OpDef, slot: str, place: int, inputs: Callable[[str], Sequence[str]]) -> str | None:
    """The variable that determines the LoD level of the output at ``place`` of ``slot``; None for level 0.

    ``inputs`` returns the variables of an input slot of the op.
    """
    source = level_source(definition, slot)
    names = inputs(source) if source is not None else ()
    return names[place if place < len(names) else 0] if names else None


def keeps_shape(definition: OpDef, slot: str) -> bool:
    """Whether a gradient has the shape stored in XShape: that of X before Out replaced it."""
    return definition.lod.get(slot) == X_SHAPE
