"""The ops that make up an op's gradient, and what they read: determined once per kernel."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import lowering
from fluidjax.eager.kernels import Kernel, kernel_of
from fluidjax.eager.slots import flatten
from lowering import EMPTY, GRAD, OpSpec, OpView


class Step(NamedTuple):
    """One op of a gradient: its kernel, the sources of its inputs, and the targets of its outputs.

    A source is ("i", k) for input k of the forward op, ("o", k) for an output, ("g", k) for an output's gradient,
    ("f", k) for input k of the op that the forward op is the gradient of, ("t", name) for an earlier step's result. A
    target is ("i", k), ("f", k) or ("t", name); None for an unused output.
    """

    kernel: Kernel
    sources: tuple[tuple[str, Any], ...]
    targets: tuple[tuple[str, Any] | None, ...]


class Plan(NamedTuple):
    """The gradient of a kernel: its steps, and the indices of the outputs whose values and gradients they read."""

    steps: tuple[Step, ...]
    reads: frozenset[int]
    takes: frozenset[int]


def plan_of(kernel: Kernel, wanted: tuple[bool, ...], forward: Kernel | None) -> Plan:
    """The gradient of `kernel` with respect to the inputs for which `wanted` is True.

    Args:
        forward: for the kernel of a gradient op, that of the op it is the gradient of.
    """
    known = kernel.plans.get((wanted, forward))
    if known is None:
        known = kernel.plans[wanted, forward] = _make_plan(kernel, wanted, forward)
    return known


def _make_plan(kernel: Kernel, wanted: tuple[bool, ...], forward: Kernel | None) -> Plan:
    unwanted = {f"i{k}{GRAD}" for k, w in enumerate(wanted) if not w}
    origin = None if forward is None else _renamed(forward.view)
    view = _distinct(kernel.view)
    specs, _ = lowering.grad_ops(view, unwanted, forward=origin)
    steps = [_step(spec) for spec in specs if any(n != EMPTY for names in spec.outputs.values() for n in names)]
    reads, takes = (frozenset(k for s in steps for kind, k in s.sources if kind == read) for read in "og")
    return Plan(tuple(steps), reads, takes)


def _distinct(view: OpView) -> OpView:
    """The op with separate names for outputs that are inputs' variables: the tape itself distinguishes versions."""
    count = itertools.count()
    outputs = {
        s: [EMPTY if n == EMPTY else f"o{i}" for n, i in zip(ns, count, strict=False)] for s, ns in view.outputs.items()
    }
    return OpView(view.type, view.inputs, outputs, view.attrs)


def _renamed(view: OpView) -> OpView:
    return OpView(
        view.type,
        {slot: ["f" + n for n in names] for slot, names in view.inputs.items()},
        {slot: ["f" + n for n in names] for slot, names in view.outputs.items()},
        view.attrs,
    )


def _source(name: str) -> tuple[str, Any]:
    if name.startswith("fi") and name[2:].isdigit():
        return "f", int(name[2:])
    base = name.removesuffix(GRAD)
    if base[:1] in ("i", "o") and base[1:].isdigit():
        if base == name:
            return base[0], int(base[1:])
        if base[0] == "o":
            return "g", int(base[1:])
    return "t", name


def _target(name: str) -> tuple[str, Any] | None:
    if name == EMPTY:
        return None
    base = name.removesuffix(GRAD)
    if base != name and base.startswith("fi") and base[2:].isdigit():
        return "f", int(base[2:])
    if base != name and base[:1] == "i" and base[1:].isdigit():
        return "i", int(base[1:])
    return "t", name


def _step(spec: OpSpec) -> Step:
    inputs = {slot: list(names) for slot, names in spec.inputs.items() if names and list(names) != [EMPTY]}
    definition = lowering.get_op(spec.type)
    known = {slot.name for slot in definition.outputs}  # Fluid's makers bind some that no rule computes
    outputs = {slot: list(names) for slot, names in spec.outputs.items() if names and slot in known}
    sources, ins = flatten(inputs)
    targets, outs = flatten(outputs)
    inherits = definition.forward is not None  # other ops take those of the forward op that they know
    attrs = {k: v for k, v in spec.attrs.items() if not k.startswith("op_") and (inherits or k in definition.attrs)}
    kernel = kernel_of(spec.type, attrs, ins, outs, wanted=tuple(n != EMPTY for n in targets), backward=True)
    return Step(kernel, tuple(map(_source, sources)), tuple(map(_target, targets)))
