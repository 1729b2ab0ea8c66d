"""StaticRNN, DynamicRNN and layers.rnn against NumPy and jax.grad."""

from __future__ import annotations

from contextlib import nullcontext

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.interpreters import partial_eval as pe

import fluidjax as fluid
from fluidjax.framework.view import program_view
from lowering import Runner
from tests.control_flow.running import build, ragged, rows, run

pytestmark = pytest.mark.usefixtures("compiled_quickly")

layers = fluid.layers
WIDTH = 3


def test_static_rnn_runs_op_by_op_in_interpret_mode(rng) -> None:
    """A step may take a shape from a tensor then, and a watcher of the ops sees numbers."""

    def network():
        x = fluid.data("x", [4, 2, WIDTH], "float32")
        rnn = layers.StaticRNN()
        with rnn.step():
            row, before = rnn.step_input(x), rnn.memory(shape=[-1, WIDTH], batch_ref=x, ref_batch_dim_idx=1)
            after = layers.elementwise_add(before, layers.expand(row, [1, layers.fill_constant([1], "int32", 1)]))
            rnn.update_memory(before, after)
            rnn.step_output(after)
        return [rnn()]

    main, startup, fetch = build(network)
    x, seen = rng.normal(size=(4, 2, WIDTH)).astype(np.float32), []
    executor = fluid.Executor(fluid.CPUPlace())

    def watch(op, values):
        seen.extend(np.asarray(v) for v in values.values() if op.type == "elementwise_add")

    with fluid.scope_guard(fluid.Scope()), fluid.interpret_mode(watch):
        executor.run(startup)
        (out,) = executor.run(main, feed={"x": x}, fetch_list=fetch)
    np.testing.assert_allclose(out, np.cumsum(x, 0), rtol=1e-5)
    np.testing.assert_array_equal(np.stack(seen), out)


@pytest.mark.parametrize("interpret", [False, True])
def test_static_rnn_equals_a_scan(rng, interpret: bool) -> None:
    def network():
        x = fluid.data("x", [4, 2, WIDTH], "float64")
        h0 = fluid.data("h0", [2, WIDTH], "float64")
        x.stop_gradient = h0.stop_gradient = False
        w = layers.create_parameter([WIDTH, WIDTH], "float64", name="w")
        rnn = layers.StaticRNN()
        with rnn.step():
            row, before = rnn.step_input(x), rnn.memory(init=h0)
            after = layers.tanh(layers.elementwise_add(layers.matmul(before, w), row))
            rnn.update_memory(before, after)
            rnn.step_output(after)
        loss = layers.reduce_sum(layers.elementwise_mul(rnn(), rnn()))
        return [loss, *fluid.gradients([loss], [x, h0, w])]

    def plain(x, h, w):
        def step(h, row):
            h = jnp.tanh(h @ w + row)
            return h, h

        return jnp.sum(jax.lax.scan(step, h, x)[1] ** 2)

    x, h0 = rng.normal(size=(4, 2, WIDTH)), rng.normal(size=(2, WIDTH))
    w = rng.normal(size=(WIDTH, WIDTH))
    main, startup, fetch = build(network)
    got = run(main, startup, {"x": x, "h0": h0}, fetch, {"w": w}, interpret)
    with jax.enable_x64(True):
        want = jax.value_and_grad(plain, (0, 1, 2))(x, h0, w)
    np.testing.assert_allclose(got[0], [want[0]], rtol=1e-12)
    for mine, theirs in zip(got[1:], want[1], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-10)


@pytest.mark.parametrize("rows, hoisted", [(2, True), (64, False)])
def test_weight_gradients_of_a_static_rnn_are_products_after_it(rng, rows: int, hoisted: bool) -> None:
    """Where a step's rows are few, the reverse scan has one product less: that of the weight's gradient."""

    def network():
        x = fluid.data("x", [4, rows, 8], "float32")
        rnn = layers.StaticRNN()
        with rnn.step():
            row, before = rnn.step_input(x), rnn.memory(shape=[rows, 8], batch_ref=x)
            after = layers.tanh(layers.elementwise_add(layers.fc(before, 8, param_attr="w", bias_attr=False), row))
            rnn.update_memory(before, after)
            rnn.step_output(after)
        loss = layers.reduce_sum(rnn())
        return [loss, *(g for _, g in fluid.backward.append_backward(loss))]

    main, _, fetch = build(network)
    view = program_view(main)

    def call(x, w):
        env = {"x": x, "w": w}
        Runner(view).run_block(0, env)
        return [env[v.name] for v in fetch]

    x, w = rng.normal(size=(4, rows, 8)).astype("f"), rng.normal(size=(8, 8)).astype("f")
    with jax.enable_x64(True):
        scans = [e for e in jax.make_jaxpr(call)(x, w).eqns if e.primitive.name == "scan"]
        got = call(x, w)
    used = [pe.dce_jaxpr(e.params["jaxpr"].jaxpr, [True] * len(e.outvars))[0] for e in scans]
    products = [sum(e.primitive.name == "dot_general" for e in jaxpr.eqns) for jaxpr in used]
    assert products == [1, 1 if hoisted else 2]

    def plain(w):
        return jax.lax.scan(lambda h, row: (jnp.tanh(h @ w + row),) * 2, jnp.zeros((rows, 8), "f"), x)[1].sum()

    np.testing.assert_allclose(got[1], jax.grad(plain)(w), rtol=1e-4, atol=1e-4)


def dynamic():
    """Over ragged x, with a memory that starts from rows in batch order and a ragged input seen whole in each step."""

    def network():
        x = fluid.data("x", [None, WIDTH], "float64", lod_level=1)
        start = fluid.data("start", [None, WIDTH], "float64")
        whole = fluid.data("whole", [None, WIDTH], "float64", lod_level=1)
        for var in (x, start, whole):
            var.stop_gradient = False
        w = layers.create_parameter([WIDTH, WIDTH], "float64", name="w")
        rnn = layers.DynamicRNN()
        with rnn.block():
            row = rnn.step_input(x)
            before = rnn.memory(init=start, need_reorder=True)
            seen = layers.sequence_pool(rnn.static_input(whole), "sum")
            after = layers.tanh(layers.elementwise_add(layers.matmul(before, w), row))
            after = layers.elementwise_add(after, seen)
            rnn.update_memory(before, after)
            rnn.output(after)
        out = rnn()
        loss = layers.reduce_sum(layers.elementwise_mul(out, out))
        return [out, *fluid.gradients([loss], [x, start, whole, w])]

    return build(network)


def plain(x, start, whole, w, lengths, others):
    """The same, sequence by sequence."""
    outs, at, other = [], 0, 0
    for k, length in enumerate(lengths):
        h, seen = start[k], whole[other : other + others[k]].sum(0)
        other += others[k]
        for _ in range(length):
            h = jnp.tanh(h @ w + x[at]) + seen
            outs.append(h)
            at += 1
    return jnp.stack(outs)


@pytest.mark.parametrize("interpret", [False, True])
@pytest.mark.parametrize("lengths", [[2, 5, 1, 3], [0, 3, 0, 2], [3, 1, 4, 0]])
def test_dynamic_rnn_equals_each_sequence_on_its_own(rng, lengths: list[int], interpret: bool) -> None:
    """Empty sequences first, in the middle and last; memories and static inputs follow the ranking and back."""
    others = [2, 1, 3, 1]
    x, start = rng.normal(size=(sum(lengths), WIDTH)), rng.normal(size=(4, WIDTH))
    whole, w = rng.normal(size=(sum(others), WIDTH)), rng.normal(size=(WIDTH, WIDTH))
    main, startup, fetch = dynamic()
    feed = {"x": ragged(x, lengths), "start": start, "whole": ragged(whole, others)}
    got = run(main, startup, feed, fetch, {"w": w}, interpret)
    with jax.enable_x64(True):
        out = plain(x, start, whole, w, lengths, others)
        grads = jax.grad(lambda *a: jnp.sum(plain(*a, lengths, others) ** 2), (0, 1, 2, 3))(x, start, whole, w)
    np.testing.assert_allclose(got[0], out, rtol=1e-10)
    for mine, theirs in zip(got[1:], grads, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-8, atol=1e-12)


def test_gradient_arrays_end_alike_in_both_modes(rng) -> None:
    """A memory's array has one element more than there are steps; nothing reads the last, so its gradient lacks it."""
    lengths = [2, 5, 1, 3]
    main, startup, _ = dynamic()
    block = main.global_block()
    names = sorted(n for n, v in block.vars.items() if v.type == fluid.core.VarDesc.VarType.LOD_TENSOR_ARRAY)
    gradients = [n for n in names if n.endswith("@GRAD")]
    feed = {"x": ragged(rng.normal(size=(11, WIDTH)), lengths), "start": rng.normal(size=(4, WIDTH))}
    feed |= {"whole": ragged(rng.normal(size=(4, WIDTH)), [1] * 4)}
    executor, w = fluid.Executor(fluid.CPUPlace()), rng.normal(size=(WIDTH, WIDTH))
    found = []
    for mode in (nullcontext, fluid.interpret_mode):
        with fluid.scope_guard(fluid.Scope()), mode():
            executor.run(startup)
            fluid.global_scope().var("w").get_tensor().set(w, fluid.CPUPlace())
            arrays = executor.run(main, feed=feed, fetch_list=gradients, return_numpy=False)
        found.append([rows(list(array)) for array in arrays])
    jitted, stepwise = found
    sizes = {n: len(v) for n, v in zip(gradients, jitted, strict=True)}
    assert {n: len(v) for n, v in zip(gradients, stepwise, strict=True)} == sizes
    assert set(sizes.values()) == {5}
    for mine, theirs in zip(jitted, stepwise, strict=True):
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10)


def test_batches_of_other_lengths_one_after_another(rng) -> None:
    main, startup, fetch = dynamic()
    executor, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    others = [1, 1, 1, 1]
    start, whole = rng.normal(size=(4, WIDTH)), rng.normal(size=(4, WIDTH))
    w = rng.normal(size=(WIDTH, WIDTH))
    with fluid.scope_guard(scope):
        executor.run(startup)
        scope.var("w").get_tensor().set(w, fluid.CPUPlace())
        for lengths in ([4, 2, 3, 1], [1, 3, 3, 3], [3, 4, 1, 2]):
            x = rng.normal(size=(10, WIDTH))
            feed = {"x": ragged(x, lengths), "start": start, "whole": ragged(whole, others)}
            out = rows(executor.run(main, feed=feed, fetch_list=fetch[:1], return_numpy=False))[0]
            with jax.enable_x64(True):
                want = plain(x, start, whole, w, lengths, others)
            np.testing.assert_allclose(out, want, rtol=1e-10)


def test_rnn_keeps_the_state_of_ended_sequences(rng) -> None:
    def network():
        x = fluid.data("x", [2, 4, WIDTH], "float32")
        length = fluid.data("length", [2], "int64")
        cell = layers.GRUCell(WIDTH, name="cell")
        outputs, state = layers.rnn(cell, x, sequence_length=length)
        return [outputs, state]

    main, startup, fetch = build(network)
    x = rng.normal(size=(2, 4, WIDTH)).astype("float32")
    outputs, state = run(main, startup, {"x": x, "length": np.array([2, 4])}, fetch)
    np.testing.assert_allclose(state[0], outputs[0, 1], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(state[1], outputs[1, 3], rtol=1e-6, atol=1e-7)


def test_each_step_of_a_recurrence_draws_its_own_dropout_mask() -> None:
    def network():
        x = fluid.data("x", [6, 2, 40], "float32")
        rnn = layers.StaticRNN()
        with rnn.step():
            row = rnn.step_input(x)
            before = rnn.memory(shape=[-1, 40], batch_ref=x)
            rnn.update_memory(before, row)
            rnn.step_output(layers.dropout(row, 0.5, dropout_implementation="upscale_in_train"))
        return [rnn()]

    main, startup, fetch = build(network)
    main.random_seed = 7
    out = run(main, startup, {"x": np.ones((6, 2, 40), "float32")}, fetch)[0]
    assert set(np.unique(out)) == {0.0, 2.0}
    masks = {row.tobytes() for row in out}
    assert len(masks) == len(out)


@pytest.mark.parametrize("interpret", [False, True])
def test_a_branch_of_a_step_that_does_not_run_leaves_nothing_to_its_gradient(interpret: bool) -> None:
    """Rows below zero are scaled, others squared: the steps save values of different branches."""

    def network():
        x = fluid.data("x", [4, 1], "float64")
        x.stop_gradient = False
        rnn, start = layers.StaticRNN(), layers.fill_constant([1], "float64", 0.0)
        with rnn.step():
            row, before = layers.scale(rnn.step_input(x), 1.0), rnn.memory(init=start)
            negative = layers.less_than(row, layers.fill_constant([1], "float64", 0.0))
            part = layers.cond(negative, lambda: layers.scale(row, 3.0), lambda: layers.square(row))
            after = layers.elementwise_add(before, part)
            rnn.update_memory(before, after)
            rnn.step_output(after)
        last = layers.slice(rnn(), [0], [3], [4])
        return [last, *fluid.gradients([layers.reduce_sum(last)], [x])]

    main, startup, fetch = build(network)
    x = np.array([[0.5], [-2.0], [3.0], [-1.0]])
    total, d_x = run(main, startup, {"x": x}, fetch, interpret=interpret)
    np.testing.assert_allclose(total.ravel(), [0.25 - 6.0 + 9.0 - 3.0])
    np.testing.assert_allclose(d_x, [[1.0], [3.0], [6.0], [3.0]])


@pytest.mark.parametrize("lengths", [[2, 3], [0, 3, 0]])
def test_a_recurrence_beside_rows_that_only_the_run_knows(rng, lengths) -> None:
    """Where ``sequence_unpad`` cuts the program, arrays of known rows are given stacked, padded gradients."""

    def network(detour: bool):
        x = fluid.data("x", [None, WIDTH], "float32", lod_level=1)
        x.stop_gradient = False
        beside = layers.tanh(x)
        if detour:
            padded, counts = layers.sequence_pad(x, layers.fill_constant([1], "float32", 0.0))
            beside = layers.sequence_unpad(layers.tanh(padded), counts)
        rnn = layers.DynamicRNN()
        with rnn.block():
            row, before = rnn.step_input(x), rnn.memory(shape=[WIDTH], value=0.5)
            after = layers.tanh(layers.elementwise_add(row, before))
            rnn.update_memory(before, after)
            rnn.output(after)
        loss = layers.mean(layers.sums([layers.square(beside), layers.square(rnn())]))
        return [loss, *fluid.gradients([loss], [x])]

    feed = {"x": ragged(rng.normal(size=(sum(lengths), WIDTH)).astype(np.float32), lengths)}
    results = []
    for detour in (True, False):
        main, startup, fetch = build(lambda detour=detour: network(detour))
        results.append(run(main, startup, feed, fetch))
    for found, expected in zip(*results, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
