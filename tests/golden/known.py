"""Recordings that are knowingly not reproduced, each with its reason.

Only two kinds of reason count: the reference does not repeat itself, or it is wrong and fluidjax is right.
"""

_IGNORED_LABEL = (
    "the reference's CPU gradient of softmax_with_cross_entropy does not leave out ignore_index, while its loss does; "
    "finite differences and its own GPU kernel give zero there"
)

OPS: dict[str, str] = {
    "test_softmax_with_cross_entropy_op.py:TestSoftmaxWithCrossEntropyOp3:test_check_grad:0": _IGNORED_LABEL,
    "test_softmax_with_cross_entropy_op.py:TestSoftmaxWithCrossEntropyOpIgnoreIndexNoCudnnAxis2:test_check_grad:0": (
        _IGNORED_LABEL
    ),
    "test_softmax_with_cross_entropy_op.py:TestSoftmaxWithCrossEntropyOpIgnoreIndexNoCudnnAxis3:test_check_grad:0": (
        _IGNORED_LABEL
    ),
    "test_adam_op.py:TestSparseAdamOp:test_sparse_adam:0": "the reference reads one element past the merged rows; "
    "a second run of it gives other values",
    "test_pyramid_hash_op.py:TestPyramidHashOpApi:test_api:op0": "the reference reads undefined memory; "
    "a second run of it gives other values",
}

OPS["test_rnn_decode_api.py:TestDynamicDecode:test_mle_train:op25"] = (
    "the block of this recurrent op holds dropout ops, which the recording does not mark as random; no draw repeats it"
)

NETWORKS: dict[str, str] = {}
