"""What a user reads when something is wrong, and that the scope survives it."""

import numpy as np
import pytest

import fluidjax as fluid
import lowering
from tests.executor.conftest import Net, ragged

X = np.ones((3, 2), np.float32)
W = np.eye(2, dtype=np.float32)


def linear(net: Net) -> Net:
    net.data("x", [-1, 2], check=True)
    net.parameter("w", W)
    net.op("mul", {"X": ["x"], "Y": ["w"]}, "y")
    return net


def test_a_missing_feed_is_named(net: Net) -> None:
    with pytest.raises(lowering.UninitializedError, match=r"op mul \(#0 of block 0\) reads 'x', which was not fed"):
        linear(net).run({}, ["y"])


def test_an_uninitialized_parameter_is_named(net: Net) -> None:
    linear(net)
    net.scope = fluid.Scope()
    with pytest.raises(
        lowering.UninitializedError, match=r"(?s)reads 'w', which is uninitialized.*default_startup_program"
    ):
        net.run({"x": X}, ["y"])


def test_a_feed_of_another_dtype_is_refused(net: Net) -> None:
    message = r"(?s)fed Variable 'x' must be 'float32', but received 'float64'.*Convert it with array.astype"
    with pytest.raises(ValueError, match=message):
        linear(net).run({"x": X.astype(np.float64)}, ["y"])


def test_a_feed_of_another_shape_is_refused(net: Net) -> None:
    with pytest.raises(ValueError, match=r"(?s)shape = \(-1, 2\), but received fed shape \[3, 5\].*Reshape"):
        linear(net).run({"x": np.ones((3, 5), np.float32)}, ["y"])


@pytest.mark.parametrize("declared, fed", [([3, 1], [3]), ([-1, 7], [5]), ([-1, 3, 9], [2, 3]), ([2, 2, 2], [2])])
def test_trailing_dimensions_may_be_missing(net: Net, declared: list[int], fed: list[int]) -> None:
    net.data("x", declared, check=True)
    net.op("scale", {"X": ["x"]}, "y", scale=2.0)
    (y,) = net.run({"x": np.ones(fed, np.float32)}, ["y"])
    np.testing.assert_array_equal(y, np.full(fed, 2, np.float32))


@pytest.mark.parametrize("declared, fed", [([4, 7], [5]), ([-1, 3, 9], [2, 4]), ([-1], [2, 2]), ([2, -1], [2, 3, 1])])
def test_dimensions_that_were_fed_must_fit(net: Net, declared: list[int], fed: list[int]) -> None:
    net.data("x", declared, check=True)
    net.op("scale", {"X": ["x"]}, "y", scale=2.0)
    with pytest.raises(ValueError, match="should have dimensions"):
        net.run({"x": np.ones(fed, np.float32)}, ["y"])


def test_rows_that_do_not_fit_name_the_op_and_the_users_line(net: Net) -> None:
    net.data("x", [-1, 2])
    net.parameter("w", W)
    net.op("mul", {"X": ["x"], "Y": ["w"]}, "y")
    with pytest.raises(lowering.OpError) as caught:
        net.run({"x": np.ones((3, 5), np.float32)}, ["y"])
    text = str(caught.value)
    assert "op mul (#0 of block 0) failed" in text
    assert "x float32[3, 5]" in text and "w float32[2, 2]" in text
    assert "conftest.py" in text or "test_errors.py" in text
    assert "to do:" in text


def test_a_feed_that_is_no_array_is_refused(net: Net) -> None:
    with pytest.raises(TypeError, match="nested lists of equal lengths.*create_lod_tensor"):
        linear(net).run({"x": [[1.0], [2.0, 3.0]]}, ["y"])


def test_a_feed_without_variable_warns(net: Net) -> None:
    with pytest.warns(UserWarning, match="feed 'nope': the program has no variable of that name"):
        linear(net).run({"x": X, "nope": X}, ["y"])


def test_a_lod_that_does_not_fit_is_refused(net: Net) -> None:
    net.data("x", [-1, 2], lod_level=1)
    net.op("tanh", {"X": ["x"]}, "t")
    fed = ragged(X, [1, 2])
    fed._set_value(np.ones((9, 2), np.float32))
    with pytest.raises(ValueError, match="its LoD does not fit its 9 rows"):
        net.run({"x": fed}, ["t"])


def test_all_unknown_ops_are_reported_at_once(net: Net) -> None:
    linear(net)
    desc = net.program.desc.serialize_to_string()
    program = fluid.Program.parse_from_string(desc)
    message = program.proto
    for name in ("strange_op", "odd_op"):
        strange = message.blocks[0].ops.add(type=name)
        strange.outputs.add(parameter="Out", arguments=["y"])
    program = fluid.Program.parse_from_string(message.SerializeToString())
    with pytest.raises(lowering.UnknownOpError) as caught:
        net.executor.run(program, feed={"x": X}, scope=net.scope)
    text = str(caught.value)
    assert "2 of its parts are unknown" in text
    assert "'strange_op' is unknown" in text and "'odd_op' is unknown" in text


def test_unknown_attributes_of_a_loaded_program_are_named_once_and_ignored(net: Net) -> None:
    linear(net)
    net.op("tanh", {"X": ["y"]}, "t")
    wanted = net.run({"x": X}, ["t"])[0]
    message = fluid.Program.parse_from_string(net.program.desc.serialize_to_string()).proto
    mul, tanh = message.blocks[0].ops
    for op in (mul, tanh):
        op.attrs.add(name="is_test", type=6, b=True)
    next(attr for attr in mul.attrs if attr.name == "op_role").i = 1  # the backward pass inherits attributes
    data = message.SerializeToString()
    with pytest.warns(UserWarning, match=r"do not have in Paddle 1\.8: tanh\.is_test\. Expected.*ignored") as caught:
        program = fluid.Program.parse_from_string(data)
    assert len(caught) == 1
    np.testing.assert_array_equal(net.executor.run(program, {"x": X}, ["t"], scope=net.scope)[0], wanted)
    assert program.clone().desc.serialize_to_string() == data


def _with_dtype(program: fluid.Program, name: str, number: int) -> fluid.Program:
    """The program as a file has it, with another data type number of one variable."""
    message = fluid.Program.parse_from_string(program.desc.serialize_to_string()).proto
    (var,) = [v for v in message.blocks[0].vars if v.name == name]
    var.type.lod_tensor.tensor.data_type = number
    return fluid.Program.parse_from_string(message.SerializeToString())


def test_data_types_that_name_a_kind(net: Net) -> None:
    """Fluid's sampled_softmax declares a result so (7, a LoD tensor); what nobody writes must have a data type."""
    linear(net)
    program = _with_dtype(net.program, "y", 7)
    wanted = net.run({"x": X}, ["y"])[0]
    np.testing.assert_array_equal(net.executor.run(program, {"x": X}, ["y"], scope=net.scope)[0], wanted)
    for name, number in (("x", 7), ("y", 15)):
        with pytest.raises(lowering.UnknownOpError, match=f"{name!r} of block 0: data type {number} is unknown"):
            net.executor.run(_with_dtype(net.program, name, number), {"x": X}, ["y"], scope=net.scope)


def test_nan_is_traced_to_its_op_and_spares_the_state(net: Net) -> None:
    net.data("x", [-1, 2])
    net.parameter("w", W)
    net.op("log", {"X": ["x"]}, "l")
    net.op("scale", {"X": ["w"]}, "w", scale=2.0)
    fluid.set_flags({"FLAGS_check_nan_inf": True})
    try:
        with pytest.raises(FloatingPointError, match=r"op log \(#0.*'l': 6 NaN and 0 infinite of 6") as caught:
            net.run({"x": -X}, ["l"])
        assert str(caught.value).endswith("in [op=log] [tensor=l] find nan or inf===")
    finally:
        fluid.set_flags({"FLAGS_check_nan_inf": False})
    np.testing.assert_array_equal(net.get("w"), W)


def test_a_failing_run_leaves_the_scope_as_it_was(net: Net) -> None:
    net.data("x", [-1, 2])
    net.parameter("w", W)
    net.op("scale", {"X": ["w"]}, "w", scale=2.0)
    net.op("mul", {"X": ["x"], "Y": ["w"]}, "y")
    with pytest.raises(lowering.OpError):
        net.run({"x": np.ones((3, 5), np.float32)}, ["y"])
    np.testing.assert_array_equal(net.get("w"), W)
    np.testing.assert_array_equal(net.run({"x": X}, ["y"])[0], X @ (2 * W))


@pytest.mark.parametrize("prune", [False, True])
@pytest.mark.parametrize("fed", [{}, {"x": np.ones((3, 5), np.float32)}])  # refused as missing, and by the op
def test_after_a_failing_run_the_scope_has_the_state_that_was_to_be_written(fed: dict, prune: bool) -> None:
    program, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    inner = scope.new_scope()
    with fluid.program_guard(program, startup):
        x = fluid.layers.data("x", [2])
        wanted, other = (fluid.layers.mean(fluid.layers.fc(x, 2)) for _ in range(2))
        wanted.persistable = other.persistable = True
    exe = fluid.Executor()
    exe.run(startup, scope=scope)
    with pytest.raises(RuntimeError):
        exe.run(program, feed=fed, fetch_list=[wanted], scope=inner, use_prune=prune)
    assert not scope.find_var(wanted.name).get_tensor()._is_initialized()
    assert (scope.find_var(other.name) is None) == prune
    exe.run(program, feed={"x": X}, fetch_list=[wanted], scope=inner, use_prune=prune)
    assert np.array(scope.find_var(wanted.name).get_tensor()).shape == (1,)


def test_a_fetch_of_nothing_is_named(net: Net) -> None:
    linear(net)
    net.block.create_var(name="idle", shape=[1], dtype="float32")
    with pytest.raises(lowering.LoweringError, match=r"fetch 'idle' has no value\n  expected: a variable"):
        net.run({"x": X}, ["idle"])


def test_a_feed_that_is_no_dict_is_refused(net: Net) -> None:
    with pytest.raises(TypeError, match="feed requires a dict"):
        linear(net).run(X, ["y"])


def test_a_program_of_another_kind_is_refused(net: Net) -> None:
    with pytest.raises(TypeError, match="expected a fluid.Program or fluid.CompiledProgram, received str"):
        net.executor.run("main")


def test_there_is_no_accelerator_here_or_it_works() -> None:
    if fluid.is_compiled_with_cuda():
        assert fluid.CUDAPlace(0)._jax_device().platform != "cpu"
        return
    with pytest.raises(RuntimeError, match=r"CUDAPlace\(0\): no such accelerator.*Use fluid.CPUPlace"):
        fluid.CUDAPlace(0)
