"""The layer classes."""

from __future__ import annotations

from fluidjax.base.unknown import unknown_name
from fluidjax.dygraph._nn.common import BilinearTensorProduct, Dropout, Embedding, Linear, PRelu
from fluidjax.dygraph._nn.conv import Conv2D, Conv2DTranspose, Conv3D, Conv3DTranspose, Pool2D
from fluidjax.dygraph._nn.losses import BCELoss, L1Loss, MSELoss, NLLLoss
from fluidjax.dygraph._nn.norm import BatchNorm, GroupNorm, InstanceNorm, LayerNorm, SpectralNorm
from fluidjax.dygraph._nn.units import NCE, GRUUnit, RowConv, SequenceConv, TreeConv  # noqa: F401

__all__ = [
    "Conv2D", "Conv3D", "Pool2D", "Linear", "BatchNorm", "Dropout", "Embedding", "GRUUnit", "InstanceNorm", "LayerNorm",
    "NCE", "PRelu", "BilinearTensorProduct", "Conv2DTranspose", "Conv3DTranspose", "GroupNorm", "SpectralNorm",
    "TreeConv", "MSELoss", "L1Loss", "NLLLoss", "BCELoss",
]  # fmt: skip

__getattr__ = unknown_name(__name__)
