"""``paddle.nn.functional``: layers as functions, for programs and at once; ``fluid.layers`` by other names."""

from __future__ import annotations

from typing import Any

import fluidjax as fluid
from fluidjax import layers
from fluidjax.layer_helper import LayerHelper
from fluidjax.paddle.nn.convolution import conv2d, conv2d_transpose, conv3d, conv3d_transpose
from fluidjax.paddle.tensor.at_once import surface, surfaces

_ACTIVATIONS = """
    brelu elu erf gelu hard_shrink hard_sigmoid hard_swish leaky_relu log_softmax logsigmoid maxout mish prelu relu
    relu6 selu sigmoid soft_relu softmax softplus softshrink softsign swish tanh_shrink thresholded_relu"""
_COMMON = """
    assign bilinear_tensor_product dropout fc label_smooth pad pad2d pad_constant_like unfold add_position_encoding
    continuous_value_model diag_embed filter_by_instag hash random_crop similarity_focus temporal_shift warpctc"""
_LOSSES = """
    bpr_loss center_loss cross_entropy dice_loss edit_distance huber_loss iou_similarity kldiv_loss log_loss
    margin_rank_loss mse_loss npair_loss rank_loss sampled_softmax_with_cross_entropy
    sigmoid_cross_entropy_with_logits sigmoid_focal_loss smooth_l1 softmax_with_cross_entropy square_error_cost ssd_loss
    teacher_student_sigmoid_loss"""
_SCHEDULES = """
    cosine_decay exponential_decay inverse_time_decay linear_lr_warmup natural_exp_decay noam_decay piecewise_decay
    polynomial_decay"""
_IMAGES = """
    adaptive_pool2d adaptive_pool3d affine_channel affine_grid anchor_generator bipartite_match box_clip box_coder
    box_decoder_and_assign collect_fpn_proposals deformable_roi_pooling density_prior_box detection_output
    distribute_fpn_proposals fsp_matrix generate_mask_labels generate_proposal_labels generate_proposals grid_sampler
    image_resize image_resize_short multiclass_nms pixel_shuffle polygon_box_transform pool2d pool3d prior_box
    prroi_pool psroi_pool resize_bilinear resize_nearest resize_trilinear retinanet_detection_output
    retinanet_target_assign roi_align roi_perspective_transform roi_pool rpn_target_assign shuffle_channel
    space_to_depth target_assign yolo_box yolov3_loss"""
_NORMS = "batch_norm data_norm group_norm instance_norm l2_normalize layer_norm lrn spectral_norm"
_TAKEN = " ".join((_ACTIVATIONS, _COMMON, _LOSSES, _SCHEDULES, _IMAGES, _NORMS)).split()

globals().update(zip(_TAKEN, surfaces(layers, " ".join(_TAKEN)), strict=True))
embedding, one_hot = surface(fluid.embedding), surface(fluid.one_hot)
interpolate = surface(layers.interpolate)

__all__ = [
    *_TAKEN, "conv2d", "conv2d_transpose", "conv3d", "conv3d_transpose", "embedding", "hsigmoid", "interpolate",
    "one_hot", "row_conv",
]  # fmt: skip


@surface
def hsigmoid(
    input: Any,
    label: Any,
    weight: Any,
    bias: Any,
    num_classes: int,
    path_table: Any = None,
    path_code: Any = None,
    is_sparse: bool = False,
) -> Any:
    """The loss of hierarchical sigmoid with given parameters, [N, 1]; see ``layers.hsigmoid``.

    Args:
        weight, bias: [inner nodes, D] and [inner nodes, 1]; ``bias`` None: none.
    """
    helper = LayerHelper("hierarchical_sigmoid")
    out = helper.create_variable_for_type_inference(input.dtype)
    pre_out = helper.create_variable_for_type_inference(input.dtype)
    inputs = {"X": input, "W": weight, "Label": label, "PathTable": path_table, "PathCode": path_code, "Bias": bias}
    helper.append_op(
        type="hierarchical_sigmoid",
        inputs={slot: var for slot, var in inputs.items() if var is not None},
        outputs={"Out": out, "PreOut": pre_out, "W_Out": weight},
        attrs={"num_classes": num_classes, "is_sparse": is_sparse, "remote_prefetch": is_sparse},
    )
    return out


@surface
def row_conv(input: Any, weight: Any, act: str | None = None) -> Any:
    """Each row and those after it in its sequence, weighted by the rows of ``weight``; see ``layers.row_conv``."""
    helper = LayerHelper("row_conv", act=act)
    out = helper.create_variable_for_type_inference(input.dtype)
    helper.append_op(type="row_conv", inputs={"X": [input], "Filter": [weight]}, outputs={"Out": [out]})
    return helper.append_activation(out)
