"""Converted functions run op by op at first, and are compiled once they recur."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import dygraph, layers
from fluidjax.base.errors import EnforceNotMet
from fluidjax.eager.functions.segments import RecordedStretch
from fluidjax.eager.recorded.pending import recorder
from fluidjax.eager.sequences.packs import Buffer, Piece
from fluidjax.eager.values import Value
from fluidjax.framework import program_view
from lowering.values import SelectedRows
from tests.dygraph.to_static.helpers import same

IDS = np.array([[1, 2, 3], [0, 4, 1]], "int64")
ROWS = np.ones([2, 3], "float32")


class Net(dygraph.Layer):
    """Ids, batch statistics, random numbers, a result that is another one's input."""

    def __init__(self):
        super().__init__()
        self.table = dygraph.Embedding([5, 4])
        self.norm = dygraph.BatchNorm(4)
        self.linear = dygraph.Linear(4, 2)

    @dygraph.declarative
    def forward(self, ids):
        x = self.norm(layers.reshape(self.table(ids), [-1, 4]))
        y = layers.dropout(self.linear(x), 0.5)
        return layers.reduce_mean(layers.square(y)), layers.reshape(y, [-1, 2])


class Looping(dygraph.Layer):
    """Ops before and behind a loop on a variable."""

    def __init__(self):
        super().__init__()
        self.first, self.last = dygraph.Linear(3, 3), dygraph.Linear(3, 1)

    @dygraph.declarative
    def forward(self, x):
        y = self.first(x)
        while layers.reduce_sum(y * y) > 1.0:
            y = y * 0.5
        return layers.reduce_mean(self.last(y)), y


@contextlib.contextmanager
def compiled_at_first_sight() -> Iterator[None]:
    """Context manager: as programs run without blocks."""
    fluid.set_flags({"FLAGS_eager_blocks": False})
    try:
        yield
    finally:
        fluid.set_flags({"FLAGS_eager_blocks": True})


def train(net: type[dygraph.Layer], batches: list[np.ndarray]) -> tuple[list[np.ndarray], str, int]:
    """Train until a batch fails: (results, gradients and state; the error; the number of compilations)."""
    dygraph.ProgramTranslator.reset()
    found, said = [], ""
    with dygraph.guard():
        fluid.default_startup_program().random_seed = fluid.default_main_program().random_seed = 3
        model = net()
        for p in model.parameters():
            p.set_value(np.linspace(-0.5, 0.6, int(np.prod(p.shape)), dtype="float32").reshape(p.shape))
        for batch in batches:
            try:
                loss, y = model(dygraph.to_variable(batch))
            except EnforceNotMet as error:
                said = str(error)
                break
            loss.backward()
            found += [loss.numpy(), y.numpy(), *[p.gradient() for p in model.parameters()]]
        found += [p.numpy() for p in model.state_dict().values()]
    recorder.blocks.wait()
    _, (_, partial) = dygraph.ProgramTranslator().get_program_cache().last()
    dygraph.ProgramTranslator.reset()
    return found, said, partial.compilations


@pytest.mark.parametrize(
    ("net", "batches", "compilations"),
    [(Net, [IDS, IDS, IDS + 9], (3, 2)), (Looping, [ROWS, ROWS + 1], (2, 2))],
)
def test_results_and_errors_are_those_of_compiled_ops(net, batches, compilations) -> None:
    found, said, count = train(net, batches)
    with compiled_at_first_sight():
        expected, sentence, at_once = train(net, batches)
    assert said == sentence
    assert ("lookup_table" in said) == (len(batches) == 3)
    assert (count, at_once) == compilations  # of forward and backward; once more to say what is wrong
    for one, two in zip(found, expected, strict=True):
        same(one, two)


def test_vectors_stay_in_their_buffer() -> None:
    @dygraph.declarative
    def shifted(x, shift):
        return x + shift, shift

    with dygraph.guard():
        shift = dygraph.to_variable(ROWS[0])
        shift._held = Value(Piece(Buffer(np.arange(5, dtype="float32"), 1), (1, 4)))
        result, same_shift = shifted(dygraph.to_variable(ROWS), shift)
        assert shift._held.array.__class__ is Piece
        np.testing.assert_array_equal(result.numpy(), ROWS + np.float32([1, 2, 3]))
        np.testing.assert_array_equal(same_shift.numpy(), [1, 2, 3])
    dygraph.ProgramTranslator.reset()


def test_results_declared_sparse_are_sparse() -> None:
    program = fluid.Program()
    block = program.global_block()
    out = block.create_var(name="out", shape=[3, 2], dtype="float32", type=fluid.core.VarDesc.VarType.SELECTED_ROWS)
    block.append_op("fill_constant", outputs={"Out": out}, attrs={"shape": [3, 2], "value": 1.0, "dtype": out.dtype})
    view = program_view(program)
    stretch = RecordedStretch(view, view.blocks[0].ops, ["out"], platform="cpu", capacities={}, checked=False)
    assert isinstance(stretch.run({}, None)["out"], SelectedRows)


def test_a_net_made_again_compiles_nothing() -> None:
    def trained() -> int:
        train(Net, [IDS] * 4)
        return recorder.blocks.compilations

    trained()
    twice = trained()  # parameters are made a second time here, which is a block of its own
    assert 0 < twice == trained()
