"""Settings of the quantizer that a config keeps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fluidjax.inference.tensors import PaddleTensor


class MkldnnQuantizerConfig:
    """How a model would become one of whole numbers when it is loaded; kept, ``contrib.slim`` makes such models."""

    def __init__(self) -> None:
        self._kept: dict[str, Any] = {}

    def set_quant_data(self, data: Sequence[PaddleTensor]) -> None:
        """Kept: inputs to find the scales by."""
        self._kept["data"] = list(data)

    def set_quant_batch_size(self, batch_size: int) -> None:
        """Kept: how many rows the inputs have."""
        self._kept["batch_size"] = batch_size

    def set_enabled_op_types(self, op_types: Iterable[str]) -> None:
        """Kept: the types of the ops."""
        self._kept["op_types"] = set(op_types)
