"""Steps on batches of changing length: one block with room for more serves lengths that were never seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.eager.recorded.pending import recorder
from fluidjax.eager.sequences import blocks, guests, kinds

dg, layers = fluid.dygraph, fluid.layers
WIDTH = 4


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks with room are made for the second length."""
    monkeypatch.setattr(blocks, "PRICE", 0.0)


@pytest.fixture
def compiled() -> Iterator[list[int]]:
    """How often XLA compiled."""
    count = [0]

    def listen(event: str, _: float, **__: Any) -> None:
        count[0] += event.endswith("backend_compile_duration")

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield count
    jax.monitoring.unregister_event_duration_listener(listen)


class Attention(dg.Layer):
    """Words [n, t] attend to each other; padding has the number 0."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.norm = dg.Embedding([20, WIDTH]), dg.LayerNorm(WIDTH)
        self.key, self.value, self.out = dg.Linear(WIDTH, WIDTH), dg.Linear(WIDTH, WIDTH), dg.Linear(WIDTH, 20)

    def attend(self, x: Any, y: Any, bias: Any) -> Any:
        weights = layers.softmax(layers.matmul(self.key(x), y, transpose_y=True) + bias)
        return self.norm(x + layers.matmul(weights, self.value(y)))


class Encoder(Attention):
    """The mean loss over all words."""

    rate = 0.0

    def forward(self, words: Any) -> tuple[Any, Any]:
        bias = layers.unsqueeze(layers.cast(words == layers.zeros_like(words), "float32") * -1e9, [1])
        x = self.words(words)
        x = self.attend(x, x, bias)
        if self.rate:
            x = layers.dropout(x, self.rate)
        logits = self.out(x)
        return layers.mean(layers.softmax_with_cross_entropy(logits, layers.unsqueeze(words, [2]))), logits


class Dropping(Encoder):
    """With draws for each word."""

    rate = 0.4


class Weighing(Encoder):
    """The mean of smoothed losses over the words that count, whose weights and labels are fed as one column."""

    def forward(self, words: Any) -> tuple[Any, Any]:
        column = words.numpy().reshape(-1, 1)
        label, weight = dg.to_variable(column), dg.to_variable((column != 0).astype("float32"))
        x = self.words(words)
        x = self.attend(x, x, 0.0 * layers.reduce_sum(x))
        logits = self.out(layers.reshape(x, [-1, WIDTH]))
        smooth = layers.label_smooth(layers.one_hot(label, 20), epsilon=0.1)
        losses = layers.softmax_with_cross_entropy(logits, smooth, soft_label=True) * weight
        return layers.reduce_sum(losses) / layers.reduce_sum(weight), logits


class Counting(Encoder):
    """With sizes of the batch among the attributes of ops."""

    def forward(self, words: Any) -> tuple[Any, Any]:
        rows, length = words.shape
        x = self.words(words)
        x = self.attend(x, x, layers.fill_constant([rows, length, length], "float32", 0.0))
        logits = layers.reshape(self.out(x), [rows * length, 20])
        loss = layers.softmax_with_cross_entropy(logits, layers.reshape(words, [rows * length, 1]))
        return layers.reduce_sum(loss) / float(length), logits


class Ending(Encoder):
    """With what is at the last place, wherever that is."""

    def forward(self, words: Any) -> tuple[Any, Any]:
        x = self.words(words)
        x = self.attend(x, x, 0.0 * layers.reduce_sum(x))
        logits = self.out(2.0 * x[:, -1])
        return layers.mean(layers.softmax_with_cross_entropy(logits, words[:, -1:])), logits


class Diverging(Encoder):
    """With an op that needs exact sizes."""

    def forward(self, words: Any) -> tuple[Any, Any]:
        logits = self.out(self.norm(self.words(words)))
        target = layers.softmax(0.5 * layers.reverse(logits, [1]))
        return layers.reduce_sum(layers.kldiv_loss(logits, target, "mean")), logits


class Translating(Attention):
    """Words of one sentence attend to those of another."""

    def forward(self, words: Any, others: Any) -> tuple[Any, Any]:
        x, y = self.words(words), self.words(others)
        bias = layers.unsqueeze(layers.cast(others == layers.zeros_like(others), "float32") * -1e9, [1])
        logits = self.out(self.attend(self.attend(x, x, 0.0 * layers.reduce_sum(x)), y, bias))
        return layers.mean(layers.softmax_with_cross_entropy(logits, layers.unsqueeze(words, [2]))), logits


def sentences(length: int, rows: int = 3) -> np.ndarray:
    words = np.random.RandomState(length).randint(1, 20, [rows, length])
    words[1, length - length // 3 :] = 0
    return words.astype("int64")


class Training:
    """Steps of a net, its losses and logits."""

    def __init__(self, kind: Callable[[], Any]) -> None:
        self.net, self.found = kind(), []
        for name, p in self.net.state_dict().items():
            p.set_value(np.random.RandomState(len(name)).uniform(-0.3, 0.3, p.shape).astype("float32"))
        self.adam = fluid.optimizer.Adam(0.02, parameter_list=self.net.parameters())

    def step(self, *lengths: int) -> None:
        loss, logits = self.net(*[dg.to_variable(sentences(n)) for n in lengths])
        loss.backward()
        self.adam.minimize(loss)
        self.net.clear_gradients()
        self.found += [loss.numpy(), logits.numpy()]
        recorder.blocks.wait()


def trained(kind: Callable[[], Any], lengths: Sequence[Any], *, in_blocks: bool) -> list[np.ndarray]:
    """Losses, logits, and the weights at the end."""
    fluid.set_flags({"FLAGS_eager_blocks": in_blocks})
    try:
        with dg.guard():
            fluid.default_startup_program().random_seed = fluid.default_main_program().random_seed = 5
            training = Training(kind)
            for each in lengths:
                training.step(*each)
            return [*training.found, *[p.numpy() for p in training.net.parameters()]]
    finally:
        fluid.set_flags({"FLAGS_eager_blocks": True})


def rooms() -> list[tuple[int, ...]]:
    """The rooms of blocks of whole steps, the latest first."""
    return [b.layout.rooms for k in {e.guest.kind for e in recorder.blocks._entries.values()} for b in k.blocks]


ONE = [(5,), (7,), (4,), (1,), (6,), (12,), (3,)]
ENDING = [(5,), (6,), (7,), (8,), (4,), (9,), (3,)]  # from the third on, where it is cut is an operand
TWO = [(5, 5), (6, 6), (7, 7), (4, 7), (8, 3), (3, 8)]


@pytest.mark.parametrize(
    ("kind", "lengths", "made"),
    [
        (Encoder, ONE, 2),
        (Dropping, ONE, 2),
        (Weighing, ONE, 2),
        (Counting, ONE, 0),
        (Diverging, ONE, 0),
        (Ending, ENDING, 2),
        (Translating, TWO, 2),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
@pytest.mark.usefixtures("at_once")
def test_numbers_are_those_of_single_ops(kind: Any, lengths: Any, made: int) -> None:
    expected = trained(kind, lengths, in_blocks=False)
    found = trained(kind, lengths, in_blocks=True)
    assert len(rooms()) == made
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-6)


@pytest.mark.usefixtures("at_once")
def test_a_new_length_compiles_nothing(compiled: list[int]) -> None:
    with dg.guard():
        training = Training(Encoder)
        for length in (5, 9, 7):  # a first step is not like others: it makes what the optimizer keeps
            training.step(length)
        (room,) = rooms()
        before, blocks_before = compiled[0], recorder.blocks.compilations
        for length in range(2, room[0] + 1):
            training.step(length)
        assert compiled[0] == before and recorder.blocks.compilations == blocks_before


def test_lengths_that_return_share_a_block_too() -> None:
    """Where ops cost so little that nothing is compiled at first sight."""
    with dg.guard():
        training = Training(Encoder)
        for length in (5, 7, 6):
            training.step(length)
        assert not rooms()
        training.step(5)
        training.step(5)
        assert len(rooms()) == 1
        compilations = recorder.blocks.compilations
        for length in (6, 7, 8, 6):
            training.step(length)
        assert recorder.blocks.compilations == compilations


@pytest.mark.usefixtures("at_once")
def test_a_length_that_comes_often_gets_a_block_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with dg.guard():
        training = Training(Encoder)
        for length in (12, 5, 9):
            training.step(length)
        assert len(rooms()) == 1
        compilations = recorder.blocks.compilations
        monkeypatch.setattr(guests, "PRICE", 0.0)
        training.step(5)
        training.step(5)
        assert recorder.blocks.compilations == compilations + 1


@pytest.mark.usefixtures("at_once")
def test_other_sizes_of_the_batch_alone_get_no_room() -> None:
    with dg.guard():
        net = dg.Linear(4, 3)
        for rows in (5, 3, 4, 5, 3, 4):
            out = layers.softmax(layers.relu(net(dg.to_variable(np.ones([rows, 4], "float32")))))
            assert layers.reduce_sum(out).numpy().shape == (1,)
            recorder.blocks.wait()
        assert not rooms()


@pytest.mark.usefixtures("at_once")
def test_so_many_rooms_and_no_more() -> None:
    with dg.guard():
        training = Training(Encoder)
        for length in (2, 3, 30, 60, 90, 130, 180):
            training.step(length)
        assert len(rooms()) == kinds._BLOCKS


@pytest.mark.usefixtures("at_once")
def test_what_was_given_stays_as_it_was() -> None:
    with dg.guard():
        training = Training(Encoder)
        given = [dg.to_variable(sentences(n)) for n in (5, 7, 6, 6)]
        for words in given:
            loss, logits = training.net(words)
            loss.backward()
            assert logits.numpy().shape == (*words.shape, 20)
        assert len(rooms()) == 1
        for n, words in zip((5, 7, 6, 6), given, strict=True):
            np.testing.assert_array_equal(words.numpy(), sentences(n))


@pytest.mark.usefixtures("at_once")
def test_labels_out_of_range_are_refused_with_room() -> None:
    with dg.guard():
        training = Training(Encoder)
        for length in (5, 7, 6):
            training.step(length)
        assert len(rooms()) == 1
        words = dg.to_variable(np.full([3, 4], 3, "int64"))
        with pytest.raises(fluid.core.EnforceNotMet, match="21"):
            logits = training.net(words)[1]
            layers.mean(layers.softmax_with_cross_entropy(logits, layers.unsqueeze(words + 18, [2]))).numpy()
