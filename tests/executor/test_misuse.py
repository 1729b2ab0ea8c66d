"""What ``Executor.run`` takes as feeds, fetches and scope, and which kinds of errors it raises for the rest."""

from typing import Any

import numpy as np
import pytest

import fluidjax as fluid

X = np.ones((2, 3), np.float32)


class Minimized:
    """A mean of ``x`` and what ``minimize`` gives for it."""

    def __init__(self) -> None:
        y = fluid.layers.fc(fluid.data("x", [None, 3]), 1)
        self.loss = fluid.layers.mean(y)
        self.ops, self.pairs = fluid.optimizer.SGD(0.1).minimize(self.loss)
        self.exe = fluid.Executor(fluid.CPUPlace())
        self.exe.run(fluid.default_startup_program())

    def run(self, fetch_list: Any, **options: Any) -> int:
        return len(self.exe.run(**{"feed": {"x": X}, "fetch_list": fetch_list} | options))


@pytest.fixture
def net() -> Minimized:
    return Minimized()


def test_operators_among_the_fetches_fetch_nothing(net: Minimized) -> None:
    loss, ops, pairs = net.loss, net.ops, net.pairs
    assert net.run([ops, loss]) == net.run([(ops, pairs), loss]) == net.run([(ops,), loss]) == 1
    assert net.run([ops[0], loss]) == net.run([(loss,)]) == 1
    assert net.run([[ops[0], loss], loss.name]) == 2


def test_what_cannot_be_fetched_is_refused_in_nested_lists_too(net: Minimized) -> None:
    for wrong in (3, None, [net.loss]):
        with pytest.raises(TypeError, match="a fetch is a Variable or a name, received"):
            net.run([[net.loss, wrong]])
    with pytest.raises(TypeError, match="received tuple"):
        net.run([net.pairs, net.loss])


def test_fetches_in_a_dict_or_a_set_are_refused(net: Minimized) -> None:
    for wrong in ({"loss": net.loss}, {net.loss.name}):
        with pytest.raises(AssertionError, match="fetch_list is a list or tuple"):
            net.run(wrong)


def test_what_is_no_scope_is_refused(net: Minimized) -> None:
    for wrong in ({}, "scope"):
        with pytest.raises(TypeError, match="expected a fluid.Scope, received"):
            net.run([net.loss], scope=wrong)


def test_what_no_array_can_be_made_of(net: Minimized) -> None:
    with pytest.raises(ValueError, match="received str 'abc'"):
        net.run([net.loss], feed={"x": "abc"})
    with pytest.raises(RuntimeError, match="NumPy cannot make an array of"):
        net.run([net.loss], feed={"x": [[1.0, 2.0], [1.0]]})
