"""Variables split into blocks of rows, and the names of blocks: ``w.block0``, ``w@GRAD.block0.trainer_1``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from fluidjax.framework import Program, Variable


class VarBlock:
    """One block of a variable: ``offset`` counts blocks, ``size`` elements. As text ``w:0:1024``."""

    def __init__(self, varname: str, offset: int, size: int) -> None:
        self.varname = varname
        self.offset = offset
        self.size = size

    @classmethod
    def parse(cls, text: str) -> VarBlock:
        """The block described by a text."""
        name, offset, size = text.rsplit(":", 2)
        return cls(name, int(offset), int(size))

    def __str__(self) -> str:
        return f"{self.varname}:{self.offset}:{self.size}"


def same_or_split_var(p_name: str, var_name: str) -> bool:
    """Whether ``p_name`` is the variable ``var_name`` or a block of it."""
    return p_name == var_name or p_name.startswith(var_name + ".block")


def slice_variable(var_list: Iterable[Variable], slice_count: int, min_block_size: int) -> list[str]:
    """Blocks of whole rows for at most ``slice_count`` servers, as texts ``name:number:elements``.

    A variable is split into as many equal blocks as have at least ``min_block_size`` elements each; the size is
    rounded up to whole rows, so there may be fewer blocks in the end, and the last may be smaller.
    """
    return [str(block) for var in var_list for block in _blocks_of(var, slice_count, min_block_size)]


def _blocks_of(var: Variable, count: int, min_block_size: int) -> list[VarBlock]:
    numel, width = math.prod(var.shape), row_size(var.shape)
    count = min(count, max(1, numel // min_block_size))
    size = math.ceil(math.ceil(numel / count) / width) * width
    return [VarBlock(var.name, k, min(size, numel - k * size)) for k in range(math.ceil(numel / size))]


def row_size(shape: Sequence[int]) -> int:
    """The number of elements in one row."""
    return math.prod(shape[1:])


def name_parts(name: str) -> tuple[str, str, str]:
    """``w@GRAD.block0.trainer_1`` -> ``("w@GRAD", "block0", "trainer_1")``; missing parts are empty."""
    trainer = name.find(".trainer_")
    trainer = len(name) if trainer < 0 else trainer
    block = name.find(".block")
    block = len(name) if block < 0 else block
    return name[: min(block, trainer)], name[block + 1 : trainer], name[trainer + 1 :]


def origin_name(name: str) -> str:
    """The name of the variable that a block, or a trainer's gradient, belongs to."""
    return name_parts(name)[0]


def create_blocks(program: Program, blocks: Iterable[str], suffix: str = "") -> dict[str, list[Variable]]:
    """Create the variables of blocks; returns them by the name of the variable they are part of.

    A variable that consists of one block stays itself; if ``suffix`` is given, it is renamed to carry it, as blocks do.
    """
    cut: dict[str, list[VarBlock]] = {}
    for block in map(VarBlock.parse, blocks):
        cut.setdefault(block.varname, []).append(block)
    return {name: _variables(program, name, parts, suffix) for name, parts in cut.items()}


def _variables(program: Program, name: str, parts: list[VarBlock], suffix: str) -> list[Variable]:
    block = program.global_block()
    origin = block.var(name)
    if len(parts) == 1:
        return [block._rename_var(name, name + suffix) if suffix else origin]
    return [
        block.create_var(
            name=f"{name}.block{part.offset}{suffix}",
            persistable=False,
            dtype=origin.dtype,
            type=origin.type,
            shape=[part.size // row_size(origin.shape), *origin.shape[1:]],
        )
        for part in parts
    ]


def sections(variables: Iterable[Variable]) -> list[int]:
    """The number of rows of each block."""
    return [var.shape[0] for var in variables]


def place_of(block: Variable, blocks: Sequence[Variable]) -> tuple[bool, int, int]:
    """Whether a variable is one of several blocks, its number, and the number of elements before it."""
    part = name_parts(block.name)[1]
    if not part:
        return False, 0, 0
    number = int(part.removeprefix("block"))
    return True, number, sum(sections(blocks[:number])) * row_size(blocks[0].shape)
