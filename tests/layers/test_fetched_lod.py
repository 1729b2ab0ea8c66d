"""The LoD that results and gradients are fetched with, as Paddle 1.8.5 shares it."""

from __future__ import annotations

import pytest

import fluidjax as fluid
from fluidjax import layers

X_LOD, Y_LOD = [[0, 2, 5]], [[0, 1, 5]]

# A function of x and y (both with a LoD) and d (without one): LoD of its result, and of the gradients it gives.
CASES = {
    "sum of x and d": (lambda x, y, d: layers.sums([x, d]), X_LOD, {"x": X_LOD, "d": X_LOD}),
    "sum of d and x": (lambda x, y, d: layers.sums([d, x]), [], {"x": [], "d": []}),
    "sum of x and y": (lambda x, y, d: layers.sums([x, y]), X_LOD, {"x": X_LOD, "y": X_LOD}),
    "reshape of elements": (lambda x, y, d: layers.reshape(x, [-1, 2]), [], {"x": X_LOD}),
    "reshape of rows": (lambda x, y, d: layers.reshape(x, [-1, 2, 2]), X_LOD, {"x": X_LOD}),
    "transpose": (lambda x, y, d: layers.transpose(x, [1, 0]), [], {"x": X_LOD}),
    "unsqueeze in front": (lambda x, y, d: layers.unsqueeze(x, [0]), [], {"x": X_LOD}),
    "unsqueeze": (lambda x, y, d: layers.unsqueeze(x, [1]), X_LOD, {"x": X_LOD}),
    "flatten": (lambda x, y, d: layers.flatten(x, axis=0), [], {"x": X_LOD}),
    "concat of x and y": (lambda x, y, d: layers.concat([x, y], 1), X_LOD, {"x": X_LOD, "y": Y_LOD}),
    "concat of d and x": (lambda x, y, d: layers.concat([d, x], 1), [], {"x": X_LOD, "d": []}),
}


@pytest.mark.parametrize("name", CASES)
def test_lod_is_shared_as_in_paddle(rng, name):
    build, wanted, gradients = CASES[name]
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        x, y, d = (fluid.data(n, [None, 4], lod_level=int(n != "d")) for n in "xyd")
        for var in (x, y, d):
            var.stop_gradient = False
        out = build(x, y, d)
        fluid.backward.append_backward(layers.reduce_sum(out * out))
        rows = rng.normal(size=(5, 4)).astype("float32")
        place = fluid.CPUPlace()
        feed = {
            "x": fluid.create_lod_tensor(rows, [[2, 3]], place),
            "y": fluid.create_lod_tensor(rows, [[1, 4]], place),
            "d": rows,
        }
        names = [n + "@GRAD" for n in gradients]
        got, *grads = fluid.Executor(place).run(feed=feed, fetch_list=[out, *names], return_numpy=False)
        levels = [x.block.var(n).lod_level for n in names]
    assert got.lod() == wanted
    assert levels == [len(lod) for lod in gradients.values()], "declared as it is"
    assert [g.lod() for g in grads] == list(gradients.values())
    assert all(g.shape() == [5, 4] for g in grads)


@pytest.mark.parametrize(
    ("build", "level"),
    [
        (lambda x: layers.fc(x, 3), 0),
        (layers.softmax, 0),
        (layers.relu, 1),
        (lambda x: layers.reduce_sum(x, 1), 1),
        (lambda x: layers.cross_entropy(x, fluid.data("y", [None, 1], "int64", lod_level=1)), 1),
    ],
    ids=["fc", "softmax", "relu", "reduce_sum", "cross_entropy"],
)
def test_the_level_that_gradients_are_declared_with(build, level):
    """As the shape inference of Paddle's gradient ops has it, which differs from op to op."""
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 4], lod_level=1)
        x.stop_gradient = False
        fluid.backward.append_backward(layers.reduce_sum(layers.square(build(x))))
        assert x.block.var("x@GRAD").lod_level == level
