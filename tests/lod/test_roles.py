"""What is a gradient, and so has zeros after its rows, follows from definitions and roles, never from a name."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import fluidjax as fluid
import lowering
from fluidjax import layers
from lowering.program import ROLE_BACKWARD, OpView, ProgramView, forward_names
from lowering.values import LoDArray

ROWS, LENS = 7, [[3, 4]]  # padded to 8 rows


def ragged(rows: np.ndarray) -> fluid.LoDTensor:
    return fluid.create_lod_tensor(rows, LENS, fluid.CPUPlace())


def trained(feed, build):
    """Parameters by name after three steps."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        loss = build()
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        for _ in range(3):
            exe.run(main, feed=feed, fetch_list=[loss])
        scope = fluid.global_scope()
        return {p.name: np.array(scope.find_var(p.name).get_tensor()) for p in main.all_parameters()}


def check_ragged_trains_as_dense(x, y, build):
    plain = trained({"x": x, "y": y}, build)
    padded = trained({"x": ragged(x), "y": ragged(y)}, build)
    assert plain.keys() == padded.keys()
    for name, value in plain.items():
        assert np.isfinite(value).all(), name
        np.testing.assert_allclose(padded[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("loss_of", ["cross_entropy", "softmax_with_cross_entropy"])
def test_the_plainest_ragged_classifier(rng, loss_of):
    """cross_entropy_grad2 is a gradient op, though its name does not end as others do: it divides by MatchX."""

    def build():
        x, y = fluid.data("x", [None, 5], lod_level=1), fluid.data("y", [None, 1], "int64", lod_level=1)
        if loss_of == "cross_entropy":
            loss = layers.mean(layers.cross_entropy(layers.fc(x, 4, act="softmax"), y))
        else:
            loss = layers.mean(layers.softmax_with_cross_entropy(layers.fc(x, 4), y))
        fluid.optimizer.SGD(0.1).minimize(loss)
        return loss

    x, y = rng.normal(size=(ROWS, 5)).astype("float32"), rng.integers(0, 4, (ROWS, 1))
    check_ragged_trains_as_dense(x, y, build)


@pytest.mark.parametrize(("name", "fill"), [("h.subprog_0", 1.0), ("h@GRAD", 0.0)])
def test_a_recomputed_op_computes_no_gradients(name, fill):
    """Its role is Backward, yet what it writes are forward values: zeros after their rows would be divided by."""
    x = LoDArray(jnp.arange(1.0, 9.0)[:, None], (np.array([0, 1, 3], np.int32),), jnp.int32(3))
    ops = (OpView("split_lod_tensor", {"X": ["x"], "Mask": ["m"]}, {"OutTrue": [name]}, {"op_role": ROLE_BACKWARD}),)
    program = ProgramView((lowering.BlockView(0, -1, ops, {}),))
    env = lowering.run_block(program, 0, {"x": x, "m": jnp.array([[True], [False]])})
    assert env[name].data[-1, 0] == fill


@pytest.mark.parametrize("name", ["t", "t@GRAD", "mean_grad"])
def test_a_given_gradient_of_any_name(rng, name):
    """``target_gradients`` are read as gradients: what stands after their rows counts nothing."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        x, t = fluid.data("x", [None, 5], lod_level=1), fluid.data(name, [None, 4], lod_level=1)
        weight = layers.create_parameter([5, 4], "float32")
        grads = fluid.gradients([layers.scale(layers.mul(x, weight), 2.0)], [weight], target_gradients=[t])
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        a, b = rng.normal(size=(ROWS, 5)).astype("float32"), rng.normal(size=(ROWS, 4)).astype("float32")
        (got,) = exe.run(main, feed={"x": ragged(a), name: ragged(b)}, fetch_list=grads)
    np.testing.assert_allclose(got, 2 * a.T @ b, rtol=1e-5)


def test_gradient_slots_follow_from_the_definition():
    """They are the input slots that the forward op has not; whoever reads one reads a gradient."""
    assert lowering.get_op("cross_entropy_grad2").gradient_slots == {"Y@GRAD"}
    assert lowering.get_op("tanh_grad").gradient_slots == {"Out@GRAD"}
    assert lowering.get_op("relu_grad_grad").gradient_slots == {"DDX"}
    assert not lowering.get_op("cross_entropy").gradient_slots
    for type in lowering.registered_ops():
        definition = lowering.get_op(type)
        once = definition.forward is not None and definition.forward.forward is None
        if once:
            given = {s.name for s in definition.inputs if s.name.endswith("@GRAD")}
            assert definition.gradient_slots == given, type
            assert not any(s.name in definition.gradient_slots for s in definition.forward.inputs), type


def test_the_gradients_of_a_program_are_what_its_backward_ops_write():
    backward = {"op_role": ROLE_BACKWARD}
    ops = (
        OpView("relu", {"X": ["x@GRAD"]}, {"Out": ["h@GRAD"]}, {"op_role": 0}),
        OpView("relu", {"X": ["x@GRAD"]}, {"Out": ["h@GRAD.subprog_0"]}, backward),
        OpView("relu_grad", {"Out": ["h"], "Out@GRAD": ["t"]}, {"X@GRAD": ["x@GRAD@GRAD"]}, backward),
    )
    assert [op.recomputes for op in ops] == [False, True, False]
    program = ProgramView((lowering.BlockView(0, -1, ops, {}),))
    assert program.gradients == {"x@GRAD@GRAD"}


def test_what_a_name_may_be_the_gradient_of():
    assert list(forward_names("x@GRAD@RENAME@block0@1")) == ["x"]
    assert list(forward_names("user@GRAD_x@GRAD")) == ["user@GRAD_x", "user"]
    assert list(forward_names("grad/x@GRAD")) == ["grad/x", "x"]
    assert list(forward_names("x")) == []
