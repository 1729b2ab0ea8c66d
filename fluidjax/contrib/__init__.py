"""Fluid's contributed parts."""

from fluidjax.base.unknown import unknown_name as _unknown_name
from fluidjax.contrib import decoder as decoder
from fluidjax.contrib import extend_optimizer as extend_optimizer
from fluidjax.contrib import layers as layers
from fluidjax.contrib import memory_usage_calc as memory_usage_calc
from fluidjax.contrib import mixed_precision as mixed_precision
from fluidjax.contrib import model_stat as model_stat
from fluidjax.contrib import op_frequence as op_frequence
from fluidjax.contrib import quantize as quantize
from fluidjax.contrib import reader as reader
from fluidjax.contrib import slim as slim
from fluidjax.contrib import utils as utils
from fluidjax.contrib.decoder import BeamSearchDecoder as BeamSearchDecoder
from fluidjax.contrib.decoder import InitState as InitState
from fluidjax.contrib.decoder import StateCell as StateCell
from fluidjax.contrib.decoder import TrainingDecoder as TrainingDecoder
from fluidjax.contrib.extend_optimizer import (
    extend_with_decoupled_weight_decay as extend_with_decoupled_weight_decay,
)
from fluidjax.contrib.layers import BasicGRUUnit as BasicGRUUnit
from fluidjax.contrib.layers import BasicLSTMUnit as BasicLSTMUnit
from fluidjax.contrib.layers import basic_gru as basic_gru
from fluidjax.contrib.layers import basic_lstm as basic_lstm
from fluidjax.contrib.layers import ctr_metric_bundle as ctr_metric_bundle
from fluidjax.contrib.layers import fused_elemwise_activation as fused_elemwise_activation
from fluidjax.contrib.layers import fused_embedding_seq_pool as fused_embedding_seq_pool
from fluidjax.contrib.layers import match_matrix_tensor as match_matrix_tensor
from fluidjax.contrib.layers import multiclass_nms2 as multiclass_nms2
from fluidjax.contrib.layers import partial_concat as partial_concat
from fluidjax.contrib.layers import partial_sum as partial_sum
from fluidjax.contrib.layers import rank_attention as rank_attention
from fluidjax.contrib.layers import search_pyramid_hash as search_pyramid_hash
from fluidjax.contrib.layers import sequence_topk_avg_pooling as sequence_topk_avg_pooling
from fluidjax.contrib.layers import shuffle_batch as shuffle_batch
from fluidjax.contrib.layers import tdm_child as tdm_child
from fluidjax.contrib.layers import tdm_sampler as tdm_sampler
from fluidjax.contrib.layers import tree_conv as tree_conv
from fluidjax.contrib.layers import var_conv_2d as var_conv_2d
from fluidjax.contrib.memory_usage_calc import memory_usage as memory_usage
from fluidjax.contrib.mixed_precision import AutoMixedPrecisionLists as AutoMixedPrecisionLists
from fluidjax.contrib.mixed_precision import decorate as decorate
from fluidjax.contrib.model_stat import summary as summary
from fluidjax.contrib.op_frequence import op_freq_statistic as op_freq_statistic
from fluidjax.contrib.quantize import QuantizeTranspiler as QuantizeTranspiler
from fluidjax.contrib.reader import distributed_batch_reader as distributed_batch_reader
from fluidjax.contrib.slim import Compressor as Compressor
from fluidjax.contrib.utils import HDFSClient as HDFSClient
from fluidjax.contrib.utils import convert_dist_to_sparse_program as convert_dist_to_sparse_program
from fluidjax.contrib.utils import load_persistables_for_increment as load_persistables_for_increment
from fluidjax.contrib.utils import load_persistables_for_inference as load_persistables_for_inference
from fluidjax.contrib.utils import multi_download as multi_download
from fluidjax.contrib.utils import multi_upload as multi_upload

__all__ = [
    "InitState", "StateCell", "TrainingDecoder", "BeamSearchDecoder", "memory_usage", "op_freq_statistic",
    "QuantizeTranspiler", "distributed_batch_reader", "load_persistables_for_increment",
    "load_persistables_for_inference", "convert_dist_to_sparse_program", "HDFSClient", "multi_download", "multi_upload",
    "extend_with_decoupled_weight_decay", "mixed_precision", "fused_elemwise_activation", "sequence_topk_avg_pooling",
    "var_conv_2d", "match_matrix_tensor", "tree_conv", "fused_embedding_seq_pool", "multiclass_nms2",
    "search_pyramid_hash", "shuffle_batch", "partial_concat", "partial_sum", "tdm_child", "rank_attention",
    "tdm_sampler", "BasicGRUUnit", "basic_gru", "BasicLSTMUnit", "basic_lstm", "ctr_metric_bundle",
    "Compressor",
]  # fmt: skip

__getattr__ = _unknown_name(__name__)
