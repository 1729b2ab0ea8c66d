"""What a user reads who does something wrong: the line, what was expected and received, what to do; in few lines."""

from __future__ import annotations

import traceback
import warnings

import numpy as np
import pytest

import fluidjax as fluid

L = fluid.layers
X, Y = np.ones((2, 3), "float32"), np.zeros((2, 1), "int64")


@pytest.fixture
def net():
    """(executor, x, y, loss) of a classifier whose startup program has not run."""
    with (
        fluid.program_guard(fluid.Program(), fluid.Program()),
        fluid.unique_name.guard(),
        fluid.scope_guard(fluid.Scope()),
    ):
        x, y = fluid.data("x", [None, 3]), fluid.data("y", [None, 1], "int64")
        loss = L.mean(L.cross_entropy(L.fc(x, 4, act="softmax"), y))
        yield fluid.Executor(fluid.CPUPlace()), x, y, loss


def said(call, *words):
    """The error of a call: its words are there, and its traceback is short beside the frames of this test."""
    with pytest.raises(Exception) as caught:  # noqa: PT011  (the words are looked for below)
        call()
    text = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    for word in words:
        assert word in text, text
    own = [f for f in traceback.extract_tb(caught.value.__traceback__) if f.filename != __file__]
    message = len(text.splitlines())
    assert 2 * len(own) + message <= 12, "".join(traceback.format_exception(caught.value))
    assert caught.value.__cause__ is None
    return caught.value


def started(net):
    net[0].run(fluid.default_startup_program())
    return net


def test_startup_not_run(net):
    exe, _, _, loss = net
    said(
        lambda: exe.run(feed={"x": X, "y": Y}, fetch_list=[loss]),
        "'fc_0.w_0', which is uninitialized",
        "test_words.py",
        "default_startup_program()",
    )


@pytest.mark.parametrize(
    ("feed", "words"),
    [
        ({"x": X}, ["'y', which was not fed", "feeds for x, y", "fed: x", "add 'y' to the feed", "use_prune=True"]),
        ({}, ["feeds for x, y", "fed: nothing"]),
    ],
)
def test_a_feed_is_missing(net, feed, words):
    exe, _, _, loss = started(net)
    said(lambda: exe.run(feed=feed, fetch_list=[loss]), "test_words.py", *words)


def test_a_feed_is_misspelt(net):
    exe, _, _, loss = started(net)
    with pytest.warns(UserWarning, match="no variable of that name"):
        said(lambda: exe.run(feed={"x": X, "yy": Y}, fetch_list=[loss]), "rename 'yy' to 'y' in the feed")


def test_a_fetch_that_needs_no_label(net):
    """The run with which the message of the label that was not fed ends."""
    exe, _, _, loss = started(net)
    (hidden,) = exe.run(feed={"x": X}, fetch_list=[loss.block.ops[2].output("Out")[0]], use_prune=True)
    np.testing.assert_allclose(hidden.sum(1), [1, 1], rtol=1e-6)


def test_a_run_of_a_feed(net):
    exe, _, _, loss = started(net)
    said(lambda: exe.run({"x": X, "y": Y}, [loss]), "received dict", "exe.run(program, feed={...}, fetch_list=[...])")


def test_feeds_by_variable(net):
    exe, x, y, loss = started(net)
    by_name, by_variable = (exe.run(feed=f, fetch_list=[loss])[0] for f in ({"x": X, "y": Y}, {x: X, y: Y}))
    np.testing.assert_array_equal(by_name, by_variable)


def test_batches_that_differ(net):
    exe, _, _, loss = started(net)
    said(
        lambda: exe.run(feed={"x": X, "y": Y[:1]}, fetch_list=[loss]), "cross_entropy2", "test_words.py", "int64[1, 1]"
    )


def test_a_layer_of_another_width(net):
    exe = net[0]
    six = L.data("six", [6])
    out = L.fc(six, 2)
    exe.run(fluid.default_startup_program())
    said(
        lambda: exe.run(feed={"six": X}, fetch_list=[out], use_prune=True),
        "differ, (3,) and (6,)",
        "as many columns of X as Y has rows",
    )


def test_a_fetch_that_is_not_there(net):
    exe, _, _, loss = started(net)
    fluid.optimizer.SGD(0.1).minimize(loss)
    exe.run(fluid.default_startup_program())
    weight = fluid.global_scope().find_var("fc_0.w_0").get_tensor()
    before = np.array(weight)
    said(lambda: exe.run(feed={"x": X, "y": Y}, fetch_list=["mean_0.tmp"]), "'mean_0.tmp'", "fetch 'mean_0.tmp_0'")
    np.testing.assert_array_equal(np.array(weight), before, err_msg="the step was taken")


def test_a_model_that_is_fed_what_is_not_there(net, tmp_path):
    exe, x, _, loss = started(net)
    said(lambda: fluid.io.save_inference_model(str(tmp_path), ["image"], [loss], exe),
         "var image not in this block", "such as x, y", "feeded_var_names=['image']")  # fmt: skip
    said(lambda: fluid.io.save_inference_model(str(tmp_path), ["x", "y"], [L.fc(x, 2)], exe),
         "var y not in this block", "its outputs do not depend on it", "leave it out of feeded_var_names")  # fmt: skip


def test_a_model_of_a_name(net, tmp_path):
    exe, _, _, loss = started(net)
    said(lambda: fluid.io.save_inference_model(str(tmp_path), ["x"], loss.name, exe),
         f"received: {loss.name!r}", "pass the Variables that layers returned")  # fmt: skip


def test_a_name_that_is_not_there():
    said(lambda: L.fully_conected, "fluid.layers has no 'fully_conected'")
    said(lambda: L.embeding, "did you mean embedding")
    said(lambda: fluid.Executer, "did you mean Executor")
    said(lambda: fluid.io.load_inferense_model, "did you mean load_inference_model")
    said(lambda: fluid.optimizer.Adamm, "fluid.optimizer has no 'Adamm'; did you mean Adam")
    said(lambda: fluid.initializer.Xaviar, "did you mean Xavier")
    said(lambda: fluid.dygraph.linear, "did you mean Linear")
    said(lambda: fluid.dygraph.Liner, "did you mean Linear or Layer?")
    said(lambda: L.fc(fluid.data("image", [None, 3]), 2, act="Relu"), "similar ops that exist: relu")
    assert not hasattr(fluid, "nosuchthing")


def test_no_place():
    said(lambda: fluid.Executor("gpu"), "'gpu' is no place", "fluid.CUDAPlace(0)", "received: a str")


@pytest.mark.parametrize(("ask", "name"), [(np.float32, "np.array()"), (float, "float()"), (int, "int()")])
def test_a_static_variable_has_no_number(net, ask, name):
    said(lambda: ask(net[3]), f"{name} of Variable", "fetch it")
    said(lambda: float(np.array(net[3])), "float() of Variable", "fetch it")


def test_an_array_of_variables_holds_the_variables(net):
    hidden, cell = np.squeeze([[net[0], net[3]]])
    assert hidden is net[0] and cell is net[3] and np.array(cell).item() is cell


def test_a_condition_of_python(net):
    with pytest.warns(UserWarning, match="condition of Python's"):
        assert net[3] > 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert net[3]  # `if mask:` asks whether there is one


def test_layers(net):
    x = net[1]
    said(lambda: L.fc(x, 3, act="rellu"), "rellu", "relu", "test_words.py")
    said(lambda: L.conv2d(x, 3, 3), "'x' is not 4-D", "received: [-1, 3]", "reshape")
    rows = L.data("rows", [8], lod_level=1)
    said(lambda: L.dynamic_lstm(rows, size=10), "size 10, input rows [-1, 8]", "4 * hidden")

    said(lambda: L.pool2d(x, 2), "'x' is not 4-D", "received: [-1, 3]", "reshape")
    said(lambda: L.relu(X), "'x' in relu", "numpy.ndarray", "fluid.layers.assign")
    said(lambda: L.embedding(x, [10, 4]), "['int64'], but received float32", "Declare it", "fluid.layers.cast")
    said(lambda: fluid.data("four", 4), "'shape' in data", "Pass one of such a type")
    said(lambda: L.fc("x", 3), "'input' in fc", "Pass a variable that fluid.data or a layer returned")
    said(lambda: L.reshape(L.data("six", [2, 3], append_batch_size=False), [4, 2]), "[2, 3] to [4, 2]")
    said(lambda: fluid.ParamAttr(initializer=3), "'initializer' in ParamAttr must be Initializer")
    said(lambda: fluid.ParamAttr._to_attr(fluid.initializer.Xavier), "Call the class: XavierInitializer(...)")
    said(lambda: L.fill_constant([1], "float32", "one"), "'value' in fill_constant", "received 'one'", "Pass a number")


def test_a_weight_of_two_shapes(net):
    x = net[1]
    L.fc(x, 3, param_attr="shared")
    said(lambda: L.fc(x, 4, param_attr="shared"), "'shared'", "(3, 3)", "(3, 4)", "another name")


def test_a_loop_that_returns_too_much(net):
    zero = L.fill_constant([1], "int64", 0)
    said(lambda: L.while_loop(lambda i: L.less_than(i, zero), lambda i: [i, i], [zero]),
         "as many values as loop_vars", f"expected: ['{zero.name}']", "in their order")  # fmt: skip


def test_samples_that_differ(net):
    _, x, y, _ = net
    said(lambda: fluid.DataFeeder([x, y], fluid.CPUPlace()).feed([([1, 2, 3], [0]), ([1, 2], [0])]),
         "'x'", "as many in each sample", "mend the reader")  # fmt: skip


def test_files_that_are_not_there(net, tmp_path):
    net[0].run(fluid.default_startup_program())
    said(lambda: fluid.io.load_params(net[0], str(tmp_path / "no")), "received: no such folder", "check the path")
    said(lambda: fluid.io.load_inference_model(str(tmp_path / "no"), net[0]), "check the path")


def test_a_variable_of_another_program(net):
    with fluid.program_guard(fluid.Program()):
        z = fluid.data("z", [None, 3])
    said(lambda: L.fc(z, 3), "'z', which belongs to another program", "program_guard", "test_words.py")


def test_a_fetch_of_another_program(net):
    exe = started(net)[0]
    with fluid.program_guard(fluid.Program()):
        z = L.scale(fluid.data("z", [None, 3]), 2.0)
    said(lambda: exe.run(feed={"x": X, "y": Y}, fetch_list=[z]),
         "it is a variable of another program", "fed z", "give that program to Executor.run")  # fmt: skip


def test_lod_that_does_not_fit(net):
    exe = net[0]
    said(lambda: fluid.create_lod_tensor(Y, [[2, 2]], fluid.CPUPlace()), "level 0 ends at 4", "must add up")
    said(lambda: fluid.create_lod_tensor(Y, [1, 1], fluid.CPUPlace()), "received [1, 1]. Pass [[2, 3]]")
    said(lambda: fluid.create_lod_tensor([1, 2], [[1, 1]], fluid.CPUPlace()), "received [1, 2]", "reshape([-1, 1])")
    tensor = fluid.create_lod_tensor(Y, [[1, 1]], fluid.CPUPlace())
    tensor.set(np.zeros((5, 1), "int64"), fluid.CPUPlace())
    with fluid.program_guard(fluid.Program()):
        words = fluid.data("words", [None, 1], "int64", lod_level=1)
        total = L.sequence_pool(L.cast(words, "float32"), "sum")
        program = fluid.default_main_program()
    said(lambda: exe.run(program, feed={"words": tensor}, fetch_list=[total]), "feed 'words'", "5 rows", "set lengths")
    said(lambda: exe.run(program, feed={"words": Y}, fetch_list=[total]),
         "op sequence_pool", "test_words.py", "without LoD", "create_lod_tensor")  # fmt: skip


def test_a_program_shows_itself_in_one_line(net):
    assert repr(fluid.default_main_program()) == "<Program: 5 ops, 11 variables, 1 blocks, fed x, y>"
    assert "blocks {" in fluid.default_main_program().to_string(True)


def test_the_flag_shows_everything(net):
    exe, _, _, loss = net
    fluid.set_flags({"FLAGS_call_stack_level": 2})
    try:
        with pytest.raises(fluid.core.EnforceNotMet) as caught:
            exe.run(feed={"x": X, "y": Y}, fetch_list=[loss])
    finally:
        fluid.set_flags({"FLAGS_call_stack_level": 1})
    assert any("call.py" in frame.filename for frame in traceback.extract_tb(caught.value.__cause__.__traceback__))


def test_frames_of_the_users_stay(net):
    """A Python function of a program, or a reader, that raises is shown to its last line."""
    exe, x, _, _ = started(net)
    out = fluid.default_main_program().current_block().create_var(name="out", dtype="float32", shape=[2, 3])

    def broken(value):
        raise ValueError("mine")

    L.py_func(broken, x, out)
    with pytest.raises(Exception, match="mine") as caught:
        exe.run(feed={"x": X, "y": Y}, fetch_list=[out])
    shown = "".join(traceback.format_exception(caught.value))
    assert "in broken" in shown


def test_words_of_eager_mode():
    with fluid.dygraph.guard():
        net, rows = fluid.dygraph.Linear(4, 3), fluid.dygraph.to_variable(X)
        said(lambda: net(rows), "op matmul", "(3,) and (4,)", "columns of X", "received: float32[2, 3], float32[4, 3]")
        said(lambda: L.cross_entropy(rows, rows), "Label holds the number of a class for each row, int64[2, 1]")
        said(lambda: fluid.dygraph.save_dygraph(net, "net"), "received: Linear", "pass layer.state_dict()")
        said(lambda: net.set_dict(fluid.dygraph.Linear(5, 3).state_dict()), "[4, 3]", "[5, 3]", "Build the layer as")


def test_a_layer_called_after_its_guard():
    with fluid.dygraph.guard():
        net, rows = fluid.dygraph.Linear(3, 3), fluid.dygraph.to_variable(X)
    with fluid.program_guard(fluid.Program()):
        said(lambda: net(rows), "variable of eager mode", "call a layer of eager mode inside fluid.dygraph.guard()")
