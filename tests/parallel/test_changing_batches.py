"""Batches of sequences whose lengths change, shared by several devices: few steps are compiled for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers
from fluidjax.execution.feeding.feed import Feeder
from fluidjax.execution.runs.prepared import compilations

pytestmark = pytest.mark.usefixtures("compiled_quickly")
BATCHES, SAMPLES, LAST = 30, 8, 7


def _sequences(rng: np.random.Generator, lengths: list[int]) -> fluid.LoDTensor:
    words = rng.integers(0, 50, (sum(lengths), 1))
    return fluid.create_lod_tensor(words, [lengths], fluid.CPUPlace())


def _changing(rng: np.random.Generator, samples: int, most: int = 12) -> fluid.LoDTensor:
    return _sequences(rng, rng.integers(2, most, samples).tolist())


def tags() -> tuple[Any, Any]:
    """Texts, each with a right tag and three wrong ones, as in a ranking by margin.

    The number of scores follows from the tags', which an op compares with that of the texts.
    """
    text, right, wrong = (fluid.data(n, [None, 1], "int64", lod_level=1) for n in ("text", "right", "wrong"))
    words = layers.sequence_pool(fluid.embedding(text, [50, 6], param_attr="words"), "max")
    of_right, of_wrong = (layers.squeeze(fluid.embedding(n, [50, 6], param_attr="tags"), [1]) for n in (right, wrong))
    good = layers.cos_sim(of_right, layers.fc(layers.squeeze(words, [1]), 6, param_attr="w0"))
    repeated = layers.sequence_expand_as(layers.fc(layers.squeeze(words, [1]), 6, param_attr="w0"), of_wrong)
    bad = layers.reduce_max(layers.sequence_reshape(layers.cos_sim(of_wrong, repeated), 3), 1, keep_dim=True)
    margin = layers.fill_constant([layers.shape(good)[0], 1], "float32", 0.1)

    def feed(rng: np.random.Generator, samples: int) -> dict[str, Any]:
        shares = {"right": _sequences(rng, [1] * samples), "wrong": _sequences(rng, [3] * samples)}
        return {"text": _changing(rng, samples), **shares}

    return layers.mean(layers.elementwise_add(layers.elementwise_sub(margin, good), bad)), feed


def pairs() -> tuple[Any, Any]:
    """Two ragged inputs, one of them of much more varied lengths, and a dense one."""
    a, b = (fluid.data(n, [None, 1], "int64", lod_level=1) for n in "ab")
    y = fluid.data("y", [None, 1], "float32")
    pooled = [layers.sequence_pool(fluid.embedding(n, [50, 6]), "average") for n in (a, b)]
    loss = layers.mean(layers.square_error_cost(layers.fc(pooled, 1, num_flatten_dims=1), y))

    def feed(rng: np.random.Generator, samples: int) -> dict[str, Any]:
        y = rng.normal(size=(samples, 1)).astype("float32")
        return {"a": _changing(rng, samples), "b": _changing(rng, samples, 40), "y": y}

    return loss, feed


def train(net: Any, devices: int, feeds: list[dict[str, Any]]) -> tuple[list[np.ndarray], int]:
    """The losses of all devices in each step, and how often the program was compiled."""
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    main.random_seed = startup.random_seed = 7  # rooms follow from the sizes alone, not from times
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(scope):
        loss, _ = net()
        fluid.optimizer.Adagrad(0.1).minimize(loss)
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        several = fluid.CompiledProgram(main).with_data_parallel(loss.name, places=fluid.cpu_places(devices))
        losses = [exe.run(several, feed, [loss])[0] for feed in feeds]
    return losses, compilations(main)


@pytest.fixture
def exact() -> Iterator[None]:
    """No feed gets room for more."""
    values = Feeder.values
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Feeder, "values", lambda self, names, feed, **_: values(self, names, feed, exact=True))
        yield


def batches(net: Any, rng: np.random.Generator) -> list[dict[str, Any]]:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        _, feed = net()
    return [feed(rng, LAST if i == BATCHES - 1 else SAMPLES) for i in range(BATCHES)]


@pytest.mark.parametrize("devices", [1, 2, 4])
@pytest.mark.parametrize("net", [tags, pairs])
def test_few_steps_are_compiled(net: Any, devices: int, rng: np.random.Generator) -> None:
    """30 batches of changing lengths, the last of other shares."""
    _, count = train(net, devices, batches(net, rng))
    assert count <= 4


@pytest.mark.parametrize("net", [tags, pairs])
def test_room_for_more_changes_no_loss(net: Any, rng: np.random.Generator, request: pytest.FixtureRequest) -> None:
    feeds = batches(net, rng)[-4:]
    found, _ = train(net, 2, feeds)
    request.getfixturevalue("exact")
    wanted, _ = train(net, 2, feeds)
    for a, b in zip(found, wanted, strict=True):
        assert a.shape == (2,)
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_more_scores_than_texts_are_refused(rng: np.random.Generator) -> None:
    """Tags that were three to each text are no longer: what the padded rows of both hold is not compared."""
    feeds = batches(tags, rng)[:3]
    feeds[2]["wrong"] = _sequences(rng, [3, 6, 3, 3, 6, 3, 3, 3])
    with pytest.raises(fluid.core.EnforceNotMet, match="elementwise_add"):
        train(tags, 2, feeds)
