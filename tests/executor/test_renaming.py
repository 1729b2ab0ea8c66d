"""A net built twice in one process is compiled once, though ``unique_name`` has counted on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fluidjax as fluid
from fluidjax.execution.executables import kept
from fluidjax.execution.executables.renaming import Renaming
from fluidjax.execution.executables.shared import Shared
from lowering.errors import InvalidArgumentError
from lowering.program import BlockView, OpView, ProgramView, VarView
from tests.executor.conftest import ragged

layers = fluid.layers
ROWS = np.linspace(-1, 1, 24, dtype=np.float32).reshape(6, 4)
DENSE = {"ids": np.array([[0], [3], [7]], np.int64), "x": ROWS[:3]}


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Programs share executables, as in a process of their own."""
    monkeypatch.setattr(kept, "shared", Shared())
    with fluid.unique_name.guard():
        yield


class Net:
    """A net with the names that come next, trained for some steps.

    Attributes:
        fetched: what each step fetched.
        compilations: how often its programs were compiled.
        names: of its parameters.
    """

    def __init__(self, build: Callable[[], list[Any]], feed: dict[str, Any], steps: int = 2, devices: int = 0):
        self.main, self.startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
        self.main.random_seed = self.startup.random_seed = 7
        with fluid.program_guard(self.main, self.startup):
            fetches = build()
        self.names = [p.name for p in self.main.all_parameters()]
        run: Any = self.main
        if devices:
            run = fluid.CompiledProgram(self.main).with_data_parallel(
                loss_name=fetches[0].name, places=fluid.cpu_places(devices)
            )
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(self.startup, scope=scope)
        self.fetched = [np.array(a) for _ in range(steps) for a in executor.run(run, feed, fetches, scope=scope)]

    @property
    def compilations(self) -> int:
        caches = [p.__dict__["_prepared_cache"].values() for p in (self.main, self.startup)]
        return sum(prepared.compilations for cache in caches for prepared in cache)


def trained() -> list[Any]:
    """Its noise has no seed of its own."""
    ids, x = fluid.data("ids", [None, 1], "int64"), fluid.data("x", [None, 4], "float32")
    noisy = layers.elementwise_add(x, layers.gaussian_random([4]))
    hidden = layers.dropout(layers.concat([layers.embedding(ids, [9, 4]), noisy], axis=1), 0.3)
    loss = layers.mean(layers.fc(layers.fc(hidden, 5, act="tanh"), 1))
    fluid.optimizer.Adam(0.1).minimize(loss)
    return [loss, hidden]


def recurrent() -> list[Any]:
    x = fluid.data("x", [None, 4], "float32", lod_level=1)
    loss = layers.mean(layers.sequence_pool(layers.dynamic_gru(layers.fc(x, 12), 4), "max"))
    fluid.optimizer.SGD(0.1).minimize(loss)
    return [loss]


def looping() -> list[Any]:
    """Writes more elements than an array has room for at first: a buffer named like the array overflows."""
    i, n = layers.fill_constant([1], "int64", 0), fluid.data("n", [1], "int64")
    array = layers.array_write(layers.fill_constant([1], "float32", 0.0), i)
    more = layers.less_than(i, n)
    loop = layers.While(more)
    with loop.block():
        last = layers.array_read(array, i)
        layers.increment(i)
        layers.array_write(layers.scale(last, 1.0, 1.0), i, array=array)
        layers.less_than(i, n, cond=more)
    return [layers.array_read(array, i)]


def statically_recurrent() -> list[Any]:
    """Its op lists names of variables among its attributes."""
    x = layers.reshape(fluid.data("x", [3, 4], "float32"), [3, 1, 4])
    rnn = layers.StaticRNN()
    with rnn.step():
        word, memory = rnn.step_input(x), rnn.memory(shape=[-1, 4], batch_ref=x, ref_batch_dim_idx=1)
        hidden = layers.fc([word, memory], 4, act="tanh")
        rnn.update_memory(memory, hidden)
        rnn.step_output(hidden)
    outputs: Any = rnn()
    loss = layers.mean(outputs)
    fluid.optimizer.SGD(0.1).minimize(loss)
    return [loss]


CASES: dict[str, tuple[Callable[[], list[Any]], dict[str, Any]]] = {
    "trained": (trained, DENSE),
    "recurrent": (recurrent, {"x": ragged(ROWS, [1, 3, 2])}),
    "looping": (looping, {"n": np.array([40], np.int64)}),
    "statically_recurrent": (statically_recurrent, {"x": DENSE["x"]}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_net_built_again_is_not_compiled_again(name: str) -> None:
    """It draws by its own names: it computes what it computes when nothing of the first one is known."""
    build, feed = CASES[name]
    first = Net(build, feed)
    begun = dict(fluid.unique_name.generator.ids)
    second = Net(build, feed)
    assert first.compilations > 0 and second.compilations == 0
    kept.shared.clear()
    with fluid.unique_name.guard():
        fluid.unique_name.generator.ids.update(begun)
        alone = Net(build, feed)
    assert alone.compilations == first.compilations and alone.names == second.names
    for one, other in zip(second.fetched, alone.fetched, strict=True):
        np.testing.assert_array_equal(one, other)


def test_nets_of_other_names_draw_other_numbers() -> None:
    first, second = Net(trained, DENSE), Net(trained, DENSE)
    assert second.compilations == 0 and not set(first.names) & set(second.names)
    assert any((one != other).any() for one, other in zip(first.fetched, second.fetched, strict=True))


def test_devices_written_out_for_one_share_what_is_compiled() -> None:
    feed = {"ids": np.array([[0], [3], [7], [2]], np.int64), "x": ROWS[:4]}
    first = Net(trained, feed, devices=2)
    known = len(kept.shared._alive)
    second = Net(trained, feed, devices=2)
    assert known > 0 and len(kept.shared._alive) == known
    assert first.fetched[0].shape == second.fetched[0].shape


def test_the_message_of_a_fault_names_the_variable_of_the_net_at_hand() -> None:
    def build() -> list[Any]:
        ids = layers.elementwise_add(fluid.data("ids", [None, 1], "int64"), layers.fill_constant([1], "int64", 1))
        return [layers.mean(fluid.embedding(ids, [9, 8]))]

    found = []
    for _ in range(2):
        with pytest.raises(InvalidArgumentError) as raised:
            Net(build, {"ids": np.array([[11]], np.int64)})
        found += re.findall(r"'(elementwise_add_\d\.tmp_0)'", str(raised.value))
    assert set(found) == {"elementwise_add_0.tmp_0", "elementwise_add_1.tmp_0"}


@pytest.mark.parametrize(
    "change",
    [
        lambda x, y: layers.elementwise_sub(y, x),
        lambda x, y: layers.elementwise_sub(x, x),
        lambda x, y: layers.elementwise_sub(layers.relu(x), y),
    ],
)
def test_names_in_other_places_are_another_net(change: Callable[[Any, Any], Any]) -> None:
    def build(last: Callable[[Any, Any], Any]) -> list[Any]:
        x = fluid.data("x", [None, 4], "float32")
        return [last(layers.scale(x, 2.0), layers.scale(x, 3.0))]

    Net(lambda: build(lambda x, y: layers.elementwise_sub(x, y)), {"x": ROWS})
    assert Net(lambda: build(change), {"x": ROWS}).compilations == 1


def program(names: list[str], attribute: str = "") -> ProgramView:
    ops = tuple(OpView("relu", {"X": [n]}, {"Out": [n]}, {"note": attribute}, i) for i, n in enumerate(names))
    return ProgramView((BlockView(0, -1, ops, {n: VarView(n) for n in names}),))


@given(st.lists(st.from_regex(r"(fc|b)_[0-9]{1,2}(\.[wb]_[0-9])?(@GRAD)?", fullmatch=True), unique=True, min_size=1))
@settings(deadline=None)
def test_counting_anew_keeps_names_apart_and_what_belongs_to_them(names: list[str]) -> None:
    renaming = Renaming(program(names))
    counted = [renaming.counted(repr(name))[2:-2] for name in names]
    assert len(set(counted)) == len(names)
    for name, new in zip(names, counted, strict=True):
        assert re.sub(r"_\d+", "_", name) == re.sub(r"_\d+", "_", new)
    gradients = {n: c for n, c in zip(names, counted, strict=True) if n.endswith("@GRAD")}
    known = dict(zip(names, counted, strict=True))
    for name, new in gradients.items():
        forward = name.removesuffix("@GRAD")
        assert forward not in known or known[forward] + "@GRAD" == new


@given(st.lists(st.integers(0, 99), unique=True, min_size=4, max_size=4))
@settings(deadline=None)
def test_what_a_text_says_of_names_it_says_of_those_in_their_place(numbers: list[int]) -> None:
    one, other = Renaming(program(["fc_1", "fc_1.w_0", "fc_10"])), numbers
    own = Renaming(program([f"fc_{other[0]}", f"fc_{other[0]}.w_{other[1]}", f"fc_{other[2]}"]))
    parts = one.parts("rows of 'fc_10', fc_1.w_0 and fc_1@GRAD, not of xfc_1 or fc_100")
    assert parts is not None
    a, b, c = f"fc_{other[2]}", f"fc_{other[0]}.w_{other[1]}", f"fc_{other[0]}"
    assert own.text(parts) == f"rows of '{a}', {b} and {c}@GRAD, not of xfc_1 or fc_100"
    assert one.parts("no name") is None and one.parts("fc_7") is None


def test_a_text_that_is_no_name_here_is_none_elsewhere() -> None:
    """It may be a variable of the other program, which then means something else."""
    texts = [Renaming(p).counted(repr(p.blocks)) for p in (program(["a_5"], "a_0"), program(["a_0"], "a_0"))]
    assert texts[0] != texts[1]
