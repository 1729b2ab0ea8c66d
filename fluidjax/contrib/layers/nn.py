"""The names of ``fluid.contrib.layers.nn``."""

from fluidjax.contrib.layers.fused import fused_elemwise_activation, multiclass_nms2, search_pyramid_hash
from fluidjax.contrib.layers.ranking import partial_concat, partial_sum, rank_attention, shuffle_batch
from fluidjax.contrib.layers.sequence import (
    fused_embedding_seq_pool,
    match_matrix_tensor,
    sequence_topk_avg_pooling,
    tree_conv,
    var_conv_2d,
)
from fluidjax.contrib.layers.tree_index import tdm_child, tdm_sampler

__all__ = [
    "fused_elemwise_activation",
    "sequence_topk_avg_pooling",
    "var_conv_2d",
    "match_matrix_tensor",
    "tree_conv",
    "fused_embedding_seq_pool",
    "multiclass_nms2",
    "search_pyramid_hash",
    "shuffle_batch",
    "partial_concat",
    "partial_sum",
    "tdm_child",
    "rank_attention",
    "tdm_sampler",
]
