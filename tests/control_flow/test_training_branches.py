"""Optimizers inside branches, over networks that are around them."""

from __future__ import annotations

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers

X = np.linspace(-1, 1, 24).reshape(6, 4).astype("float32")
Y = np.linspace(0, 1, 6).reshape(6, 1).astype("float32")


def network():
    """Two layers, and the two losses that are trained by."""
    x, y = fluid.data("x", [None, 4]), fluid.data("y", [None, 1])
    hidden = layers.fc(x, 3, act="tanh", param_attr=fluid.initializer.Constant(0.3))
    out = layers.fc(hidden, 1, param_attr=fluid.initializer.Constant(0.2))

    def far() -> fluid.Variable:
        return layers.mean(layers.square(out - y))

    def both() -> fluid.Variable:  # the hidden layer is used in the branch and by what the branch uses
        return layers.mean(layers.abs(out - y)) + 0.5 * layers.mean(layers.square(hidden))

    return far, both


def trained(choices: list[int], inside: bool) -> list[np.ndarray]:
    """The parameters after a step for each choice of a loss: by branches, or by a program for each loss."""
    programs, startup = [], fluid.Program()

    def program(build) -> None:
        programs.append(fluid.Program())
        with fluid.program_guard(programs[-1], startup if len(programs) == 1 else fluid.Program()):
            with fluid.unique_name.guard():
                build(network())

    def branches(losses) -> None:
        sgd = fluid.optimizer.SGD(0.1)

        def step(loss):
            value = loss()
            sgd.minimize(value)
            return value

        which = fluid.data("which", [1], "int32")
        layers.case([(which == 0, lambda: step(losses[0]))], lambda: step(losses[1]))

    if inside:
        program(branches)
    else:
        for index in (0, 1):
            program(lambda losses, index=index: fluid.optimizer.SGD(0.1).minimize(losses[index]()))
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    with fluid.scope_guard(scope):
        exe.run(startup)
        for choice in choices:
            feed = {"x": X, "y": Y} | ({"which": np.array([choice], "int32")} if inside else {})
            exe.run(programs[0] if inside else programs[choice], feed=feed)
        return [np.array(scope.find_var(p.name).get_tensor()) for p in programs[0].all_parameters()]


@pytest.mark.parametrize("choices", [[0], [1], [0, 1, 1, 0]])
def test_a_branch_trains_what_is_around_it(choices: list[int]) -> None:
    for found, expected in zip(trained(choices, True), trained(choices, False), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("sign", [1, -1])
def test_branches_with_room_for_different_numbers_of_rows_train(sign: int) -> None:
    """What is unpadded has room for all that padding held; the other branch has that of the feed alone."""
    x = fluid.data("x", [None, 4], "float32", lod_level=1)
    x.stop_gradient = False
    dense, lengths = layers.sequence_pad(x, layers.fill_constant([1], "float32", 0.5), maxlen=16)
    rows = layers.sequence_unpad(layers.tanh(dense), lengths)
    positive = layers.reduce_sum(x) > layers.fill_constant([1], "float32", 0.0)
    out = layers.lod_reset(layers.cond(positive, lambda: layers.tanh(rows), lambda: layers.scale(x, 2.0)), x)
    loss = layers.reduce_sum(layers.sequence_pool(out, "sum"))
    (slope,) = fluid.gradients([loss], [x])
    given = (sign * np.linspace(0.05, 1.2, 12)).reshape(3, 4).astype("float32")
    feed = {"x": fluid.create_lod_tensor(given, [[2, 0, 1]], fluid.CPUPlace())}
    total, found = fluid.Executor().run(feed=feed, fetch_list=[loss, slope], return_numpy=False)
    once = np.tanh(given)
    twice = np.tanh(once)
    np.testing.assert_allclose(np.array(total), [twice.sum() if sign > 0 else 2 * given.sum()], rtol=1e-5)
    expected = (1 - twice**2) * (1 - once**2) if sign > 0 else np.full_like(given, 2)
    np.testing.assert_allclose(np.array(found), expected, rtol=1e-5)
