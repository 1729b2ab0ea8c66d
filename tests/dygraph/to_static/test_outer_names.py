"""Branches and loops that change what functions around them, or the module, hold: items, never the names themselves."""

from __future__ import annotations

import numpy as np
import pytest

from fluidjax import dygraph, layers
from tests.dygraph.to_static.helpers import check, plain, same

TABLE: dict = {}
ROWS: list = []
X = np.full((2, 4), 1.5, "float32")


def item_of_a_global(x):
    y = x * 3
    if layers.mean(x) < 0:
        TABLE["w"] = layers.fill_constant([4], "float32", 10)
        y = y * TABLE["w"]
    return y


def global_list(x):
    del ROWS[:]
    if x is not None:
        ROWS.append(x + 1)
    for k in range(3):
        ROWS.append(x * k)
    return layers.concat(ROWS, axis=0)


def function_of_a_module(x):
    """``np.append`` changes nothing, unlike a list's."""
    y = x * 3
    if layers.mean(x) < 0:
        y = y + float(np.append(np.ones(3), 1.0).sum())
    return y


def nested(x):
    held = {}

    def inner(v):
        if layers.mean(v) < 0:
            held["w"] = v * 2
        else:
            held["w"] = v - 1
        return held["w"] * 2

    return inner(x) + held["w"]


def declared(x):
    global ROWS
    ROWS = []

    def inner():
        for k in range(2):
            ROWS.append(x + k)

    inner()
    return layers.concat(ROWS, axis=0)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("function", [item_of_a_global, global_list, function_of_a_module, nested, declared])
def test_as_in_eager_mode(function, sign) -> None:
    check(function, sign * X)


def test_items_of_a_closure() -> None:
    held: dict = {}
    calls: list = []

    def step(x):
        if layers.mean(x) < 0:
            held["w"] = x * 2
        else:
            held["w"] = x - 1
        if x is not None:
            calls.append(1)
        return held["w"] * len(calls)

    with dygraph.guard():
        for x in (X, -X):
            calls.clear()
            found = plain(dygraph.declarative(step)(dygraph.to_variable(x)))
            same(found, x * 2 if x[0, 0] < 0 else x - 1)
