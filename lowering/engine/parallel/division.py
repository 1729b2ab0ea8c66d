"""Parameters divided among devices: which ones, along which axis, and what is computed on parts of them.

A look-up table is divided by rows, the matrix of a product by columns, and so is any optimizer state
of the same shape. Their ops work on the parts: each device receives the ids, or the rows, of all of them, and returns
what the others need::

    ids  = all devices' ids                   x   = all devices' rows
    rows = those in the part, zeros else      out = x w, of all rows some columns
    out  = the sums of this device's rows     out = of this device's rows all columns

Each device's part of the gradient is then already the sum over all devices. Other ops get the whole, assembled
from the parts, and what they write of it is divided again, so any parameter of any program may be divided.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from lowering.engine.dataflow import definitions, sub_blocks, uses
from lowering.program import ROLE_OPTIMIZE, OpView, ProgramView, VarView

_LOOKUPS = frozenset({"lookup_table", "lookup_table_v2"})
_PRODUCTS = frozenset({"mul", "matmul"})
# Updates of each element by the element at the same position.
_UPDATES = frozenset(
    "sgd momentum adam adamax adagrad decayed_adagrad adadelta rmsprop ftrl proximal_gd proximal_adagrad".split()
)
# Ops whose result at each position follows from that position of inputs of its shape, and from scalars.
_ELEMENTWISE = frozenset(
    "abs assign cast clip elementwise_add elementwise_div elementwise_max elementwise_min elementwise_mul"
    " elementwise_sub scale sign sqrt square sum".split()
)


@dataclass(frozen=True)
class Division:
    """How variables are divided.

    Attributes:
        axes: persistable variables -> the axis along which they are divided.
        working: the parameters among them whose own ops work on parts.
    """

    axes: Mapping[str, int] = field(default_factory=dict)
    working: frozenset[str] = frozenset()

    @staticmethod
    def of(program: ProgramView, names: Collection[str], count: int, differs: Callable[[OpView], bool]) -> Division:
        """The division of parameters among ``count`` devices.

        Those without an axis that divides equally stay whole, as do those of nested blocks.

        Args:
            program: what all devices run.
            names: the parameters.
            count: the number of devices.
            differs: whether an op must run on each device.
        """
        block, axes, working = program.blocks[0], {}, set()
        inside = {n for op in block.ops if sub_blocks(op) for n in (*uses(program, op), *definitions(program, op))}
        for name in (n for n in names if n not in inside and n in block.vars):
            users = [op for op in block.ops if name in op.input_names() and differs(op)]
            axis = 1 if users and all(product(op, name) for op in users) else 0
            if _divides(block.vars[name], axis, count):
                axes[name] = axis
                if users and (axis or all(lookup(op, name) for op in users)):
                    working.add(name)
        for op in (op for op in block.ops if _is_update(op)):
            param = op.inputs["Param"][0]
            if param in axes and op.type in _UPDATES:
                kept = (n for n in op.input_names() if n not in inside and block.vars[n].persistable)
                axes.update((n, axes[param]) for n in kept if block.vars[n].shape == block.vars[param].shape)
        return Division(axes, frozenset(working))

    def worked_on(self, op: OpView) -> str | None:
        """The parameter of which an op, which differs between devices, works on a part; None if there is none."""
        return next((n for n in op.input_names() if n in self.working and (lookup(op, n) or product(op, n))), None)


def _divides(var: VarView, axis: int, count: int) -> bool:
    return len(var.shape) == 2 and var.shape[axis] > 0 and var.shape[axis] % count == 0


def _is_update(op: OpView) -> bool:
    return bool(int(op.attrs.get("op_role", 0)) & ROLE_OPTIMIZE) and bool(op.inputs.get("Param"))


def lookup(op: OpView, name: str) -> bool:
    """Whether an op looks up rows in ``name``, or computes the gradient of that."""
    return op.type.removesuffix("_grad") in _LOOKUPS and list(op.inputs.get("W", ())) == [name]


def product(op: OpView, name: str) -> bool:
    """Whether an op multiplies rows by the matrix ``name``, or computes the gradient of that."""
    attrs = op.attrs
    plain = not (attrs.get("transpose_X") or attrs.get("transpose_Y")) and int(attrs.get("y_num_col_dims", 1)) == 1
    right = list(op.inputs.get("Y", ())) == [name] and name not in op.inputs.get("X", ())
    return op.type.removesuffix("_grad") in _PRODUCTS and plain and right


def in_place(op: OpView, parts: Mapping[str, int], variables: Mapping[str, VarView]) -> list[str] | None:
    """The inputs that an op takes in parts if it works by position, so that it may run on parts; else None."""
    if op.type not in _ELEMENTWISE and op.type not in _UPDATES:
        return None
    shaped = [n for n in op.input_names() if n in parts]
    shape = variables[shaped[0]].shape if shaped and shaped[0] in variables else None
    if shape is None or len({parts[n] for n in shaped}) > 1:
        return None
    others = {n: variables[n].shape for n in op.input_names() if n in variables and n not in parts}
    alike = [n for n, other in others.items() if other == shape]
    if len(others) + len(set(shaped)) < len(set(op.input_names())):
        return None
    if any(n not in alike and _numbers(other) != 1 for n, other in others.items()):
        return None
    return [*dict.fromkeys(shaped), *alike]


def _numbers(shape: Iterable[int]) -> int:
    count = 1
    for n in shape:
        count *= n
    return count
