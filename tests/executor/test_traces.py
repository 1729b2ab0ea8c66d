"""Ops of equal content are traced once; the step's equations are those that tracing each of them leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.framework.view import program_view
from lowering.engine.runner import Runner
from lowering.engine.traces import Traces
from lowering.engine.x64 import with_x64
from lowering.registry import OpDef, get_op
from lowering.values import LoDArray, Meta

IMAGES = (2, 6, 5, 5)


def layer(x: Any) -> Any:
    x = fluid.layers.conv2d(x, 6, 3, padding=1, bias_attr=False)
    return fluid.layers.batch_norm(x, act="relu")


def deep(x: Any) -> Any:
    for _ in range(4):
        x = layer(x)
    return fluid.layers.mean(x)


def dropped(x: Any) -> Any:
    for _ in range(3):
        x = fluid.layers.dropout(x, 0.5)
    return fluid.layers.mean(x)


def scaled(x: Any) -> Any:
    for scale in (2.0, 3.0, 2.0, 3.0, 2.0):
        x = fluid.layers.scale(x, scale)
    return fluid.layers.mean(x)


def shaped(x: Any) -> Any:
    for _ in range(3):
        x = fluid.layers.reshape(x, fluid.layers.shape(x))
        x = fluid.layers.assign(x)
    return fluid.layers.mean(x)


def program(build: Callable[[Any], Any]) -> tuple[Any, list[str], dict[str, np.ndarray]]:
    """A program that trains, as a view; what it leaves, and what it starts from."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        x = fluid.data("x", IMAGES)
        x.stop_gradient = False
        fluid.optimizer.Momentum(0.1, 0.9).minimize(build(x))
    held = [v for v in main.global_block().vars.values() if v.persistable]
    values = {v.name: np.full(v.shape, 0.3, np.float32) for v in held} | {"x": np.ones(IMAGES, np.float32)}
    return program_view(main), [v.name for v in held] + ["x@GRAD"], values


def listed(whole: Any, given: list[Any], found: list[Any]) -> list[Any]:
    """Enters what each equation does, those of calls in their place; returns the numbers of the results."""
    numbers = dict(zip(whole.jaxpr.invars, given, strict=True))
    numbers.update(zip(whole.jaxpr.constvars, map(str, whole.consts), strict=True))

    def read(v: Any) -> Any:
        return numbers[v] if isinstance(v, jax.extend.core.Var) else (v.val, v.aval)

    for equation in whole.jaxpr.eqns:
        operands = [*map(read, equation.invars)]
        if equation.primitive.name == "jit":
            left = listed(equation.params["jaxpr"], operands, found)
        else:
            found.append((str(equation.primitive), str(operands), str(equation.params)))
            left = [(len(found), i, v.aval) for i, v in enumerate(equation.outvars)]
        numbers.update(zip(equation.outvars, left, strict=True))
    return [*map(read, whole.jaxpr.outvars)]


def equations(build: Callable[[Any], Any], traces: Traces | None) -> list[Any]:
    view, names, values = program(build)

    def run(values: dict[str, Any]) -> list[Any]:
        runner = Runner(view, key=jax.random.key(0))
        runner.traces = traces
        env = runner.run_block(0, dict(values))
        return [env.get(name) for name in names]

    whole = with_x64(jax.make_jaxpr(run), values)
    found: list[Any] = []
    left = listed(whole, [*range(len(whole.jaxpr.invars))], found)
    return [*found, str(left)]


@pytest.mark.parametrize("build", [deep, dropped, scaled, shaped])
def test_the_equations_are_those_of_every_rule_traced(build: Callable[[Any], Any]) -> None:
    assert equations(build, Traces()) == equations(build, None)


def test_a_rule_is_traced_twice_however_many_ops_are_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, definition = [], get_op("conv2d_grad")
    rule = definition.fn

    def counted(*args: Any, **keywords: Any) -> Any:
        calls.append(args)
        return rule(*args, **keywords)

    monkeypatch.setattr(definition, "fn", counted)
    equations(deep, Traces())
    assert len(calls) == 2
    calls.clear()
    equations(deep, None)
    assert len(calls) == 4


def operator(rule: Callable[..., Any], special: frozenset[str] = frozenset()) -> tuple[OpDef, list[Any]]:
    """An op with that rule, and the list of the calls that the rule itself receives."""
    calls: list[Any] = []

    def fn(*args: Any, **keywords: Any) -> Any:
        calls.append(args)
        return rule(*args, **keywords)

    return OpDef("any", fn, [], [], {}, special), calls


def repeated(definition: OpDef, *args: Any, times: int = 4, **keywords: Any) -> list[Any]:
    """What equal calls return within one trace."""
    traces = Traces()
    results: list[Any] = []

    def run(x: Any) -> Any:
        given = [arg(x) if callable(arg) else arg for arg in args]
        results.extend(traces.evaluate(definition, given, keywords) for _ in range(times))
        return x

    jax.make_jaxpr(run)(np.ones((2, 3), np.float32))
    return results


@pytest.mark.parametrize(
    "arguments",
    [
        [lambda x: x],
        [lambda x: [x, x]],
        [LoDArray],
        [lambda x: x, None, Meta((2, 3), np.dtype("float32"))],
    ],
    ids=["array", "list", "exact rows", "absent and described ones"],
)
def test_values_that_only_have_a_form_do_not_tell_calls_apart(arguments: list[Any]) -> None:
    definition, calls = operator(lambda *args: jnp.zeros(3) + jnp.sum(jax.tree_util.tree_leaves(args[0])[0]))
    results = repeated(definition, *arguments)
    assert len(calls) == 2
    assert [r.shape for r in results] == [(3,)] * 4


@pytest.mark.parametrize(
    ("rule", "arguments", "special"),
    [
        (lambda x: np.int64(3), [lambda x: x], ""),
        (lambda x: x, [lambda x: x], ""),
        (lambda x, n: x * n, [lambda x: x, np.ones(3, np.float32)], ""),
        (lambda x: x + 1, [lambda x: x], "key"),
        (lambda x: x.data + 1, [lambda x: LoDArray(x, (np.array([0, 2], np.int32),))], ""),
        (lambda x: x.data + 1, [lambda x: LoDArray(x, nrows=jnp.sum(x).astype(int))], ""),
    ],
    ids=["a known result", "an argument returned", "known numbers", "a draw", "offsets", "padded rows"],
)
def test_calls_that_may_differ_are_traced_each(rule: Callable[..., Any], arguments: list[Any], special: str) -> None:
    definition, calls = operator(rule, frozenset(special.split()))
    results = repeated(definition, *arguments)
    assert len(calls) == len(results) == 4


def test_attributes_and_types_tell_calls_apart() -> None:
    definition, calls = operator(lambda x, *, by: x * by)
    traces = Traces()

    def run(x: Any) -> list[Any]:
        kinds = [(x, 2), (x, 3), (x.astype(np.float16), 2), (x[:1], 2)] * 3
        return [traces.evaluate(definition, [value], {"by": by}) for value, by in kinds]

    results = jax.jit(run)(np.ones((2, 3), np.float32))
    assert len(calls) == 8
    assert [float(r[0, 0]) for r in results] == [2, 3, 2, 2] * 3


def test_an_executor_steps_through_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    def trained(traces: Callable[..., Any]) -> list[bytes]:
        monkeypatch.setattr(Traces, "evaluate", traces)
        main, start, scope = fluid.Program(), fluid.Program(), fluid.Scope()
        main.random_seed = start.random_seed = 7
        with fluid.program_guard(main, start), fluid.unique_name.guard(), fluid.scope_guard(scope):
            loss = deep(fluid.data("x", IMAGES))
            fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
            exe = fluid.Executor(fluid.CPUPlace())
            exe.run(start)
            feed = {"x": np.linspace(-1, 1, int(np.prod(IMAGES)), dtype=np.float32).reshape(IMAGES)}
            return [exe.run(main, feed=feed, fetch_list=[loss])[0].tobytes() for _ in range(3)]

    each = trained(lambda self, definition, args, keywords: definition.fn(*args, **keywords))
    monkeypatch.undo()
    assert trained(Traces.evaluate) == each
