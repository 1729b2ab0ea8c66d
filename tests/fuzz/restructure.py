"""Random changes to the structure of a saved model: sound files, and nonsense as a program."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fluidjax.proto import framework_pb2 as pb

NUMBERS = (0, 1, -1, 2, 3, 7, 100, 2**31 - 1, -(2**31), 10**9)
SIZES = (*NUMBERS, 2**40, 2**63 - 1, -(2**63))
FLOATS = (0.0, -1.0, 1e30, float("nan"), float("inf"))
TEXTS = ("", "NHWC", "SAME", "x" * 50, "x")
TYPES = "conditional_block relu reshape2 fill_constant lod_reset concat scale slice py_func feed fetch nothing".split()
KINDS = {  # what an attribute of a kind holds
    pb.INT: ("i", NUMBERS), pb.FLOAT: ("f", FLOATS), pb.STRING: ("s", TEXTS), pb.INTS: ("ints", NUMBERS),
    pb.FLOATS: ("floats", FLOATS), pb.STRINGS: ("strings", TEXTS), pb.BOOLEAN: ("b", (True, False)),
    pb.BOOLEANS: ("bools", (True, False)), pb.BLOCK: ("block_idx", (0, 1, 2, 9, -1)), pb.LONG: ("l", SIZES),
    pb.BLOCKS: ("blocks_idx", (0, 1, 2, 9, -1)), pb.LONGS: ("longs", SIZES), pb.VAR: ("var_name", TEXTS),
}  # fmt: skip

Change = Callable[[Any, random.Random], None]


def restructured(data: bytes, draw: random.Random) -> bytes:
    """The program with one to three changes."""
    program = pb.ProgramDesc.FromString(data)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        draw.choice(CHANGES)(program, draw)
    return program.SerializeToString()


def harmed(folder: Path, draw: random.Random) -> None:
    """Without one of the parameters' files, or with that of another parameter in its place."""
    files = sorted(path for path in folder.iterdir() if path.name != "__model__")
    chosen = draw.choice(files)
    if draw.random() < 0.5:
        chosen.unlink()
    else:
        chosen.write_bytes(draw.choice(files).read_bytes())


def _block(program: Any, draw: random.Random) -> Any:
    return draw.choice([b for b in program.blocks if b.ops] or [program.blocks.add(idx=0, parent_idx=-1)])


def _op(program: Any, draw: random.Random) -> Any:
    block = _block(program, draw)
    return draw.choice(block.ops or [block.ops.add(type="relu")])


def _var(program: Any, draw: random.Random) -> Any:
    block = draw.choice([b for b in program.blocks if b.vars] or [_block(program, draw)])
    return draw.choice(block.vars) if block.vars else _named(block, "x")


def _named(block: Any, name: str) -> Any:
    var = block.vars.add(name=name)
    var.type.type = pb.VarType.LOD_TENSOR
    var.type.lod_tensor.tensor.data_type = pb.VarType.FP32
    return var


def _name(program: Any, draw: random.Random) -> str:
    return draw.choice([v.name for b in program.blocks for v in b.vars] + ["nowhere", "", "@EMPTY@", "../x"])


def _slot(program: Any, draw: random.Random) -> Any:
    op = _op(program, draw)
    return draw.choice([*op.inputs, *op.outputs] or [op.inputs.add(parameter="X")])


def drop_an_op(program: Any, draw: random.Random) -> None:
    """One op fewer."""
    block = _block(program, draw)
    if block.ops:
        del block.ops[draw.randrange(len(block.ops))]


def move_an_op(program: Any, draw: random.Random) -> None:
    """An op once more, at the end of a block, of any block."""
    op = _op(program, draw)
    _block(program, draw).ops.add().CopyFrom(op)


def turn_the_ops(program: Any, draw: random.Random) -> None:
    """The ops of a block in another order."""
    block = _block(program, draw)
    ops = list(block.ops)
    draw.shuffle(ops)
    copies = [op.SerializeToString() for op in ops]
    del block.ops[:]
    for copy in copies:
        block.ops.add().MergeFromString(copy)


def retype(program: Any, draw: random.Random) -> None:
    """An op becomes another one, with the slots and attributes that it had."""
    _op(program, draw).type = draw.choice(TYPES + [op.type for b in program.blocks for op in b.ops])


def swap_slots(program: Any, draw: random.Random) -> None:
    """Two slots exchange their variables."""
    op = _op(program, draw)
    slots = [*op.inputs, *op.outputs]
    if len(slots) > 1:
        a, b = draw.sample(slots, 2)
        held = list(a.arguments)
        a.arguments[:] = list(b.arguments)
        b.arguments[:] = held


def rename_an_argument(program: Any, draw: random.Random) -> None:
    """A slot names another variable, or none, or more."""
    slot = _slot(program, draw)
    kind = draw.randrange(3)
    if kind == 0:
        del slot.arguments[:]
    elif kind == 1 or not slot.arguments:
        slot.arguments.append(_name(program, draw))
    else:
        slot.arguments[draw.randrange(len(slot.arguments))] = _name(program, draw)


def rename_a_slot(program: Any, draw: random.Random) -> None:
    """A slot that the op does not have."""
    _slot(program, draw).parameter = draw.choice(("X", "Y", "Out", "Input", "nothing", ""))


def change_an_attribute(program: Any, draw: random.Random) -> None:
    """Another value of the same kind."""
    op = _op(program, draw)
    if op.attrs:
        attr = draw.choice(op.attrs)
        _fill(attr, attr.type, draw)


def change_the_kind(program: Any, draw: random.Random) -> None:
    """An attribute of another kind, or without a value."""
    op = _op(program, draw)
    attr = draw.choice(op.attrs or [op.attrs.add(name="axis", type=pb.INT)])
    name = attr.name
    attr.Clear()
    attr.name = name
    attr.type = draw.choice(list(KINDS))
    if draw.random() < 0.9:
        _fill(attr, attr.type, draw)


def _fill(attr: Any, kind: int, draw: random.Random) -> None:
    if kind not in KINDS:
        return
    field, values = KINDS[kind]
    held = getattr(attr, field)
    if isinstance(held, (bool, int, float, str)):
        setattr(attr, field, draw.choice(values))
    elif held and draw.random() < 0.5:
        held[draw.randrange(len(held))] = draw.choice(values)
    else:
        held[:] = [draw.choice(values) for _ in range(draw.randrange(5))]


def drop_an_attribute(program: Any, draw: random.Random) -> None:
    """One attribute fewer."""
    op = _op(program, draw)
    if op.attrs:
        del op.attrs[draw.randrange(len(op.attrs))]


def rename_a_variable(program: Any, draw: random.Random) -> None:
    """A declaration, of which the ops know nothing."""
    _var(program, draw).name = _name(program, draw)


def drop_a_variable(program: Any, draw: random.Random) -> None:
    """One declaration fewer."""
    block = _block(program, draw)
    if block.vars:
        del block.vars[draw.randrange(len(block.vars))]


def reshape_a_variable(program: Any, draw: random.Random) -> None:
    """Another size, rank, data type or LoD than the values have."""
    var = _var(program, draw)
    dense = var.type.lod_tensor
    if not dense.tensor.HasField("data_type"):
        dense.tensor.data_type = pb.VarType.FP32
    kind, dims = draw.randrange(4), dense.tensor.dims
    if kind == 0 and dims:
        dims[draw.randrange(len(dims))] = draw.choice(SIZES)
    elif kind == 1:
        dims[:] = [draw.choice(SIZES) for _ in range(draw.randrange(9))]
    elif kind == 2:
        dense.tensor.data_type = draw.choice(pb.VarType.Type.values())
    else:
        dense.lod_level = draw.choice((0, 1, 2, 100, -1))


def change_a_variable(program: Any, draw: random.Random) -> None:
    """A variable of another kind, or that is kept though it was not, or not kept."""
    var = _var(program, draw)
    if draw.random() < 0.5:
        var.persistable = not var.persistable
    else:
        var.type.type = draw.choice(pb.VarType.Type.values())


def tangle_the_blocks(program: Any, draw: random.Random) -> None:
    """Blocks that hold each other, are missing, or are there twice."""
    block = draw.choice(program.blocks)
    kind = draw.randrange(5)
    if kind == 0:
        block.parent_idx = draw.choice((-1, 0, 1, 2, 9))
    elif kind == 1:
        block.forward_block_idx = draw.choice((0, 1, 2, 9))
    elif kind == 2:
        block.idx = draw.choice((-1, 0, 1, 9))
    elif kind == 3:
        program.blocks.add().CopyFrom(block)  # with its number
    else:
        held = [attr for b in program.blocks for op in b.ops for attr in op.attrs if attr.type == pb.BLOCK]
        attr = draw.choice(held) if held else _op(program, draw).attrs.add(name="sub_block", type=pb.BLOCK)
        attr.block_idx = draw.choice((0, 1, 2, 9, -1))


CHANGES: tuple[Change, ...] = (
    drop_an_op, move_an_op, turn_the_ops, retype, swap_slots, rename_an_argument, rename_a_slot, change_an_attribute,
    change_the_kind, drop_an_attribute, rename_a_variable, drop_a_variable, reshape_a_variable, change_a_variable,
    tangle_the_blocks,
)  # fmt: skip
