"""What ``fluid.core`` says of the ops that there are."""

from __future__ import annotations

from typing import Any

import lowering
from fluidjax.base.places import is_compiled_with_cuda
from fluidjax.framework import names
from fluidjax.framework.protos import op_proto


def op_support_gpu(op_type: str) -> bool:
    """Whether an op runs where an accelerator is: true for all ops if there is one, else for those without kernels."""
    return is_compiled_with_cuda() or op_type not in _get_all_register_op_kernels()


def get_all_op_protos() -> list[bytes]:
    """The serialized protos of all registered ops."""
    return [op_proto(name).SerializeToString() for name in lowering.registered_ops()]


# One kernel for each op, place and data type: XLA makes them of what it meets.
_KERNEL = "data_type[{}]:data_layout[ANY_LAYOUT]:place[CPUPlace]:library_type[PLAIN]"
_KERNEL_TYPES = ("float", "double", "float16", "bool", "int", "int64_t", "int16_t", "int8_t", "uint8_t")


def _get_all_register_op_kernels() -> dict[str, list[str]]:
    """Maps ops to their kernels in Fluid's notation; ops that run blocks or run on the host have none.

    XLA compiles an op for whatever dtypes it is given; dtypes that an op rejects are not listed.
    """
    kernels = [_KERNEL.format(name) for name in _KERNEL_TYPES]
    return {name: list(kernels) for name in lowering.registered_ops() if lowering.get_op(name).kind == "plain"}


def _get_use_default_grad_op_desc_maker_ops() -> list[str]:
    """The ops whose gradient reads all their inputs, outputs and output gradients."""
    return [name for name in lowering.registered_ops() if has_non_empty_grad_op_maker(name) and _reads_all(name)]


def _reads_all(op_type: str) -> bool:
    definition = lowering.get_op(op_type)
    if definition.forward is not None or not lowering.has_op(f"{op_type}_grad"):
        return False
    outs = [slot.name for slot in definition.outputs]
    whole = {*(slot.name for slot in definition.inputs), *outs, *map(names.grad_var_name, outs)}
    return {slot.name for slot in lowering.get_op(f"{op_type}_grad").inputs} == whole


# Ops that Paddle 1.8.5 registers without a maker of gradients; the others have one, though it may make nothing.
_WITHOUT_MAKER = frozenset(
    """
    attention_lstm beam_search c_comm_init c_comm_init_all c_reducescatter c_sync_calc_stream c_sync_comm_stream
    coalesce_tensor dequantize distributed_lookup_table fused_embedding_fc_lstm fusion_gru fusion_lstm
    fusion_repeated_fc_relu fusion_seqconv_eltadd_relu fusion_seqexpand_concat_fc fusion_seqpool_concat
    fusion_squared_mat_sub gather_tree get_tensor_from_selected_rows listen_and_serv load load_combine merge_ids
    merge_selected_rows push_box_sparse push_sparse push_sparse_v2 quantize recv_save reorder_lod_tensor_by_rank_grad
    requantize save save_combine split_ids
    """.split()
)
# Ops of which Paddle 1.8.5 may write an output over an input.
_OVER_AN_INPUT = frozenset(
    """
    abs_grad acos_grad affine_channel affine_channel_grad asin_grad assign atan_grad bce_loss bce_loss_grad
    brelu_grad ceil ceil_grad clip clip_grad cos_grad elementwise_add elementwise_add_grad elementwise_add_grad_grad
    elementwise_div_grad_grad elementwise_mul_grad_grad elementwise_sub elementwise_sub_grad
    elementwise_sub_grad_grad elu elu_grad elu_grad_grad exp exp_grad flatten flatten2 flatten2_grad flatten_grad
    floor floor_grad group_norm group_norm_grad hard_shrink_grad hard_sigmoid hard_sigmoid_grad hard_swish_grad
    instance_norm_grad_grad leaky_relu leaky_relu_grad leaky_relu_grad_grad lod_reset lod_reset_grad log1p_grad
    log_grad logsigmoid_grad pow_grad reciprocal reciprocal_grad relu relu6 relu6_grad relu_grad relu_grad_grad
    reshape reshape2 reshape2_grad reshape2_grad_grad reshape_grad round round_grad rsqrt rsqrt_grad scale scatter
    scatter_grad sigmoid sigmoid_cross_entropy_with_logits sigmoid_cross_entropy_with_logits_grad sigmoid_grad
    sin_grad soft_relu soft_relu_grad softmax softmax_grad softmax_with_cross_entropy
    softmax_with_cross_entropy_grad softplus_grad softshrink_grad softsign_grad sqrt sqrt_grad sqrt_grad_grad square
    square_grad square_grad_grad squeeze2 squeeze2_grad stanh_grad sum swish_grad tanh tanh_grad tanh_shrink_grad
    thresholded_relu_grad unsqueeze2 unsqueeze2_grad
    """.split()
)


def has_grad_op_maker(op_type: str) -> bool:
    """Whether an op is registered with a maker of gradient ops, which may make none (``shape``, ``sgd``).

    For a gradient op, only explicitly written gradients count: derived gradients exist for every order, whereas
    scripts descend from ``relu`` through ``relu_grad`` until there is no further gradient.
    """
    if not lowering.has_op(op_type) or op_type in _WITHOUT_MAKER:
        return False
    return lowering.get_op(op_type).forward is None or has_non_empty_grad_op_maker(op_type)


def has_non_empty_grad_op_maker(op_type: str) -> bool:
    """Whether an op is registered and has a gradient; of gradient ops as for ``has_grad_op_maker``."""
    if not lowering.has_op(op_type):
        return False
    definition = lowering.get_op(op_type)
    return definition.differentiable if definition.forward is None else definition.has_written_gradient


def has_infer_inplace(op_type: str) -> bool:
    """Whether Paddle 1.8.5 may compute an op over one of its inputs; XLA reuses buffers of all ops."""
    return op_type in _OVER_AN_INPUT


def infer_no_need_buffer_slots(op_type: str, inputs: Any, outputs: Any, attrs: Any) -> set[str]:
    """The input slots of which an op needs only shape and dtype, not values.

    Args:
        op_type: a registered op; raises lowering.UnknownOpError for any other.
        inputs, outputs, attrs: accepted for compatibility with Fluid; they do not affect the answer.
    """
    return {slot.name for slot in lowering.get_op(op_type).inputs if slot.wants == "meta"}


def get_op_attrs_default_value(op_type: str | bytes) -> dict[str, Any]:
    """The default values of an op's attributes; attributes without a default are omitted."""
    name = op_type.decode() if isinstance(op_type, bytes) else op_type
    specs = lowering.get_op(name).attrs.values()
    return {spec.name: spec.default for spec in specs if not spec.required}
