"""while, for, break, continue, return in loops, lists that grow, against eager mode."""

from __future__ import annotations

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import dygraph, layers
from tests.dygraph.to_static.helpers import check

X = np.array([1.0, 2.0], "float32")
N = np.array([5], "int64")


def count(x):
    i = layers.fill_constant([1], "int32", 0)
    while i < 10:
        i = i + 1
        x = x + 1
    return i, x


def python_counter(x):
    i = 0
    while i < layers.reduce_sum(x):
        i += 1
        x = x + 0.1
    return x, i


def accumulates(x, n):
    total = 0.0
    for i in range(n):
        total = total + i * x
    return total


def range_of_three(x, n):
    for i in range(1, n, 2):
        x = x + i
    return x


def range_downwards(x, n):
    for i in range(n, 0, -1):
        x = x * 2 + i
    return x


def breaks(x, n):
    for i in range(n):
        x = x + 1
        if i > 2:
            break
            x = x + 10086
        x = x + i
    return x


def counts_before_the_break(x, n):
    i = 0
    while i < n:
        i = i + 1
        if i > 3:
            break
        x = x + i
    return x, i


def continues(x, n):
    for i in range(n):
        x = x + 1
        if i > 2:
            continue
        x = x + i
    return x


def both(x, n):
    for i in range(n):
        if i < 1:
            x = x + 100
            continue
        else:
            if i < 4:
                x = x + 10
            else:
                break
        x = x + 1
    return x


def breaks_python_loop(x, n):
    for i in range(8):
        if layers.reduce_sum(x) > 20:
            break
        x = x + i
    return x


def endless(x):
    i = 0
    while True:
        i += 1
        x = x + 1
        if layers.reduce_sum(x) > 20:
            break
    return x, i


def returns_from_loop(x, n):
    for i in range(n):
        if i > 2:
            return x + i
        x = x + 10
    return x


def returns_from_nested_loop(x, n):
    for _i in range(n):
        for _j in range(3):
            x = x + 1
            if layers.reduce_sum(x) > 15:
                return x * 100
    return x


def loop_else(x, n):
    for _i in range(n):
        if layers.reduce_sum(x) > 1000:
            break
        x = x + 1
    else:
        x = x * 2
    return x


def nested_loops(x, n):
    for i in range(n):
        j = 0
        while j < i:
            x = x + j
            j += 1
    return x


def swaps(x, n):
    a, b = x, x + 1
    for _i in range(n):
        a, b = b, a + b
    return a, b


def first_assigned_inside(x, n):
    for i in range(n):
        y = x + i
    return y, i


def appended(x, n):
    found = []
    for i in range(n):
        found.append(x + i)
    return found[0], found[-1], found[2]


def appended_if(x, n):
    found = [x]
    for i in range(n):
        if i > 1:
            found.append(x * i)
    return found[0], found[-1]


def joined(x, n):
    found = []
    i = 0
    while i < n:
        found.append(x * i)
        i += 1
    return layers.concat(found, axis=0), layers.stack(found, axis=0)


def popped(x, n):
    found = []
    for i in range(n):
        found.append(x + i)
    last = found.pop()
    return last, found[-1]


def fixed_list(x, n):
    state = [x, x * 0]
    for _i in range(n):
        state[0], state[1] = state[1] + 1, state[0]
    return state


def over_rows(x, n):
    total = layers.fill_constant([1], "float32", 0.0)
    for row in x:
        total = total + row
    for k, row in enumerate(x):
        total = total + k * row
    return total


def over_list(x, n):
    weights = [0.5, 2.0, 3.0]
    for i, w in enumerate(weights):
        x = x * w + i
    return x


def list_by_variable(x, n):
    choices = [x, x + 100, x + 200]
    for i in range(n - 2):
        x = x + choices[i]
    return x


def attribute_state(x, n):
    class Cell:
        pass

    cell = Cell()
    cell.state = x
    i = layers.fill_constant([1], "int64", 0)
    while i < n:
        cell.state = cell.state * 2
        i += 1
    return cell.state


def comprehension(x, n):
    parts = [x + k for k in range(3) if k != 1]
    if layers.mean(x) > 0:
        parts = [p * 2 for p in parts]
    return parts[0] + parts[1]


def returned_list(x, n):
    found = [x]
    for i in range(n):
        found.append(x * i)
        if i > 2:
            found.pop()
    return found


def sliced_list(x, n):
    found = []
    for i in range(n):
        found.append(x * i)
    found[0] = x - 1
    found = found[:-1]
    rest = found[1:]
    end = n - 6
    return rest[0], rest[-1], layers.concat(found[-3:n]), found[:end][-1], layers.concat(found[2:100])


FUNCTIONS = (
    *(returned_list, accumulates, range_of_three, range_downwards, breaks, counts_before_the_break, continues, both),
    *(breaks_python_loop, returns_from_loop, returns_from_nested_loop, loop_else, nested_loops, swaps),
    *(first_assigned_inside, appended, appended_if, joined, popped, fixed_list, over_rows, over_list),
    *(list_by_variable, attribute_state, comprehension, sliced_list),
)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_as_in_eager_mode(function) -> None:
    check(function, X, N)


@pytest.mark.parametrize("function", [count, python_counter, endless], ids=lambda f: f.__name__)
def test_while_as_in_eager_mode(function) -> None:
    check(function, X)


def test_a_list_that_grows_is_an_array_of_a_static_program() -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        array = dygraph.dygraph_to_static_func(returned_list)(layers.assign(X), layers.assign(N))
        second = layers.array_read(array, layers.fill_constant([1], "int64", 2))
    np.testing.assert_allclose(fluid.Executor(fluid.CPUPlace()).run(main, fetch_list=[second])[0], X)


@pytest.mark.parametrize("change", ["found = found[::2]", "found[1:] = [x]"])
def test_slices_that_a_list_that_grows_refuses(change: str, tmp_path) -> None:
    lines = ["def f(x, n):", "    found = []", "    for i in range(n):", "        found.append(x)", f"    {change}"]
    path = tmp_path / "changes.py"
    path.write_text("\n".join([*lines, "    return found[0]"]))
    found: dict = {}
    exec(compile(path.read_text(), str(path), "exec"), found)
    with dygraph.guard(), pytest.raises(TypeError, match="go over the items in a for statement"):
        dygraph.declarative(found["f"])(X, dygraph.to_variable(N))


def test_a_list_that_grows_is_not_returned_where_gradients_are_recorded() -> None:
    with dygraph.guard():
        x = dygraph.to_variable(X)
        x.stop_gradient = False
        with pytest.raises(TypeError, match="return fluid.layers.stack"):
            dygraph.declarative(returned_list)(x, dygraph.to_variable(N))


def trains_through_a_loop(x, n):
    total = 0.0
    for i in range(n):
        if i > 3:
            break
        x = layers.tanh(x * 0.5 + i)
        total = total + layers.reduce_sum(x * x)
    return total


def test_gradients_flow_through_a_loop() -> None:
    found = []
    for function in (trains_through_a_loop, dygraph.declarative(trains_through_a_loop)):
        with dygraph.guard():
            x = dygraph.to_variable(X)
            x.stop_gradient = False
            function(x, dygraph.to_variable(N)).backward()
            found.append(x.gradient())
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5)
