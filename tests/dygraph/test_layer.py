"""Layer and the containers: what is registered, in which order, and what is refused."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid

dg = fluid.dygraph


@pytest.fixture(autouse=True)
def eager() -> Any:
    with dg.guard():
        yield


class Net(dg.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.a = dg.Linear(2, 2)
        self.w = self.create_parameter([3])
        self.b = self.create_parameter([2], is_bias=True)


def ones(*shape: int) -> Any:
    return dg.to_variable(np.ones(shape, "float32"))


@pytest.mark.parametrize("sizes", [(0, 3), (3, 0)])
def test_a_linear_map_of_no_elements_is_refused(sizes: tuple[int, int]) -> None:
    """When it is made: Fluid makes it, and its first call fails."""
    with pytest.raises(ValueError, match="every dimension of its shape must be positive"):
        dg.Linear(*sizes)


def test_own_parameters_come_first() -> None:
    net = Net()
    assert list(net.state_dict()) == ["w", "b", "a.weight", "a.bias"]
    assert [p.name for p in net.parameters()] == ["net_0.w_0", "net_0.b_0", "linear_0.w_0", "linear_0.b_0"]
    assert [k for k, _ in net.named_parameters(prefix="top")] == ["top.w", "top.b", "top.a.weight", "top.a.bias"]
    assert net.parameters(include_sublayers=False) == [net.w, net.b]


@pytest.mark.parametrize(
    ("cls", "name"),
    [
        ("Conv2D", "conv2d"), ("ResNet50Vd", "res_net50_vd"), ("X2Y", "x2y"), ("YOLOv3", "yol_ov3"),
        ("_Private", "__private"), ("BCELoss", "bce_loss"), ("aBC", "a_bc"),
    ],
)  # fmt: skip
def test_names_follow_from_classes(cls: str, name: str) -> None:
    made = type(cls, (dg.Layer,), {})
    assert [made().full_name(), made().full_name(), made("own").full_name()] == [f"{name}_0", f"{name}_1", "own_0"]


def test_shared_layers_are_listed_once_but_saved_twice() -> None:
    layer = dg.Linear(1, 1)
    net = dg.Sequential(layer, dg.Sequential(layer, dg.Linear(1, 1)))
    assert [k for k, _ in net.named_sublayers()] == ["0", "1", "1.1"]
    assert len(net.parameters()) == 4 and len(net.state_dict()) == 6


def test_assignment_registers_and_none_takes_away() -> None:
    net = Net()
    net.plain = 3
    net.plain = dg.Linear(1, 1)
    net.w = None
    net.a = None
    assert list(net.state_dict()) == ["b", "plain.weight", "plain.bias"] and net.w is None and net.a is None
    net.w = net.create_parameter([1])
    assert list(net.state_dict())[0] == "w"  # it keeps its place
    del net.plain
    assert list(net.state_dict()) == ["w", "b"] and not hasattr(net, "plain")


@pytest.mark.parametrize(("name", "value"), [("w", 3), ("a", 3), ("w", "layer"), ("w", "variable")])
def test_another_kind_is_refused(name: str, value: Any) -> None:
    made = {"layer": lambda: dg.Linear(1, 1), "variable": lambda: ones(1)}.get(value, lambda: value)()
    with pytest.raises(TypeError, match="assignment to"):
        setattr(Net(), name, made)


def test_a_layer_must_be_initialised_first() -> None:
    class Early(dg.Layer):
        def __init__(self) -> None:
            self.fc = dg.Linear(1, 1)

    with pytest.raises(ValueError, match="should be called first"):
        Early()
    with pytest.raises(AssertionError, match="no Layer"):
        Net().add_sublayer("x", 3)
    with pytest.raises(TypeError, match="parameter"):
        Net().add_parameter("x", 3)
    with pytest.raises(NotImplementedError, match="forward"):
        dg.Layer()(1)
    with pytest.raises(TypeError, match="copy"):
        copy.deepcopy(Net())


def test_hooks_see_and_replace_what_passes() -> None:
    class Pair(dg.Layer):
        def forward(self, x: int, k: int = 1) -> Any:
            return x, k

    layer, seen = Pair(), []
    layer.register_forward_pre_hook(lambda layer, inputs: seen.append(inputs))
    before = layer.register_forward_pre_hook(lambda layer, inputs: inputs[0] + 1)
    layer.register_forward_post_hook(lambda layer, inputs, outputs: seen.append((inputs, outputs)))
    after = layer.register_forward_post_hook(lambda layer, inputs, outputs: "new")
    assert layer(1, k=5) == "new" and seen == [(1,), ((2,), (2, 5))]
    for hook in (before, before, after):
        hook.remove()
    assert layer(1, k=5) == (1, 5)


def test_state_is_set_by_either_name() -> None:
    layer = dg.Linear(2, 2)
    arrays = {"weight": np.full((2, 2), 2, "float32"), "bias": np.zeros(2, "float32")}
    assert layer.set_dict(arrays) is None
    np.testing.assert_array_equal(layer.weight.numpy(), arrays["weight"])
    layer.load_dict({"linear_0.w_0": layer.bias.numpy() + np.eye(2, dtype="float32"), "linear_0.b_0": layer.bias},
                    use_structured_name=False)  # fmt: skip
    np.testing.assert_array_equal(layer.weight.numpy(), np.eye(2))
    with pytest.warns(UserWarning, match="more"):
        layer.set_dict({**arrays, "more": arrays["bias"]})
    with pytest.raises(RuntimeError, match=r"\[ bias \]"):
        layer.set_dict({"weight": arrays["weight"]})
    for wrong in (np.zeros(3, "float32"), np.zeros(2, "float64")):
        with pytest.raises(AssertionError, match="not match"):
            layer.set_dict({**arrays, "bias": wrong})


def test_eval_stops_recording_everywhere() -> None:
    net, other = dg.Sequential(dg.Dropout(0.5), dg.Linear(2, 2)), dg.Linear(2, 2)
    net.eval()
    assert not net.training and not net[0].training and other.training
    assert other(ones(1, 2)).stop_gradient
    net.train()
    assert net[0].training and not other(ones(1, 2)).stop_gradient


def test_a_layer_in_evaluation_has_no_gradient_while_others_train() -> None:
    drop, x = dg.Dropout(0.5), ones(2, 2)
    x.stop_gradient = False
    drop.eval()
    dg.Linear(1, 1).train()  # records again; the dropout stays in evaluation
    loss = fluid.layers.reduce_sum(drop(x))
    assert loss.numpy() == 2
    with pytest.raises(fluid.core.EnforceNotMet, match="dropout kept nothing"):
        loss.backward()


def test_modes_need_eager_mode() -> None:
    layer = dg.Linear(1, 1)
    tracer = fluid.framework._dygraph_tracer()
    with fluid.framework._dygraph_guard(None), pytest.raises(AttributeError, match="guard"):
        layer.eval()
    assert layer.training and tracer._train_mode


def test_gradients_of_trained_parameters_are_cleared() -> None:
    layer = dg.Linear(2, 1)
    layer.weight.trainable = False
    fluid.layers.mean(layer(ones(1, 2))).backward()
    layer.clear_gradients()
    assert layer.bias.gradient().tolist() == [0] and layer.weight.gradient().tolist() == [[1], [1]]


def test_variables_are_named_after_the_layer() -> None:
    layer = dg.Linear(1, 1)
    made = layer.create_variable(name="state", persistable=True, dtype="float64")
    assert (made.name, made.persistable, str(made.dtype)) == ("linear_0.state", True, "VarType.FP64")
    assert layer.create_variable().name == "linear_0._generated_var_0"
    assert layer.create_parameter([2], attr=False) is None and layer.create_parameter([2], attr="own").name == "own"


def test_sequential() -> None:
    net = dg.Sequential(("first", dg.Linear(2, 3)), ("second", dg.Linear(3, 1)))
    assert list(net.state_dict())[0] == "first.weight" and len(net) == 2 and net(ones(4, 2)).shape == [4, 1]
    net["second"] = dg.Linear(3, 2)
    assert net(ones(4, 2)).shape == [4, 2]
    del net["second"]
    assert net(ones(4, 2)).shape == [4, 3]
    for wrong in ([dg.Linear(1, 1)], 3):
        with pytest.raises(AssertionError):
            dg.Sequential(wrong)
    with pytest.raises(KeyError):
        dg.Sequential(dg.Linear(1, 1))[-1]
    with pytest.raises(AssertionError, match="holds no layer"):
        del net["none"]


def test_layer_list() -> None:
    layers = [dg.Linear(1, 1) for _ in range(4)]
    held = dg.LayerList(layers[:2])
    held.append(layers[2]).extend([layers[3]])
    assert list(held) == layers and list(held[1:3]) == layers[1:3] and list(held[1:3].state_dict())[0] == "0.weight"
    del held[0]
    held.insert(1, layers[0])
    assert list(held) == [layers[1], layers[0], *layers[2:]]
    assert [k for k, _ in held.named_sublayers()] == ["0", "1", "2", "3"]
    del held[1:3]
    held[0] = layers[3]
    assert list(held) == [layers[3], layers[3]]
    for call in (lambda: held[-1], lambda: held(1), lambda: held.insert(2, layers[0]), lambda: held.append(3)):
        with pytest.raises((KeyError, NotImplementedError, AssertionError)):
            call()


def test_parameter_list() -> None:
    w, v = (dg.Linear(1, 1).weight for _ in range(2))
    held = dg.ParameterList([w]).append(v)
    held[0] = v
    assert list(held) == [v, v] and len(held) == 2 and held[1] is v and list(held.state_dict()) == ["0", "1"]
    for wrong in (3, None):
        with pytest.raises(AssertionError, match="no parameter"):
            dg.ParameterList([wrong])


def test_data_parallel_of_one_process() -> None:
    layer = dg.Linear(2, 1)
    assert dg.prepare_context() is None and dg.parallel.Env is dg.ParallelEnv and dg.ParallelEnv().nranks == 1
    net = dg.DataParallel(layer, dg.parallel.ParallelStrategy())
    assert net.full_name() == "linear_0_data_parallel_0"
    assert list(net.state_dict()) == ["weight", "bias"]
    assert [k for k, _ in net.named_parameters()] == ["_layers.weight", "_layers.bias"]
    loss = fluid.layers.mean(net(ones(1, 2)))
    assert net.scale_loss(loss) is loss and net.apply_collective_grads() is None
    with pytest.raises(AttributeError, match="nranks"):
        dg.DataParallel(layer, None).scale_loss(loss)
    two = dg.parallel.ParallelStrategy()
    two.nranks = 2
    assert dg.DataParallel(layer, two).scale_loss(loss).numpy() == loss.numpy() / 2
    with pytest.raises(ValueError, match="2 processes"):
        dg.prepare_context(two)


def test_data_parallel_joins_and_parts_variables_in_place() -> None:
    net = dg.DataParallel(dg.Linear(2, 1), dg.prepare_context())
    group = [dg.to_variable(np.arange(k, dtype="float32").reshape(shape)) for k, shape in [(6, (2, 3)), (2, (2, 1))]]
    ((one, parts, shapes),) = net._coalesce_tensors({0: group})
    assert one.numpy().tolist() == [0, 1, 2, 3, 4, 5, 0, 1] and parts is group and shapes == [[2, 3], [2, 1]]
    net._split_tensors([(one * 2.0, parts, shapes)])
    assert [v.numpy().tolist() for v in group] == [[[0, 2, 4], [6, 8, 10]], [[0], [2]]]
    net._reshape_inplace(group[0], [3, 2])
    assert group[0].shape == [3, 2] and group[0].numpy().tolist() == [[0, 2], [4, 6], [8, 10]]


def test_what_a_property_is_set_to_is_registered_beside_it() -> None:
    class Tied(dg.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.held = self.create_parameter([2])

        @property
        def weight(self) -> Any:
            return self.held

        @weight.setter
        def weight(self, value: Any) -> None:
            self.held = value

    one, two = Tied(), Tied()
    two.weight = one.weight
    assert two.held is one.held and two.weight is one.held
    assert {name: p.name for name, p in two.state_dict().items()} == {"held": "tied_0.w_0", "weight": "tied_0.w_0"}


def test_whether_cudnn_is_used_is_a_bool() -> None:
    with pytest.raises(ValueError, match="use_cudnn"):
        dg.Conv2D(3, 4, 3, use_cudnn=1)


def test_a_list_of_parameters_takes_nothing_else() -> None:
    with pytest.raises(TypeError):
        dg.ParameterList().append(3)
