"""State that stays with a program between its runs, and whoever changes it in the scope meanwhile."""

import copy
import gc
import pickle
import weakref
from collections.abc import Iterator

import jax
import numpy as np
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

import fluidjax as fluid
from fluidjax.base.values import Resident
from fluidjax.execution.runs import whole
from fluidjax.execution.runs.prepared import Prepared
from fluidjax.execution.steps.buffers import Buffers, in_order, joined
from lowering.errors import LoweringError
from tests.conftest import seed_of
from tests.executor.conftest import Net

SHAPES = {"a": [3], "b": [3], "p": [40, 2], "q": [40, 2]}  # vectors share a buffer, matrices do not
ONES = {name: np.ones(shape, np.float32) for name, shape in SHAPES.items()}


def over(scope: fluid.Scope, *ops: tuple) -> Net:
    """A program of ops (type, inputs, out) over the four variables."""
    net = Net()
    net.scope = scope
    for name, shape in SHAPES.items():
        net.block.create_var(name=name, shape=shape, dtype="float32", persistable=True)
    for type, inputs, out, attrs in ops:
        net.op(type, inputs, out, **attrs)
    return net


def doubling(scope: fluid.Scope) -> Net:
    return over(scope, *(("scale", {"X": [n]}, n, {"scale": 2.0}) for n in SHAPES))


def filled(parent: fluid.Scope | None = None) -> fluid.Scope:
    scope = fluid.Scope() if parent is None else parent.new_scope()
    for name, value in ONES.items():
        scope.var(name).get_tensor().set(value, fluid.CPUPlace())
    return scope


def held(scope: fluid.Scope) -> dict[str, float]:
    return {name: float(np.array(scope.find_var(name).get_tensor()).reshape(-1)[-1]) for name in SHAPES}


@pytest.fixture
def gathered(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of variables that runs looked up."""
    names: list[str] = []
    original = whole.gather_plain

    def spy(scope, wanted, *how):
        names.extend(wanted)
        return original(scope, wanted, *how)

    monkeypatch.setattr(whole, "gather_plain", spy)
    yield names


def test_a_run_that_nothing_disturbed_visits_no_variable(gathered):
    net = doubling(filled())
    net.run()
    assert sorted(gathered) == sorted(SHAPES)
    gathered.clear()
    net.run()
    net.run()
    assert held(net.scope) == dict.fromkeys(SHAPES, 8)
    assert not gathered


def test_names_that_are_nowhere_do_not_disturb(gathered):
    """A loop's gradient asks for gradients that nothing computes."""
    layers = fluid.layers
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, startup):
        step, limit = (layers.fill_constant([1], "int64", n) for n in (0, 3))
        step.stop_gradient = limit.stop_gradient = True
        memory = layers.array_write(layers.ones([2, 3], "float32"), step)
        running = layers.less_than(step, limit)
        with layers.While(running).block():
            hidden = layers.fc(layers.array_read(memory, step), 3)
            layers.increment(step)
            layers.array_write(hidden, step, memory)
            layers.less_than(step, limit, cond=running)
        loss = layers.mean(layers.array_read(memory, limit))
        fluid.optimizer.SGD(0.1).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup, scope=scope)
    exe.run(main, fetch_list=[loss], scope=scope)
    assert prepared_of(main)._whole.layout.others
    gathered.clear()
    exe.run(main, fetch_list=[loss], scope=scope)
    assert not gathered


def test_state_that_the_first_run_makes_is_read_by_the_next():
    """As evaluators count: their sums start from a variable that no startup program made."""
    net = over(filled(), ("scale", {"X": ["a"]}, "a", {"scale": 2.0}))
    net.block.create_var(name="count", shape=[3], dtype="float32", persistable=True)
    net.op("sum", {"X": ["count", "b"]}, "count")
    net.op("scale", {"X": ["p"]}, "p", scale=2.0)
    for run in range(3):
        net.run()
        assert net.get("count").tolist() == [run + 1] * 3
        assert net.get("a").tolist() == [2 ** (run + 1)] * 3


def prepared_of(program: fluid.Program) -> Prepared:
    return next(iter(program.__dict__["_prepared_cache"].values()))


def test_reading_does_not_disturb(gathered):
    net = doubling(filled())
    net.run()
    gathered.clear()
    assert held(net.scope) == dict.fromkeys(SHAPES, 2)
    assert net.scope.find_var("a").get_tensor().shape() == [3]
    net.run()
    assert not gathered


def test_vectors_share_a_buffer():
    net = doubling(filled())
    net.run()
    tensors = [net.scope.find_var(name).get_tensor() for name in SHAPES]
    assert all(isinstance(t._stored, Resident) for t in tensors)
    assert [b.shape for b in tensors[0]._stored._state.replaced] == [(40, 2), (40, 2), (6,)]


@pytest.mark.parametrize("name", SHAPES)
def test_a_value_set_between_runs_is_seen(name):
    net = doubling(filled())
    net.run()
    net.scope.find_var(name).get_tensor().set(10 * ONES[name], fluid.CPUPlace())
    net.run()
    assert held(net.scope) == {n: 20 if n == name else 4 for n in SHAPES}


@pytest.mark.parametrize("name", SHAPES)
def test_a_kept_value_set_between_runs_is_seen(name):
    net = over(filled(), ("scale", {"X": [name]}, "out", {"scale": 2.0}))
    assert net.run(fetch=["out"])[0].flat[0] == 2
    net.scope.find_var(name).get_tensor().set(5 * ONES[name], fluid.CPUPlace())
    assert net.run(fetch=["out"])[0].flat[0] == 10


def test_a_value_that_the_user_set_is_moved_once():
    net = over(filled(), ("scale", {"X": ["p"]}, "out", {"scale": 2.0}))
    net.block.create_var(name="array", type=fluid.core.VarDesc.VarType.LOD_TENSOR_ARRAY, persistable=True)
    net.block.append_op(type="lod_array_length", inputs={"X": ["array"]}, outputs={"Out": ["out"]})
    net.scope.var("array").get_lod_tensor_array().append(net.scope.find_var("p").get_tensor())
    net.run(fetch=["out"])  # the array is not plain, so each run looks everything up
    first = net.scope.find_var("p").get_tensor()._stored
    net.run(fetch=["out"])
    assert not isinstance(first, np.ndarray)
    assert net.scope.find_var("p").get_tensor()._stored is first


@pytest.mark.parametrize("name", ["a", "p"])
def test_an_element_set_between_runs_is_seen(name):
    net = doubling(filled())
    net.run()
    net.scope.find_var(name).get_tensor()._set_float_element(0, 7.0)
    net.run()
    assert net.get(name).reshape(-1)[:2].tolist() == [14.0, 4.0]


def test_a_lod_set_between_runs_is_seen():
    net = over(filled(), ("scale", {"X": ["p"]}, "p", {"scale": 2.0}))
    net.block.create_var(name="column", shape=[-1, 1], dtype="float32", lod_level=1, persistable=True)
    net.set("column", np.ones((40, 1), np.float32))
    net.op("sequence_softmax", {"X": ["column"]}, "out")
    column, p = (net.scope.find_var(n).get_tensor() for n in ("column", "p"))
    for lengths in ([40], [10, 30]):
        column.set_recursive_sequence_lengths([lengths])
        out = net.run(fetch=["out"], return_numpy=False)[0]
        np.testing.assert_allclose(np.array(out)[-1], 1 / lengths[-1], rtol=1e-6)
    p.set_recursive_sequence_lengths([[20, 20]])
    net.run(fetch=["out"], return_numpy=False)
    assert p.recursive_sequence_lengths() == [[20, 20]]
    assert np.array(p)[0, 0] == 8


def test_an_erased_variable_is_missed():
    net = doubling(filled())
    net.run()
    net.scope.erase(["a"])
    with pytest.raises(LoweringError, match="'a'"):
        net.run()
    net.scope.var("a").get_tensor().set(ONES["a"], fluid.CPUPlace())
    assert held(net.scope) == {"a": 1, "b": 2, "p": 2, "q": 2}


def test_a_local_variable_hides_the_one_around():
    outer = filled()
    net = doubling(outer.new_scope())
    net.run()
    net.scope.var("a").get_tensor().set(ONES["a"] * 5, fluid.CPUPlace())
    net.run()
    assert held(net.scope) == {"a": 10, "b": 4, "p": 4, "q": 4}
    assert held(outer) == {"a": 2, "b": 4, "p": 4, "q": 4}


def test_a_dropped_scope_no_longer_sees_the_one_around():
    outer = filled()
    net = doubling(outer.new_scope())
    net.run()
    outer.drop_kids()
    with pytest.raises(LoweringError, match="'a'"):
        net.run()
    assert held(outer) == dict.fromkeys(SHAPES, 2)


def test_one_program_over_two_scopes():
    first, second = filled(), filled()
    net = doubling(first)
    for _ in range(2):
        for net.scope in (first, second, second):
            net.run()
    assert held(first) == dict.fromkeys(SHAPES, 4)
    assert held(second) == dict.fromkeys(SHAPES, 16)


def test_a_failed_run_leaves_the_state():
    net = doubling(filled())
    net.data("x", [-1, 3])
    net.op("elementwise_add", {"X": ["x"], "Y": ["a"]}, "sum")
    net.run({"x": np.ones((2, 3), np.float32)})
    with pytest.raises(LoweringError, match="elementwise_add"):
        net.run({"x": np.ones((2, 4), np.float32)})
    assert held(net.scope) == dict.fromkeys(SHAPES, 2)
    net.run({"x": np.ones((2, 3), np.float32)})
    assert held(net.scope) == dict.fromkeys(SHAPES, 4)


def test_a_vector_that_comes_back_in_another_shape():
    net = doubling(filled())
    net.op("reshape", {"X": ["a"]}, "a", shape=[3, 1])
    net.run()
    assert net.get("a").shape == (3, 1)
    net.run()
    assert held(net.scope) == dict.fromkeys(SHAPES, 4)


def test_state_goes_with_its_scope():
    net = doubling(filled())
    net.run()
    state = weakref.ref(net.scope.find_var("p").get_tensor()._stored._state)
    gc.disable()
    try:
        net.scope = fluid.Scope()
        assert state() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("name", ["a", "p"])
@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))])
def test_a_copied_tensor_has_a_value_of_its_own(name, again):
    net = doubling(filled())
    net.run()
    twin = again(net.scope.find_var(name).get_tensor())
    net.run()
    np.testing.assert_array_equal(np.array(twin), 2 * ONES[name])


def test_nothing_is_packed_beside_a_large_array():
    vectors = [np.zeros(3, np.float32), np.ones(2, np.float32)]
    table = np.zeros((1 << 18, 1), np.float32)
    assert Buffers.of([*vectors, table]).packs == ((0, 1),)
    assert Buffers.of([*vectors, np.zeros(((1 << 18) + 1, 1), np.float32)]).packs == ()


@pytest.mark.parametrize(("layers", "alone"), [(12, 0), (13, 13)])
def test_vectors_of_layers_that_repeat_pass_alone(layers, alone):
    """Slices of one vector would make a kernel of its own of each layer's."""
    biases, powers = [np.zeros(16, np.float32)] * layers, [np.zeros(1, np.float32)] * 20
    buffers = Buffers.of([*biases, *powers, np.zeros(5, np.float32)])
    assert len(buffers.singles) == alone and [len(p) for p in buffers.packs] == [layers - alone + 21]


def test_packing_by_dtype():
    arrays = [np.ones(3), np.ones(2, np.float32), np.ones((2, 2)), np.zeros(1), np.ones(5000), np.ones(1, np.int64)]
    packing = Buffers.of(arrays)
    assert (packing.singles, packing.packs) == ((1, 2, 4, 5), ((3, 0),))
    whole = packing.join(arrays)
    assert whole[-1].tolist() == [0, 1, 1, 1]
    for array, again in zip(arrays, packing.split(whole), strict=True):
        np.testing.assert_array_equal(array, again)
    assert Buffers.of(arrays, pack=False).singles == tuple(range(6))


def test_joined_inside_a_step_as_outside(rng):
    """More single numbers than one kernel computes, among vectors, one of which is empty."""
    sizes = rng.permutation([1] * 67 + [0, 2, 3])
    vectors = in_order([rng.random(n, np.float32) for n in sizes], np.size)
    np.testing.assert_array_equal(jax.jit(joined)(vectors), np.concatenate(vectors))


def test_one_kernel_advances_all_powers():
    powers = [np.float32([0.9]), np.float32([0.999])] * 6
    buffers = Buffers.of([np.zeros(3, np.float32), *powers])

    def step(*whole):
        vector, *powers = buffers.split(whole)
        return buffers.join_traced([vector, *[power * np.float32(0.9) for power in powers]])

    with jax.default_device(jax.devices("cpu")[0]):
        text = jax.jit(step).lower(np.zeros(15, np.float32)).compile().as_text()
    assert text.partition("ENTRY")[2].count(" fusion(") == 1


PROGRAMS = (
    ((("scale", {"X": ["a"]}, "a", {"scale": 2.0}), ("scale", {"X": ["p"]}, "p", {"bias": 1.0}))),
    ((("assign", {"X": ["a"]}, "b", {}), ("assign", {"X": ["p"]}, "q", {}))),
    (
        ("elementwise_add", {"X": ["a"], "Y": ["b"]}, "a", {}),
        ("elementwise_add", {"X": ["q"], "Y": ["p"]}, "q", {}),
        ("scale", {"X": ["b"]}, "b", {"bias": 3.0}),
    ),
    ((("elementwise_sub", {"X": ["p"], "Y": ["q"]}, "out", {}), ("assign", {"X": ["b"]}, "a", {}))),
)


def effect(number: int, v: dict[str, float]) -> None:
    """What each of PROGRAMS does to the values."""
    if number == 0:
        v.update(a=2 * v["a"], p=v["p"] + 1)
    elif number == 1:
        v.update(b=v["a"], q=v["p"])
    elif number == 2:
        v.update(a=v["a"] + v["b"], q=v["q"] + v["p"], b=v["b"] + 3)
    else:
        v.update(a=v["b"])


ACTIONS = st.one_of(
    st.tuples(st.just("run"), st.integers(0, len(PROGRAMS) - 1)),
    st.tuples(st.just("set"), st.sampled_from(sorted(SHAPES))),
    st.tuples(st.just("share"), st.sampled_from(["ab", "ba", "pq", "qp"])),
)
# Compiled once for all examples.
_NETS = [over(fluid.Scope(), *ops) for ops in PROGRAMS]


@seed(seed_of("test_programs_and_the_user_take_turns"))
@settings(max_examples=60, deadline=None, database=None)
@given(st.lists(ACTIONS, max_size=12))
def test_programs_and_the_user_take_turns(actions):
    scope, values = filled(), dict.fromkeys(SHAPES, 1.0)
    for i, (kind, what) in enumerate(actions):
        if kind == "run":
            _NETS[what].scope = scope
            _NETS[what].run()
            effect(what, values)
        elif kind == "set":
            scope.find_var(what).get_tensor().set(i * ONES[what], fluid.CPUPlace())
            values[what] = float(i)
        else:
            to, source = what
            scope.find_var(to).get_tensor()._share_data_with(scope.find_var(source).get_tensor())
            values[to] = values[source]
        assert held(scope) == values
