"""Executor.run: feeds in, fetches out, state in the scope."""

from pathlib import Path

import jax
import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.execution.executables.kept import keep_in
from tests.executor.conftest import Net, ragged

X = np.arange(6, dtype=np.float32).reshape(3, 2)
W = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)


def linear(net: Net) -> Net:
    net.data("x", [-1, 2])
    net.parameter("w", W)
    net.op("mul", {"X": ["x"], "Y": ["w"]}, "y")
    return net


def test_fetch_by_name_and_by_variable(net: Net) -> None:
    linear(net)
    by_name, by_variable = net.run({"x": X}, ["y", net.block.var("y")])
    np.testing.assert_array_equal(by_name, X @ W)
    np.testing.assert_array_equal(by_variable, X @ W)


def test_one_fetch_need_not_be_a_list(net: Net) -> None:
    (got,) = linear(net).run({"x": X}, "y")
    np.testing.assert_array_equal(got, X @ W)


def test_a_feed_list_is_for_as_many_devices(net: Net) -> None:
    (got,) = linear(net).run([{"x": X}], ["y"])
    np.testing.assert_array_equal(got, X @ W)
    with pytest.raises(AssertionError, match=r"Not compiled with data parallel[\s\S]*list of 2[\s\S]*CompiledProgram"):
        net.run([{"x": X}, {"x": X + 1}], ["y"])


def test_python_lists_take_the_dtype_of_the_variable(net: Net) -> None:
    (got,) = linear(net).run({"x": X.tolist()}, ["y"])
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, X @ W)


def test_return_numpy_false_gives_a_tensor(net: Net) -> None:
    (got,) = linear(net).run({"x": X}, ["y"], return_numpy=False)
    assert isinstance(got, fluid.LoDTensor)
    np.testing.assert_array_equal(np.array(got), X @ W)


def test_state_is_written_back_and_seen_by_another_program(net: Net) -> None:
    net.parameter("w", W)
    net.op("scale", {"X": ["w"]}, "w", scale=2.0)
    net.run()
    net.run()
    other = Net()
    other.scope = net.scope
    other.block.create_var(name="w", shape=[2, 2], dtype="float32", persistable=True)
    other.op("scale", {"X": ["w"]}, "out", scale=1.0)
    np.testing.assert_array_equal(other.run(fetch=["out"])[0], 4 * W)
    net.run()
    np.testing.assert_array_equal(other.run(fetch=["out"])[0], 8 * W)


def test_a_value_set_between_runs_is_seen(net: Net) -> None:
    linear(net).run({"x": X}, ["y"])
    net.set("w", 3 * W)
    np.testing.assert_array_equal(net.run({"x": X}, ["y"])[0], X @ (3 * W))


def test_a_fetched_parameter_does_not_change_with_later_runs(net: Net) -> None:
    net.parameter("w", W)
    net.op("scale", {"X": ["w"]}, "w", scale=2.0)
    (first,) = net.run(fetch=["w"])
    (tensor,) = net.run(fetch=["w"], return_numpy=False)
    kept = first.copy(), np.array(tensor)
    net.run()
    np.testing.assert_array_equal(first, kept[0])
    np.testing.assert_array_equal(np.array(tensor), kept[1])


def test_the_array_given_to_set_is_never_written(net: Net) -> None:
    mine = W.copy()
    net.parameter("w", mine)
    net.op("scale", {"X": ["w"]}, "w", scale=2.0)
    net.run()
    np.testing.assert_array_equal(mine, W)


def test_one_array_under_two_names_survives_donation(net: Net) -> None:
    net.parameter("a", W)
    net.parameter("b", W)
    net.op("scale", {"X": ["a"]}, "a", scale=2.0)
    net.op("scale", {"X": ["b"]}, "b", scale=3.0)
    net.run()
    net.scope.find_var("b").get_tensor()._set_value(net.scope.find_var("a").get_tensor()._value)
    net.run()
    np.testing.assert_array_equal(net.get("a"), 4 * W)
    np.testing.assert_array_equal(net.get("b"), 6 * W)


def test_state_is_replaced_in_its_own_buffer(net: Net) -> None:
    def pointers() -> list[int]:
        return [net.scope.find_var(n).get_tensor()._value.unsafe_buffer_pointer() for n in "abc"]

    for name in "abc":
        net.parameter(name, W)
    for name in "cab":  # the order of writing is not that of reading
        net.op("scale", {"X": [name]}, name, scale=2.0)
    net.op("scale", {"X": ["a"]}, "out", scale=1.0)
    net.run(fetch=["out"])
    before = pointers()
    net.run(fetch=["out"])
    assert pointers() == before


def test_an_undeclared_variable_is_kept_from_when_the_scope_holds_it(net: Net) -> None:
    net.parameter("a", W)
    net.op("scale", {"X": ["a"]}, "out", scale=2.0)
    net.block._remove_var("out")
    net.run()
    assert net.scope.find_var("out") is None
    net.set("out", np.zeros_like(W))
    net.run()
    np.testing.assert_array_equal(net.get("out"), 2 * W)


def test_a_variable_written_twice_is_fetched_with_its_last_value(net: Net) -> None:
    net.data("x", [-1, 2])
    net.op("scale", {"X": ["x"]}, "y", scale=2.0)
    net.op("scale", {"X": ["y"]}, "y", scale=5.0)
    np.testing.assert_array_equal(net.run({"x": X}, ["y"])[0], 10 * X)


def test_a_one_op_program_runs_on_values_of_the_scope(net: Net) -> None:
    net.set("x", X)
    net.block.create_var(name="x", shape=[3, 2], dtype="float32")
    net.op("scale", {"X": ["x"]}, "y", scale=2.0)
    np.testing.assert_array_equal(net.run(fetch=["y"])[0], 2 * X)


def test_the_parent_scope_is_seen_and_written(net: Net) -> None:
    net.parameter("w", W)
    net.op("scale", {"X": ["w"]}, "w", scale=2.0)
    net.executor.run(net.program, scope=net.scope.new_scope())
    np.testing.assert_array_equal(net.get("w"), 2 * W)


def test_changing_the_program_is_noticed(net: Net) -> None:
    linear(net).run({"x": X}, ["y"])
    net.op("scale", {"X": ["y"]}, "z", scale=2.0)
    np.testing.assert_array_equal(net.run({"x": X}, ["z"])[0], 2 * (X @ W))


def test_interpret_mode_gives_the_same_values(net: Net) -> None:
    linear(net)
    net.op("tanh", {"X": ["y"]}, "z")
    (jitted,) = net.run({"x": X}, ["z"])
    seen = []
    with fluid.interpret_mode(lambda op, values: seen.append(op.type)):
        (interpreted,) = net.run({"x": X}, ["z"])
    np.testing.assert_array_equal(jitted, interpreted)
    assert seen == ["mul", "tanh"]


def test_one_compilation_serves_equal_shapes(net: Net) -> None:
    linear(net)
    for _ in range(3):
        net.run({"x": X}, ["y"])
    assert net.compilations() == 1
    net.run({"x": X[:2]}, ["y"])
    assert net.compilations() == 2


def test_the_users_x64_flag_is_left_alone(net: Net) -> None:
    before = jax.config.jax_enable_x64
    net.data("i", [-1, 1], "int64")
    net.op("scale", {"X": ["i"]}, "j", scale=1.0)
    (got,) = net.run({"i": np.array([[2**40]], np.int64)}, ["j"])
    assert got.dtype == np.int64 and got[0, 0] == 2**40
    assert jax.config.jax_enable_x64 == before


def test_random_seed_repeats_runs_bit_for_bit() -> None:
    def draws(seed: int) -> list[np.ndarray]:
        net = Net()
        net.program.random_seed = seed
        net.data("x", [-1, 2])
        net.op("uniform_random_batch_size_like", {"Input": ["x"]}, "u", shape=[-1, 2], min=0.0, max=1.0)
        return [net.run({"x": X}, ["u"])[0] for _ in range(2)]

    one, two, other = draws(7), draws(7), draws(8)
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, other)


def test_a_closed_executor_says_so(net: Net) -> None:
    net.executor.close()
    with pytest.raises(RuntimeError, match="closed; make a new one"):
        net.run()


# Ragged batches.


def pooled(net: Net) -> Net:
    net.data("x", [-1, 2], lod_level=1)
    net.op("tanh", {"X": ["x"]}, "t")
    net.block.create_var(name="i", dtype="int32")
    net.block.create_var(name="p", dtype="float32")
    net.block.append_op(
        type="sequence_pool",
        inputs={"X": ["t"]},
        outputs={"Out": ["p"], "MaxIndex": ["i"]},
        attrs={"pooltype": "SUM"},
    )
    return net


def test_ragged_batches_share_a_compilation(net: Net, rng: np.random.Generator) -> None:
    pooled(net)
    for lengths in ([3, 0, 4], [0, 2, 1], [5, 2, 1], [0, 0, 0]):
        rows = rng.standard_normal((sum(lengths), 2)).astype(np.float32)
        (got,) = net.run({"x": ragged(rows, lengths)}, ["p"])
        starts = np.cumsum([0, *lengths])
        expected = [np.tanh(rows[a:b]).sum(0) for a, b in zip(starts, starts[1:], strict=False)]
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    assert net.compilations() == 1


def test_a_ragged_fetch_is_exact_and_keeps_its_lod(net: Net, rng: np.random.Generator) -> None:
    rows = rng.standard_normal((5, 2)).astype(np.float32)
    (got,) = pooled(net).run({"x": ragged(rows, [2, 3])}, ["t"], return_numpy=False)
    assert got.lod() == [[0, 2, 5]]
    np.testing.assert_allclose(np.array(got), np.tanh(rows), rtol=1e-6)


def test_a_ragged_fetch_as_numpy_is_an_error(net: Net, rng: np.random.Generator) -> None:
    rows = rng.standard_normal((5, 2)).astype(np.float32)
    with pytest.raises(RuntimeError, match="'t' holds LoD information.*return_numpy=False"):
        pooled(net).run({"x": ragged(rows, [2, 3])}, ["t"])


def test_an_op_that_cannot_take_padding_runs_on_exact_rows(net: Net, rng: np.random.Generator) -> None:
    net.data("x", [-1, 2], lod_level=1)
    net.op("cumsum", {"X": ["x"]}, "c", axis=0)
    for lengths in ([2, 3], [1, 1], [4, 0]):
        rows = rng.standard_normal((sum(lengths), 2)).astype(np.float32)
        (got,) = net.run({"x": ragged(rows, lengths)}, ["c"], return_numpy=False)
        np.testing.assert_allclose(np.array(got), np.cumsum(rows, axis=0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("fed", [True, False])
def test_a_dense_gradient_of_ragged_rows_runs_on_exact_rows(net: Net, rng: np.random.Generator, fed: bool) -> None:
    """The rows of a target gradient without a LoD are not padded; the ragged ones may be fed, or lie in the scope."""
    net.data("x", [-1, 1], lod_level=1)
    net.block.var("x").stop_gradient = False
    net.op("sequence_softmax", {"X": ["x"]}, "y")
    net.data("d", [-1, 1])
    with fluid.program_guard(net.program, fluid.Program()):
        (grad,) = fluid.gradients([net.block.var("y")], [net.block.var("x")], [net.block.var("d")])
    rows, d = rng.standard_normal((2, 5, 1)).astype(np.float32)
    feed = {"x": ragged(rows, [2, 3]), "d": d}
    if not fed:
        tensor = net.scope.var("x").get_tensor()
        tensor.set(rows, fluid.CPUPlace())
        tensor.set_recursive_sequence_lengths([[2, 3]])
        del feed["x"]
    got = np.array(net.run(feed, [grad], return_numpy=False)[0])
    for a, b in ((0, 2), (2, 5)):
        e = np.exp(rows[a:b]) / np.exp(rows[a:b]).sum()
        np.testing.assert_allclose(got[a:b], e * (d[a:b] - (e * d[a:b]).sum()), rtol=1e-4, atol=1e-6)


def test_a_fed_persistable_stays_in_the_scope():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        w = main.global_block().create_var(name="fed_w", shape=[2], dtype="float32", persistable=True)
        out = fluid.layers.scale(w, scale=2.0)
    scope, exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
    first = exe.run(main, feed={"fed_w": np.array([1, 2], np.float32)}, fetch_list=[out], scope=scope)[0]
    again = exe.run(main, fetch_list=[out], scope=scope)[0]
    assert first.tolist() == again.tolist() == [2, 4]


def test_the_compilation_cache_is_a_flag(net: Net, tmp_path: Path) -> None:
    before = jax.config.jax_compilation_cache_dir, jax.config.jax_persistent_cache_min_compile_time_secs
    fluid.set_flags({"FLAGS_compilation_cache_dir": str(tmp_path)})
    try:
        fluid.Executor(fluid.CPUPlace())
        assert jax.config.jax_compilation_cache_dir == str(tmp_path)
    finally:
        fluid.set_flags({"FLAGS_compilation_cache_dir": ""})
        keep_in(None)
        jax.config.update("jax_compilation_cache_dir", before[0])
        jax.config.update("jax_persistent_cache_min_compile_time_secs", before[1])
