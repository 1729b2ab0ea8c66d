"""Runs of a part of a program: optimizers among the fetches choose what trains, as in Paddle 1.8.5."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluidjax as fluid

FEED = {"x": np.array([[1, 2], [3, -1], [0.5, 1], [2, 0.1]], "float32")}
CPU = fluid.CPUPlace()


class Net:
    """Two losses, each with an optimizer for all that it depends on: w, and v through w."""

    def __init__(self) -> None:
        fluid.default_startup_program().random_seed = 3
        x = fluid.data("x", [None, 2])
        self.y = fluid.layers.fc(x, 3, act="tanh", param_attr="w", bias_attr=False)
        self.first = fluid.layers.mean(self.y)
        self.second = fluid.layers.mean(fluid.layers.fc(self.y, 1, param_attr="v", bias_attr=False))
        self.by_first = fluid.optimizer.SGD(0.1).minimize(self.first)
        self.by_second = fluid.optimizer.SGD(0.1).minimize(self.second)
        self.exe = fluid.Executor(CPU)
        self.exe.run(fluid.default_startup_program())

    def trained(self, fetches: Any, program: Any = None, **settings: Any) -> tuple[int, str]:
        """How many values came, and which of the parameters changed."""
        before = self.parameters()
        got = self.exe.run(program, feed=dict(FEED), fetch_list=fetches, **settings)
        after = self.parameters()
        return len(got), "".join(name for name in "wv" if not np.array_equal(before[name], after[name]))

    def parameters(self) -> dict[str, np.ndarray]:
        scope = fluid.global_scope()
        return {name: np.array(scope.find_var(name).get_tensor()) for name in "wv"}


@pytest.fixture(params=["program", "two devices"])
def net_and_program(request: pytest.FixtureRequest) -> tuple[Net, Any]:
    net = Net()
    program: Any = fluid.default_main_program()
    if request.param == "two devices":
        places = fluid.cpu_places(2)
        program = fluid.CompiledProgram(program).with_data_parallel(loss_name=net.first.name, places=places)
    return net, program


def test_the_optimizers_among_the_fetches_are_those_that_run(net_and_program: tuple[Net, Any]) -> None:
    net, program = net_and_program
    pair, (ops, _) = net.by_second, net.by_first
    for_v = [op for op in pair[0] if op.input("Param") == ["v"]]
    for _ in range(2):
        assert net.trained([net.first, net.by_first], program) == (1, "w")
        assert net.trained([pair, net.second], program) == (1, "wv")
        assert net.trained([net.first, ops], program) == (1, "w")
        assert net.trained([net.first, for_v[0]], program) == (1, "v")
        assert net.trained([net.first], program) == (1, "wv")


def test_a_pruned_run_trains_what_the_program_trains(net_and_program: tuple[Net, Any]) -> None:
    net, program = net_and_program
    assert net.trained([net.y], program, use_prune=True) == (1, "wv")
    assert net.trained([], program, use_prune=True) == (0, "wv")
    assert net.trained([net.y, net.by_first], program, use_prune=True) == (1, "w")


def test_devices_share_what_they_hold_with_parts_of_their_program() -> None:
    net = Net()
    main = fluid.default_main_program()
    program = fluid.CompiledProgram(main).with_data_parallel(loss_name=net.first.name, places=fluid.cpu_places(2))
    values = []
    for fetches in ([net.first, net.by_first], [net.second, net.by_second], [net.first, net.by_first], [net.first]):
        values.append(net.exe.run(program, feed=FEED, fetch_list=fetches)[0].mean())
    alone = []
    again = Net.__new__(Net)
    again.__dict__.update(net.__dict__)
    with fluid.scope_guard(fluid.Scope()):
        again.exe.run(fluid.default_startup_program())
        for fetches in ([net.first, net.by_first], [net.second, net.by_second], [net.first, net.by_first], [net.first]):
            alone.append(again.exe.run(main, feed=FEED, fetch_list=fetches)[0].mean())
    np.testing.assert_allclose(values, alone, rtol=1e-5)


def test_an_operator_that_is_no_optimizers_is_refused() -> None:
    net = Net()
    with pytest.raises(TypeError, match="not an optimize_op"):
        net.trained([net.first.op])


def test_an_optimizer_in_a_branch_runs_with_its_branch() -> None:
    x = fluid.data("x", [None, 2])
    loss = fluid.layers.mean(fluid.layers.fc(x, 1, param_attr="u"))
    yes = fluid.layers.fill_constant([1], "bool", True)
    fluid.layers.cond(yes, lambda: fluid.optimizer.SGD(0.1).minimize(loss)[0] and None)
    exe = fluid.Executor(CPU)
    exe.run(fluid.default_startup_program())
    pruned = exe._prune_program(fluid.default_main_program(), FEED, [loss])
    assert any(op.type == "conditional_block" for op in pruned.global_block().ops)


@pytest.mark.parametrize("compiled", [False, True])
def test_runs_prune_by_the_executors_own_method_and_once(compiled: bool) -> None:
    """Scripts put one of their own into its place."""
    net, asked = Net(), []

    class Counting(fluid.Executor):
        def _prune_program(
            self, program: Any, feed: Any = None, fetch_list: Any = None, optimize_ops: Any = None
        ) -> Any:
            asked.append((list(feed), fetch_list))
            return super()._prune_program(program, feed, fetch_list, optimize_ops)

    net.exe, program = Counting(CPU), fluid.default_main_program()
    if compiled:
        program = fluid.CompiledProgram(program).with_data_parallel(loss_name=net.first.name, places=CPU)
    for loss in (net.first, net.second, net.first, net.second):
        net.trained([loss], program, use_prune=True)
    assert asked == [(["x"], [net.first.name]), (["x"], [net.second.name])]
