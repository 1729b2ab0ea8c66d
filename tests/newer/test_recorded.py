"""What Paddle 2.6 computed of its own programs, op by op, is computed here from the same bytes."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

import jax
import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.export import to_jax
from fluidjax.proto import framework_pb2 as pb
from tests.newer import store

pytestmark = pytest.mark.usefixtures("compiled_quickly")

RECORDED = Path(__file__).with_name("recorded.xz")
GROUPS = 8


@cache
def recorded() -> dict[str, dict[str, np.ndarray]]:
    """The parts of each recording by case."""
    found: dict[str, dict[str, np.ndarray]] = {}
    for key, value in store.read(RECORDED).items():
        name, _, part = key.partition("|")
        found.setdefault(name, {})[part] = value
    return found


def program_of(name: str) -> pb.ProgramDesc:
    """The program that Paddle wrote."""
    return pb.ProgramDesc.FromString(recorded()[name]["program"].tobytes())


def fetches_of(name: str) -> list[str]:
    """The variables whose values were recorded."""
    return recorded()[name]["names"].tobytes().decode().split()


def together(names: Iterable[str]) -> pb.ProgramDesc:
    """One program of many, each with its variables under its own name: they compile at once."""
    whole = pb.ProgramDesc()
    whole.blocks.add(idx=0, parent_idx=-1)
    for name in names:
        program = program_of(name)
        whole.version.CopyFrom(program.version)
        whole.op_version_map.CopyFrom(program.op_version_map)
        for var in program.blocks[0].vars:
            var.name = f"{name}/{var.name}"
            whole.blocks[0].vars.add().CopyFrom(var)
        for op in program.blocks[0].ops:
            for slot in (*op.inputs, *op.outputs):
                slot.arguments[:] = [n if n == "@EMPTY@" else f"{name}/{n}" for n in slot.arguments]
            whole.blocks[0].ops.add().CopyFrom(op)
    return whole


def run(program: pb.ProgramDesc, names: dict[str, str]) -> dict[str, list[np.ndarray]]:
    """What each case's fetches are in the program, where its variables stand under the prefix given."""
    scope, feeds, wanted = fluid.Scope(), {}, []
    for name, prefix in names.items():
        for key, value in recorded()[name].items():
            if key.startswith("feed/"):
                feeds[prefix + key[5:]] = value
            elif key.startswith("held/"):
                scope.var(prefix + key[5:]).get_tensor().set(value, fluid.CPUPlace())
        wanted += [prefix + fetch for fetch in fetches_of(name)]
    loaded = fluid.Program.parse_from_string(program.SerializeToString())
    fetched = fluid.Executor(fluid.CPUPlace()).run(loaded, feeds, wanted, scope=scope, return_numpy=False)
    rest = iter(np.asarray(value) for value in fetched)
    return {name: [next(rest) for _ in fetches_of(name)] for name in names}


@pytest.mark.parametrize("name", ["multiclass_nms3", "matrix_nms", "generate_proposals_v2"])
def test_boxes_are_counted_beside_them(name: str) -> None:
    """Paddle 2 gives the number of boxes in each image, and no LoD: their rows are NumPy arrays without further ado."""
    feeds = {key[5:]: value for key, value in recorded()[name].items() if key.startswith("feed/")}
    program = fluid.Program.parse_from_string(program_of(name).SerializeToString())
    for value in fluid.Executor(fluid.CPUPlace()).run(program, feeds, fetches_of(name), scope=fluid.Scope()):
        assert isinstance(value, np.ndarray)


def recorded_gradients() -> set[str]:
    """The ops whose gradient ops Paddle ran in a recording."""
    ops = (op.type for name in recorded() for block in program_of(name).blocks for op in block.ops)
    return {type.removesuffix("_grad") for type in ops if type.endswith("_grad")}


def check(name: str, found: list[np.ndarray]) -> None:
    """Equal numbers, data types and shapes."""
    for i, ours in enumerate(found):
        theirs = recorded()[name][f"out/{i}"]
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5, err_msg=f"{name}, fetch {i}")
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), f"{name}, fetch {i}"


WITH_BLOCKS = [name for name in sorted(recorded()) if len(program_of(name).blocks) > 1]
FLAT = [name for name in sorted(recorded()) if name not in WITH_BLOCKS]


@pytest.mark.parametrize("group", range(GROUPS))
def test_equals_paddle(group: int) -> None:
    names = FLAT[group::GROUPS]
    found = run(together(names), {name: f"{name}/" for name in names})
    for name in names:
        check(name, found[name])


@pytest.mark.parametrize("name", WITH_BLOCKS)
def test_blocks_equal_paddle(name: str) -> None:
    check(name, run(program_of(name), {name: ""})[name])


@pytest.mark.parametrize("name", ["loop_continue", "loop_no_step"])
def test_a_variable_without_a_value_before_a_loop(name: str) -> None:
    """Paddle's mark for it has another type than what the steps write, and yet the loop is one of the device."""
    feeds = {key[5:]: value for key, value in recorded()[name].items() if key.startswith("feed/")}
    program = fluid.Program.parse_from_string(program_of(name).SerializeToString())
    function, parameters = to_jax(program, list(feeds), fetches_of(name), scope=fluid.Scope())
    with jax.enable_x64(True):
        check(name, [np.asarray(value) for value in jax.jit(function)(parameters, feeds)])
