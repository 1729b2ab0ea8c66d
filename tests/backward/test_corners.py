"""Corner cases of the backward pass: the ops and names that Paddle 1.8.5 writes, and right values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.backward import append_backward, calc_gradient, gradients
from tests.backward.build import Builder, run


def grad_ops(net: Builder) -> list[str]:
    return [op.type for op in net.block.ops if op.attr("op_role") & 1]


def numeric(net: Builder, feed: dict[str, np.ndarray], name: str, loss: str = "loss") -> np.ndarray:
    """d(loss)/d(name) by central differences."""
    base, result, step = feed[name], np.zeros_like(feed[name]), 1e-2
    for index in np.ndindex(base.shape):
        values = []
        for sign in (1, -1):
            moved = base.copy()
            moved[index] += sign * step
            values.append(float(run(net.program, {**feed, name: moved}, [loss])[0].reshape(-1)[0]))
        result[index] = (values[0] - values[1]) / (2 * step)
    return result


def floats(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype(np.float32)


def test_a_part_of_a_sum_that_nothing_computes_is_declared(rng: np.random.Generator) -> None:
    """w's path through the label has no gradient; its part of the sum stays, declared without a type, as in 1.8.5."""
    net = Builder()
    w = net.parameter("w", [2, 1])
    label = net.op("sign", {"X": w}, "label")
    right = net.op("scale", {"X": w}, "right", scale=-1.0)
    outs = {"Out": "cost", "Activated": "active"}
    net.op("mean", {"X": net.op("margin_rank_loss", {"Label": label, "X1": w, "X2": right}, outs, margin=3.0)}, "loss")
    append_backward(net.block.var("loss"))
    (total,) = [op for op in net.block.ops if op.type == "sum"]
    written = {name for op in net.block.ops for name in op.output_arg_names}
    (absent,) = set(total.input("X")) - written
    assert not net.block.var(absent).desc.proto.type.HasField("lod_tensor")
    feed = {"w": floats(rng, 2, 1)}
    (grad,) = run(net.program, feed, ["w@GRAD"])
    np.testing.assert_allclose(grad, numeric(net, feed, "w"), rtol=1e-2, atol=1e-3)


def test_a_variable_used_three_times(rng: np.random.Generator) -> None:
    net = Builder()
    w = net.parameter("w", [2, 2])
    a = net.op("exp", {"X": w}, "a")
    b = net.op("elementwise_mul", {"X": a, "Y": w}, "b")
    net.op("mean", {"X": net.op("elementwise_add", {"X": b, "Y": w}, "c")}, "loss")
    append_backward(net.block.var("loss"))
    total = next(op for op in net.block.ops if op.type == "sum")
    assert total.input("X") == [f"w@GRAD@RENAME@block0@{i}" for i in range(3)]
    assert total.output("Out") == ["w@GRAD"]
    assert total.attr("op_role_var") == ["w", "w@GRAD"]
    feed = {"w": floats(rng, 2, 2)}
    (grad,) = run(net.program, feed, ["w@GRAD"])
    np.testing.assert_allclose(grad, numeric(net, feed, "w"), rtol=1e-2, atol=1e-3)


def test_a_missing_gradient_is_zero(rng: np.random.Generator) -> None:
    """split's second half is not used: its gradient is filled with zeros, under Paddle's op."""
    net = Builder()
    w = net.parameter("w", [2, 4])
    net.block.append_op(
        type="split", inputs={"X": w}, outputs={"Out": [net._var("left"), net._var("right")]},
        attrs={"axis": 1, "num": 2, "sections": []},
    )  # fmt: skip
    net.op("mean", {"X": net.op("square", {"X": net.block.var("left")}, "sq")}, "loss")
    append_backward(net.block.var("loss"))
    zeros = next(op for op in net.block.ops if op.type == "fill_zeros_like")
    assert (zeros.input("X"), zeros.output("Out")) == (["right"], ["right@GRAD"])
    feed = {"w": floats(rng, 2, 4)}
    (grad,) = run(net.program, feed, ["w@GRAD"])
    np.testing.assert_allclose(grad[:, :2], feed["w"][:, :2] / 2, rtol=1e-6)
    assert (grad[:, 2:] == 0).all()


def test_stop_gradient_cuts_the_path() -> None:
    net = Builder()
    w, v = net.parameter("w", [2, 2]), net.parameter("v", [2, 2])
    h = net.op("exp", {"X": w}, "h")
    h.stop_gradient = True
    net.op("mean", {"X": net.op("elementwise_mul", {"X": h, "Y": v}, "m")}, "loss")
    pairs = append_backward(net.block.var("loss"))
    assert [p.name for p, _ in pairs] == ["v"]
    assert grad_ops(net) == ["fill_constant", "mean_grad", "elementwise_mul_grad"]
    assert not net.block.has_var("w@GRAD")


def test_a_parameter_stopped_after_branches_read_it_has_no_gradient() -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        w, stopped = (fluid.layers.create_parameter([3], "float32", name=name) for name in ("w", "stopped"))
        chosen = fluid.layers.cond(
            fluid.layers.fill_constant([1], "bool", True),
            lambda: fluid.layers.elementwise_add(w, stopped),
            lambda: fluid.layers.elementwise_sub(w, stopped),
        )
        stopped.stop_gradient = True
        loss = fluid.layers.mean(chosen)
        updates, pairs = fluid.optimizer.SGD(0.1).minimize(loss)
        assert {p.name: g is not None for p, g in pairs} == {"stopped": False, "w": True}
        assert [op.input("Param") for op in updates] == [["w"]]
        executor = fluid.Executor()
        executor.run(fluid.default_startup_program())
        (gradient,) = executor.run(fetch_list=["w@GRAD"])
        np.testing.assert_allclose(gradient, np.full(3, 1 / 3, "f4"), rtol=1e-6)


@pytest.mark.parametrize("product", [False, True])
@pytest.mark.parametrize("form", ["while_loop", "While", "Switch", "statements"])
def test_what_is_added_to_a_stopped_value_in_a_repeated_block_has_its_gradient(form: str, product: bool) -> None:
    """The stopped value is computed from ``x``, which the block overwrites: only its former value has no gradient."""
    layers = fluid.layers

    def parameter(name: str, value: float) -> Any:
        given = fluid.initializer.ConstantInitializer(value)
        return layers.create_parameter([2, 3], "float32", name=name, default_initializer=given)

    def body(x: Any) -> Any:
        h = layers.elementwise_mul(x, b)
        h.stop_gradient = True
        return layers.elementwise_mul(h, c) if product else layers.elementwise_add(h, c)

    with fluid.program_guard(fluid.Program(), fluid.Program()):
        b, c = parameter("b", 2.0), parameter("c", -0.5)
        x = layers.scale(parameter("a", 1.5), 1.0)
        i, n = (layers.fill_constant([1], "int64", value) for value in (0, 2))
        i.stop_gradient = True
        if form == "while_loop":
            _, x = layers.while_loop(
                lambda i, x: layers.less_than(i, n), lambda i, x: [layers.increment(i), body(x)], [i, x]
            )
        elif form == "While":
            going = layers.less_than(i, n)
            with layers.While(going).block():
                layers.assign(body(x), x)
                layers.increment(i)
                layers.less_than(i, n, cond=going)
        else:
            for _ in range(2):
                if form == "Switch":
                    with layers.Switch() as switch, switch.case(layers.fill_constant([1], "bool", True)):
                        layers.assign(body(x), x)
                else:
                    layers.assign(body(x), x)
        pairs = dict((p.name, g) for p, g in append_backward(layers.mean(x)))
        executor = fluid.Executor()
        executor.run(fluid.default_startup_program())
        (gradient,) = executor.run(fetch_list=[pairs["c"]])
        # The last step reads 2 * 1.5 * -0.5, times 2, in the product.
        np.testing.assert_allclose(gradient, np.full((2, 3), (-3.0 if product else 1.0) / 6, "f4"), rtol=1e-6)


def test_no_grad_set_and_parameter_list() -> None:
    def build() -> Builder:
        net = Builder()
        w, v = net.parameter("w", [2, 2]), net.parameter("v", [2, 2])
        net.op("mean", {"X": net.op("elementwise_mul", {"X": w, "Y": v}, "m")}, "loss")
        return net

    net = build()
    assert [p.name for p, _ in append_backward(net.block.var("loss"), no_grad_set={"w"})] == ["v"]
    net = build()
    pairs = append_backward(net.block.var("loss"), parameter_list=[net.block.var("w")])
    assert [(p.name, g.name) for p, g in pairs] == [("w", "w@GRAD")]


def test_callbacks_see_each_op() -> None:
    net = Builder()
    net.op("mean", {"X": net.op("exp", {"X": net.parameter("w", [2, 2])}, "a")}, "loss")
    seen: list[Any] = []

    def callback(block: Any, context: dict[str, Any]) -> None:
        desc = context["__current_op_desc__"]
        seen.append((desc.type(), block.ops[-1].type, context.get("w@GRAD")))

    append_backward(net.block.var("loss"), callbacks=[callback])
    assert seen == [("mean_grad", "mean_grad", "w"), ("exp_grad", "exp_grad", "w")]


def test_gradients_with_target_gradients(rng: np.random.Generator) -> None:
    net = Builder()
    x, t = net.data("x", [2, 3], stop_gradient=False), net.data("t", [2, 3])
    y = net.op("square", {"X": x}, "y")
    z = net.op("exp", {"X": x}, "z")
    grads = gradients([y, z], [x], target_gradients=[None, t])
    feed = {"x": floats(rng, 2, 3), "t": floats(rng, 2, 3)}
    (got,) = run(net.program, feed, [grads[0].name])
    np.testing.assert_allclose(got, 2 * feed["x"] + feed["t"] * np.exp(feed["x"]), rtol=1e-5)


def test_no_path_leads_through_an_op_without_gradient() -> None:
    """Of x > 1, cast and multiplied by y, only the product is differentiated; recorded from Paddle 1.8.5."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x, y = fluid.data("x", [-1, 4]), fluid.data("y", [3, 4])
        x.stop_gradient = y.stop_gradient = False
        loss = fluid.layers.reduce_sum((x > y).astype("float32") * y)
        start = len(main.global_block().ops)
        grads = gradients([loss], [x, y])
    assert grads[0] is None and grads[1].shape == (3, 4)
    types = [op.type for op in main.global_block().ops[start:]]
    assert types == ["shape", "fill_constant", "reduce_sum_grad", "elementwise_mul_grad"]
    assert main.global_block().var(f"{loss.name}_shape").shape == (1,)


def test_an_input_without_gradient_gives_none() -> None:
    net = Builder()
    x, other = net.data("x", [2], stop_gradient=False), net.data("other", [2], stop_gradient=False)
    grads = calc_gradient(net.op("square", {"X": x}, "y"), [x, other])
    assert grads[0].name == "x@GRAD"
    assert grads[1] is None


def test_gradients_by_nothing_append_those_of_all_that_the_target_depends_on() -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [-1, 4])
        target = fluid.layers.reduce_sum(fluid.layers.fc(x, 3, param_attr="w", bias_attr="b"))
        assert gradients([target], []) == []
    block = main.global_block()
    assert block.ops[-1].type == "mul_grad"
    assert block.var("w@GRAD").shape == (4, 3) and block.var("b@GRAD").shape == (3,)
    assert not block.has_var("x@GRAD")


def test_gradients_of_gradients(rng: np.random.Generator) -> None:
    net = Builder()
    x = net.data("x", [2, 3], stop_gradient=False)
    w = net.parameter("w", [3, 2])
    y = net.op("square", {"X": net.op("mul", {"X": x, "Y": w}, "m")}, "y")
    (first,) = gradients(y, x)
    net.op("mean", {"X": net.op("square", {"X": first}, "penalty")}, "loss")
    ((_, grad),) = append_backward(net.block.var("loss"))
    assert "square_grad_grad" in grad_ops(net)
    assert "mul_grad_grad" in grad_ops(net)
    feed = {"x": floats(rng, 2, 3), "w": floats(rng, 3, 2)}
    (got,) = run(net.program, feed, [grad.name])
    np.testing.assert_allclose(got, numeric(net, feed, "w"), rtol=2e-2, atol=2e-2)


def test_a_later_pass_has_names_of_its_own() -> None:
    net = Builder()
    x, w = net.data("x", [2, 3], stop_gradient=False), net.parameter("w", [3, 2])
    y = net.op("square", {"X": net.op("mul", {"X": x, "Y": w}, "m")}, "y")
    first, second = gradients(y, x), gradients(y, w)
    assert [first[0].name, second[0].name] == ["x@GRAD", "grad/grad/w@GRAD"]


def test_an_op_that_needs_nothing_is_not_differentiated() -> None:
    net = Builder()
    w = net.parameter("w", [2, 2])
    net.op("exp", {"X": w}, "unused")
    net.op("mean", {"X": net.op("square", {"X": w}, "sq")}, "loss")
    append_backward(net.block.var("loss"))
    assert grad_ops(net) == ["fill_constant", "mean_grad", "square_grad"]


def test_a_branch_with_an_optimizer_trains_its_own_parameters(rng: np.random.Generator) -> None:
    layers, start = fluid.layers, floats(rng, 2, 2)
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        flag = fluid.data("flag", [1], "bool")
        value = fluid.initializer.NumpyArrayInitializer(start)
        w = layers.create_parameter([2, 2], "float32", attr=fluid.ParamAttr(name="w", initializer=value))

        def branch(rate: float) -> Any:
            loss = layers.mean(layers.square(w))
            fluid.optimizer.SGD(rate).minimize(loss)
            return loss

        layers.cond(flag, lambda: branch(1.0), lambda: branch(2.0))
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    with fluid.scope_guard(scope):
        exe.run(startup)
        exe.run(main, feed={"flag": np.array([True])})
        after = start - 1.0 * start / 2
        np.testing.assert_allclose(np.array(scope.find_var("w").get_tensor()), after, rtol=1e-6)
        exe.run(main, feed={"flag": np.array([False])})
        np.testing.assert_allclose(np.array(scope.find_var("w").get_tensor()), after - 2.0 * after / 2, atol=1e-6)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda net: append_backward("loss"), TypeError, "loss is 'loss' of type str; expected a Variable"),
        (lambda net: append_backward(net.block.var("w")), ValueError, "no op of block 0 computes the loss 'w'"),
        (
            lambda net: append_backward(net.block.var("loss"), parameter_list=[3]),
            TypeError,
            "parameter_list holds 3",
        ),
        (
            lambda net: append_backward(net.block.var("loss"), callbacks=print),
            TypeError,
            "expected a list of functions",
        ),
        (
            lambda net: append_backward(net.block.var("loss"), no_grad_set={3}),
            TypeError,
            "no_grad_set holds 3",
        ),
        (lambda net: gradients([], []), ValueError, "targets is empty"),
        (lambda net: gradients(net.block.var("loss"), ["w"]), TypeError, "inputs holds 'w' of type str"),
        (
            lambda net: gradients(net.block.var("loss"), net.block.var("w"), [None, None]),
            ValueError,
            "1 targets but 2 target_gradients",
        ),
        (
            lambda net: gradients(net.block.var("loss"), net.block.var("w"), net.block.var("w")),
            ValueError,
            r"target 'loss' has shape \(1,\) but its target gradient 'w' has shape \(2, 2\)",
        ),
    ],
)
def test_errors(call: Any, error: type[Exception], text: str) -> None:
    net = Builder()
    net.op("mean", {"X": net.op("exp", {"X": net.parameter("w", [2, 2])}, "a")}, "loss")
    with pytest.raises(error, match=text):
        call(net)


def test_inputs_of_another_program() -> None:
    net, other = Builder(), Builder()
    net.op("mean", {"X": net.op("exp", {"X": net.parameter("w", [2, 2])}, "a")}, "loss")
    with pytest.raises(ValueError, match="belongs to another program"):
        gradients(net.block.var("loss"), other.data("x", [2], stop_gradient=False))


def test_a_loss_has_a_second_gradient_under_another_prefix() -> None:
    """The name of the second one is that of no variable's gradient; its shape is inferred."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 3]), 2))
        fluid.optimizer.SGD(0.1).minimize(loss)
        with fluid.unique_name.guard("second_"):
            fluid.optimizer.SGD(0.1).minimize(loss)
    assert main.global_block().var(f"second_{loss.name}@GRAD_0").shape == (1,)


@pytest.mark.parametrize(("layer", "start"), [("mean", ["fill_constant"]), ("relu", ["shape", "fill_constant"])])
def test_the_gradient_of_a_loss_begins_on_the_losss_device(layer: str, start: list[str]) -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        y = fluid.layers.fc(fluid.data("x", [4, 2]), 3)
        with fluid.device_guard("gpu"):
            loss = getattr(fluid.layers, layer)(y)
        fluid.backward.append_backward(loss)
    devices = {op.type: op.attr("op_device") for op in main.global_block().ops}
    assert {devices[op] for op in [layer, *start, f"{layer}_grad"]} == {"gpu"}
    assert devices["mul_grad"] == ""


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(
    ("loss_of", "expected"),
    [
        (lambda x: fluid.layers.reduce_sum(x, dim=1), lambda x: np.ones_like(x)),
        (lambda x: fluid.layers.reduce_max(x, dim=1), lambda x: (x == x.max(1, keepdims=True)) * 1.0),
        (lambda x: fluid.layers.reshape(x * x, [-1]), lambda x: 2 * x),
        (lambda x: fluid.layers.slice(x, [1], [0], [1]), lambda x: np.eye(4)[[0] * len(x)]),
        (lambda x: fluid.layers.matmul(x, x, transpose_y=True), lambda x: 2 * np.ones((len(x), 1)) * x.sum(0)),
        (lambda x: fluid.layers.scale(x, 3.0), lambda x: np.full_like(x, 3)),
    ],
    ids=["reduce_sum", "reduce_max", "reshape", "slice", "matmul", "scale"],
)
def test_a_loss_of_several_numbers_is_differentiated_as_their_sum(loss_of: Any, expected: Any, rows: int) -> None:
    """Fluid's gradient of the loss is one number whatever the loss: its ops read beyond its end, or refuse it."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [None, 4], "float32")
        x.stop_gradient = False
        append_backward(loss_of(x))
    given = np.arange(4.0 * rows, dtype=np.float32).reshape(rows, 4)
    np.testing.assert_allclose(run(main, {"x": given}, ["x@GRAD"])[0], expected(given))


def test_a_loss_of_several_numbers_over_two_devices() -> None:
    """Each device begins with ones over the number of devices, as for a loss of one number: w's gradient is a mean."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 2], "float32")
        w = fluid.layers.create_parameter([2], "float32", name="w", default_initializer=fluid.initializer.Constant(1.0))
        loss = fluid.layers.reduce_sum(x * w, dim=1)
        append_backward(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        both = fluid.CompiledProgram(main).with_data_parallel(loss_name=loss.name, places=[fluid.CPUPlace()] * 2)
        (found,) = exe.run(both, feed={"x": np.arange(8, dtype=np.float32).reshape(4, 2)}, fetch_list=["w@GRAD"])
    np.testing.assert_allclose(found.reshape(-1, 2)[0], [6, 8])
