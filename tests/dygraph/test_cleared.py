"""clear_gradients of a layer: it reaches the parameters that the layer has now, whatever has changed since the last."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.dygraph import registered

dg = fluid.dygraph


@pytest.fixture(autouse=True)
def eager() -> Any:
    with dg.guard():
        yield


class Net(dg.Layer):
    """Layers in a list, in a sequence and below others."""

    def __init__(self) -> None:
        super().__init__()
        self.a = dg.Linear(2, 2)
        self.parts = dg.LayerList([dg.Linear(2, 2), dg.Linear(2, 2)])
        self.seq = dg.Sequential(("x", dg.Linear(2, 2)))


def fill(net: Any) -> None:
    for p in net.parameters():
        p._set_gradient(fluid.dygraph.to_variable(np.ones(p.shape, "float32"))._value)


def plain(net: Any) -> None:
    net.seq._sub_layers = OrderedDict(x=dg.Linear(2, 2))
    net.clear_gradients()
    net.seq._sub_layers["y"] = dg.Linear(2, 2)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "assigned": lambda net: setattr(net, "b", dg.Linear(2, 2)),
    "replaced": lambda net: setattr(net.seq.x, "weight", dg.Linear(2, 2).weight),
    "taken away and given": lambda net: [delattr(net.parts[0], "bias"), setattr(net.parts[1], "more", net.a.bias)],
    "none": lambda net: [setattr(net.a, "bias", None), setattr(net.a, "bias", dg.Linear(2, 2).bias)],
    "appended": lambda net: net.parts.append(dg.Linear(2, 2)),
    "inserted": lambda net: net.parts.insert(0, dg.Linear(2, 2)),
    "deleted": lambda net: [net.parts.__delitem__(0), net.parts.append(dg.Linear(2, 2))],
    "added": lambda net: net.seq.add_sublayer("y", dg.Linear(2, 2)),
    "parameter added": lambda net: net.seq.x.add_parameter("more", dg.Linear(2, 2).weight),
    "popped": lambda net: [net.seq._sub_layers.pop("x"), net.seq._sub_layers.update(x=dg.Linear(2, 2))],
    "emptied": lambda net: [net.seq._sub_layers.clear(), net.seq._sub_layers.setdefault("z", dg.Linear(2, 2))],
    "last": lambda net: [net.a._parameters.popitem(), net.a._parameters.__ior__({"n": dg.Linear(2, 2).weight})],
    "another dict": lambda net: setattr(net.seq, "_sub_layers", OrderedDict(x=dg.Linear(2, 2))),
    "a plain dict": plain,
    "own dict": lambda net: net.__dict__.update(_sub_layers=registered.Held(x=dg.Linear(2, 2))),
}


@pytest.mark.parametrize("name", CHANGES)
def test_whatever_changes_is_seen(name: str) -> None:
    net = Net()
    fill(net)
    net.clear_gradients()
    net.clear_gradients()
    CHANGES[name](net)
    found = net.parameters()
    fill(net)
    net.clear_gradients()
    assert found
    assert not any(p.gradient().any() for p in found)


TAKEN: dict[str, Callable[[Any], Any]] = {
    "deleted": lambda net: delattr(net, "a"),
    "popped": lambda net: net._sub_layers.pop("a"),
    "popped from the beginning": lambda net: net._sub_layers.popitem(last=False),
}


@pytest.mark.parametrize("how", TAKEN)
def test_those_that_are_no_longer_there_keep_theirs(how: str) -> None:
    net = Net()
    fill(net)
    gone = net.a.parameters()
    net.clear_gradients()
    fill(net)
    TAKEN[how](net)
    assert all(p is not q for p in gone for q in net.parameters())
    net.clear_gradients()
    assert all(p.gradient().all() for p in gone)


def test_nothing_is_looked_for_again_while_nothing_changes() -> None:
    net = Net()
    first = registered.each_parameter(net)
    net.note = 1
    assert registered.each_parameter(net) is first
    assert len(first) == 8 and {*map(id, first)} == {*map(id, net.parameters())}
