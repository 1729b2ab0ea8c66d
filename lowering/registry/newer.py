"""What Paddle 2's programs contain beyond what is computed here: hints without effect, and versions.

An attribute that an op of 1.8 did not have either has a rule's parameter (``op(newer=...)``), is a hint to kernels, or
must have the value that leaves the op unchanged: any other value requests something unsupported.
"""

from __future__ import annotations

from typing import Any

# Hints to kernels and bookkeeping, on any op.
HINTS = frozenset(
    """
    use_mkldnn use_cudnn use_quantizer mkldnn_data_type with_quant_attr is_test place_type use_addto op_fuse_mode
    Scale_in Scale_out Scale_x Scale_y Scale_data Shift_data Scale_in_eltwise Scale_weights Input_scale
    fuse_with_relu fuse_brelu fuse_residual_connection exhaustive_search workspace_size_MB force_fp32_output
    entry entry_config table_class slot table_id is_sparse name persist_output print_tensor_layout use_model_parallel
    fused_reshape_X fused_reshape_Y fused_reshape_Out fused_transpose_X fused_transpose_Y fused_transpose_Out
    force_cpu dist_attr deterministic rng_name
    """.split()
)

# (op, attribute) -> the value for which the op behaves as before.
NEUTRAL: dict[tuple[str, str], Any] = {
    ("unpool", "data_format"): "NCHW",
    ("linspace", "dtype"): 5,
    ("lars_momentum", "epsilon"): 0.0,
    ("lars_momentum", "rescale_grad"): 1.0,
    ("rank_attention", "MaxSize"): 0,
    ("elementwise_fmax", "axis"): -1,
    ("elementwise_fmin", "axis"): -1,
    ("elementwise_heaviside", "axis"): -1,
    ("lu", "pivots"): True,
    ("unpool3d", "data_format"): "NCDHW",
    ("quantize", "Shift"): 0.0,
    ("quantize", "bfloat16"): False,
    ("dequantize", "Shift"): 0.0,
    ("requantize", "Shift_in"): 0.0,
    ("requantize", "Shift_out"): 0.0,
    ("coalesce_tensor", "use_align"): True,
    ("coalesce_tensor", "align_size"): -1,
    ("coalesce_tensor", "user_defined_size_of_dtype"): -1,
    ("coalesce_tensor", "concated_shapes"): [],
    ("coalesce_tensor", "concated_ranks"): [],
    ("npu_identity", "format"): -1,
    ("dgc_momentum", "regularization_method"): "",
    ("dgc_momentum", "regularization_coeff"): 0.0,
    ("dgc_momentum", "rescale_grad"): 1.0,
}
NEUTRAL_ANYWHERE: dict[str, Any] = {"multi_precision": False, "use_global_beta_pow": False}

# The highest supported version of each op; version 0 for ops not listed.
VERSIONS: dict[str, int] = dict(
    affine_grid=1, allclose=2, auc=1, clip=1, coalesce_tensor=2, collect_fpn_proposals=1, conv2d=1, conv2d_transpose=2,
    conv3d=1, conv3d_transpose=1, cudnn_lstm=1, cumsum=1, data_norm=1, depthwise_conv2d=1,
    depthwise_conv2d_transpose=1, dequantize=1, distribute_fpn_proposals=2, elementwise_add=1, elementwise_div=1,
    elementwise_mul=1, elementwise_pow=1, elementwise_sub=1, equal=1, fake_channel_wise_dequantize_max_abs=2,
    fake_channel_wise_quantize_abs_max=1, fill_constant=2, flip=1, gather=1, generate_proposal_labels=2,
    generate_proposals=2, generate_proposals_v2=1, greater_equal=1, greater_than=1, grid_sampler=1, hard_shrink=1,
    instance_norm=1, lamb=1, leaky_relu=1, less_equal=1, less_than=1, linspace=1, lookup_table=1, lookup_table_v2=1,
    lstsq=1, matmul=1, matrix_nms=1, mish=1, momentum=1, moving_average_abs_max_scale=2, not_equal=1, p_norm=1,
    pixel_shuffle=1, print=1, quantize=2, rank_attention=1, requantize=1, roi_align=3, roi_pool=2, roll=2, seed=1,
    send_and_recv=1, set_value=4, softplus=1, trace=1, transfer_layout=1, unique_consecutive=1, yolo_box=1,
)  # fmt: skip


def neutral_value(type: str, name: str) -> Any:
    """The value of an attribute without a rule for which the op behaves as before; None if unknown."""
    return NEUTRAL.get((type, name), NEUTRAL_ANYWHERE.get(name))


def is_neutral(type: str, name: str, value: Any) -> bool:
    """Whether an attribute without a rule leaves the op's behaviour unchanged; false for unknown attributes."""
    neutral = neutral_value(type, name)
    return neutral is None or bool(value == neutral)


def is_known(type: str, name: str) -> bool:
    """Whether an attribute without a rule is a known one of Paddle 2."""
    return name in HINTS or name in NEUTRAL_ANYWHERE or (type, name) in NEUTRAL
