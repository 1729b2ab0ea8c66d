"""save_persistables and load_persistables of Fluid 1.4 and 1.5: a folder with a file for each parameter."""

from __future__ import annotations

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.dygraph.nn import FC, BatchNorm, Conv2D
from fluidjax.files.errors import FileFormatError

IMAGES = np.random.RandomState(0).uniform(-1, 1, (2, 1, 6, 6)).astype("float32")


class Net(fluid.dygraph.Layer):
    """A small network in the words of Fluid 1.5: layers with a name that learn their sizes from their inputs."""

    def __init__(self, name_scope):
        super().__init__(name_scope)
        self._conv = Conv2D(self.full_name(), num_filters=2, filter_size=3)
        self._norm = BatchNorm(self.full_name(), 2)
        self._fc = FC(self.full_name(), 3)

    def forward(self, inputs):
        return self._fc(self._norm(self._conv(inputs)))


def outputs(net):
    return net(fluid.dygraph.to_variable(IMAGES)).numpy()


def saved(folder, *older, optimizers=None, pick=lambda net: net.state_dict()):
    """The outputs of a trained network whose parameters were saved, and its parameters by their own names."""
    with fluid.dygraph.guard():
        net = Net("net")
        fluid.layers.mean(net(fluid.dygraph.to_variable(IMAGES))).backward()
        fluid.optimizer.SGD(0.5).minimize(fluid.layers.mean(net(fluid.dygraph.to_variable(IMAGES))))
        given = older or ((optimizers,) if optimizers else ())
        fluid.dygraph.save_persistables(pick(net), folder, *given)
        net.eval()
        return outputs(net), {p.name: p.numpy() for p in net.parameters()}


NAMES = [f"{name}_0.{end}" for name, end in (("batch_norm", "b_0"), ("batch_norm", "w_0"), ("batch_norm", "w_1"))]
NAMES += ["batch_norm_0.w_2", "conv2d_0.b_0", "conv2d_0.w_0", "fc_0.b_0", "fc_0.w_0"]


def test_a_network_takes_what_was_saved(tmp_path):
    folder = str(tmp_path / "save_dir")
    expected, parameters = saved(folder)
    assert sorted(path.name for path in (tmp_path / "save_dir").iterdir()) == NAMES == sorted(parameters)
    with fluid.dygraph.guard():
        net = Net("net")
        found, schedules = fluid.dygraph.load_persistables(folder)
        assert sorted(found) == NAMES and schedules == {}
        assert found["fc_0.w_0"].shape == [32, 3] and found["fc_0.w_0"].name == "fc_0.w_0"
        net.load_dict(found)
        net.eval()
        np.testing.assert_array_equal(outputs(net), expected)
        for parameter in net.parameters():
            np.testing.assert_array_equal(parameter.numpy(), parameters[parameter.name])


def test_the_pair_itself_is_taken(tmp_path):
    expected, _ = saved(str(tmp_path))
    with fluid.dygraph.guard():
        net = Net("net")
        outputs(net)  # now the layers have their parameters
        net.load_dict(fluid.dygraph.load_persistables(str(tmp_path)))
        net.eval()
        np.testing.assert_array_equal(outputs(net), expected)


@pytest.mark.parametrize("file", [None, "all"])
@pytest.mark.parametrize("pick", [lambda net: net.state_dict(), lambda net: net.parameters()], ids=["state", "list"])
def test_fluid_1_4s_calls(tmp_path, file, pick):
    expected, _ = saved(str(tmp_path), *([file] if file else []), pick=pick)
    assert len(list(tmp_path.iterdir())) == (1 if file else len(NAMES))
    with fluid.dygraph.guard():
        net = Net("net")
        outputs(net)
        net.load_dict(fluid.dygraph.load_persistables(pick(net), str(tmp_path), *([file] if file else [])))
        net.eval()
        np.testing.assert_array_equal(outputs(net), expected)


def test_a_part_of_a_network_is_taken_with_a_warning(tmp_path):
    """A pretrained body under a new head: Fluid 1.5 left the head alone."""
    _, parameters = saved(str(tmp_path))
    (tmp_path / "conv2d_0.b_0").unlink()
    (tmp_path / "fc_0.w_0").unlink()
    with fluid.dygraph.guard():
        made, waiting = Net("net"), Net("net")
        outputs(made)
        before = {p.name: p.numpy() for p in made.parameters()}
        found, _ = fluid.dygraph.load_persistables(str(tmp_path))
        with pytest.warns(UserWarning, match="nothing for parameter") as told:
            made.load_dict(found)
        absent = [str(each.message).split("parameter ")[1].split(",")[0] for each in told]
        assert absent == ["'conv2d_0.b_0'", "'fc_0.w_0'"]
        for parameter in made.parameters():
            left = parameter.name in ("conv2d_0.b_0", "fc_0.w_0")
            np.testing.assert_array_equal(parameter.numpy(), (before if left else parameters)[parameter.name])
        with pytest.warns(UserWarning, match="nothing for parameter 'batch_norm_1"):
            waiting.load_dict(found)  # its other layers will ask for conv2d_1 and fc_1
        outsider = fluid.dygraph.Linear(2, 2)
        with pytest.raises(RuntimeError, match="nothing for any of the layer's parameters"):
            outsider.load_dict(found)


def test_files_are_those_of_fluid_io(tmp_path):
    """Paddle's tensor files: static mode reads them."""
    _, parameters = saved(str(tmp_path))
    main, startup = fluid.Program(), fluid.Program()
    with fluid.scope_guard(fluid.Scope()), fluid.program_guard(main, startup):
        weight = fluid.layers.create_parameter([32, 3], "float32", name="fc_0.w_0")
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        fluid.io.load_vars(exe, str(tmp_path), main, vars=[weight])
        (value,) = exe.run(main, fetch_list=[weight])
    np.testing.assert_array_equal(value, parameters["fc_0.w_0"])


@pytest.mark.parametrize("name", [None, "sgd"])
def test_schedules_of_optimizers(tmp_path, name):
    def optimizer():
        rate = fluid.dygraph.ExponentialDecay(0.5, decay_steps=1, decay_rate=0.5)
        return fluid.optimizer.SGD(rate, name=name)

    def rates(net, sgd, count):
        for _ in range(count):
            loss = fluid.layers.mean(net(fluid.dygraph.to_variable(IMAGES)))
            loss.backward()
            sgd.minimize(loss)
            yield float(sgd.current_step_lr())

    with fluid.dygraph.guard():
        net, sgd = Net("net"), optimizer()
        assert list(rates(net, sgd, 3)) == [0.5, 0.25, 0.125]
        fluid.dygraph.save_persistables(net.state_dict(), str(tmp_path), [sgd, fluid.optimizer.SGD(0.1)])
    with fluid.dygraph.guard():
        net, sgd = Net("net"), optimizer()
        found, schedules = fluid.dygraph.load_persistables(str(tmp_path))
        assert sorted(found) == NAMES and list(schedules) == [str(name)]
        net.load_dict(found)
        sgd.load(schedules)
        assert list(rates(net, sgd, 2)) == [0.0625, 0.03125]
        fluid.optimizer.SGD(0.1).load(schedules)  # a number stays
        with pytest.raises(KeyError, match="no schedule of an optimizer named 'other'"):
            fluid.optimizer.SGD(fluid.dygraph.NoamDecay(8, 4), name="other").load(schedules)


def test_errors(tmp_path):
    with fluid.dygraph.guard():
        with pytest.raises(FileNotFoundError, match="there is no folder"):
            fluid.dygraph.load_persistables(str(tmp_path / "none"))
        with pytest.raises(TypeError, match="save_persistables: there are no parameters"):
            fluid.dygraph.save_persistables({}, str(tmp_path))
        (tmp_path / "w").write_bytes(b"no tensor")
        with pytest.raises(FileFormatError):
            fluid.dygraph.load_persistables(str(tmp_path))
    with pytest.raises(AssertionError):
        fluid.dygraph.load_persistables(str(tmp_path))
