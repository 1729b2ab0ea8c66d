"""Single numbers of the state that are equal and stay equal, which a step takes and leaves as one."""

import jax
import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.execution.lasting.resident import ResidentState
from fluidjax.execution.runs import whole
from fluidjax.execution.runs.prepared import compilations
from fluidjax.execution.steps.equal import fates, proven
from fluidjax.framework import program_view
from tests.executor.conftest import Net


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """How many numbers each gathered state takes for one."""
    found: list[list[int]] = []
    original = ResidentState.__init__

    def noting(self, *args, **options):
        original(self, *args, **options)
        found.append([len(group) for group in self.buffers.equal])

    monkeypatch.setattr(ResidentState, "__init__", noting)
    return found


class Trained:
    """Layers trained by Adam, the last of them of one number."""

    def __init__(self, optimizer=lambda: fluid.optimizer.Adam(0.05)):
        self.main, self.startup, self.scope = fluid.Program(), fluid.Program(), fluid.Scope()
        self.startup.random_seed = 3
        with fluid.program_guard(self.main, self.startup), fluid.unique_name.guard():
            hidden = x = fluid.data("x", [None, 4], "float32")
            for _ in range(2):
                hidden = fluid.layers.fc(hidden, 4, act="tanh")
            ends = [fluid.layers.fc(hidden, 1) for _ in range(2)]
            self.loss = fluid.layers.mean(fluid.layers.square(ends[0] - fluid.layers.reduce_sum(x, 1, keep_dim=True)))
            self.loss = self.loss + fluid.layers.mean(fluid.layers.square(ends[1]))
            optimizer().minimize(self.loss)
        self.exe = fluid.Executor(fluid.CPUPlace())
        self.exe.run(self.startup, scope=self.scope)

    def run(self, rng, steps: int = 1) -> None:
        for _ in range(steps):
            feed = {"x": rng.random((5, 4), np.float32)}
            self.exe.run(self.main, feed=feed, fetch_list=[self.loss], scope=self.scope)

    def tensor(self, name: str):
        return self.scope.find_var(name).get_tensor()

    @property
    def state(self) -> dict[str, np.ndarray]:
        return {v.name: np.array(self.tensor(v.name)) for v in self.main.list_vars() if v.persistable}

    @property
    def powers(self) -> list[str]:
        return [name for name in self.state if "beta1_pow" in name]


def rehearsed(monkeypatch: pytest.MonkeyPatch, rng, *change) -> tuple[Trained, Trained]:
    """Two nets trained alike, the second with numbers passed one by one; ``change`` is set after two steps."""
    nets = []
    seed = int(rng.integers(1000))
    for apart in (False, True):
        with monkeypatch.context() as context:
            if apart:
                context.setattr(whole, "fates", lambda program, names: {})
            net, batches = Trained(), np.random.default_rng(seed)
            net.run(batches, 2)
            for name, value in change:
                net.tensor(name).set(value, fluid.CPUPlace())
            net.run(batches, 3)
        nets.append(net)
    return nets[0], nets[1]


def assert_same(nets: tuple[Trained, Trained]) -> None:
    one, other = (net.state for net in nets)
    for name, value in other.items():
        np.testing.assert_array_equal(one[name], value, err_msg=name)


def test_the_powers_of_adam_are_two_numbers(monkeypatch, rng, groups):
    """Those of the biases of one number stay apart, as their moments are numbers as well."""
    nets = rehearsed(monkeypatch, rng)
    assert_same(nets)
    assert len(nets[0].powers) == 8
    assert groups[0] == [6, 6] and groups[-1] == []
    assert compilations(nets[0].main) == 1


def test_a_number_that_the_user_sets_goes_its_own_way(monkeypatch, rng, groups):
    set = "fc_1.w_0_beta1_pow_acc_0", np.float32([0.5])
    nets = rehearsed(monkeypatch, rng, set)
    assert_same(nets)
    assert groups[:2] == [[6, 6], [5, 6]]
    assert len(np.unique([nets[0].state[name] for name in nets[0].powers])) == 2


def test_a_number_that_was_read_does_not_change(rng):
    net = Trained()
    net.run(rng, 2)
    before = {name: (np.asarray(net.tensor(name)), net.tensor(name)) for name in net.powers}
    net.run(rng)
    for read, tensor in before.values():
        np.testing.assert_allclose([read[0], np.array(tensor)[0]], [0.9**3, 0.9**4], rtol=1e-6)


def test_a_run_beside_which_something_was_set_leaves_each_number_where_it_belongs(monkeypatch, rng):
    """What it left goes into the scope by name, not with the state."""
    monkeypatch.setattr(ResidentState, "holds", lambda self, scope, names: False)
    net = Trained()
    biases = [name for name in net.state if name.endswith(".b_0")]
    before = net.state
    net.run(rng, 2)
    for name in net.powers:
        np.testing.assert_allclose(net.state[name], [0.9**3], rtol=1e-6)
    for name in biases:
        assert net.state[name].shape == before[name].shape and np.any(net.state[name] != before[name])


def test_numbers_that_may_come_to_differ_are_passed_one_by_one(groups):
    """Both are one at first, and an op of the same kind multiplies each, but not by the same number."""
    net = Net()
    for name, value in {"a": 1, "b": 1, "twice": 2, "thrice": 3}.items():
        net.parameter(name, np.float32([value]))
    with net.program._optimized_guard([]):
        net.op("elementwise_mul", {"X": ["a"], "Y": ["twice"]}, "a")
        net.op("elementwise_mul", {"X": ["b"], "Y": ["thrice"]}, "b")
    for _ in range(3):
        net.run()
    assert [net.get(name).item() for name in "ab"] == [8, 27]
    assert groups == [[2], []]


@pytest.mark.parametrize(("shape", "count"), [([4], 2), ([1], 0)])
def test_a_guess_spares_a_trace(shape, count):
    """The powers of large parameters; nothing of a parameter that is a number, as gradients decide about it."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        parameters = [fluid.layers.create_parameter(shape, "float32") for _ in range(9)]
        loss = fluid.layers.mean(fluid.layers.square(fluid.layers.sums(parameters)))
        fluid.optimizer.Adam(0.1).minimize(loss)
    names = [v.name for v in main.list_vars() if "_acc" in v.name or "_moment" in v.name]
    found = fates(program_view(main), names)
    assert list(found) == sorted(found) and len(set(found.values())) == count
    assert len(found) == 9 * count


def test_equality_is_proven_of_the_values_alone():
    def step(x, y):
        return x + 1, [[x * 2, x * 2], [y * 2, y + y]]

    def alike(x, y):
        return x + 1, [[x * 2, x * 2], [y * x, y * x]]

    given = np.ones(1, np.float32), np.ones(1, np.float32)
    left = proven(jax.jit(alike).trace(*given), [[0, 1], [2, 3]], given, ())
    assert len(left.jaxpr.jaxpr.outvars) == 1
    np.testing.assert_array_equal(left.lower().compile()(*given)[0], [2])
    with pytest.raises(whole.Unequal):
        proven(jax.jit(step).trace(*given), [[0, 1], [2, 3]], given, ())
