"""Our backward pass of recorded training programs against the one Paddle wrote: op by op, name by name."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

import lowering
from fluidjax.proto.framework_pb2 import ProgramDesc
from tests.backward.strip import LOSS_GRADIENT, backward_ops, declared, first_difference, rerun, role
from tests.golden.recordings import folder


def programs() -> list[Path]:
    zoo = folder() / "zoo"
    return sorted([*zoo.glob("*/main.bin.gz"), *zoo.glob("*/prog_*.bin.gz")])


def read(path: Path) -> ProgramDesc:
    return ProgramDesc.FromString(gzip.decompress(path.read_bytes()))


@pytest.mark.parametrize("path", programs(), ids=lambda p: f"{p.parent.name}-{p.name.partition('.')[0]}")
def test_backward_ops(path: Path) -> None:
    desc = read(path)
    if not any(role(op) == LOSS_GRADIENT for op in desc.blocks[0].ops):
        pytest.skip("nothing is differentiated in this program")
    unknown = {op.type for block in desc.blocks for op in block.ops if not lowering.has_op(op.type)}
    if unknown:
        pytest.skip(f"ops not registered: {', '.join(sorted(unknown))}")
    meta = json.loads((path.parent / "meta.json").read_text())
    ours = rerun(desc, read(path.parent / "startup.bin.gz"), meta)
    assert first_difference(backward_ops(desc), backward_ops(ours)) == ""
    assert declared(ours).items() <= declared(desc).items()  # the optimizer may have declared more
