"""Version information in programs saved by Paddle 1.8.5: its version, and the versions required by ops."""

from __future__ import annotations

from fluidjax.proto import framework_pb2 as pb

PROGRAM_VERSION = 1008005
REQUIRED_VERSION = "1.5.0"

_NOT, _POSSIBLE, _FIXED = 1, 2, 3  # how well a version before the one named reads an op
_OPS = {
    ("1.6.0", _POSSIBLE): """
        bilinear_interp chunk_eval conditional_block conditional_block_infer conv2d conv2d_transpose conv3d
        conv3d_transpose crf_decoding ctc_align data_norm depthwise_conv2d depthwise_conv2d_transpose edit_distance
        expand fc fused_embedding_seq_pool group_norm hash leaky_relu linear_chain_crf lod_reset matmul mul
        nearest_interp one_hot pow prior_box reshape2 slice uniform_random uniform_random_batch_size_like warpctc""",
    ("1.6.0", _NOT): """
        center_loss coalesce_tensor crop_tensor deformable_conv deformable_conv_v1 dpsgd eye fill_any_like
        filter_by_instag gather_nd hard_swish instance_norm lookup_table_v2 match_matrix_tensor multiclass_nms2
        one_hot_v2 prroi_pool pull_box_sparse scatter_nd_add sequence_pad sequence_topk_avg_pooling sequence_unpad
        shard_index size strided_slice trilinear_interp unfold unique unique_with_counts var_conv_2d""",
    ("1.6.0", _FIXED): "layer_norm",
}


def stamp(program: pb.ProgramDesc) -> None:
    """Write version and compatibility information into a program about to be saved."""
    program.version.version = PROGRAM_VERSION
    program.op_compatible_map.Clear()
    known = {name: key for key, names in _OPS.items() for name in names.split()}
    for name in sorted(known):
        version, kind = known[name]
        pair = program.op_compatible_map.pair.add(op_name=name)
        pair.compatible_info.version = version
        pair.compatible_info.type = kind
    program.op_compatible_map.default_required_version = REQUIRED_VERSION
