"""``paddle.nn``: layers as objects and as functions, by the names of Paddle 2's alpha."""

from fluidjax import data, initializer
from fluidjax.clip import GradientClipByGlobalNorm, GradientClipByNorm, GradientClipByValue
from fluidjax.dygraph import (
    BatchNorm,
    BilinearTensorProduct,
    Embedding,
    GroupNorm,
    InstanceNorm,
    Layer,
    LayerList,
    LayerNorm,
    Linear,
    ParameterList,
    Pool2D,
    Sequential,
    SpectralNorm,
)
from fluidjax.dygraph.nn import RowConv
from fluidjax.layers import (
    beam_search,
    beam_search_decode,
    case,
    clip,
    clip_by_norm,
    cond,
    gather_tree,
    switch_case,
    while_loop,
)
from fluidjax.paddle.nn import functional
from fluidjax.paddle.nn.activation import HSigmoid, LogSoftmax, ReLU, Sigmoid
from fluidjax.paddle.nn.conv import Conv2D, Conv2DTranspose, Conv3D, Conv3DTranspose
from fluidjax.paddle.nn.loss import BCELoss, CrossEntropyLoss, L1Loss, MSELoss, NLLLoss
from fluidjax.paddle.nn.resize import UpSample

__all__ = [
    "BCELoss", "BatchNorm", "BilinearTensorProduct", "Conv2D", "Conv2DTranspose", "Conv3D", "Conv3DTranspose",
    "CrossEntropyLoss", "Embedding", "GradientClipByGlobalNorm", "GradientClipByNorm", "GradientClipByValue",
    "GroupNorm", "HSigmoid", "InstanceNorm", "L1Loss", "Layer", "LayerList", "LayerNorm", "Linear", "LogSoftmax",
    "MSELoss", "NLLLoss", "ParameterList", "Pool2D", "ReLU", "RowConv", "Sequential", "Sigmoid", "SpectralNorm",
    "UpSample", "beam_search", "beam_search_decode", "case", "clip", "clip_by_norm", "cond", "data", "functional",
    "gather_tree", "initializer", "switch_case", "while_loop",
]  # fmt: skip
