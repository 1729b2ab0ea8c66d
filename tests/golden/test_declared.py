"""What is declared of an op's outputs, shape and LoD level, against the shape inference of Paddle 1.8.5.

``data/declared.json.gz`` holds, for the recorded programs ``operator|part|case``, what Paddle's inference of each op
gave by output slot, where its inputs had the LoD levels 1, 2, 3 ... in the order of their slots; and ``levels``, the
input slot from which the output of a gradient op has its level (null: none).
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
import lowering
from fluidjax.framework.descs import BlockDescView, OpDescView
from lowering.registry import get_op
from lowering.registry.levels import level_source
from tests.golden.known import DECLARED
from tests.golden.recordings import DATA

FACTS = json.loads(gzip.decompress((DATA / "declared.json.gz").read_bytes()))
TENSOR = fluid.core.VarDesc.VarType.LOD_TENSOR


@pytest.mark.parametrize("type", FACTS["levels"])
def test_gradients_take_their_level_from_where_paddle_takes_it(type):
    found = {slot: level_source(get_op(type), slot) for slot in FACTS["levels"][type]}
    assert found == FACTS["levels"][type]


def programs() -> Iterator[tuple[BlockDescView, list[Any]]]:
    """The first block of each recorded program, and what Paddle inferred for each of its ops (None: it refused)."""
    for path in sorted((DATA / "ops").glob("*.npz")):
        with np.load(path, allow_pickle=False) as arrays:
            for case in json.loads(arrays["cases"].tobytes())["cases"]:
                for part in ("program", "grad_program"):
                    facts = FACTS["cases"].get(f"{path.stem}|{part}|{case['id']}")
                    if facts is not None:
                        program = fluid.Program.parse_from_string(arrays[case[part]].tobytes())
                        yield program.global_block().desc, facts


def set_levels(op: OpDescView, block: BlockDescView) -> set[str]:
    """Give the inputs the levels 1, 2, 3 ... and the other outputs none; returns the names of the inputs."""
    named = [name for slot in sorted(op.input_names()) for name in op.input(slot)]
    inputs = [var for name in named if (var := block.find_var(name)) is not None]
    outputs = [var for name in op.output_arg_names() if (var := block.find_var(name)) is not None]
    for level, var in [*((0, v) for v in outputs), *enumerate(inputs, 1)]:
        if var.type() == TENSOR:
            var.set_lod_level(level)
    return set(named)


def differing(op: OpDescView, block: BlockDescView, facts: dict[str, list[Any]]) -> Iterator[tuple[str, str]]:
    """(slot, 'shape' or 'level') where our inference of ``op`` differs; ('', 'refused') where it refuses."""
    inputs = set_levels(op, block)
    try:
        op.infer_shape(block)
    except lowering.OpError:
        yield "", "refused"
        return
    for slot, known in facts.items():
        for name, fact in zip(op.output(slot), known, strict=True):
            var = block.find_var(name)
            if var is None or fact is None or name in inputs or var.type() != TENSOR:
                continue
            if list(var.shape()) != fact[0]:
                yield slot, "shape"
            if var.lod_level() != fact[1]:
                yield slot, "level"


def test_shapes_and_levels_are_declared_as_paddle_declares_them():
    """All that differs is listed, with its reason, in ``known.DECLARED``; what no longer differs has to leave it."""
    found = set()
    for block, facts in programs():
        for index, known in enumerate(facts):
            op = block.op(index)
            if known is not None:
                found |= {(op.type(), *where) for where in differing(op, block, known)}
    assert found == {(type, slot, what) for entries in DECLARED.values() for type, slot, what in entries}


# Paddle's products of dims where unknown ones are -1; what it declares as known although it is not is unknown here.
PRODUCTS = [
    ([-1, 8, 4], 2, (-8, 4)),
    ([-1, 8, 4], 3, (-32, 1)),
    ([2, -1, 4], 1, (2, -4)),
    ([-1, -1, 4], 1, (-1, -4)),
    ([-1, -1, 4], 2, (-1, 4)),  # Paddle: 1, 4
    ([-1, -1, -1], 0, (1, -1)),
    ([0, -1, 4], 2, (0, 4)),
]


@pytest.mark.parametrize(("shape", "axis", "wanted"), PRODUCTS)
def test_unknown_dims_are_multiplied_as_in_paddle(shape, axis, wanted):
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", shape)
        assert fluid.layers.flatten(x, axis).shape == wanted


def test_statistics_of_unknown_rows_are_as_long_as_in_paddle():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        fluid.layers.layer_norm(fluid.data("x", [-1, 8, 4]), begin_norm_axis=2)
        op = fluid.default_main_program().global_block().ops[-1]
        assert [op.block.var(op.output(slot)[0]).shape for slot in ("Mean", "Variance")] == [(-8,), (-8,)]
