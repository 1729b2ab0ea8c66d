"""The read-only view of a program that the lowering works on.

Created by the front end (or any other owner of ProgramDescs); nothing here knows protobuf.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

EMPTY = "@EMPTY@"
GRAD = "@GRAD"
# Attributes that every op has in addition to its own.
BOOKKEEPING = frozenset({"op_role", "op_role_var", "op_namescope", "op_callstack", "op_device"})

# Prefix of gradient names in a second backward pass, if the first one took the plain names.
PASS = "grad/"

# Suffix of the names that a recomputed segment writes: ``x`` becomes ``x.subprog_0``.
_AGAIN = re.compile(r"\.subprog_\d+$")

PADDLE_2, PADDLE_2_5 = 2_000_000, 2_005_000

# Of ``op_role``; a few ops have two.
ROLE_FORWARD, ROLE_BACKWARD, ROLE_OPTIMIZE, ROLE_LOSS = 0, 1, 2, 256


def forward_name(name: str) -> str:
    """The forward variable that a (renamed, or higher order) gradient belongs to."""
    name = name.partition(GRAD)[0]
    while name.startswith(PASS):
        name = name.removeprefix(PASS)
    return name


def forward_names(name: str) -> Iterator[str]:
    """The variables that a name may be the gradient of, nearest first.

    A user's variable may have ``@GRAD`` in its name too, or be a gradient itself: the first that exists is meant.
    """
    while GRAD in name:
        name = name.rpartition(GRAD)[0]
        base = name
        yield base
        while base.startswith(PASS):
            base = base.removeprefix(PASS)
            yield base


@dataclass(frozen=True)
class OpView:
    """One OpDesc: slots map to variable names; a BLOCK attribute is the block's index.

    Attributes:
        index, block_idx: where it stands.
        origin: (index, block_idx) in the user's program, for messages; None: it stands there still.
    """

    type: str
    inputs: Mapping[str, Sequence[str]]
    outputs: Mapping[str, Sequence[str]]
    attrs: Mapping[str, Any]
    index: int = -1
    block_idx: int = 0
    origin: tuple[int, int] | None = field(default=None, compare=False)

    def moved(self, index: int, block_idx: int = 0) -> OpView:
        """The op at another place, in a program that is made of the user's."""
        stood = (self.index, self.block_idx) if self.index >= 0 else None
        return replace(self, index=index, block_idx=block_idx, origin=self.origin or stood)

    @property
    def number(self) -> int:
        """The op's index in the user's program."""
        return self.index if self.origin is None else self.origin[0]

    @property
    def label(self) -> str:
        """The op for messages: its type and where it stands in the user's program."""
        index, block_idx = self.origin or (self.index, self.block_idx)
        return f"op {self.type} (#{index} of block {block_idx})"

    @property
    def is_backward(self) -> bool:
        """Whether op_role has the Backward bit."""
        return bool(int(self.attrs.get("op_role", 0)) & ROLE_BACKWARD)

    @property
    def recomputes(self) -> bool:
        """Whether this is a forward op repeated by a backward pass with checkpoints."""
        return self.is_backward and any(_AGAIN.search(name) for name in self.output_names())

    @property
    def computes_gradients(self) -> bool:
        """Whether the op writes gradients: their padding rows are zero, those of other values copies of a row."""
        return self.is_backward and not self.recomputes

    def input_names(self) -> list[str]:
        """The variables that the op reads, slot by slot, without ``@EMPTY@``; repetitions are preserved."""
        return [n for names in self.inputs.values() for n in names if n != EMPTY]

    def output_names(self) -> list[str]:
        """The variables that the op writes, slot by slot, without ``@EMPTY@``."""
        return [n for names in self.outputs.values() for n in names if n != EMPTY]

    @property
    def drawn_into(self) -> str:
        """The name by which a random op's draws are told apart."""
        return next(iter(self.output_names()), self.type)

    def place(self) -> str:
        """Identifies the op for messages, with the user's line."""
        line = self.user_line()
        return self.label + (f", built at: {line}" if line else "")

    def user_line(self) -> str:
        """The line of the user's script that created this op, or '' if none was recorded."""
        return innermost_user_frame(recorded_stack(self.attrs.get("op_callstack")))


# Directories of framework code, ours and Paddle's.
_PACKAGES = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FRAMEWORK_FOLDERS = (
    os.path.join(_PACKAGES, "fluidjax", ""),
    os.path.join(_PACKAGES, "lowering", ""),
    os.path.join("paddle", "fluid", ""),
)


def recorded_stack(attribute: Any) -> Sequence[str]:
    """The entries of a recorded call stack; none where an op has no stack, or, in a damaged program, another value."""
    is_one = isinstance(attribute, (list, tuple)) and all(isinstance(entry, str) for entry in attribute)
    return attribute if is_one else ()


def innermost_user_frame(stack: Sequence[str]) -> str:
    """The innermost entry of a recorded call stack outside framework code, on one line.

    Our stacks start with the innermost call, Paddle's with the outermost; the framework's own frames tell them apart.
    """
    files = [i for i, entry in enumerate(stack) if entry.lstrip().startswith("File ")]
    users = [i for i in files if not any(folder in stack[i] for folder in FRAMEWORK_FOLDERS)]
    if not users:
        return ""
    index = users[0] if users[0] != files[0] or len(users) == len(files) else users[-1]
    entry = stack[index]
    if "\n" not in entry.strip() and index + 1 < len(stack) and index + 1 not in files:
        entry += " " + stack[index + 1]
    return " ".join(entry.split())


@dataclass
class OpSpec:
    """An op to be created (the result of a gradient maker)."""

    type: str
    inputs: dict[str, list[str]]
    outputs: dict[str, list[str]]
    attrs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class VarView:
    """One VarDesc. ``shape`` may hold negative (unknown) dims; ``type`` and ``dtype`` are Fluid's numbers."""

    name: str
    type: int = 7
    dtype: int = 5
    shape: tuple[int, ...] = ()
    lod_level: int = 0
    persistable: bool = False
    stop_gradient: bool = False
    need_check_feed: bool = False


VarOf = Callable[[str], VarView | None]  # the variable of a name, as a block declares it


class VarInfo(NamedTuple):
    """What shape inference has determined about one output."""

    shape: tuple[int, ...] | None = None
    dtype: int | None = None
    lod_level: int | None = None
    type: int | None = None


def declared_product(dims: Sequence[int]) -> int:
    """The product of declared dims as Fluid computes it, with unknown ones as -1: -8 for [-1, 8].

    Any negative size is unknown. Where Fluid's product of several unknown dims looks known, this is -1.
    """
    product = prod(dims)
    return product if product <= 0 or min(dims, default=0) >= 0 else -1


@dataclass(frozen=True)
class BlockView:
    """One BlockDesc: its ops in order and its own variables by name; a missing parent or forward block is -1."""

    idx: int
    parent_idx: int
    ops: tuple[OpView, ...]
    vars: Mapping[str, VarView]
    forward_idx: int = -1


@dataclass(frozen=True)
class ProgramView:
    """One ProgramDesc: blocks by index, the outermost first; and what it tells about its writer.

    Attributes:
        version: Paddle's number of the writing release, 2006002 for 2.6.2; 0 if unknown.
        op_versions: the versions of ops that differ from their first one (Paddle 2).
    """

    blocks: tuple[BlockView, ...]
    version: int = 0
    op_versions: Mapping[str, int] = field(default_factory=dict)

    @property
    def newer(self) -> bool:
        """Whether Paddle 2 wrote the program."""
        return self.version >= PADDLE_2

    @property
    def has_scalars(self) -> bool:
        """Whether tensors without dims are used: before Paddle 2.5, a single number has the shape [1]."""
        return self.version >= PADDLE_2_5

    @cached_property
    def gradients(self) -> frozenset[str]:
        """The variables that ops of backward passes write as gradients."""
        ops = (op for block in self.blocks for op in block.ops if op.computes_gradients)
        return frozenset(name for op in ops for name in op.output_names())

    def find_var(self, block_idx: int, name: str) -> VarView | None:
        """The variable ``name`` as seen from a block: its own, (grad blocks) its forward block's, or a parent's."""
        seen: set[int] = set()
        pending = [block_idx]
        while pending:
            idx = pending.pop(0)
            if idx < 0 or idx in seen:
                continue
            seen.add(idx)
            block = self.blocks[idx]
            if name in block.vars:
                return block.vars[name]
            pending += [block.forward_idx, block.parent_idx]
        return None
