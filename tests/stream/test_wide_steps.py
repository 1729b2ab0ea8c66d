"""Recurrences over dims that change, and steps that read values with such dims: a step for each position."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers
from tests.stream.test_wide import Feed, train
from tests.stream.test_wide_sizes import LENGTHS, B, D, equal_to_exact_sizes, feeds_of, rows_of

pytestmark = pytest.mark.usefixtures("compiled_quickly")


class Cell(layers.RNNCell):
    """tanh(W [x, h]), of D numbers in float64."""

    def call(self, inputs: Any, states: Any) -> tuple[Any, Any]:
        state = layers.fc(layers.concat([inputs, states], 1), D, act="tanh")
        return layers.scale(state, 2.0), state

    @property
    def state_shape(self) -> list[int]:
        return [D]

    @property
    def state_dtype(self) -> str:
        return "float64"


class Attention(Cell):
    """``Cell`` that reads what another one left of its steps."""

    def call(self, inputs: Any, states: Any, read: Any, mask: Any) -> tuple[Any, Any]:  # type: ignore[override]
        scores = layers.matmul(layers.unsqueeze(layers.fc(states, D), [1]), read, transpose_y=True)
        weights = layers.softmax(layers.squeeze(scores, [1]) + mask)
        context = layers.squeeze(layers.matmul(layers.unsqueeze(weights, [1]), read), [1])
        output, state = super().call(layers.concat([inputs, context], 1), states)
        return [output, weights], state


def ended(reverse: bool) -> Callable[[], Sequence[Any]]:
    """Each sequence keeps its state from its end on."""

    def build() -> Sequence[Any]:
        x, rows = rows_of()
        length = fluid.data("length", [None], "int64")
        outputs, last = layers.rnn(Cell(), rows, sequence_length=length, is_reverse=reverse)
        return [layers.mean(layers.square(last)) + layers.mean(outputs), outputs, last]

    return build


def two_ways() -> Sequence[Any]:
    """Both directions, of rows that were themselves made by steps."""
    _, rows = rows_of()
    first, _ = layers.rnn(Cell(), rows)
    back, last = layers.rnn(Cell(), first, is_reverse=True)
    return [layers.mean(layers.square(layers.concat([first, back], 2))), back, last]


def without_states() -> Sequence[Any]:
    """Steps that carry nothing, each of which draws what it drops."""
    x, rows = rows_of()
    rows = layers.transpose(rows, [1, 0, 2])
    network = layers.StaticRNN()
    with network.step():
        row = network.step_input(rows)
        network.step_output(layers.dropout(layers.fc(row, D), 0.4, dropout_implementation="upscale_in_train"))
    return [layers.mean(layers.square(network())), x]


def attending() -> Sequence[Any]:
    """An encoder and a decoder with attention, each as long as the batch needs."""
    (x, rows), (_, others) = rows_of("x"), rows_of("y")
    encoded, last = layers.rnn(Cell(), rows, sequence_length=fluid.data("length", [None], "int64"))
    mask = layers.sequence_mask(fluid.data("length", [None], "int64"), maxlen=layers.shape(x)[1], dtype="float64")
    (decoded, weights), _ = layers.rnn(
        Attention(), others, initial_states=last, read=encoded, mask=layers.scale(mask, 1e9, -1e9)
    )
    return [layers.mean(layers.square(decoded)), decoded, weights]


def covering() -> Sequence[Any]:
    """A state that is itself as wide as what is read: it is compiled for each size."""
    x, rows = rows_of()
    state = layers.reduce_sum(rows, 2)
    rows = layers.transpose(rows, [1, 0, 2])
    network = layers.StaticRNN()
    with network.step():
        row = network.step_input(rows)
        before = network.memory(init=state)
        after = layers.elementwise_add(before, layers.reduce_sum(row, 1), axis=0)
        network.update_memory(before, after)
        network.step_output(after)
    return [layers.mean(layers.square(network())), x]


@pytest.mark.parametrize("build", [ended(False), ended(True)], ids=["forward", "backward"])
def test_sequences_end(
    build: Callable[[], Sequence[Any]], rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    equal_to_exact_sizes(monkeypatch, build, feeds_of(rng, LENGTHS, "length"), 2)


@pytest.mark.parametrize("build", [two_ways, without_states], ids=lambda f: f.__name__)
def test_steps(build: Callable[[], Sequence[Any]], rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    equal_to_exact_sizes(monkeypatch, build, feeds_of(rng, LENGTHS), 2)


def test_attention(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    equal_to_exact_sizes(monkeypatch, attending, feeds_of(rng, LENGTHS, "y", "length"), 3)


def test_a_wide_state_is_exact(rng: np.random.Generator) -> None:
    found = train(covering, feeds_of(rng, LENGTHS[:3]))
    assert found.compilations == 3


def test_a_stream_of_pairs_compiles_a_few_times(rng: np.random.Generator) -> None:
    feeds: list[Feed] = []
    for n, m in rng.integers(2, 51, (300, 2)).tolist():
        rows = {name: rng.normal(size=(B, k, D)) for name, k in (("x", n), ("y", m))}
        feeds.append({**rows, "length": rng.integers(1, n + 1, B)})
    assert train(attending, feeds).compilations <= 12


# --- loops that read values with such dims, or carry them, and their gradients ---------------------------------------


def attended(state: Any, rows: Any) -> Any:
    """A mean of rows, weighed by a state."""
    scores = layers.squeeze(layers.matmul(layers.unsqueeze(state, [1]), rows, transpose_y=True), [1])
    weights = layers.softmax(layers.relu(layers.scale(scores, 0.5)))
    return layers.squeeze(layers.matmul(layers.unsqueeze(weights, [1]), rows), [1])


def thrice(step: Callable[[Any, Any], Any], start: Callable[[Any], Any]) -> Callable[[], Sequence[Any]]:
    """A loop of three turns, each of which takes what the last one left, and reads the rows."""

    def build() -> Sequence[Any]:
        _, rows = rows_of()
        turn, end = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 3)
        _, found = layers.while_loop(
            lambda turn, _: layers.less_than(turn, end),
            lambda turn, state: [turn + 1, step(state, rows)],
            [turn, start(rows)],
        )
        return [layers.mean(layers.square(found)), found]

    return build


def refined(state: Any, rows: Any) -> Any:
    """A state that is as wide as the rows."""
    return layers.fc(state, D, num_flatten_dims=2, act="tanh", param_attr="w", bias_attr="b") + rows


def spelled() -> Sequence[Any]:
    """A sequence by ``DynamicRNN``, each step of which reads all rows."""
    _, rows = rows_of()
    words, first = fluid.data("words", [None, D], "float64", lod_level=1), layers.reduce_sum(rows, 1)
    network = layers.DynamicRNN()
    with network.block():
        word, before = network.step_input(words), network.memory(init=first)
        after = layers.elementwise_add(layers.fc([word, before], D, act="tanh"), layers.reduce_mean(rows, [0, 1]))
        network.update_memory(before, after)
        network.output(after)
    found = layers.sequence_pool(network(), "sum")
    return [layers.mean(layers.square(found)), found]


LOOPS = {
    "read": thrice(lambda state, rows: layers.fc(attended(state, rows), D, param_attr="w"), lambda rows: rows[:, 0]),
    "carried": thrice(refined, lambda rows: rows),
    "sequences": spelled,
}


@pytest.mark.parametrize("build", LOOPS.values(), ids=LOOPS)
def test_loops(build: Callable[[], Sequence[Any]], rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    feeds = feeds_of(rng, (3, 5, 8, 7))
    if build is spelled:
        feeds = [{**feed, "words": ragged(rng, rng.integers(1, 4, B).tolist())} for feed in feeds]
    equal_to_exact_sizes(monkeypatch, build, feeds, 2)


def test_branches(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """What either branch makes of the rows, and of their sum."""

    def build() -> Sequence[Any]:
        x, rows = rows_of()
        rising = layers.greater_than(layers.reduce_mean(x), layers.fill_constant([1], "float64", 0.0))
        dense = lambda: layers.fc(rows, D, num_flatten_dims=2, act="tanh")  # noqa: E731
        turned = layers.cond(rising, dense, lambda: layers.softmax(layers.relu(rows)))
        whole = layers.cond(rising, lambda: layers.reduce_sum(rows, 1), lambda: layers.reduce_mean(rows, 1))
        return [layers.mean(layers.square(turned)) + layers.mean(layers.square(whole)), turned, whole]

    equal_to_exact_sizes(monkeypatch, build, feeds_of(rng, (3, 5, 8, 7)), 2)


def ragged(rng: np.random.Generator, lengths: Sequence[int]) -> Any:
    """Rows of D numbers in sequences."""
    return fluid.create_lod_tensor(rng.normal(size=(sum(lengths), D)), [list(lengths)], fluid.CPUPlace())
