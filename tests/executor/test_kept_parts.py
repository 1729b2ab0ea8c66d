"""Parts of weights that loops and products read are cut out once for each weight."""

from __future__ import annotations

import gc
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.execution.steps import kept_parts
from fluidjax.execution.steps.kept_parts import Part, apart, taken

WIDTH = 64


def looped(values: Any) -> Any:
    """A loop over the last two thirds of the first value, seen as a matrix."""
    weight, x = values
    matrix = weight.reshape(-1)[WIDTH * WIDTH :].reshape(WIDTH, 2 * WIDTH)
    return jax.lax.fori_loop(0, 3, lambda _, h: jnp.tanh(h @ matrix)[:, :WIDTH], x)


def added(values: Any) -> Any:
    return values[0][:WIDTH] + values[1]


def scaled(values: Any) -> Any:
    return values[1] @ (2 * values[0])[:, :WIDTH]


def whole(values: Any) -> Any:
    return values[1] @ values[0].reshape(WIDTH, -1)


def small(values: Any) -> Any:
    return values[1] @ values[0][:, :1]


def traced(function: Any, *values: Any) -> tuple[Any, Any]:
    arguments = (), values, np.uint32(3)
    return jax.jit(lambda replaced, values, seed: (function(values), seed + 1)).trace(*arguments), arguments


@pytest.fixture
def weight(rng: np.random.Generator) -> jax.Array:
    return jax.device_put(rng.standard_normal((WIDTH, 3 * WIDTH)).astype(np.float32))


@pytest.fixture
def rows(rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal((2, WIDTH)).astype(np.float32)


def test_a_step_takes_what_it_would_cut_out_of_its_state(weight: jax.Array, rows: np.ndarray) -> None:
    step, arguments = traced(looped, weight, rows)
    without, arguments, parts = apart(step, arguments, 1)
    (part,) = parts
    assert part.at == 0 and arguments[1][2].shape == (WIDTH, 2 * WIDTH)
    assert {e.primitive.name for e in without.jaxpr.eqns}.isdisjoint({"slice", "reshape"})
    given = (), (weight, rows, *taken(parts, [weight, rows])), np.uint32(3)
    wanted = step.lower().compile()((), (weight, rows), np.uint32(3))
    for one, other in zip(without.lower().compile()(*given), wanted, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("function", [added, scaled, whole, small])
def test_what_is_no_part_in_memory_is_left(function: Any, rng: np.random.Generator, weight: jax.Array) -> None:
    x = rng.standard_normal((WIDTH, 3 * WIDTH if function is added else WIDTH)).astype(np.float32)
    step, arguments = traced(function, weight, x)
    assert apart(step, arguments, 1) == (step, arguments, ())


def test_values_that_change_are_not_taken_apart(weight: jax.Array, rows: np.ndarray) -> None:
    step, arguments = traced(looped, weight, rows)
    assert apart(step, arguments, 0) == (step, arguments, ())


def test_a_part_lives_as_long_as_its_array(weight: jax.Array) -> None:
    parts = [Part(0, (("slice", ((0, 0), (WIDTH, WIDTH), (1, 1))),))]
    before = len(kept_parts._taken._parts)
    array = weight + 1
    (first,), (second,) = taken(parts, [array]), taken(parts, [array])
    assert first is second and len(kept_parts._taken._parts) == before + 1
    np.testing.assert_array_equal(first, np.asarray(array)[:, :WIDTH])
    del array
    gc.collect()
    assert len(kept_parts._taken._parts) == before


def test_a_weight_that_is_set_is_cut_anew(rng: np.random.Generator) -> None:
    """Each of a scope's weights is what the next run reads; another scope's are its own."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        read = fluid.data("x", [None, 3 * WIDTH], "float32", lod_level=1)
        hidden = fluid.layers.dynamic_gru(read, WIDTH, param_attr=fluid.ParamAttr(name="w"), bias_attr=False)
    exe, place = fluid.Executor(fluid.CPUPlace()), fluid.CPUPlace()
    x = rng.standard_normal((5, 3 * WIDTH)).astype(np.float32)

    def run(weight: np.ndarray | None = None) -> np.ndarray:
        if weight is not None:
            variable = fluid.global_scope().find_var("w")
            assert variable is not None
            variable.get_tensor().set(weight, place)
        fed = {"x": fluid.create_lod_tensor(x, [[3, 2]], place)}
        return np.array(exe.run(main, feed=fed, fetch_list=[hidden], return_numpy=False)[0])

    def expected(weight: np.ndarray) -> np.ndarray:
        gate, candidate = np.split(weight.reshape(-1), [2 * WIDTH * WIDTH])
        gate, candidate = gate.reshape(WIDTH, -1), candidate.reshape(WIDTH, -1)
        found: list[np.ndarray] = []
        for at, row in enumerate(list(x)):
            h = np.zeros(WIDTH) if at in (0, 3) else found[-1]
            u, r = np.split(1 / (1 + np.exp(-(row[: 2 * WIDTH] + h @ gate))), 2)
            found.append(u * np.tanh(row[2 * WIDTH :] + (r * h) @ candidate) + (1 - u) * h)
        return np.array(found)

    first, second, other = (rng.standard_normal((WIDTH, 3 * WIDTH)).astype(np.float32) / 8 for _ in range(3))
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        for weight in (first, second):
            for given in (weight, None, None):
                np.testing.assert_allclose(run(given), expected(weight), rtol=1e-4, atol=1e-5)
        with fluid.scope_guard(fluid.Scope()):
            exe.run(startup)
            np.testing.assert_allclose(run(other), expected(other), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(run(), expected(second), rtol=1e-4, atol=1e-5)
