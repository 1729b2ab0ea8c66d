"""Which gradients ``set_gradient_clip`` clips: as in Fluid 1.8.5, all of them by one clip or none."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import pytest

import fluidjax as fluid

clip = fluid.clip
pytestmark = pytest.mark.filterwarnings("ignore:set_gradient_clip is not recommended")


@pytest.fixture(autouse=True)
def programs() -> Iterator[None]:
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        yield


def nothing() -> None:
    """What is called between layers where a test calls nothing."""


def net(between: Callable[[], None] = nothing, second: str = "w1") -> fluid.framework.Variable:
    x = fluid.data("x", [None, 4])
    h = fluid.layers.fc(x, 4, param_attr="w0", bias_attr="b0")
    between()
    return fluid.layers.mean(fluid.layers.fc(h, 4, param_attr=second, bias_attr="b1"))


def updates(loss: fluid.framework.Variable) -> tuple[list[str], dict[str, str]]:
    """(the types of ops that ``minimize`` adds behind the backward pass, the gradient that updates each parameter)."""
    program = loss.block.program
    pairs = fluid.optimizer.SGD(0.1).backward(loss)
    first = len(program.global_block().ops)
    fluid.optimizer.SGD(0.1).apply_gradients(pairs)
    ops = program.global_block().ops
    grads = {op.input("Param")[0]: op.input("Grad")[0] for op in ops if op.type == "sgd"}
    return [op.type for op in ops[first:] if op.type != "sgd"], grads


UNCLIPPED = {name: name + "@GRAD" for name in ("b0", "b1", "w0", "w1")}


@pytest.mark.parametrize(
    ("kind", "left"),
    [
        (clip.GradientClipByValue(0.1), []),
        (clip.GradientClipByNorm(0.1), []),
        (clip.GradientClipByGlobalNorm(0.1), ["fill_constant", "square", "reduce_sum"]),
    ],
    ids=["value", "norm", "global_norm"],
)
def test_nothing_is_clipped_if_one_has_no_clip(kind, left) -> None:
    """Set between layers: b0 has a clip, b1, the next by name, has none. Ops written before that is seen stay."""
    with pytest.warns(UserWarning, match="No gradient is clipped: parameter b1 has no clip, though 2 of 4"):
        assert updates(net(lambda: clip.set_gradient_clip(kind))) == (left, UNCLIPPED)


@pytest.mark.parametrize("params", [["w0", "w1"], ["b0"], ["b0", "b1", "w0"]])
def test_nothing_is_clipped_if_some_are_named(params) -> None:
    loss = net()
    clip.set_gradient_clip(clip.GradientClipByNorm(0.1), params)
    with pytest.warns(UserWarning, match=f"No gradient is clipped.*though {len(params)} of 4"):
        assert updates(loss) == ([], UNCLIPPED)


def test_a_parameter_made_again_has_lost_its_clip() -> None:
    loss = net(lambda: clip.set_gradient_clip(clip.GradientClipByNorm(0.1)), second="w0")
    clip.set_gradient_clip(clip.GradientClipByNorm(0.1), ["b1"])
    with pytest.warns(UserWarning, match="parameter w0 has no clip, though 2 of 3"):
        assert updates(loss)[0] == []


def test_parameters_that_are_not_trained_need_no_clip() -> None:
    loss = net(lambda: clip.set_gradient_clip(clip.GradientClipByValue(0.1)))
    fluid.optimizer.SGD(0.1).minimize(loss, parameter_list=["w0", "b0"])
    assert [op.type for op in loss.block.ops][-4:] == ["clip", "clip", "sgd", "sgd"]


def test_the_last_setting_counts() -> None:
    loss = net()
    clip.set_gradient_clip(clip.GradientClipByValue(3.0))
    clip.set_gradient_clip(clip.GradientClipByNorm(0.1))
    ops, grads = updates(loss)
    assert ops == ["clip_by_norm"] * 4
    assert grads == {name: f"clip_by_norm_{at}.tmp_0" for at, name in enumerate(("b0", "b1", "w0", "w1"))}


def test_the_last_parameters_clip_clips_all() -> None:
    """b0 keeps a clip by the global norm, of which only the sum of its own squares is left."""
    loss = net()
    clip.set_gradient_clip(clip.GradientClipByValue(3.0))
    clip.set_gradient_clip(clip.GradientClipByGlobalNorm(0.1), ["b0"])
    with pytest.warns(UserWarning, match=r"last one's clips all gradients: .*min = -3.0+, max=3.0+, set for w1"):
        ops, grads = updates(loss)
    assert ops == ["fill_constant", "square", "reduce_sum"] + ["clip"] * 4
    assert grads == {name: f"clip_{at}.tmp_0" for at, name in enumerate(("b0", "b1", "w0", "w1"))}


def test_groups_of_one_norm_differ() -> None:
    loss = net()
    clip.set_gradient_clip(clip.GradientClipByGlobalNorm(1.0))
    clip.set_gradient_clip(clip.GradientClipByGlobalNorm(1.0, "weights"), ["w0", "w1"])
    with pytest.warns(UserWarning, match="have different clips"):
        updates(loss)
    sums = [op for op in loss.block.ops if op.type == "sum"]
    assert [len(op.input("X")) for op in sums] == [2]  # of the last group alone


def test_a_clone_has_no_clips() -> None:
    loss = net()
    clip.set_gradient_clip(clip.GradientClipByValue(3.0))
    with fluid.program_guard(fluid.default_main_program().clone()) as _, warnings.catch_warnings():
        warnings.simplefilter("error")
        clone = fluid.default_main_program().global_block().var(loss.name)
        assert updates(clone) == ([], UNCLIPPED)


def test_set_after_minimize_it_is_too_late() -> None:
    loss = net()
    fluid.optimizer.SGD(0.1).minimize(loss)
    with pytest.warns(UserWarning, match="'minimize' has been invoked before"):
        clip.set_gradient_clip(clip.GradientClipByValue(3.0))
    assert not any(op.type == "clip" for op in loss.block.ops)


def test_the_optimizers_own_clip_is_preferred() -> None:
    loss = net()
    clip.set_gradient_clip(clip.GradientClipByValue(3.0), ["w0"])
    with pytest.warns(UserWarning, match="'set_gradient_clip' will be ineffective"):
        fluid.optimizer.SGD(0.1, grad_clip=clip.GradientClipByNorm(1.0)).minimize(loss)
    found = [op.type for op in loss.block.ops]
    assert (found.count("clip"), found.count("clip_by_norm")) == (0, 4)


def test_gradients_that_are_none_are_dropped() -> None:
    loss = net()
    unused = fluid.layers.create_parameter([3], "float32", "unused")
    clip.set_gradient_clip(clip.GradientClipByValue(3.0))
    pairs = fluid.optimizer.SGD(0.1).backward(loss)
    clipped = clip.append_gradient_clip_ops([(unused, None), *pairs])
    assert [param.name for param, _ in clipped] == [param.name for param, _ in pairs]


def test_a_clip_that_a_parameter_was_made_with_is_its_own() -> None:
    """As ``ParamAttr(gradient_clip=)`` of Fluid up to 1.7, also in a clone; ``set_gradient_clip`` is preferred."""
    loss = net(second=fluid.ParamAttr("w1", gradient_clip=clip.GradientClipByNorm(0.1)))
    with fluid.program_guard(loss.block.program.clone()):
        clone = fluid.default_main_program().global_block().var(loss.name)
        assert updates(clone) == (["clip_by_norm"], UNCLIPPED | {"w1": "clip_by_norm_0.tmp_0"})
    clip.set_gradient_clip(clip.GradientClipByValue(3.0))
    assert updates(loss)[0] == ["clip"] * 4
