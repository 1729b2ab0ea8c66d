"""The table of primitives in C: one function per primitive, registered by the modules of ``primitives``.

An *element* rule gives the C expression of one element in terms of its inputs'. A *view* rule says which element of
its input an element is. A *kernel* rule writes loops that fill its outputs. Loops and branches are in ``control``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fluidjax.export.graph import Node

ElementRule = Callable[[Node, list[str]], str]
# Their first argument is the ``Kernel`` that is being written; its class reads this table, so it is not named here.
ViewRule = Callable[..., Any]
KernelRule = Callable[..., None]


@dataclass(frozen=True)
class KernelOp:
    """How a kernel primitive accepts its inputs.

    Attributes:
        rule: writes the loops.
        streams: inputs that it reads element by element, each about once, so they may be expressions; None means all.
        strided: inputs that it reads by address, so they may be views with constant strides.
        updates: the input whose memory the output may reuse if nothing reads it afterwards.
        refuses: describes the unsupported part of a node; "" if there is none.
    """

    rule: KernelRule
    streams: frozenset[int] | None = frozenset()
    strided: frozenset[int] = frozenset()
    updates: int | None = None
    refuses: Callable[[Node], str] = lambda node: ""


ELEMENTS: dict[str, ElementRule] = {}
VIEWS: dict[str, ViewRule] = {}
KERNELS: dict[str, KernelOp] = {}
REFUSES: dict[str, Callable[[Node], str]] = {}
CONTROL = frozenset({"while", "cond", "scan"})
# Views that read each element several times: an expression there would be computed repeatedly.
REPEATING = frozenset({"broadcast_in_dim", "tile"})


def element(*names: str) -> Callable[[ElementRule], ElementRule]:
    """Register an element rule."""

    def enter(rule: ElementRule) -> ElementRule:
        ELEMENTS.update(dict.fromkeys(names, rule))
        return rule

    return enter


def view(*names: str) -> Callable[[ViewRule], ViewRule]:
    """Register a view rule: ``rule(kernel, node, which output, index)`` -> (input, its index), or an expression."""

    def enter(rule: ViewRule) -> ViewRule:
        VIEWS.update(dict.fromkeys(names, rule))
        return rule

    return enter


def kernel(
    *names: str,
    streams: tuple[int, ...] | None = (),
    strided: tuple[int, ...] = (),
    updates: int | None = None,
    refuses: Callable[[Node], str] = lambda node: "",
) -> Callable[[KernelRule], KernelRule]:
    """Register a kernel rule; see ``KernelOp``."""

    def enter(rule: KernelRule) -> KernelRule:
        taken = None if streams is None else frozenset(streams)
        KERNELS.update(dict.fromkeys(names, KernelOp(rule, taken, frozenset(strided), updates, refuses)))
        return rule

    return enter


def known(name: str) -> bool:
    """Whether a primitive has a rule."""
    return name in ELEMENTS or name in VIEWS or name in KERNELS or name in CONTROL or name == "reshape"
