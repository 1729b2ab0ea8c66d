"""Every case of the corpus, held against its reference, ``jax.vjp``, finite differences, and interpret mode."""

import ml_dtypes
import numpy as np
import pytest

import lowering
from fluidjax import testing
from tests.lod.cases import CASES as RAGGED
from tests.ops import test_random

CASES = testing.table()
# Differentiable ops whose gradients are proven elsewhere: by whole programs with their blocks and arrays (held against
# recordings and check_grad), over a mesh, or by a test of their own.
BY_PROGRAMS = {
    "array_to_lod_tensor", "conditional_block", "lod_tensor_to_array", "merge_lod_tensor", "print", "py_func",
    "read_from_array", "recurrent", "reorder_lod_tensor_by_rank", "rnn_memory_helper", "select_input", "select_output",
    "shrink_rnn_memory", "split_lod_tensor", "tensor_array_to_tensor", "while", "write_to_array",
}  # fmt: skip
OVER_A_MESH = {"c_allgather", "c_allreduce_sum"}
BY_RECORDINGS = {
    "filter_by_instag",
    "match_matrix_tensor",
    "sequence_topk_avg_pooling",
    "var_conv_2d",
    "sequence_unpad",
}
OWN_TEST = {"shuffle_batch": test_random}


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


@pytest.mark.parametrize("case", [c for c in CASES if not c.label], ids=lambda c: c.name)
def test_jit_equals_interpret(case, rng):
    testing.check_modes(case, rng)


def test_every_differentiable_op_has_a_case():
    proven = {c.op for c in CASES} | {c.op for c in RAGGED} | BY_PROGRAMS | OVER_A_MESH | BY_RECORDINGS | set(OWN_TEST)
    forward = [op for op in lowering.registered_ops() if lowering.get_op(op).forward is None]
    assert [op for op in forward if lowering.get_op(op).differentiable and op not in proven] == []


def test_exceptions_exist_and_are_needed():
    listed = BY_PROGRAMS | OVER_A_MESH | BY_RECORDINGS | set(OWN_TEST)
    assert listed <= set(lowering.registered_ops())
    assert not listed & {c.op for c in CASES}


def test_names_are_unique():
    names = [c.name for c in CASES]
    assert len(names) == len(set(names))
