"""Requests as one batch: joined and cut apart without a trace, and only where samples do not mix."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fluidjax as fluid
from fluidjax.base.lod import lengths_to_offsets, lod_fault
from fluidjax.serving.batching import Mixed, joined, kind_of, samples_of, split, widened
from fluidjax.serving.model import ServedModel
from fluidjax.serving.settings import Settings
from fluidjax.serving.tensors import Tensor
from fluidjax.serving.warming import warm_up
from fluidjax.serving.worker import Worker
from tests.serving.at_work import saved, words_and_numbers

lengths = st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=3), min_size=1, max_size=3)


def request_of(outer, start):
    """A dense, a ragged and a twice ragged tensor with a sample for each of ``outer``, whose rows are all different."""
    inner = [n % 3 for n in range(sum(outer))]
    lods = [[], lengths_to_offsets([outer]), lengths_to_offsets([outer, inner])]
    rows = [len(outer), sum(outer), sum(inner)]
    return {f"t{n}": Tensor(start + np.arange(2 * r).reshape(r, 2), lod)
            for n, (r, lod) in enumerate(zip(rows, lods, strict=True))}  # fmt: skip


@given(lengths)
def test_requests_come_out_of_a_batch_as_they_went_in(outers):
    requests = [request_of(outer, 100 * n) for n, outer in enumerate(outers)]
    assert len({kind_of(request) for request in requests}) == 1
    batch = joined(requests)
    assert samples_of(batch) == sum(map(len, outers))
    assert all(lod_fault(t.lod, len(t.rows)) is None for t in batch.values())
    for request, out in zip(requests, split(batch, [len(outer) for outer in outers]), strict=True):
        for name, tensor in request.items():
            np.testing.assert_array_equal(out[name].rows, tensor.rows)
            assert out[name].lod == tensor.lod


@given(lengths)
def test_a_widened_batch_holds_what_it_held(outers):
    batch = joined([request_of(outer, 100 * n) for n, outer in enumerate(outers)])
    samples, wide = samples_of(batch), widened(batch)
    assert samples_of(wide) == 1 << (samples - 1).bit_length()
    assert all(lod_fault(t.lod, len(t.rows)) is None for t in wide.values())
    held, *others = split(wide, [samples, *[1] * (samples_of(wide) - samples)])
    (last,) = split(batch, [samples - 1, 1])[1:]
    for name, tensor in batch.items():
        np.testing.assert_array_equal(held[name].rows, tensor.rows)
        assert held[name].lod == tensor.lod
        assert all(np.array_equal(other[name].rows, last[name].rows) for other in others)


def test_nothing_is_compiled_once_it_is_warm(tmp_path, rng):
    """Whatever numbers of sequences of up to 32 rows are computed together."""
    model = ServedModel(saved(tmp_path, words_and_numbers))
    assert warm_up(model, 4, {}) is None

    def compilations():
        return sum(prepared.compilations for prepared in model._program.__dict__["_prepared_cache"].values())

    before = compilations()
    for samples in [1, 2, 3, 4] * 5:
        lengths = rng.integers(1, 33, samples)
        words = Tensor(rng.integers(0, 10, (lengths.sum(), 1)), lengths_to_offsets([lengths]))
        model.run(widened({"x": Tensor(np.ones((samples, 3), "float32"), []), "w": words}))
    assert compilations() == before <= 8


def test_outputs_that_are_not_one_for_each_sample_are_not_cut():
    with pytest.raises(Mixed):
        split({"mean": Tensor(np.zeros((1,)), [])}, [1, 2])


def mean_of_the_batch():
    x = fluid.data("x", [None, 3])
    return ["x"], [fluid.layers.mean(fluid.layers.fc(x, 2))]


def share_of_the_batch():
    x = fluid.data("x", [None, 3])
    y = fluid.layers.fc(x, 2)
    return ["x"], [fluid.layers.elementwise_div(y, fluid.layers.reduce_sum(fluid.layers.abs(y)))]


def longest_of_the_batch():
    w = fluid.data("w", [None, 2], lod_level=1)
    padded, _ = fluid.layers.sequence_pad(fluid.layers.fc(w, 2), fluid.layers.fill_constant([1], "float32", 0))
    return ["w"], [padded]


def fixed():
    x = fluid.data("x", [2, 3])
    return ["x"], [fluid.layers.fc(x, 2)]


def counting():
    x = fluid.data("x", [None, 3])
    counter = fluid.layers.autoincreased_step_counter(begin=1)
    return ["x"], [x + fluid.layers.cast(counter, "float32")]


def alike():
    x = fluid.data("x", [None, 3])
    return ["x"], [fluid.layers.fc(x, 2)]


REASONS = {
    mean_of_the_batch: "not one for each sample",
    share_of_the_batch: "depend on the others",
    longest_of_the_batch: "depend on the others",
    fixed: "fixes the first size of x",
    counting: "each run changes @STEP_COUNTER@",
    alike: None,
}


@pytest.mark.parametrize("build", REASONS, ids=lambda build: build.__name__)
def test_samples_that_mix_are_found(build, tmp_path):
    model = ServedModel(saved(tmp_path, build))
    before = model.states()
    found, expected = warm_up(model, 4, {}), REASONS[build]
    assert found is None if expected is None else expected in (found or "")
    assert {name: value.tolist() for name, value in model.states().items()} == {
        n: v.tolist() for n, v in before.items()
    }
    if build is counting:
        outputs = [model.run({"x": Tensor(np.zeros((1, 3), "float32"), [])}) for _ in range(2)]
        assert [t.rows[0, 0] for out in outputs for t in out.values()] == [1.0, 2.0]


def test_what_made_up_inputs_do_not_suit_is_run_alone(tmp_path):
    def build():
        x = fluid.data("x", [None, None])
        return ["x"], [fluid.layers.fc(fluid.layers.reshape(x, [-1, 3, 5]), 2)]

    model = ServedModel(saved(tmp_path, build))
    assert "made-up inputs do not suit" in (warm_up(model, 4, {}) or "")
    assert warm_up(model, 4, {"x": (1, 15)}) is None


class Slow:
    """A model whose runs wait to be let go, and are counted."""

    def __init__(self, model):
        self.model, self.go, self.entered, self.runs = model, threading.Event(), threading.Event(), []
        self.inputs, self.state = model.inputs, model.state
        self.states, self.restore = model.states, model.restore
        self.go.set()

    def run(self, inputs):
        self.entered.set()
        assert self.go.wait(240)
        self.runs.append(samples_of(inputs))
        return self.model.run(inputs)


class Nobody:
    """Takes no notice."""

    def ran(self, samples, seconds):
        pass


@pytest.fixture
def slow(tmp_path):
    """A slow model, and a worker that has it."""
    model = Slow(ServedModel(saved(tmp_path, alike)))
    worker = Worker(model, Settings(max_batch=4, max_delay=0.001), Nobody())
    worker.start()
    assert worker.ready.wait(240)
    model.runs.clear()
    yield model, worker
    model.go.set()
    worker.close()


def x_of(*values, dtype="float32"):
    return {"x": Tensor(np.array([[v, v, v] for v in values], dtype), [])}


def test_what_waits_is_computed_together_and_in_order(slow):
    model, worker = slow
    model.entered.clear()
    model.go.clear()
    first = worker.submit(x_of(0))
    assert model.entered.wait(240)  # from here on requests wait
    others = [worker.submit(x_of(*[n] * n)) for n in (1, 2, 3, 1, 5)]
    model.go.set()
    for promise, count in zip([first, *others], (1, 1, 2, 3, 1, 5), strict=True):
        assert len(promise.result(240)[next(iter(promise.result()))].rows) == count
    # 1 + 2 + 1 together; 3, and 5, which is more than a batch, widened.
    assert model.runs == [1, 4, 4, 8]


def test_what_is_cancelled_is_not_run_and_what_is_queued_is_done_at_the_end(slow):
    model, worker = slow
    model.entered.clear()
    model.go.clear()
    promises = [worker.submit(x_of(1))]
    assert model.entered.wait(240)
    promises += [worker.submit(x_of(*[2] * 4)), worker.submit(x_of(*[3] * 3))]
    assert promises[1].cancel()
    threading.Timer(0.05, model.go.set).start()
    worker.close()
    assert not worker.is_alive() and model.runs == [1, 4]
    assert promises[2].done()
