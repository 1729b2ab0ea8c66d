"""Names that are None or a variable after a converted branch or loop, against eager mode."""

from __future__ import annotations

import numpy as np
import pytest

from fluidjax import dygraph, layers
from tests.dygraph.to_static.helpers import check

VALUES = [np.array(v, "float32") for v in ([1.0, 1.0], [4.0, 2.0], [40.0, 2.0])]


def returned(x):
    found = None
    if layers.reduce_sum(x) > 3:
        found = x * x
    return found


def asked(x):
    found = None
    if layers.reduce_sum(x) > 3:
        found = x * 2
    if found is None:
        found = -x
    return found + 1


def asked_and_tested(x):
    found = x
    if layers.reduce_sum(x) > 30:
        found = None
    elif layers.reduce_sum(x) > 3:
        found = x + 5
    if found is not None and layers.reduce_sum(found) > 10:
        return found
    return x


def conditional(x):
    found = x * 2 if layers.reduce_sum(x) > 3 else None
    return [found, x]


def nested(x):
    found = {"part": None, "whole": x}
    if layers.reduce_sum(x) > 3:
        if layers.reduce_sum(x) > 30:
            found["part"] = x * 3
    return found


def number(x):
    factor = None
    if layers.reduce_sum(x) > 3:
        factor = 4
    if factor:
        return x * factor
    return x


def helper(x, mask=None):
    return x if mask is None else x * mask


def argument(x):
    mask = None
    if layers.reduce_sum(x) > 3:
        mask = x + 1
    return helper(x, mask)


def falls_off(x):
    if layers.reduce_sum(x) > 3:
        return x


def loop_begins_with_none(x):
    best = None
    i = layers.fill_constant([1], "float32", 0)
    while i < layers.reduce_max(x):
        if best is None:
            best = x * i
        else:
            best = best + x
        i = i + 8
    return best


def loop_may_not_run(x):
    last = None
    i = layers.fill_constant([1], "float32", 3)
    while i < layers.reduce_max(x):
        last = x * i
        i = i + 8
    return last


def loop_ends_with_none(x):
    last = x
    i = layers.fill_constant([1], "float32", 0)
    while i < layers.reduce_max(x):
        if last is not None and i > 0:
            last = None
        else:
            last = x * i
        i = i + 3
    return last


EVERY = (
    *(returned, asked, asked_and_tested, conditional, nested, number, argument, falls_off),
    *(loop_begins_with_none, loop_may_not_run, loop_ends_with_none),
)


@pytest.mark.parametrize("function", EVERY, ids=lambda f: f.__name__)
def test_none_or_a_variable(function):
    for x in VALUES:
        check(function, x)


def test_gradients_flow_through_what_is_not_none():
    with dygraph.guard():
        x = dygraph.to_variable(VALUES[1])
        x.stop_gradient = False
        dygraph.declarative(returned)(x).backward()
        np.testing.assert_allclose(x.gradient(), 2 * VALUES[1])
