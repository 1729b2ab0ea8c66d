"""Resizing as a layer."""

from __future__ import annotations

from typing import Any

from fluidjax import layers
from fluidjax.dygraph.layers import Layer

__all__ = ["UpSample"]


class UpSample(Layer):
    """Images of another size; see ``layers.interpolate``.

    Args:
        out_shape: the height and width; or
        scale: how many times as large.
        resample: 'BILINEAR', 'TRILINEAR', 'NEAREST' or 'BICUBIC'.
        align_corners, align_mode, data_format: as for the layer.
    """

    def __init__(
        self,
        out_shape: Any = None,
        scale: float | None = None,
        resample: str = "BILINEAR",
        align_corners: bool = True,
        align_mode: int = 1,
        data_format: str = "NCHW",
    ) -> None:
        super().__init__()
        self._given = {"out_shape": out_shape, "scale": scale, "resample": resample, "align_corners": align_corners}
        self._given |= {"align_mode": align_mode, "data_format": data_format}

    def forward(self, input: Any) -> Any:
        """The images, resized."""
        return layers.interpolate(input, **self._given)
