"""One C function that fills the outputs of a statement: its parameters, loops and expressions."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from math import prod

import numpy as np

from fluidjax.export.c.affine import Affine, Index, address, strides_of
from fluidjax.export.c.fuse import Fusion
from fluidjax.export.c.rules import ELEMENTS, VIEWS
from fluidjax.export.c.types import c_type, literal
from fluidjax.export.graph import Node, Value


class Kernel:
    """A function under construction.

    Attributes:
        pointers: owner of memory -> the parameter that points to it, in order.
        written: the owners it writes to.
        scratch: memory needed for the duration of a call, listed among the owners.
        lines: the body.
    """

    def __init__(self, fusion: Fusion, owner: Callable[[Value], Value]):
        self.fusion = fusion
        self.owner = owner
        self.pointers: dict[Value, str] = {}
        self.written: set[Value] = set()
        self.scratch: list[Value] = []
        self.lines: list[str] = []
        self.accesses: list[Affine] = []
        self._depth = 1
        self._names = 0

    # ---- text ----

    def line(self, text: str) -> None:
        """Add a line."""
        self.lines.append("  " * self._depth + text)

    @contextlib.contextmanager
    def block(self, head: str) -> Iterator[None]:
        """``head { ... }``."""
        self.line(head + " {" if head else "{")
        self._depth += 1
        yield
        self._depth -= 1
        self.line("}")

    def name(self, prefix: str = "v") -> str:
        """A new identifier."""
        self._names += 1
        return f"{prefix}{self._names}"

    @contextlib.contextmanager
    def loop(self, size: int, step: str = "") -> Iterator[Affine]:
        """A loop over 0 .. size; no loop if that is a single step."""
        if size == 1:
            yield Affine()
            return
        i = self.name("i")
        with self.block(f"for (long {i} = 0; {i} < {size}; ++{i})"):
            yield Affine.of(i)

    @contextlib.contextmanager
    def nest(self, shape: Sequence[int]) -> Iterator[list[Affine]]:
        """Loops over all indices of a shape."""
        with contextlib.ExitStack() as stack:
            yield [stack.enter_context(self.loop(size)) for size in shape]

    def function(self, name: str) -> str:
        """The whole function."""
        parameters = [
            f"{'' if owner in self.written else 'const '}{c_type(owner.dtype)} *restrict {word}"
            for owner, word in self.pointers.items()
        ]
        return "\n".join([f"KERNEL void {name}({', '.join(parameters) or 'void'})", "{", *self.lines, "}"])

    # ---- memory ----

    def pointer(self, value: Value) -> str:
        """The pointer to a stored value."""
        owner = self.owner(self.fusion.root(value))
        return self.pointers.setdefault(owner, f"p{len(self.pointers)}")

    def target(self, value: Value) -> str:
        """The pointer to an output."""
        self.written.add(self.owner(self.fusion.root(value)))
        return self.pointer(value)

    def temporary(self, dtype: str, size: int) -> str:
        """A pointer to ``size`` elements of scratch memory."""
        value = Value((size,), np.dtype(dtype))
        self.scratch.append(value)
        self.written.add(value)
        return self.pointers.setdefault(value, f"p{len(self.pointers)}")

    def in_place(self, value: Value, source: Value) -> bool:
        """Whether an output has taken over the memory of an input."""
        return (
            source not in self.fusion.inline
            and not source.scalar
            and (self.owner(self.fusion.root(value)) is self.owner(self.fusion.root(source)))
        )

    # ---- elements ----

    def element(self, value: Value, index: Index) -> str:
        """The expression for an element."""
        if value.scalar:
            return literal(value.constant.item(), value.dtype)  # type: ignore[union-attr]
        if value not in self.fusion.inline:
            at = address(index, strides_of(value.shape))
            return f"{self.pointer(value)}[{self._accessed(at)}]"
        node = value.node
        assert node is not None
        if node.prim in ELEMENTS:
            return self.computed(node, index)
        found = self.seen(value, index)
        return found if isinstance(found, str) else self.element(*found)

    def computed(self, node: Node, index: Index) -> str:
        """The expression for an element of an element-wise node; inputs of size 1 along a dim are read at 0 there."""
        shape = node.outs[0].shape
        args = []
        for value in node.ins:
            same = len(value.shape) == len(shape)
            at = [i if n != 1 else Affine() for i, n in zip(index, value.shape, strict=True)] if same else []
            args.append(self.element(value, at))
        return ELEMENTS[node.prim](node, args)

    def seen(self, value: Value, index: Index) -> str | tuple[Value, Index]:
        """What an inline view reads at an index: (its input, the index there), or an expression."""
        node = value.node
        assert node is not None
        return VIEWS[node.prim](self, node, node.outs.index(value), index)

    def strided(self, value: Value) -> tuple[str, Affine, list[int]]:
        """(pointer, offset, strides) of a stored value, or of a linear view of one."""
        words = [f"@{d}" for d in range(len(value.shape))]
        index: Index = [Affine.of(word) for word in words]
        while value in self.fusion.inline:
            found = self.seen(value, index)
            assert not isinstance(found, str)
            value, index = found
        at = address(index, strides_of(value.shape))
        strides = [at.terms.get(word, 0) for word in words]
        rest = Affine({t: f for t, f in at.terms.items() if t not in words}, at.const)
        return self.pointer(value), rest, strides

    def number(self, value: Value, index: Index = ()) -> str:
        """An integer element as a long."""
        return f"(long){self.element(value, index)}"

    def _accessed(self, at: Affine) -> Affine:
        self.accesses.append(at)
        return at


def merged_dims(shape: Sequence[int], accesses: Sequence[Affine], words: Sequence[str]) -> list[list[int]]:
    """Groups of neighbouring dims that every access traverses as if they were one.

    Args:
        shape: the sizes of the loops.
        accesses: what the loops read and write.
        words: the index of each dim.
    """
    opaque = {w for at in accesses for term in at.terms if term not in words for w in words if _mentions(term, w)}
    groups: list[list[int]] = []
    for dim in range(len(shape)):
        if shape[dim] == 1:
            continue
        last = groups[-1][-1] if groups else None
        if (
            last is not None
            and not opaque & {words[last], words[dim]}
            and all(at.terms.get(words[last], 0) == at.terms.get(words[dim], 0) * shape[dim] for at in accesses)
        ):
            groups[-1].append(dim)
        else:
            groups.append([dim])
    return groups


def _mentions(term: str, word: str) -> bool:
    return re.search(rf"\b{re.escape(word)}\b", term) is not None


@contextlib.contextmanager
def merged_nest(kernel: Kernel, shape: Sequence[int], groups: Sequence[Sequence[int]]) -> Iterator[list[Affine]]:
    """Loops over all indices of a shape, with one loop for each group of dims.

    Only the last dim of a group has a non-zero index, which runs through the whole group.
    """
    index = [Affine()] * len(shape)
    with contextlib.ExitStack() as stack:
        for group in groups:
            index[group[-1]] = stack.enter_context(kernel.loop(prod(shape[d] for d in group)))
        yield index


def probe(kernel: Kernel, shape: Sequence[int], visit: Callable[[Index], object]) -> list[list[int]]:
    """The groups of dims (see ``merged_dims``) for what ``visit``, called once as a trial, reads at an index."""
    shown = Kernel(kernel.fusion, kernel.owner)
    shown.pointers, shown.written = kernel.pointers, kernel.written
    words = [f"d{i}_" for i in range(len(shape))]
    real, kernel.accesses = kernel.accesses, []
    visit([Affine.of(word) for word in words])
    groups = merged_dims(shape, kernel.accesses, words)
    kernel.accesses = real
    return groups


def fill(kernel: Kernel, node: Node, value: Value) -> None:
    """The loops that store an element-wise value or a view."""
    strides = strides_of(value.shape)
    out = kernel.target(value)

    def expression(index: Index) -> str:
        if node.prim in ELEMENTS:
            return kernel.computed(node, index)
        found = kernel.seen(value, index)
        return found if isinstance(found, str) else kernel.element(*found)

    def visit(index: Index) -> str:
        kernel.accesses.append(address(index, strides))
        return f"{out}[{address(index, strides)}] = {expression(index)};"

    groups = probe(kernel, value.shape, visit)
    with merged_nest(kernel, value.shape, groups) as index:
        kernel.line(visit(index))
