"""Every case of the corpus, held against its reference, ``jax.vjp``, and finite differences."""

import importlib

import ml_dtypes
import numpy as np
import pytest

import lowering
from fluidjax import testing
from fluidjax.testing.edges import (
    BROADCAST,
    EMPTY_LIST,
    INTEGERS,
    LIST_OF_ONE,
    NEGATIVE,
    SIZE_0,
    SIZE_1,
    coverage,
)
from tests.newer.test_gradients import PROVEN as NEWER
from tests.newer.test_recorded import recorded_gradients

pytestmark = pytest.mark.usefixtures("compiled_quickly")

CASES = testing.table()
# Differentiable ops whose gradients are proven elsewhere, also against jax's derivative and finite differences: by
# programs with their blocks and arrays, over ragged rows, or over a mapped axis. Each module lists its ops in PROVEN.
_PROGRAMS = "tests.control_flow.test_op_gradients"
_RAGGED = "tests.ops.test_sequence_gradients"
_KNOWN_LODS = "tests.ops.test_sequence_match"
_DEVICES = "tests.ops.test_collective"
ELSEWHERE = {
    "add_position_encoding": _RAGGED,
    "array_to_lod_tensor": _PROGRAMS,
    "c_allgather": _DEVICES,
    "c_allreduce_sum": _DEVICES,
    "c_concat": _DEVICES,
    "c_identity": _DEVICES,
    "c_split": _DEVICES,
    "conditional_block": _PROGRAMS,
    "filter_by_instag": _KNOWN_LODS,
    "fused_embedding_seq_pool": _RAGGED,
    "gru": _RAGGED,
    "linear_chain_crf": _RAGGED,
    "lod_reset": _RAGGED,
    "lod_tensor_to_array": _PROGRAMS,
    "lstm": _RAGGED,
    "lstmp": _RAGGED,
    "lookup_in_share": "tests.parallel.test_physical",
    "match_matrix_tensor": _KNOWN_LODS,
    "merge_lod_tensor": _PROGRAMS,
    "mp_allreduce_sum": _DEVICES,
    "nce_of_rows": "tests.distributed.test_by_hand",
    "print": _PROGRAMS,
    "py_func": _PROGRAMS,
    "py_layer": "tests.dygraph.py_layer.test_op",
    "split_byref": "tests.ops.test_parts",
    "split_selected_rows": "tests.ops.test_parts",
    "pyramid_hash": "tests.ops.test_pyramid_hash",
    "read_from_array": _PROGRAMS,
    "recurrent": _PROGRAMS,
    "reorder_lod_tensor_by_rank": _PROGRAMS,
    "rnn_memory_helper": _PROGRAMS,
    "row_conv": _RAGGED,
    "select_input": _PROGRAMS,
    "select_output": _PROGRAMS,
    "sequence_concat": _RAGGED,
    "sequence_conv": _RAGGED,
    "sequence_expand": _RAGGED,
    "sequence_expand_as": _RAGGED,
    "sequence_pad": _RAGGED,
    "sequence_pool": _RAGGED,
    "sequence_reshape": _RAGGED,
    "sequence_reverse": _RAGGED,
    "sequence_scatter": _RAGGED,
    "sequence_slice": _RAGGED,
    "sequence_softmax": _RAGGED,
    "sequence_topk_avg_pooling": _KNOWN_LODS,
    "sequence_unpad": _KNOWN_LODS,
    "shrink_rnn_memory": _PROGRAMS,
    "shuffle_batch": "tests.ops.test_random",
    "split_lod_tensor": _PROGRAMS,
    "tensor_array_to_tensor": _PROGRAMS,
    "var_conv_2d": _KNOWN_LODS,
    "warpctc": _RAGGED,
    "while": _PROGRAMS,
    "write_to_array": _PROGRAMS,
}


def differentiable(case):
    return lowering.get_op(case.op).differentiable


@pytest.mark.parametrize("case", [c for c in CASES if c.reference], ids=lambda c: c.name)
def test_forward(case, rng):
    testing.check_forward(case, rng)


@pytest.mark.parametrize("case", [c for c in CASES if differentiable(c)], ids=lambda c: c.name)
def test_gradient(case, rng):
    testing.check_gradient(case, rng)


@pytest.mark.parametrize("case", [c for c in CASES if c.twice], ids=lambda c: c.name)
def test_double_gradient(case, rng):
    testing.check_double_gradient(case, rng)


@pytest.mark.parametrize("case", [c for c in CASES if not c.label], ids=lambda c: c.name)
def test_float32(case, rng):
    testing.check_float32(case, rng)


# Regions and boxes are computed in float32 at least.
WIDE = {"roi_align", "prroi_pool", "psroi_pool", "roi_perspective_transform", "yolov3_loss"}


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_half_precision_stays(dtype, rng):
    for case in (c for c in CASES if not c.label and c.op not in WIDE):
        testing.check_half(case, rng, dtype)


def test_every_differentiable_op_has_a_case():
    proven = {c.op for c in CASES} | set(ELSEWHERE) | NEWER | recorded_gradients()
    forward = [op for op in lowering.registered_ops() if lowering.get_op(op).forward is None]
    assert [op for op in forward if lowering.get_op(op).differentiable and op not in proven] == []


@pytest.mark.parametrize("op", ELSEWHERE)
def test_the_proof_elsewhere_exists_and_is_needed(op):
    assert op in importlib.import_module(ELSEWHERE[op]).PROVEN
    assert lowering.get_op(op).differentiable
    assert op not in {c.op for c in CASES}


# What the table must hold of the most used ops (those of Fluid's own counts that take any shape).
_ANY_SHAPE = (
    "sum elementwise_add elementwise_sub elementwise_mul elementwise_div elementwise_max elementwise_min"
    " elementwise_pow scale mul cast concat softmax reduce_sum reduce_max reduce_min relu sigmoid tanh square sqrt log"
    " exp cos floor ceil"
    " leaky_relu assign top_k lookup_table logical_not logical_and logical_or less_than equal matmul transpose2 slice"
    " squeeze2 unsqueeze2 expand split stack gather clip flatten2 reverse argsort cumsum shape is_empty fill_zeros_like"
    " one_hot"
).split()
NEEDED = {
    SIZE_0: _ANY_SHAPE,
    SIZE_1: [*(set(_ANY_SHAPE) - {"gather", "lookup_table"}), "reshape2", "reduce_mean", "reduce_prod", "mean",
             "increment", "arg_max", "arg_min"],
    NEGATIVE: "concat stack split squeeze2 unsqueeze2 softmax reduce_sum reduce_mean reduce_max reduce_min reduce_prod"
    " cumsum argsort arg_max arg_min reverse unstack".split(),
    BROADCAST: "elementwise_add elementwise_sub elementwise_mul elementwise_div elementwise_max elementwise_min"
    " elementwise_pow elementwise_mod elementwise_floordiv less_than less_equal greater_than greater_equal equal"
    " not_equal matmul cos_sim".split(),
    INTEGERS: "sum scale clip increment assign elementwise_add elementwise_sub elementwise_mul elementwise_div"
    " elementwise_mod elementwise_floordiv elementwise_max elementwise_min elementwise_pow reduce_sum reduce_mean"
    " reduce_max reduce_min reduce_prod concat reshape2 slice expand gather cumsum top_k square dot trace".split(),
    LIST_OF_ONE: "concat stack sum".split(),
    EMPTY_LIST: "squeeze squeeze2".split(),
}  # fmt: skip


@pytest.mark.parametrize("edge", NEEDED)
def test_much_used_ops_have_their_edge_cases(edge):
    held = coverage()
    assert [op for op in NEEDED[edge] if not held[op][edge]] == []


def test_every_written_double_gradient_has_a_case():
    # Those that jax.vjp derives are registered when they are first asked for; they have no rule of their own.
    rules = [op for op in lowering.registered_ops() if op.endswith("_grad_grad")]
    written = {op.removesuffix("_grad_grad") for op in rules if "derived by jax.vjp" not in lowering.get_op(op).doc}
    assert len(written) >= 14
    assert written <= {c.op for c in CASES if c.twice}


def test_names_are_unique():
    names = [c.name for c in CASES]
    assert len(names) == len(set(names))
