"""py_func: Python functions as ops, with their own backward functions."""

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.files.errors import UntrustedProgramError

EXE = fluid.Executor()
X = np.arange(6, dtype="f4").reshape(3, 2)


@pytest.fixture
def block():
    """The global block of new default programs, with two fed variables."""
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        for name in ("x", "y"):
            fluid.data(name, [None, 2]).stop_gradient = False
        yield fluid.default_main_program().global_block()


def outputs(block, *names):
    return [block.create_var(name=name, dtype="float32", shape=[-1, 2]) for name in names]


def double_and_next(x, y):
    return np.array(x) * 2, np.array(y) + 1


def test_several_inputs_and_outputs(block):
    o, q = outputs(block, "o", "q")
    assert fluid.layers.py_func(double_and_next, [block.var("x"), block.var("y")], [o, q]) == [o, q]
    found = EXE.run(block.program, feed={"x": X, "y": X}, fetch_list=[o, q])
    np.testing.assert_array_equal(found[0], X * 2)
    np.testing.assert_array_equal(found[1], X + 1)


def test_between_compiled_parts(block):
    (o,) = outputs(block, "o")
    hidden = fluid.layers.scale(block.var("x"), 3.0)
    fluid.layers.py_func(lambda x: np.sort(np.array(x), axis=0)[::-1], hidden, o)
    total = fluid.layers.reduce_sum(fluid.layers.slice(o, [0], [0], [1]))
    assert EXE.run(block.program, feed={"x": X}, fetch_list=[total])[0].item() == 3 * (4 + 5)


def test_no_inputs_and_no_outputs(block):
    seen = []
    (o,) = outputs(block, "o")
    fluid.layers.py_func(lambda: np.ones((1, 2), "f4"), None, o)
    fluid.layers.py_func(lambda x: seen.append(np.array(x)), block.var("x"), None)
    assert EXE.run(block.program, feed={"x": X}, fetch_list=[o])[0].tolist() == [[1.0, 1.0]]
    np.testing.assert_array_equal(seen[0], X)


def test_ragged_tensors_keep_their_lengths(block):
    word = fluid.data("word", [None, 2], lod_level=1)
    o = block.create_var(name="o", dtype="float32", shape=[-1, 2], lod_level=1)

    def reverse(tensor):
        result = fluid.LoDTensor()
        result.set(np.array(tensor)[::-1], fluid.CPUPlace())
        result.set_recursive_sequence_lengths([tensor.recursive_sequence_lengths()[0][::-1]])
        return result

    fluid.layers.py_func(reverse, word, o)
    pooled = fluid.layers.sequence_pool(o, "sum")
    fed = fluid.create_lod_tensor(X, [[1, 2]], fluid.CPUPlace())
    (sums,) = EXE.run(block.program, feed={"word": fed}, fetch_list=[pooled])
    np.testing.assert_array_equal(sums, [X[1] + X[2], X[0]])


@pytest.mark.parametrize("skip", ["none", "x", "outs"])
def test_backward(block, skip):
    """Inputs and outputs can be left out; the gradient of an output that nothing uses is zero."""
    x, y = block.var("x"), block.var("y")
    o, q = outputs(block, "o", "q")
    seen = []

    def backward(*given):
        seen.append([None if g is None else np.array(g) for g in given])
        return np.array(given[-2]) * 2, np.zeros((3, 2), "f4")

    skipped = {"none": None, "x": x, "outs": [o, q]}[skip]
    fluid.layers.py_func(double_and_next, [x, y], [o, q], backward, skipped)
    grads = fluid.gradients(fluid.layers.mean(o), [x])
    ops = [op for op in block.ops if op.type == "py_func"]
    expected = {"none": "x y o q", "x": "y o q", "outs": "x y"}[skip].split()
    assert ops[1].input("X") == [*expected, "o@GRAD", "q@GRAD"] and ops[1].output("Out") == ["x@GRAD", "y@GRAD"]
    assert ops[1].attr("forward_callable_id") == ops[0].attr("backward_callable_id")
    (grad,) = EXE.run(block.program, feed={"x": X, "y": X}, fetch_list=grads)
    np.testing.assert_allclose(grad, np.full((3, 2), 2 / 6), rtol=1e-6)
    assert len(seen[0]) == len(expected) + 2 and not seen[0][-1].any()


def test_a_gradient_that_nothing_computes_is_none(block):
    (o,) = outputs(block, "o")
    block.create_var(name="nobody", dtype="float32", shape=[-1, 2])
    seen = []
    fluid.layers.py_func(lambda x, n: seen.append(n) or np.array(x), [block.var("x"), block.var("nobody")], o)
    EXE.run(block.program, feed={"x": X}, fetch_list=[o])
    assert seen == [None]


def test_training_through_python(block):
    (o,) = outputs(block, "o")
    hidden = fluid.layers.fc(block.var("x"), size=2, bias_attr=False)

    def tanh_backward(h, out, d_out):
        return np.array(d_out) * (1 - np.array(out) ** 2)

    fluid.layers.py_func(np.tanh, hidden, o, tanh_backward)
    loss = fluid.layers.mean(fluid.layers.square(o - block.var("y")))
    fluid.optimizer.SGD(0.5).minimize(loss)
    with fluid.scope_guard(fluid.Scope()):
        EXE.run(fluid.default_startup_program())
        feed = {"x": X / 6, "y": X / 12}
        losses = [EXE.run(fluid.default_main_program(), feed=feed, fetch_list=[loss])[0].item() for _ in range(20)]
    assert losses[-1] < losses[0] / 2


def test_without_backward_function_no_gradient_flows(block):
    (o,) = outputs(block, "o")
    fluid.layers.py_func(np.tanh, block.var("x"), o)
    assert fluid.gradients(fluid.layers.mean(o), [block.var("x")]) == [None]


def test_wrong_arguments(block):
    x = block.var("x")
    (o,) = outputs(block, "o")
    with pytest.raises(TypeError, match="func must be a Python function"):
        fluid.layers.py_func(3, x, o)
    with pytest.raises(TypeError, match="'X' in py_func"):
        fluid.layers.py_func(np.tanh, 3, o)
    with pytest.raises(TypeError, match="'Out' in py_func"):
        fluid.layers.py_func(np.tanh, x, 3)
    with pytest.raises(ValueError, match="Variable y is not found in forward inputs"):
        fluid.layers.py_func(np.tanh, x, o, np.tanh, [block.var("y")])
    with pytest.raises(ValueError, match="'bare' has none"):
        fluid.layers.py_func(np.tanh, x, block.create_var(name="bare", dtype="float32"))


@pytest.mark.parametrize(
    "function, message",
    [
        (lambda x: (np.array(x), 1), "returned 2 values"),
        (lambda x: None, "returned None for 'o'"),
        (lambda x: 1 / 0, "division by zero"),
    ],
)
def test_functions_that_fail(block, function, message):
    (o,) = outputs(block, "o")
    fluid.layers.py_func(function, block.var("x"), o)
    with pytest.raises(Exception, match=message):
        EXE.run(block.program, feed={"x": X}, fetch_list=[o])


def test_a_saved_program_is_bound_again_by_name(block):
    (o,) = outputs(block, "o")
    fluid.layers.py_func(np.tanh, block.var("x"), o)
    block.ops[-1]._set_attr("forward_callable_id", 10**6)  # a number from another process
    loaded = fluid.Program.parse_from_string(block.program.desc.serialize_to_string())
    with pytest.raises(UntrustedProgramError, match="calls a Python function"):
        EXE.run(loaded, feed={"x": X}, fetch_list=["o"])
    unbound = loaded.clone()
    fluid.io.allow_host_ops(unbound)
    with pytest.raises(Exception, match="function number 1000000"):
        EXE.run(unbound, feed={"x": X}, fetch_list=["o"])
    with pytest.raises(ValueError, match=r"writes 'p'; expected one of \['o'\]"):
        fluid.io.bind_py_func(loaded, "p", np.sin)
    fluid.io.bind_py_func(loaded, "o", np.sin)
    np.testing.assert_allclose(EXE.run(loaded.clone(), feed={"x": X}, fetch_list=["o"])[0], np.sin(X), rtol=1e-6)
