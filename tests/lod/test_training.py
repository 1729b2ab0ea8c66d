"""Whole ragged programs train alike with exact rows and at every capacity: the harness, and what it has to catch."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import fluidjax as fluid
import lowering
from fluidjax.testing import ragged_blocks
from fluidjax.testing.programs import programs
from tests.golden.values import Tensor
from tests.lod.training import Step, capacities, compare_paddings, train

pytestmark = pytest.mark.usefixtures("compiled_quickly")

FEW = settings(
    max_examples=5,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
LENGTHS = ([5, 0, 9], [7, 7, 2], [1, 14, 0])  # 14 to 16 rows: below, at and, with the others' padding, over a capacity


def classifier():
    """(initial values, steps) of a softmax classifier of rows, trained by gradient descent."""
    rng = np.random.default_rng(0)
    program, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(program, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, 3], "float32", lod_level=1)
        y = fluid.data("y", [None, 1], "int64", lod_level=1)
        p = fluid.layers.fc(x, 4, act="softmax", param_attr="w", bias_attr="b")
        loss = fluid.layers.mean(fluid.layers.cross_entropy(p, y))
        fluid.optimizer.SGD(0.5).minimize(loss)
    values = {"w": rng.standard_normal((3, 4)), "b": rng.standard_normal(4), "learning_rate_0": np.array([0.5])}
    initial = {name: Tensor(value.astype("float32")) for name, value in values.items()}
    code, steps = program.desc.serialize_to_string(), []
    for lengths in LENGTHS:
        lod, rows = [np.cumsum([0, *lengths]).tolist()], sum(lengths)
        feed = {
            "x": Tensor(rng.standard_normal((rows, 3)).astype("float32"), lod),
            "y": Tensor(rng.integers(0, 4, (rows, 1)), lod),
        }
        steps.append(Step(code, feed, [loss.name, p.name]))
    return initial, steps


def trained(sample):
    """(initial values, steps) of a random ragged program, trained by gradient descent."""
    program = sample.program.clone()
    loss = program.global_block().var(sample.loss.name)
    with fluid.program_guard(program, fluid.Program()), fluid.unique_name.guard("train"):
        fluid.optimizer.SGD(0.001).minimize(loss)
    names = [*sample.parameters, *sample.constants]
    initial = {name: Tensor(np.array(sample.scope.find_var(name).get_tensor())) for name in names}
    initial["trainlearning_rate_0"] = Tensor(np.array([0.001], np.float32))
    rng, code = np.random.default_rng(0), program.desc.serialize_to_string()
    batches = [sample.batch(rng, lengths) for lengths in LENGTHS]
    feeds = [{n: Tensor(np.array(fed), fed.lod()) for n, fed in batch.items()} for batch in batches]
    return initial, [Step(code, feed, [loss.name]) for feed in feeds]


def check(sample):
    """A sample trains alike in each padding."""
    found = compare_paddings(*trained(sample))
    assert found.checks > 0 and not found.problems, "\n".join(found.problems)


def test_the_plainest_classifier():
    found = compare_paddings(*classifier())
    assert found.checks > 20 and not found.problems and not found.unpadded


def test_capacities_hold_every_feed():
    _, steps = classifier()
    assert capacities(steps) == {"at": 16, "one more": 17, "bucket": 24}


@pytest.mark.parametrize("capacity", [16, 24])
def test_a_training_is_padded_to_the_forced_capacity(capacity, monkeypatch):
    seen = []
    rule = lowering.get_op("softmax")
    right = rule.fn
    monkeypatch.setattr(rule, "fn", lambda x, **attrs: seen.append(x.shape[0]) or right(x, **attrs))
    initial, steps = classifier()
    assert train(initial, steps, capacity).padded
    assert set(seen) == {capacity}


def test_exact_rows_are_no_padding():
    assert not train(*classifier(), None).padded


@FEW
@given(programs(max_ops=3, ragged=True, sequences=True, leave_out=ragged_blocks.SLOW))
def test_random_ragged_programs(sample):
    check(sample)


def test_a_forgotten_mask_is_caught(monkeypatch):
    """A mean over the padding rows too."""
    definition = lowering.get_op("mean")
    monkeypatch.setattr(definition, "fn", lambda x: x.data.mean().reshape(1))
    found = compare_paddings(*classifier())
    assert any("mean" in p for p in found.problems), found.problems
