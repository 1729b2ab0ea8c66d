"""Programs as pure functions: equal to the Executor, under every transformation that JAX has."""

from __future__ import annotations

import filecmp

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fluidjax as fluid
from fluidjax.export import ExportError, from_jax, ragged, to_jax

X = np.linspace(-1, 1, 12, dtype="float32").reshape(4, 3)
Y = np.array([[0], [1], [1], [0]], "int64")


@pytest.fixture
def classifier():
    """(data, loss, probabilities, test program) of a small classifier in the default program, parameters drawn."""
    x, y = fluid.data("x", [None, 3]), fluid.data("y", [None, 1], "int64")
    hidden = fluid.layers.batch_norm(fluid.layers.fc(x, 5, act="tanh"))
    probabilities = fluid.layers.softmax(fluid.layers.fc(hidden, 2))
    loss = fluid.layers.mean(fluid.layers.cross_entropy(probabilities, y))
    test = fluid.default_main_program().clone(for_test=True)
    fluid.default_startup_program().random_seed = 7
    return (x, y), loss, probabilities, test


def executor(startup=True):
    exe = fluid.Executor(fluid.CPUPlace())
    if startup:
        exe.run(fluid.default_startup_program())
    return exe


def test_equals_the_executor(classifier):
    _, loss, probabilities, test = classifier
    exe = executor()
    function, parameters = to_jax(test, ["x", "y"], [loss, probabilities])
    expected = exe.run(test, feed={"x": X, "y": Y}, fetch_list=[loss, probabilities])
    for inputs in ({"x": X, "y": Y}, [X, Y], [jnp.asarray(X), jnp.asarray(Y)]):
        for run in (function, jax.jit(function)):
            for a, b in zip(run(parameters, inputs), expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-6)
    assert (function.feeds, function.fetches, function.random) == (("x", "y"), (loss.name, probabilities.name), False)


def test_works_with_and_without_64_bit_types(classifier):
    _, loss, _, test = classifier
    executor()
    function, parameters = to_jax(test, fetches=[loss])
    with jax.enable_x64(True):
        wide = jax.jit(function)(parameters, {"x": X, "y": Y})
    with jax.enable_x64(False):
        narrow = jax.jit(function)(parameters, {"x": X, "y": Y})
    np.testing.assert_allclose(wide[0], narrow[0], rtol=1e-6)


def test_what_leads_to_no_fetch_needs_no_input(classifier):
    _, _, probabilities, test = classifier
    executor()
    function, parameters = to_jax(test, fetches=[probabilities])
    assert function.feeds == ("x",)
    assert function(parameters, [X])[0].shape == (4, 2)


def test_gradient_is_that_of_append_backward(classifier):
    _, loss, _, _ = classifier
    pairs = fluid.backward.append_backward(loss)
    exe = executor()
    function, parameters = to_jax(fluid.default_main_program(), fetches=[loss])
    trained = {p.name: parameters[p.name] for p, _ in pairs}
    found = jax.jit(jax.grad(lambda t: function({**parameters, **t}, [X, Y])[0][0]))(trained)
    expected = exe.run(feed={"x": X, "y": Y}, fetch_list=[g for _, g in pairs])
    for (p, _), gradient in zip(pairs, expected, strict=True):
        np.testing.assert_allclose(found[p.name], gradient, rtol=1e-4, atol=1e-6, err_msg=p.name)


def test_training_steps_in_a_scan(classifier):
    _, loss, _, _ = classifier
    fluid.optimizer.Adam(0.1).minimize(loss)
    exe = executor()
    function, parameters = to_jax(fluid.default_main_program(), fetches=[loss])

    def body(state, _):
        (value,), state = function.step(state, [X, Y])
        return state, value

    after, losses = jax.jit(lambda state: jax.lax.scan(body, state, None, length=4))(parameters)
    expected = [exe.run(feed={"x": X, "y": Y}, fetch_list=[loss])[0] for _ in range(4)]
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    for name in function.written:
        held = np.array(fluid.global_scope().find_var(name).get_tensor())
        np.testing.assert_allclose(after[name], held, rtol=1e-4, atol=1e-6, err_msg=name)
    assert {"fc_0.w_0", "batch_norm_0.w_1"} <= set(function.written)


def test_vmap_over_inputs_and_over_parameters(classifier):
    _, _, probabilities, test = classifier
    executor()
    function, parameters = to_jax(test, fetches=[probabilities])
    batches = jnp.stack([X, -X])
    found = jax.vmap(lambda x: function(parameters, [x])[0])(batches)
    twice = jax.tree_util.tree_map(lambda p: jnp.stack([p, p]), parameters)
    per_model = jax.vmap(lambda p, x: function(p, [x])[0])(twice, batches)
    for i in range(2):
        np.testing.assert_allclose(found[i], function(parameters, [batches[i]])[0], rtol=1e-6)
        np.testing.assert_allclose(per_model[i], found[i], rtol=1e-6)


def test_shard_map(classifier):
    _, _, probabilities, test = classifier
    executor()
    function, parameters = to_jax(test, fetches=[probabilities])
    mesh = jax.make_mesh((1,), ("batch",), axis_types=(jax.sharding.AxisType.Auto,))
    rows = jax.sharding.PartitionSpec("batch")
    sharded = jax.shard_map(
        lambda p, x: function(p, [x])[0], mesh=mesh, in_specs=(jax.sharding.PartitionSpec(), rows), out_specs=rows
    )
    np.testing.assert_allclose(sharded(parameters, X), function(parameters, [X])[0], rtol=1e-6)


def test_random_numbers_follow_the_key():
    x = fluid.data("x", [None, 3])
    dropped = fluid.layers.dropout(x, 0.5)
    function, parameters = to_jax(fluid.default_main_program(), fetches=[dropped])
    assert function.random
    ones = np.ones((50, 3), "float32")
    run = jax.jit(lambda key: function(parameters, [ones], key)[0])
    a, b, c = (np.asarray(run(jax.random.key(seed))) for seed in (1, 1, 2))
    np.testing.assert_array_equal(a, b)
    assert (a != c).any()
    assert 30 < (a == 0).sum() < 120
    with pytest.raises(ExportError, match="random numbers"):
        function(parameters, [ones])


def test_ragged_values():
    words = fluid.data("words", [None, 1], "int64", lod_level=1)
    embedded = fluid.layers.embedding(words, [10, 4])
    pooled, each = (
        fluid.layers.sequence_pool(embedded, "max"),
        fluid.layers.sequence_softmax(fluid.layers.fc(embedded, 1)),
    )
    exe = executor()
    function, parameters = to_jax(fluid.default_main_program(), fetches=[pooled, each])
    traces = []

    @jax.jit
    def run(*args):
        traces.append(1)
        return function(*args)

    for lengths in ([2, 3], [4, 1], [1, 1]):
        ids = np.arange(sum(lengths)).reshape(-1, 1).astype("int64")
        a, b = run(parameters, {"words": ragged(ids, lengths, room=8)})
        tensor = fluid.create_lod_tensor(ids, [lengths], fluid.CPUPlace())
        expected = exe.run(feed={"words": tensor}, fetch_list=[pooled, each], return_numpy=False)
        np.testing.assert_allclose(a, np.array(expected[0]), rtol=1e-6)
        np.testing.assert_allclose(b.data[: int(b.nrows)], np.array(expected[1]), rtol=1e-5)
        assert b.lod[0].tolist() == expected[1].lod()[0]
    assert len(traces) == 1
    with pytest.raises(ValueError, match="add up"):
        ragged(np.zeros((3, 1)), [1, 1])


def test_back_into_the_scope_and_the_files(classifier, tmp_path):
    _, loss, _, test = classifier
    exe = executor()
    main = fluid.default_main_program()
    fluid.io.save_persistables(exe, str(tmp_path / "before"), main)
    function, parameters = to_jax(test, fetches=[loss])
    from_jax(jax.tree_util.tree_map(jnp.zeros_like, parameters))
    assert not np.array(fluid.global_scope().find_var("fc_0.w_0").get_tensor()).any()
    from_jax(parameters)
    fluid.io.save_persistables(exe, str(tmp_path / "after"), main)
    names = sorted(path.name for path in (tmp_path / "before").iterdir())
    assert filecmp.cmpfiles(tmp_path / "before", tmp_path / "after", names, shallow=False) == (names, [], [])
    # What went into the scope is a copy: a run that donates it leaves the caller's arrays alone.
    fluid.optimizer.SGD(0.1).minimize(loss)
    exe.run(fluid.default_startup_program())
    from_jax(parameters)
    exe.run(main, feed={"x": X, "y": Y})
    assert np.isfinite(parameters["fc_0.w_0"]).all()


def test_a_saved_model_is_tuned_and_saved_again(classifier, tmp_path):
    (_, y), _, probabilities, test = classifier
    exe = executor()
    fluid.io.save_inference_model(str(tmp_path / "model"), ["x"], [probabilities], exe, test)
    function, parameters = to_jax(tmp_path / "model")

    def loss(parameters):
        (p,) = function(parameters, [X])
        return -jnp.log(jnp.take_along_axis(p, Y, 1)).mean()

    adam = optax.adam(0.05)

    @jax.jit
    def step(parameters, state):
        updates, state = adam.update(jax.grad(loss)(parameters), state)
        return optax.apply_updates(parameters, updates), state

    tuned, state = parameters, adam.init(parameters)
    for _ in range(5):
        tuned, state = step(tuned, state)
    assert loss(tuned) < loss(parameters)

    scope = fluid.Scope()
    with fluid.scope_guard(scope):
        program, feeds, fetches = fluid.io.load_inference_model(str(tmp_path / "model"), exe)
        from_jax(tuned)
        fluid.io.save_inference_model(str(tmp_path / "tuned"), feeds, fetches, exe, program)
    again, held = to_jax(tmp_path / "tuned")
    np.testing.assert_array_equal(again(held, [X])[0], function(tuned, [X])[0])


def test_a_loop_needs_a_bound_for_its_gradient_only():
    x = fluid.data("x", [1])
    x.stop_gradient = False
    limit = fluid.layers.fill_constant([1], "float32", 100.0)
    (final,) = fluid.layers.while_loop(lambda v: fluid.layers.less_than(v, limit), lambda v: [v * 2.0], [x * 1.0])
    forward, nothing = to_jax(fluid.default_main_program(), fetches=[final])
    assert forward(nothing, [np.full(1, 3, "float32")])[0] == 192
    (gradient,) = fluid.gradients(final, x)
    unbounded, _ = to_jax(fluid.default_main_program(), fetches=[gradient])
    with pytest.raises(ExportError, match="capacities={") as error:
        jax.jit(unbounded)({}, [np.full(1, 3, "float32")])
    name = str(error.value).split("{'")[1].split("'")[0]
    bounded, _ = to_jax(fluid.default_main_program(), fetches=[gradient], capacities={name: 8})
    run = jax.jit(bounded)
    assert run({}, [np.full(1, 3, "float32")])[0] == 64
    assert np.isnan(run({}, [np.full(1, 0.01, "float32")])[0]).all()


@pytest.mark.parametrize("certain", [True, False])
def test_what_stands_before_a_loop_may_have_another_shape_if_no_step_reads_it(certain):
    """Converted loops hold a number where they make a tensor; without a step, the number would be what is left."""
    x, room = fluid.data("x", [2, 3]), fluid.data("room", [1])
    held = fluid.layers.fill_constant([1], "float32", 7.0)
    i, limit = fluid.layers.fill_constant([1], "float32", 0.0), fluid.layers.fill_constant([1], "float32", 9.0)
    more = fluid.layers.less_than(i, limit if certain else room)
    loop = fluid.layers.While(more)
    with loop.block():
        fluid.layers.assign(x * i, held)
        fluid.layers.increment(i)
        fluid.layers.logical_and(fluid.layers.less_than(i, limit), fluid.layers.less_than(i, room), out=more)
    out = fluid.layers.scale(held, 2.0)
    function, parameters = to_jax(fluid.default_main_program(), ["x", "room"], [out])
    inputs = [np.ones((2, 3), "float32"), np.array([3.5], "float32")]
    if not certain:
        with pytest.raises(ExportError, match=r"shape changes from \[1\] to \[2, 3\]"):
            jax.jit(function)(parameters, inputs)
        return
    np.testing.assert_array_equal(jax.jit(function)(parameters, inputs)[0], np.full((2, 3), 6.0))
    (ran,) = executor(False).run(feed=dict(zip(["x", "room"], inputs, strict=True)), fetch_list=[out])
    np.testing.assert_array_equal(ran, np.full((2, 3), 6.0))


def test_steps_that_are_sequences_get_room_for_all_their_rows():
    """Each step of x writes a whole sequence of y: more rows than either has."""
    x, y = (fluid.data(name, [None, 1], lod_level=1) for name in "xy")
    recurrence = fluid.layers.DynamicRNN()
    with recurrence.block():
        step, other = recurrence.step_input(x), recurrence.static_input(y)
        recurrence.output(other + fluid.layers.sequence_expand(step, other))
    out = recurrence()
    rows = {"x": (np.arange(4, dtype="float32").reshape(-1, 1), [[3, 1]]), "y": (np.ones((5, 1), "float32"), [[4, 1]])}
    feed = {name: fluid.create_lod_tensor(*value, fluid.CPUPlace()) for name, value in rows.items()}
    (expected,) = executor().run(feed=feed, fetch_list=[out], return_numpy=False)
    function, parameters = to_jax(fluid.default_main_program(), ["x", "y"], [out])
    (found,) = jax.jit(function)(parameters, {name: ragged(*value) for name, value in rows.items()})
    assert int(found.nrows) == 13
    np.testing.assert_array_equal(found.data[:13], np.array(expected))


def test_state_that_begins_with_the_first_run_is_left_out():
    """An evaluator's sum has no value before; a fetch that depends on it says so."""
    x = fluid.data("x", [1])
    total = (
        fluid.default_main_program()
        .global_block()
        .create_var(name="total", shape=[1], dtype="float32", persistable=True)
    )
    twice = x * 2.0
    fluid.layers.sums([total, twice], total)
    function, parameters = to_jax(fluid.default_main_program(), fetches=[twice])
    assert (parameters, function.written) == ({}, ())
    assert function({}, [np.ones(1, "float32")])[0] == 2
    with pytest.raises(ExportError, match="hold no value"):
        to_jax(fluid.default_main_program(), fetches=[total])


def test_a_counter_begins_with_its_attribute():
    """The Executor's first run finds no seed; the function's parameters have the number that this run begins with."""
    x = fluid.data("x", [8, 1])
    shuffled = fluid.contrib.layers.shuffle_batch(x, 42)
    main, rows = fluid.default_main_program(), np.arange(8, dtype="float32")[:, None]
    function, parameters = to_jax(main, [x], [shuffled])
    exe = fluid.Executor(fluid.CPUPlace())
    with jax.enable_x64(True):  # the counter is of 64 bits
        for _ in range(2):
            expected = exe.run(main, {"x": rows}, [shuffled])[0]
            (found,), parameters = function.step(parameters, [rows])
            np.testing.assert_array_equal(found, expected)
    shuffled.op._remove_attr("startup_seed")  # as in files that leave attributes to their defaults
    (begun,) = to_jax(main, [x], [shuffled], scope=fluid.Scope())[1].values()
    np.testing.assert_array_equal(begun, [0])


def test_a_fetch_that_no_op_writes_is_named():
    x = fluid.data("x", [2])
    fluid.layers.relu(x)
    block = fluid.default_main_program().global_block()
    block.create_var(name="lost", shape=[2], dtype="float32")
    function, parameters = to_jax(fluid.default_main_program(), ["x"], ["lost"])
    with pytest.raises(ExportError, match=r"nothing to return\n  expected: .*\n  received: 'lost', which no op writes"):
        function(parameters, [np.ones(2, "float32")])


def test_what_cannot_leave_says_so(classifier):
    _, loss, _, test = classifier
    with pytest.raises(ExportError, match="hold no value"):
        to_jax(test, fetches=[loss])
    executor()
    function, parameters = to_jax(test, fetches=[loss])
    for inputs in ({"x": X}, [X], {"x": X, "y": Y, "z": X}, [X, Y, X]):
        with pytest.raises(ExportError, match=r"2 inputs: \['x', 'y'\]"):
            function(parameters, inputs)
    out = fluid.default_main_program().current_block().create_var(name="out", dtype="float32", shape=[1])
    fluid.layers.py_func(lambda v: v, loss, out)
    with pytest.raises(ExportError, match=r"op py_func \(#\d+ of block 0\), built at: .*test_to_jax.py"):
        to_jax(fluid.default_main_program(), fetches=[out])


@pytest.mark.parametrize("wide", [True, False])
def test_a_call_with_arrays_pads_as_a_compiled_one(wide):
    """A recurrence gives rows beside those of another ragged input, whether it is compiled or not, in 32 bits too."""
    x, y = (fluid.data(name, [None, 2], lod_level=1) for name in "xy")
    recurrence = fluid.layers.DynamicRNN()
    with recurrence.block():
        step = recurrence.step_input(x)
        before = recurrence.memory(shape=[2], value=0.0)
        now = step + before
        recurrence.update_memory(before, now)
        recurrence.output(now)
    out = fluid.layers.square_error_cost(recurrence(), y)
    function, parameters = to_jax(fluid.default_main_program(), ["x", "y"], [out])
    rows = np.arange(10, dtype="float32").reshape(5, 2)
    with jax.enable_x64(wide):
        given = {"x": ragged(rows, [[3, 2]]), "y": ragged(rows + 1, [[3, 2]])}
        (plain,), (compiled,) = function(parameters, given), jax.jit(function)(parameters, given)
    sums = np.concatenate([rows[:3].cumsum(0), rows[3:].cumsum(0)])
    assert int(plain.nrows) == 5
    np.testing.assert_allclose(plain.data[:5], (sums - rows - 1) ** 2)
    np.testing.assert_array_equal(plain.data, compiled.data)
