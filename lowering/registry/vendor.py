"""Attributes that configure Paddle's own kernels and mean nothing on XLA: accepted, kept in files, ignored.

One table of (Fluid type, default); an op lists those in its proto with ``@op(vendor="use_mkldnn ...")``
and overrides a default with a dict.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lowering.program import BOOKKEEPING, OpView

VENDOR: dict[str, tuple[str, Any]] = {
    "use_mkldnn": ("BOOLEAN", False),
    "use_cudnn": ("BOOLEAN", False),
    "use_quantizer": ("BOOLEAN", False),
    "use_cuda": ("BOOLEAN", False),
    "sync_mode": ("BOOLEAN", False),
    "mkldnn_data_type": ("STRING", "float32"),
    "is_mkldnn": ("BOOLEAN", False),
    "workspace_size_MB": ("INT", 512),
    "exhaustive_search": ("BOOLEAN", False),
    "force_fp32_output": ("BOOLEAN", False),
    "x_data_format": ("STRING", ""),
    "y_data_format": ("STRING", ""),
    "Scale_in": ("FLOAT", 1.0),
    "Scale_out": ("FLOAT", 1.0),
    "Scale_in_eltwise": ("FLOAT", 1.0),
    "Scale_weights": ("FLOATS", [1.0]),
    "Scale_x": ("FLOAT", 1.0),
    "Scale_y": ("FLOAT", 1.0),
    "scale_x": ("FLOAT", 1.0),
    "scale_y": ("FLOATS", [1.0]),
    "scale_out": ("FLOAT", 1.0),
    "fuse_relu": ("BOOLEAN", False),
    "fuse_relu_before_depthwise_conv": ("BOOLEAN", False),
    "fuse_activation": ("STRING", ""),
    "fuse_alpha": ("FLOAT", 0.0),
    "fuse_beta": ("FLOAT", 0.0),
    "fuse_residual_connection": ("BOOLEAN", False),
    "fuse_with_relu": ("BOOLEAN", False),
    "fuse_brelu": ("BOOLEAN", False),
    "fuse_brelu_threshold": ("FLOAT", 6.0),
    "trainer_id": ("INT", 0),
    "height_sections": ("LONGS", []),
    "epmap": ("STRINGS", []),
    "table_names": ("STRINGS", []),
    "remote_prefetch": ("BOOLEAN", False),
    "is_distributed": ("BOOLEAN", False),
    "grad_inplace": ("BOOLEAN", False),
    "min_row_size_to_use_multithread": ("LONG", 0),
    "force_cpu": ("BOOLEAN", False),
    "ring_id": ("INT", 0),
    "use_calc_stream": ("BOOLEAN", False),
    "@ALL_KERNELS_MUST_COMPUTE_RUNTIME_SHAPE@": ("BOOLEAN", True),
}

# Attributes that any op may have and none declares.
COMMON = BOOKKEEPING | {"with_quant_attr"}

# The activations that oneDNN's convolutions compute in 1.8.
ACTIVATIONS = ("relu", "leaky_relu", "relu6", "swish")

# Inputs that oneDNN's kernels alone read, and nothing here does.
_FUSED_INPUTS = {
    **dict.fromkeys(("conv2d_grad", "depthwise_conv2d_grad"), ("Bias", "ResidualData")),
    **dict.fromkeys(("conv2d_transpose_grad", "depthwise_conv2d_transpose_grad"), ("Bias",)),
}


def fused(op: OpView, known: Any) -> Iterator[str]:
    """What oneDNN's kernel computes with an op marked ``use_mkldnn``, and its rule does not.

    Paddle's passes write it (``SaveOptimModel`` after ``enable_mkldnn``); plain kernels ignore it. Numbers, such as
    fuse_alpha, are parameters of an activation. ``known``: attributes with a rule.
    """
    for name, value in op.attrs.items():
        unknown = name not in known or (name == "fuse_activation" and value not in ACTIVATIONS)
        if name.startswith(("fuse_", "fused_")) and unknown and value and not isinstance(value, float):
            yield f"attribute {name} is {value!r}"
    for slot in _FUSED_INPUTS.get(op.type, ()):
        if op.inputs.get(slot):
            yield f"input {slot} is {list(op.inputs[slot])}"
