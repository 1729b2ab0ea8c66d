"""Ways to run a recorded program: the lowering alone (op by op, or as one jit), or the executor."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from fluidjax.proto.framework_pb2 import ProgramDesc
from lowering import LoDArray, RankTable, Runner, SelectedRows, StepScopes, TensorArray
from tests.golden.oprunner import Backend
from tests.golden.values import Rows, Table, Tensor, TensorList, Value
from tests.golden.views import program_view

# Kinds of variables that a fetch can return: tensors, SelectedRows, tensor arrays.
FETCHABLE = (7, 8, 13)


def to_lowering(value: Value) -> Any:
    """A recorded value as what the lowering computes with; None for a tensor without memory."""
    if isinstance(value, Tensor):
        if value.array is None:
            return None
        lod = tuple(np.asarray(level, np.int32) for level in value.lod)
        return LoDArray(value.array, lod) if lod else value.array
    if isinstance(value, Rows):
        return SelectedRows(np.asarray(value.rows, np.int64), value.array, value.height)
    if isinstance(value, TensorList):
        return TensorArray(tuple(to_lowering(item) for item in value.items))
    raise TypeError(f"a {type(value).__name__} is made by an op, never given")


def from_lowering(value: Any) -> Value | None:
    """What the lowering computed as a recorded value: padding rows and unused capacity cut off."""
    if value is None or isinstance(value, StepScopes):
        return None
    if isinstance(value, SelectedRows):
        count = None if value.nrows is None else int(value.nrows)
        return Rows(np.asarray(value.rows)[:count], value.height, np.asarray(value.values)[:count])
    if isinstance(value, TensorArray):
        return TensorList([from_lowering(item) for item in elements(value)])  # type: ignore[misc]
    if isinstance(value, RankTable):
        count = len(value.index) if value.nseq is None else int(value.nseq)
        pairs = zip(np.asarray(value.index)[:count], np.asarray(value.lengths)[:count], strict=True)
        return Table([[int(i), int(n)] for i, n in pairs])
    if isinstance(value, LoDArray):
        rows = value.capacity if value.nrows is None else int(value.nrows)
        return Tensor(np.asarray(value.data)[:rows], lod_levels(value))
    return Tensor(np.asarray(value))


def lod_levels(value: LoDArray) -> list[list[int]]:
    """The LoD without the entries after the last sequence."""
    levels, count = [], None if value.nseq is None else int(value.nseq)
    for level in value.lod:
        offsets = [int(x) for x in np.asarray(level)]
        offsets = offsets if count is None else offsets[: count + 1]
        levels.append(offsets)
        count = offsets[-1] if offsets else 0
    return levels


def elements(array: TensorArray) -> list[Any]:
    """The written elements of a tensor array."""
    if not array.stacked:
        return list(array.items or ())
    count = array.capacity if array.length is None else int(array.length)
    return [jax.tree_util.tree_map(lambda leaf, i=i: leaf[i], array.buffer) for i in range(count)]


def interpret(program: bytes, values: dict[str, Value], wanted: list[str]) -> dict[str, Value]:
    """Run block 0 op by op, without the executor."""
    with jax.enable_x64(True):
        env = {name: to_lowering(value) for name, value in values.items()}
        env = {name: value for name, value in env.items() if value is not None}
        runner = Runner(program_view(program), key=jax.random.key(0), interpret=True)
        env = dict(runner.run_block(0, env))
        return _results(env, wanted)


def _results(env: dict[str, Any], wanted: list[str]) -> dict[str, Value]:
    found = {name: from_lowering(env.get(name)) for name in wanted}
    return {name: value for name, value in found.items() if value is not None}


def jitted(program: bytes, values: dict[str, Value], wanted: list[str]) -> dict[str, Value]:
    """Run block 0 as one jit, without the executor."""
    with jax.enable_x64(True):
        env = {name: to_lowering(value) for name, value in values.items()}
        env = {name: value for name, value in env.items() if value is not None}
        view = program_view(program)

        def run(env: dict[str, Any], key: Any) -> dict[str, Any]:
            written = dict(Runner(view, key=key).run_block(0, dict(env)))
            return {name: written[name] for name in wanted if name in written}

        return _results(jax.jit(run)(env, jax.random.key(0)), wanted)


def executed(program: bytes, values: dict[str, Value], wanted: list[str]) -> dict[str, Value]:
    """Run block 0 through fluid.Executor on values put into a Scope; rank tables, which no fetch returns, op by op."""
    from tests.golden.session import Session

    session, desc = Session(), ProgramDesc.FromString(program)
    written = {name for op in desc.blocks[0].ops for slot in op.outputs for name in slot.arguments}
    if any(isinstance(value, TensorList) and name in written for name, value in values.items()):
        return interpret(program, values, wanted)  # a run starts its arrays anew, and this one is to be appended to
    session.set(values)
    kinds = {v.name: v.type.type for v in desc.blocks[0].vars}
    names = [n for n in wanted if kinds.get(n) in FETCHABLE]
    fetched = session.run(program, {}, names)
    others = [n for n in wanted if n not in names]
    rest = interpret(program, values, others) if others else {}
    return rest | {name: value for name, value in fetched.items() if value is not None}


BACKENDS: dict[str, Backend] = {"interpret": interpret, "jit": jitted, "executor": executed}
