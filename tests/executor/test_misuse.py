"""What ``Executor.run`` takes as feeds, fetches and scope, and which kinds of errors it raises for the rest."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid

X = np.ones((2, 3), np.float32)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        yield


class Minimized:
    """A mean of ``x`` and what ``minimize`` gives for it."""

    def __init__(self) -> None:
        y = fluid.layers.fc(fluid.data("x", [None, 3]), 1)
        self.loss = fluid.layers.mean(y)
        self.ops, self.pairs = fluid.optimizer.SGD(0.1).minimize(self.loss)
        self.exe = fluid.Executor(fluid.CPUPlace())
        self.exe.run(fluid.default_startup_program())

    def run(self, fetch_list: Any, **options: Any) -> int:
        return len(self.exe.run(**{"feed": {"x": X}, "fetch_list": fetch_list} | options))


@pytest.fixture
def net() -> Minimized:
    return Minimized()


def test_operators_among_the_fetches_fetch_nothing(net: Minimized) -> None:
    loss, ops, pairs = net.loss, net.ops, net.pairs
    assert net.run([ops, loss]) == net.run([(ops, pairs), loss]) == net.run([(ops,), loss]) == 1
    assert net.run([ops[0], loss]) == net.run([(loss,)]) == 1
    assert net.run([[ops[0], loss], loss.name]) == 2


def test_what_cannot_be_fetched_is_refused_in_nested_lists_too(net: Minimized) -> None:
    for wrong in (3, None, [net.loss]):
        with pytest.raises(TypeError, match="a fetch is a Variable or a name, received"):
            net.run([[net.loss, wrong]])
    with pytest.raises(TypeError, match="received tuple"):
        net.run([net.pairs, net.loss])


def test_fetches_in_a_dict_or_a_set_are_refused(net: Minimized) -> None:
    for wrong in ({"loss": net.loss}, {net.loss.name}):
        with pytest.raises(AssertionError, match="fetch_list is a list or tuple"):
            net.run(wrong)


def test_what_is_no_scope_is_refused(net: Minimized) -> None:
    for wrong in ({}, "scope"):
        with pytest.raises(TypeError, match="expected a fluid.Scope, received"):
            net.run([net.loss], scope=wrong)


def test_what_no_array_can_be_made_of(net: Minimized) -> None:
    with pytest.raises(ValueError, match="received str 'abc'"):
        net.run([net.loss], feed={"x": "abc"})
    with pytest.raises(RuntimeError, match="NumPy cannot make an array of"):
        net.run([net.loss], feed={"x": [[1.0, 2.0], [1.0]]})


def test_what_is_no_array_of_numbers(net: Minimized) -> None:
    for wrong in (np.array([[None] * 3]), np.array([["a"] * 3])):
        for kind in (ValueError, fluid.core.EnforceNotMet):
            with pytest.raises(kind, match="the data type does not match"):
                net.run([net.loss], feed={"x": wrong})


def test_the_last_axes_of_a_feed_may_be_missing() -> None:
    """1.8.5 holds only the axes that are fed against those that are declared, whatever the ops say to it."""
    doubled = fluid.layers.scale(fluid.data("x", [None, 1]), 2.0)
    exe = fluid.Executor(fluid.CPUPlace())
    for fed, shape in ((np.ones(5, "float32"), (5,)), (np.ones((5, 1), "float32"), (5, 1)), (1.0, (1,))):
        (found,) = exe.run(feed={"x": fed}, fetch_list=[doubled])
        assert found.shape == shape and set(found.reshape(-1)) == {2.0}
    for wrong in (np.ones((5, 2), "float32"), np.ones((5, 1, 1), "float32"), np.array(1.0, "float32")):
        with pytest.raises(ValueError, match="but received fed shape"):
            exe.run(feed={"x": wrong}, fetch_list=[doubled])


@pytest.mark.parametrize("iterable", [True, False])
def test_a_reader_that_fails_is_an_enforce_not_met_too(iterable: bool) -> None:
    def batches() -> Any:
        yield (X,)
        raise KeyError("lost")

    x = fluid.data("x", [None, 3])
    doubled = fluid.layers.scale(x, 2.0)
    loader = fluid.io.DataLoader.from_generator([x], capacity=2, iterable=iterable)
    loader.set_batch_generator(batches, fluid.CPUPlace())
    exe = fluid.Executor(fluid.CPUPlace())
    with pytest.raises(KeyError, match="lost") as caught:
        if iterable:
            for feed in loader():
                exe.run(feed=feed, fetch_list=[doubled])
        loader.start()
        while True:
            exe.run(fetch_list=[doubled])
    assert isinstance(caught.value, fluid.core.EnforceNotMet)


@pytest.mark.parametrize("multiprocess", [False, True])
def test_what_is_no_batch_is_an_enforce_not_met_of_an_eager_loader(multiprocess: bool) -> None:
    with fluid.dygraph.guard():
        loader = fluid.io.DataLoader.from_generator(capacity=2, use_multiprocess=multiprocess)
        loader.set_batch_generator(lambda: iter([[[[1, 2], [1]]]]), fluid.CPUPlace())
        with pytest.raises(ValueError, match="Blocking queue is killed") as caught:
            next(iter(loader()))
    assert isinstance(caught.value, fluid.core.EnforceNotMet)


def test_kinds_of_values_of_scopes_and_tensors() -> None:
    var = fluid.Scope().var("x")
    for wrong in ("a", 3.5, None):
        with pytest.raises(TypeError, match="Expected a number"):
            var.set_int(wrong)
    var.set_int(np.int64(3))
    assert var.get_int() == 3
    with pytest.raises(TypeError, match="var takes a name"):
        fluid.Scope().var(3)
    tensor = fluid.create_lod_tensor(X, [], fluid.CPUPlace())
    for wrong in ([[-1, 3]], [[1.0, 1]], [1, 1], None):
        with pytest.raises(TypeError, match="list of lists"):
            tensor.set_recursive_sequence_lengths(wrong)
        with pytest.raises(TypeError, match="list of lists"):
            tensor.set_lod(wrong)
    assert np.array(fluid.LoDTensor()).dtype == np.float64
    with pytest.raises(fluid.core.EnforceNotMet, match="element 0 of 0"):
        fluid.core.LoDTensorArray()[0] = tensor


def test_a_readers_batch_that_does_not_fit_is_an_enforce_not_met_too() -> None:
    x = fluid.data("x", [None, 3])
    loader = fluid.io.DataLoader.from_generator([x], capacity=2, iterable=False)
    doubled = fluid.layers.scale(x, 2.0)
    loader.set_batch_generator(lambda: iter([(np.ones((2, 4), "float32"),)]), fluid.CPUPlace())
    loader.start()
    with pytest.raises(fluid.core.EnforceNotMet, match="but received fed shape") as caught:
        fluid.Executor(fluid.CPUPlace()).run(fetch_list=[doubled])
    assert isinstance(caught.value, ValueError)
    loader.reset()


def test_a_variable_fetched_several_times_has_a_value_each_time() -> None:
    doubled = fluid.layers.scale(fluid.data("x", [None, 3]), 2.0)
    tripled = fluid.layers.scale(doubled, 1.5)
    exe = fluid.Executor(fluid.CPUPlace())
    first, second, third = exe.run(feed={"x": X}, fetch_list=[doubled, doubled.name, tripled])
    np.testing.assert_array_equal(first, second)
    assert (first == 2).all() and (third == 3).all()


def misfed(feed: dict[str, Any], label: str = "int64") -> str:
    x, y = fluid.layers.data("x", [4]), fluid.layers.data("y", [1], dtype=label)
    loss = fluid.layers.cross_entropy(fluid.layers.fc(x, 3, act="softmax"), y)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    with pytest.raises(fluid.core.EnforceNotMet) as failed:
        exe.run(feed=feed, fetch_list=[loss])
    return str(failed.value)


def test_an_op_that_fails_says_what_was_fed_otherwise_than_declared() -> None:
    """`fluid.layers.data` checks no feeds, so it is an op that fails: its message names the feeds to look at."""
    said = misfed({"x": X, "y": np.ones((2, 1), "int64")})
    assert "fed otherwise than declared: 'x' as float32[2, 3], declared as float32[-1, 4]" in said and "'y'" not in said


def test_labels_that_are_no_classes() -> None:
    x = np.ones((2, 4), "float32")
    said = misfed({"x": x, "y": np.ones((2, 1), "float32")})
    assert "Label holds the number of a class for each row, int64[2, 1], received float32[2, 1]" in said
    assert "'y' as float32[2, 1], declared as int64[-1, 1]" in said
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        assert "received int64[2, 3]; declare and feed it as that" in misfed({"x": x, "y": np.ones((2, 3), "int64")})
    with fluid.program_guard(fluid.Program(), fluid.Program()):  # declared as numbers: nothing was fed otherwise
        assert "otherwise" not in misfed({"x": x, "y": np.ones((2, 1), "float32")}, label="float32")


def test_a_result_is_no_fetch(net: Minimized) -> None:
    (loss,) = net.exe.run(feed={"x": X}, fetch_list=[net.loss])
    with pytest.raises(TypeError, match=r"received ndarray(.|\n)*the name `loss` no longer means the variable"):
        net.run([loss])


def test_a_feed_of_another_name(net: Minimized) -> None:
    with pytest.warns(UserWarning, match="no variable of that name") as warned:
        with pytest.raises(RuntimeError, match="rename 'X' to 'x'"):
            net.run([net.loss], feed={"X": X})
    assert [warning.filename for warning in warned] == [__file__]
