"""The names of ``fluid.contrib.layers.nn``."""

from fluidjax.contrib.layers.sequence import (
    fused_embedding_seq_pool,
    match_matrix_tensor,
    sequence_topk_avg_pooling,
    tree_conv,
    var_conv_2d,
)

__all__ = [
    "fused_embedding_seq_pool",
    "match_matrix_tensor",
    "sequence_topk_avg_pooling",
    "tree_conv",
    "var_conv_2d",
]
