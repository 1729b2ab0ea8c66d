"""Random programs: chains of the op table's cases, and what they reach; ``make prove`` draws more."""

import pytest
from hypothesis import HealthCheck, given, settings

import lowering
from fluidjax.testing import Mismatch, ragged_blocks
from fluidjax.testing.programs import case_programs, grow
from fluidjax.testing.reach import reached
from fluidjax.testing.table_blocks import block_cases, case_block
from tests.spec import op_protos

pytestmark = pytest.mark.usefixtures("compiled_quickly")

FEW = settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def least(low, high):
    return low


def program_of(*names):
    """A chain of named cases."""
    cases = {c.name: c for c in block_cases()}
    return grow(least, [case_block(cases[name]) for name in names])


@FEW
@given(case_programs(max_ops=2))
def test_chains_of_ops(sample):
    sample.check_backward()


def test_a_chain_holds_its_gradient_ops():
    ran = program_of("softmax", "conv2d", "layer_norm").check_backward()
    assert {"softmax_grad", "conv2d_grad", "layer_norm_grad", "tanh_grad", "mul_grad"} <= ran


def test_a_planted_fault_in_the_middle_of_a_chain_is_caught(monkeypatch):
    sample = program_of("softmax", "sigmoid", "relu")
    rule = lowering.get_op("sigmoid").gradient
    right = rule.fn
    monkeypatch.setattr(rule, "fn", lambda *args, **attrs: right(*args, **attrs) * (1 + 1e-4))
    with pytest.raises(Mismatch, match=r"against jax\.grad"):
        sample.check_backward()


def test_rows_of_computed_lengths():
    """jax differentiates sequence_unpad over padded rows; Fluid's gradient op has the exact ones."""
    assert grow(least, [ragged_blocks.padded], ragged=True).check_grad().ok


def test_a_case_of_most_gradient_ops_is_a_block():
    grads = {op for proto in op_protos().values() for op in proto.get("grad_op_types", ())}
    assert len(grads) == 246
    assert len(reached() & grads) >= 225
