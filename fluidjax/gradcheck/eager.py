"""The ops from which an eager loss was computed, as a program of their own."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fluidjax.base.errors import explain
from fluidjax.base.mode import tracer_guard
from fluidjax.base.places import CPUPlace
from fluidjax.base.scope import Scope
from fluidjax.eager.backward.tape import UNWANTED, Node, OpNode, resolved
from fluidjax.eager.variables.varbase import VarBase
from fluidjax.framework import Parameter, Program, Variable
from lowering import EMPTY


class Recorded(NamedTuple):
    """A program, its loss, and the values that it reads, of which ``parameters`` need gradients."""

    program: Program
    loss: str
    scope: Scope
    parameters: list[str]


def recorded(loss: VarBase) -> Recorded:
    """The program that computes ``loss``: the ops on the tape, which are those that gradients pass through.

    Anything that no gradient passes through is a constant with its current value.

    Raises ValueError if the tape is empty, or a gradient is a Python function.
    """
    if loss._place is None:
        raise ValueError(
            explain(
                f"check_grad: nothing is recorded of how {loss.name} was computed",
                "a loss that depends on variables with stop_gradient False, before its backward pass",
                f"one with stop_gradient {loss.stop_gradient}",
                "compute it with gradients being recorded (train(), outside no_grad())",
            )
        )
    with tracer_guard(None):  # create ops where eager mode would run them
        return _Writer().written(loss)


class _Writer:
    def __init__(self) -> None:
        self._program, self._scope = Program(), Scope()
        self._block = self._program.global_block()
        self._leaves: dict[int, str] = {}
        self._results: dict[Any, str] = {}
        self._parameters: list[str] = []
        self._held: list[Any] = []  # keeps the ids of leaves from being reused

    def written(self, loss: VarBase) -> Recorded:
        place = resolved(loss._place)
        for node in _in_order(place[0]):
            self._append(node)
        return Recorded(self._program, self._results[place], self._scope, self._parameters)

    def _append(self, node: Node) -> None:
        if not isinstance(node, OpNode) or node.freed:
            raise ValueError(
                explain(
                    "check_grad: an op on the way to the loss cannot be checked",
                    "ops with gradient rules, whose backward pass has not run",
                    "a gradient that is a Python function" if not node.freed else "a tape that backward() has freed",
                    "check the part before it, or compute the loss again and check it before backward()",
                )
            )
        view, attrs = node.kernel.view, node.kernel.attributes(node.inputs)
        names = {f"i{k}": self._input(v, p) for k, (v, p) in enumerate(zip(node.inputs, node.parents, strict=True))}
        for k, name in enumerate(name for slot in view.outputs.values() for name in slot):
            if name != EMPTY and name not in names:  # else it is an input that the op updates
                names[name] = self._output(node, k)
            self._results[node, k] = names.get(name, EMPTY)
        self._block.append_op(
            type=view.type,
            inputs={slot: [names[n] for n in each] for slot, each in view.inputs.items()},
            outputs={slot: [names[n] for n in each] for slot, each in view.outputs.items() if EMPTY not in each},
            attrs={name: value for name, value in attrs.items() if not name.startswith("op_")},
        )

    def _output(self, node: OpNode, index: int) -> str:
        spec, name = node.specs[index], f"{node.kernel.type}_{node.order}.{index}"
        self._block.create_var(name=name, dtype=spec.dtype, shape=spec.shape, stop_gradient=False)
        return name

    def _input(self, var: Any, place: Any) -> str:
        if place is not None and place is not UNWANTED:
            return self._results[resolved(place)]
        name = self._leaves.get(id(var))
        if name is None:
            name = self._leaves[id(var)] = self._leaf(var, place is None)
            self._held.append(var)
        return name

    def _leaf(self, var: Any, needs_gradient: bool) -> str:
        name = var.name
        while self._block.has_var(name):
            name += "'"
        shape, dtype = list(var.shape), var.dtype
        trained = needs_gradient and bool(shape)
        if trained:
            Parameter(self._block, shape=shape, dtype=dtype, name=name, trainable=True)
            self._parameters.append(name)
        else:
            made = Variable(self._block, name=name, shape=shape, dtype=dtype, persistable=True)
            made.stop_gradient = not needs_gradient
        self._scope.var(name).get_tensor().set(np.array(var.numpy()), CPUPlace())
        return name


def _in_order(last: Node) -> list[Node]:
    """The nodes that ``last`` depends on, in the order in which they ran."""
    found, ahead = {last}, [last]
    while ahead:
        parents = {resolved(p)[0] for p in ahead.pop().parents if p is not None and p is not UNWANTED}
        ahead += parents - found
        found |= parents
    return sorted(found, key=lambda node: node.order)
