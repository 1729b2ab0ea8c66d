"""Attributes that configure Paddle's own kernels and mean nothing on XLA: accepted, kept in files, ignored.

One table of (Fluid type, default); an op lists those in its proto with ``@op(vendor="use_mkldnn ...")``
and overrides a default with a dict.
"""

from __future__ import annotations

from typing import Any

from lowering.program import BOOKKEEPING

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
