"""if, and, or, not, conditional expressions on variables, against eager mode."""

from __future__ import annotations

import numpy as np
import pytest

from fluidjax import dygraph, layers
from tests.dygraph.to_static.helpers import check

POSITIVE = np.array([1.0, 2.0], "float32")
NEGATIVE = -POSITIVE
BOTH = pytest.mark.parametrize("x", [POSITIVE, NEGATIVE, 10 * POSITIVE], ids=["positive", "negative", "large"])


def if_else(x):
    if layers.mean(x) > 0:
        y = x + 1
    else:
        y = x - 1
    return y


def without_else(x):
    if layers.mean(x) < 0:
        x = x * 3
    return x


def elif_chain(x):
    if layers.mean(x) > 5:
        y = x * 2
    elif layers.mean(x) > 0:
        y = x * 3
    elif layers.mean(x) < -100:
        y = x * 4
    else:
        y = x * 5
    return y


def nested(x):
    bias = layers.fill_constant([2], "float32", 1.0)
    if layers.mean(x) > 0:
        y = x + bias
        if layers.reduce_sum(y) > 10:
            temporary = y * 2
            y = layers.relu(temporary)
            if layers.mean(y) > 20:
                y = layers.sqrt(y)
            else:
                temporary = layers.fill_constant([2], "float32", -1.0)
                y = y - temporary
    else:
        y = x - bias
    return y


def logic(x, label=None):
    total = layers.reduce_sum(x)
    if x is not None and (total > 1 or label is not None) and not (total > 100) and True:
        x = x - 1
    else:
        x = x + 1
    if label is None and total > 3 or total < -30:
        x = x * 2
    return x


def truth_of_a_number(x):
    if layers.mean(x):
        x = x + 10
    return x


def chained(x):
    if 0 < layers.mean(x) < 5:
        x = x + 10
    return x


def conditional_expression(x):
    factor = 2.0 if layers.mean(x) > 0 else 3.0
    shifted = x + 1 if layers.mean(x) > 3 else x - 1
    return shifted * factor


def numbers_differ(x):
    k = 1
    scale = 0.5
    if layers.mean(x) > 0:
        k = 2
        scale = 4
    return x * k * scale


def python_values_stay(x):
    mode = "a"
    if layers.mean(x) > 0:
        mode = "b"
        x = x + 1
        mode = "a"
    return x * 2 if mode == "a" else x


def containers(x):
    found = {"a": x, "b": [x, 1]}
    if layers.mean(x) > 0:
        found["a"] = x * 2
        found["b"][1] = 5
    else:
        found["b"][0] = x * 7
    return found["a"] + found["b"][0] * found["b"][1]


def tuples(x):
    if layers.mean(x) > 0:
        a, b = x + 1, x + 2
    else:
        a, b = x - 1, x - 2
    return a, b


def numpy_in_condition(x):
    if layers.mean(x).numpy()[0] > 0:
        return x + 1
    return x - 1


class Holder:
    """Something with attributes."""


def attributes(x):
    holder = Holder()
    holder.value = x
    holder.table = {}
    if layers.mean(x) > 0:
        holder.value = x * 2
        holder.table["k"] = x
    else:
        holder.table["k"] = x * 3
        holder.table["other"] = x
    return holder.value + holder.table["k"]


def in_place_list(x):
    rows = [x, x]
    alias = rows
    if layers.mean(x) > 0:
        rows[0] = x * 5
    return alias[0] + alias[1]


def inner_function(x):
    def twice(y):
        if layers.mean(y) > 0:
            y = y * 2
        return y

    return twice(x) + (lambda z: twice(z) if layers.mean(z) > 5 else z)(x)


def lambda_among_defaults(x, plus=lambda z: z + 3):
    if layers.mean(x) > 0:
        x = plus(x)
    return plus(x)


def defined_in_one_branch(x):
    y = x * 0
    if layers.mean(x) > 0:
        z = x + 2
        y = z
    else:
        other = x + 3
        y = other
    return y


FUNCTIONS = (
    *(if_else, without_else, elif_chain, nested, logic, truth_of_a_number, chained, conditional_expression),
    *(numbers_differ, python_values_stay, containers, tuples, numpy_in_condition, attributes, in_place_list),
    *(inner_function, lambda_among_defaults, defined_in_one_branch),
)


@BOTH
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_as_in_eager_mode(function, x) -> None:
    check(function, x)


def read_later(x):
    if layers.mean(x) > 0:
        q = x + 3
    return q + 1


def test_a_name_of_one_branch_has_its_value_where_that_ran() -> None:
    np.testing.assert_allclose(check(read_later, POSITIVE), POSITIVE + 4)


def test_a_name_of_the_other_branch_is_no_number() -> None:
    with dygraph.guard():
        assert np.isnan(dygraph.declarative(read_later)(NEGATIVE).numpy()).all()


def kinds_differ(x):
    if layers.mean(x) > 0:
        y = "text"
    else:
        y = x
    return y


def test_values_of_different_kinds_are_refused_where_they_are_used() -> None:
    with dygraph.guard(), pytest.raises(UnboundLocalError, match="y is used after an if on a variable"):
        dygraph.declarative(kinds_differ)(POSITIVE)


def kinds_differ_and_one_is_replaced(x):
    y = x
    if layers.reduce_sum(x) > 0:
        y = layers.cast(x, "int32")
    if layers.reduce_sum(x) < 0:
        y = x * 2
    return y


def test_no_placeholder_stands_for_values_of_different_kinds() -> None:
    with dygraph.guard(), pytest.raises(UnboundLocalError, match="y is used after an if on a variable"):
        dygraph.declarative(kinds_differ_and_one_is_replaced)(POSITIVE)


def test_a_condition_of_several_elements_is_refused() -> None:
    def wide(x):
        if x > 0:
            x = x + 1
        return x

    with dygraph.guard(), pytest.raises(ValueError, match="decides a branch or loop"):
        dygraph.declarative(wide)(POSITIVE)


class Keeper(dygraph.Layer):
    """A branch within a branch leaves a value of another shape that nobody reads."""

    def __init__(self):
        super().__init__()
        self.kept = {}

    def forward(self, x):
        y = x * 3
        if layers.mean(x) < 0:
            self.kept["w"] = layers.fill_constant([4], "float32", 10)
            if y[0] < -30.0:
                self.kept["w"] = layers.fill_constant([16], "float32", 9)
                y = layers.abs(y)
        else:
            y = y - 1
        return layers.mean(y)


@pytest.mark.parametrize("x", [POSITIVE, NEGATIVE, 20 * NEGATIVE], ids=["positive", "negative", "far"])
def test_the_gradient_passes_by_what_no_branch_made(x) -> None:
    found = []
    for run in (Keeper.forward, dygraph.declarative(Keeper.forward)):
        with dygraph.guard():
            given = dygraph.to_variable(x)
            given.stop_gradient = False
            loss = run(Keeper(), given)
            loss.backward()
            found.append((loss.numpy(), given.gradient()))
    for one, two in zip(*found, strict=True):
        np.testing.assert_allclose(one, two)
