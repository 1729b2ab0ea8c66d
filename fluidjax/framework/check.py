"""Validation of ProgramDesc messages before anything is built from them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any, NoReturn

from google.protobuf.message import DecodeError

from fluidjax.base.enums import AttrType, OpRole
from fluidjax.framework.attrs import declared_type
from fluidjax.framework.names import OP_ROLE
from fluidjax.proto import framework_pb2 as pb
from lowering.engine.shapes.validate import unknown_attrs
from lowering.program import PADDLE_2


def parse_message(data: bytes) -> pb.ProgramDesc:
    """Parse bytes as a ProgramDesc. Raises ValueError if they are not one."""
    try:
        return pb.ProgramDesc.FromString(bytes(data))
    except (DecodeError, TypeError) as error:
        raise ValueError(
            f"these {len(data)} bytes are not a program: {error}. Expected a serialized ProgramDesc, as "
            "program.desc.serialize_to_string() or a __model__ file holds. Check that the file is complete and of that "
            "kind."
        ) from error


# Blocks inside one another. Real programs have three.
MAX_NESTING = 64


def check_structure(program: pb.ProgramDesc) -> None:
    """Raise ValueError unless the blocks form a tree, all block indices exist, and strings are text."""
    count = len(program.blocks)
    if not count:
        _fault("it has no blocks, a program has at least one")
    _check_text((pair.op_name for pair in program.op_version_map.pair), "the versions of ops")
    depths, users = [0] * count, [""] * count
    for position, block in enumerate(program.blocks):
        if block.idx != position:
            _fault(f"block {position} says that it is number {block.idx}")
        expected = "-1" if position == 0 else f"between 0 and {position - 1}"
        if not (block.parent_idx == -1 if position == 0 else 0 <= block.parent_idx < position):
            _fault(f"the parent of block {position} is {block.parent_idx}, expected {expected}")
        if not -1 <= block.forward_block_idx < count:
            _fault(f"block {position} is the gradient of block {block.forward_block_idx}, and there are {count}")
        if position:
            depths[position] = depths[block.parent_idx] + 1
        if depths[position] > MAX_NESTING:
            _fault(f"block {position} is inside {depths[position]} others, and at most {MAX_NESTING} are possible")
        _check_ops(position, block, users)
        _check_vars(position, block)


def warn_of_unknown_attributes(program: pb.ProgramDesc) -> None:
    """Warn, once per program, about attributes unknown to their ops, which are ignored."""
    newer = program.version.version >= PADDLE_2
    found = {
        f"{op.type}.{name}"
        for block in program.blocks
        for op in block.ops
        if not _is_backward(op)  # those inherit the attributes of forward ops
        for name in unknown_attrs(op.type, (attr.name for attr in op.attrs), newer=newer)
    }
    if found:
        warnings.warn(
            f"the program has attributes that its ops do not have in Paddle 1.8: {', '.join(sorted(found))}. Expected"
            " those of Paddle 1.8, received a program of another version; they are ignored, as Paddle does. Nothing is"
            " to be done if the model was made for inference and they only said so",
            stacklevel=3,
        )


def _is_backward(op: pb.OpDesc) -> bool:
    return any(attr.name == OP_ROLE and attr.i & OpRole.Backward for attr in op.attrs)


def _check_vars(position: int, block: pb.BlockDesc) -> None:
    seen: set[str] = set()
    for var in block.vars:
        if not var.HasField("type") or not var.type.HasField("type"):
            _fault(f"variable {var.name!r} of block {position} has no type")
        if var.name in seen:
            _fault(f"block {position} has two variables named {var.name!r}")
        _check_text((var.name,), f"variable {len(seen)} of block {position}")
        seen.add(var.name)


def _check_ops(position: int, block: pb.BlockDesc, users: list[str]) -> None:
    """``users`` names the op of each block; a block shared by several ops would be run once per path to it."""
    count = len(users)
    for index, op in enumerate(block.ops):
        if not op.type:
            _fault(f"op {index} of block {position} has no type")
        where = f"op {index} of block {position}"
        _check_text((op.type,), where)
        for slot in (*op.inputs, *op.outputs):
            _check_text((slot.parameter, *slot.arguments), where)
        for attr in op.attrs:
            _check_text((attr.name, attr.s, *attr.strings, attr.var_name, *attr.vars_name), where)
            if not attr.name:
                _fault(f"an attribute of op {index} ({op.type}) of block {position} has no name")
            if attr.name == OP_ROLE and attr.type != AttrType.INT:
                _fault(f"the {OP_ROLE} of {where} ({op.type}) is no INT")
            if attr.type not in _BLOCKS and _names_blocks(op.type, attr.name):
                _fault(f"the attribute {attr.name} of {where} ({op.type}) names no block, its type is {attr.type}")
            if attr.type == AttrType.BLOCK:
                indices: Any = (attr.block_idx,)
            elif attr.type == AttrType.BLOCKS:
                indices = attr.blocks_idx
            else:
                continue
            for block_idx in indices:
                # An op runs a block inside its own; anything else could run in circles.
                if not position < block_idx < count:
                    _fault(
                        f"op {index} ({op.type}) of block {position} names block {block_idx} in {attr.name}, and only "
                        f"blocks {position + 1} to {count - 1} may be there"
                    )
                if users[block_idx]:
                    _fault(f"block {block_idx} belongs to two ops, {users[block_idx]} and {where}")
                users[block_idx] = where


_BLOCKS = frozenset({int(AttrType.BLOCK), int(AttrType.BLOCKS)})


def _names_blocks(op_type: str, attr: str) -> bool:
    """Whether an op's attribute refers to blocks, so that a value of another type would be mistaken for an index."""
    return attr == "sub_block" or declared_type(op_type, attr) in _BLOCKS


def _check_text(strings: Iterable[Any], where: str) -> None:
    """Check strings, since protobuf returns those that are not UTF-8 as bytes."""
    for string in strings:
        if isinstance(string, bytes):
            _fault(f"a string of {where} is not UTF-8: {string[:40]!r}")


def _fault(text: str) -> NoReturn:
    raise ValueError(
        f"the program is damaged: {text}. Expected a program as Fluid writes it. "
        "Save it again, or get an undamaged copy."
    )
