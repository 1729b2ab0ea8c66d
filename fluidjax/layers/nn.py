# ruff: noqa: F403, F405  (the names of fluid.layers.nn are gathered here)
"""The names of ``fluid.layers.nn``."""

from fluidjax.base.unknown import unknown_name
from fluidjax.layers._detection.regions import prroi_pool as prroi_pool
from fluidjax.layers._detection.regions import psroi_pool as psroi_pool
from fluidjax.layers._detection.regions import roi_align as roi_align
from fluidjax.layers._detection.regions import roi_pool as roi_pool
from fluidjax.layers._loss.terms import *
from fluidjax.layers._nn.activation import *
from fluidjax.layers._nn.batch_norm import *
from fluidjax.layers._nn.common import *
from fluidjax.layers._nn.conv import *
from fluidjax.layers._nn.norm import *
from fluidjax.layers._nn.pool import *
from fluidjax.layers._nn.python_function import *
from fluidjax.layers._nn.resize import *
from fluidjax.layers._nn.step_counter import *
from fluidjax.layers._nn.vision import *
from fluidjax.layers._sequence.crf import *
from fluidjax.layers._sequence.ctc import ctc_greedy_decoder as ctc_greedy_decoder
from fluidjax.layers._sequence.nn import *
from fluidjax.layers._tensor.elementwise import *
from fluidjax.layers._tensor.elementwise import _elementwise_op as _elementwise_op
from fluidjax.layers._tensor.indexing import *
from fluidjax.layers._tensor.manipulation import *
from fluidjax.layers._tensor.matmul import *
from fluidjax.layers._tensor.random import *
from fluidjax.layers._tensor.reduction import *
from fluidjax.layers._tensor.slicing import *
from fluidjax.layers._tensor.sparse import *
from fluidjax.layers.metric_op import mean_iou as mean_iou

__all__ = [
    "log1p", "logsumexp", "clamp", "addmm", "addcmul", "bmm", "nonzero", "index_select", "dist", "dot", "t", "cross",
    "interpolate", "diag_embed", "meshgrid", "fc", "embedding", "linear_chain_crf", "crf_decoding", "cos_sim",
    "chunk_eval", "conv2d", "conv3d", "softmax", "pool2d", "pool3d", "adaptive_pool2d", "adaptive_pool3d", "batch_norm",
    "inplace_abn", "instance_norm", "data_norm", "conv2d_transpose", "conv3d_transpose", "reduce_sum", "reduce_mean",
    "reduce_max", "reduce_min", "reduce_prod", "reduce_all", "reduce_any", "dropout", "split", "ctc_greedy_decoder",
    "l2_normalize", "matmul", "topk", "transpose", "im2sequence", "row_conv", "multiplex", "layer_norm", "group_norm",
    "spectral_norm", "smooth_l1", "one_hot", "autoincreased_step_counter", "reshape", "squeeze", "unsqueeze",
    "lod_reset", "lod_append", "lrn", "pad", "pad_constant_like", "label_smooth", "roi_pool", "roi_align", "dice_loss",
    "image_resize", "image_resize_short", "resize_bilinear", "resize_trilinear", "resize_nearest", "gather",
    "gather_nd", "scatter", "scatter_nd_add", "scatter_nd", "random_crop", "mean_iou", "relu", "selu", "log", "crop",
    "crop_tensor", "elu", "relu6", "pow", "stanh", "hard_sigmoid", "swish", "prelu", "brelu", "leaky_relu", "soft_relu",
    "flatten", "stack", "pad2d", "unstack", "unique", "unique_with_counts", "expand", "expand_as", "scale",
    "elementwise_add", "elementwise_div", "elementwise_sub", "elementwise_mul", "elementwise_max", "elementwise_min",
    "elementwise_pow", "elementwise_mod", "elementwise_floordiv", "uniform_random_batch_size_like", "gaussian_random",
    "sampling_id", "gaussian_random_batch_size_like", "sum", "slice", "strided_slice", "shape", "rank", "size",
    "logical_and", "logical_or", "logical_xor", "logical_not", "clip", "clip_by_norm", "mean", "mul", "maxout",
    "space_to_depth", "affine_grid", "affine_channel", "similarity_focus", "hash", "grid_sampler", "log_loss",
    "add_position_encoding", "bilinear_tensor_product", "merge_selected_rows", "get_tensor_from_selected_rows",
    "shuffle_channel", "temporal_shift", "py_func", "psroi_pool", "prroi_pool", "pixel_shuffle", "fsp_matrix",
    "continuous_value_model", "where", "sign", "deformable_conv", "unfold", "deformable_roi_pooling",
    "filter_by_instag", "shard_index", "hard_swish", "mish", "gather_tree", "uniform_random", "randint", "randn",
    "randperm", "allclose", "elementwise_equal", "flip", "roll", "log_softmax", "index_sample",
]  # fmt: skip

__getattr__ = unknown_name(__name__)
