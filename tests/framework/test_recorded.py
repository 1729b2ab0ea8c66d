"""The programs of `cases` are those that Paddle 1.8.5 builds: ops, slots, attributes, names, variables."""

from __future__ import annotations

import json
import warnings
import zipfile
from pathlib import Path
from typing import Any

import pytest

import fluidjax as fluid
from fluidjax.framework import scopes
from fluidjax.framework.attrs import read_attr
from fluidjax.proto import framework_pb2 as pb
from tests.framework.cases import CASES

RECORDED = Path(__file__).parent / "recorded.zip"


def ops_of(block: pb.BlockDesc) -> list[tuple]:
    return [
        (
            op.type,
            {slot.parameter: list(slot.arguments) for slot in op.inputs},
            {slot.parameter: list(slot.arguments) for slot in op.outputs},
            {attr.name: (attr.type, read_attr(attr)) for attr in op.attrs if attr.name != "op_callstack"},
        )
        for op in block.ops
    ]


def vars_of(block: pb.BlockDesc) -> dict[str, Any]:
    found = {}
    for var in block.vars:
        kind = var.type.type
        tensor = {7: var.type.lod_tensor.tensor, 8: var.type.selected_rows}[kind]
        level = var.type.lod_tensor.lod_level if kind == 7 else 0
        found[var.name] = (kind, tensor.data_type, list(tensor.dims), level, var.persistable, var.need_check_feed)
    return found


@pytest.mark.parametrize("name", sorted(CASES))
def test_program_is_the_recorded_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scopes, "_name_scope", scopes.NameScope())
    main, startup = fluid.Program(), fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, startup), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "set_gradient_clip is not recommended")
        CASES[name](fluid, main, startup)
    with zipfile.ZipFile(RECORDED) as archive:
        recorded = {part: archive.read(f"{name}/{part}") for part in ("main", "startup", "kinds")}
    for part, program in (("main", main), ("startup", startup)):
        expected = pb.ProgramDesc.FromString(recorded[part]).blocks[0]
        built = program.proto.blocks[0]
        assert ops_of(built) == ops_of(expected)
        assert vars_of(built) == vars_of(expected)
        assert program.proto.version == pb.ProgramDesc.FromString(recorded[part]).version
    kinds = {var.name: [type(var).__name__, var.stop_gradient] for var in main.list_vars()}
    assert kinds == json.loads(recorded["kinds"])


def test_there_is_a_recording_of_every_case() -> None:
    with zipfile.ZipFile(RECORDED) as archive:
        assert {name.split("/")[0] for name in archive.namelist()} == set(CASES)
