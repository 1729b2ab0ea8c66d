"""Creating the OpSpecs that compute an op's gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lowering.errors import LoweringError
from lowering.program import EMPTY, GRAD, OpSpec, OpView
from lowering.registry import OpDef, double_gradient, get_op

# Products of two factors: the second derivative by one exists only if a tangent of the other flows in.
_CROSSED = {
    "mul_grad": {"DX": "DDY", "DY": "DDX"},
    "conv2d_grad": {"DInput": "DDFilter", "DFilter": "DDInput"},
    "depthwise_conv2d_grad": {"DInput": "DDFilter", "DFilter": "DDInput"},
    "conv3d_grad": {"DInput": "DDFilter", "DFilter": "DDInput"},
}

# What Fluid's slots lack if X is smaller than Out (X@GRAD is then a sum, which does not determine its terms), or
# if X has no gradient.
_SUMMED = {"elementwise_div_grad_grad": "Out@GRAD"}

ShapeOf = Callable[[str], tuple[int, ...] | None]


class GradMaker:
    """What a gradient maker knows: the forward op's variables, and which of them need no gradient.

    Attributes:
        op: the forward op.
        attrs: a copy of its attributes.
        grad_block: index of the gradient sub-block that the backward pass has prepared (block ops only), else None.
        grad_to_var: filled in by ``input_grad``: gradient variable -> forward variable.
        extra: what the backward pass passes to makers of block ops.
        forward: for a gradient op that reads results of its forward op, that op.
        shape_of: the declared shape of a variable; None if unknown.
    """

    def __init__(
        self,
        op: OpView,
        no_grad: frozenset[str],
        grad_block: int | None = None,
        extra: Any = None,
        forward: OpView | None = None,
        shape_of: ShapeOf = lambda name: None,
    ):
        self.op = op
        self.attrs = dict(op.attrs)
        self.no_grad = no_grad
        self.grad_block = grad_block
        self.extra = extra
        self.forward = forward
        self.shape_of = shape_of
        self.grad_to_var: dict[str, str] = {}

    def regular(self) -> OpSpec:
        """The grad op that follows from the declared gradient rule, for makers that modify it."""
        definition = get_op(self.op.type)
        gradient = double_gradient(definition)
        assert gradient is not None, f"{self.op.type} declares no gradient rule"
        return _regular(definition, gradient, self)

    def input(self, slot: str) -> list[str]:
        """The forward op's variables in an input slot; [] if unbound."""
        return list(self.op.inputs.get(slot) or ())

    def output(self, slot: str) -> list[str]:
        """The forward op's variables in an output slot; [] if unbound."""
        return list(self.op.outputs.get(slot) or ())

    def alike(self, *slots: str) -> bool:
        """Whether the variables in these input slots are known to have the same shape."""
        shapes = {self.shape_of(name) for slot in slots for name in self.input(slot)}
        return len(shapes) == 1 and None not in shapes

    def output_grad(self, slot: str) -> list[str]:
        """Names of the gradients of an output slot; ``@EMPTY@`` stays in its place."""
        return [EMPTY if n == EMPTY else n + GRAD for n in self.output(slot)]

    def input_grad(self, slot: str, *, drop_empty: bool = True) -> list[str]:
        """Names of the gradients of an input slot; those in the no-grad set are dropped or named ``@EMPTY@``."""
        return self.wanted(self.input(slot), drop_empty)

    def wanted(self, names: list[str], drop_empty: bool = True) -> list[str]:
        """As ``input_grad``, for variables by name."""
        grads = []
        for name in names:
            unwanted = name == EMPTY or name + GRAD in self.no_grad
            grads.append(EMPTY if unwanted else name + GRAD)
            if not unwanted:
                self.grad_to_var[name + GRAD] = name
        return [g for g in grads if g != EMPTY] if drop_empty else grads


def grad_ops(
    op: OpView,
    no_grad_set: Any = (),
    *,
    grad_block: int | None = None,
    extra: Any = None,
    forward: OpView | None = None,
    shape_of: ShapeOf = lambda name: None,
) -> tuple[list[OpSpec], dict[str, str]]:
    """The ops that compute the gradient of ``op``.

    Args:
        op: the forward op.
        no_grad_set: names of gradient variables (``x@GRAD``) that are not needed.
        grad_block: index of the gradient sub-block, for ops that have one.
        extra: passed to the maker of a block op.
        forward: for a gradient op of which ``saved_slots`` names inputs, the op that computed them.
        shape_of: the declared shape of a variable; None if unknown.

    Returns:
        (OpSpecs, gradient variable -> forward variable). No ops if the op is not differentiable; one without outputs
        if no input needs a gradient (its position still determines where sums go; the backward pass drops it).
    """
    definition = get_op(op.type)
    maker = GradMaker(op, frozenset(no_grad_set), grad_block, extra, forward, shape_of)
    gradient = double_gradient(definition)
    if definition.make_grad is not None:
        return list(definition.make_grad(maker)), maker.grad_to_var
    if gradient is None:
        return [], {}
    spec = _regular(definition, gradient, maker)
    return [spec], maker.grad_to_var


def _regular(definition: OpDef, gradient: OpDef, maker: GradMaker) -> OpSpec:
    read = {s.name: _read(definition, gradient, s.name, maker) for s in gradient.inputs}
    later = {s.name for s in [*definition.inputs, *definition.outputs] if s.newer}
    inputs = {s.name: read[s.name] for s in gradient.inputs if not s.newer or (s.name in later and read[s.name])}
    if gradient.type in _SUMMED and maker.output("X@GRAD") and maker.alike("X", "Out"):
        del inputs[_SUMMED[gradient.type]]
    outputs: dict[str, list[str]] = {}
    crossed = _CROSSED.get(definition.type, {})
    for slot in gradient.outputs:
        if slot.name in crossed and not inputs.get(crossed[slot.name]):
            outputs[slot.name] = []
            continue
        target = _target(definition, slot.name)
        outputs[slot.name] = maker.input_grad(target, drop_empty=not slot.duplicable)
    return OpSpec(gradient.type, inputs, outputs, maker.attrs)


def _read(definition: OpDef, gradient: OpDef, name: str, maker: GradMaker) -> list[str]:
    """The variables bound to slot ``name`` of the grad op."""
    if definition.input(name):
        return maker.input(name)
    if definition.output(name):
        return maker.output(name)
    if name.endswith(GRAD) and definition.output(name[: -len(GRAD)]):
        return maker.output_grad(name[: -len(GRAD)])
    if name.startswith("DD"):
        return maker.output_grad(name[2:] + GRAD)
    if name.startswith("D"):
        slot = name[1:] + GRAD
        return maker.input(slot) if definition.input(slot) else maker.output(slot)
    raise LoweringError(f"gradient op {gradient.type}: slot {name} is bound to nothing of {definition.type}; rename it")


def _target(definition: OpDef, name: str) -> str:
    """The input slot of ``definition`` whose gradient goes to output slot ``name`` of its grad op."""
    if name.endswith(GRAD) and definition.input(name[: -len(GRAD)]):
        return name[: -len(GRAD)]
    if name.startswith("DD") and definition.input(name[2:] + GRAD):
        return name[2:] + GRAD
    if name.startswith("D") and definition.input(name[1:]):
        return name[1:]
    raise LoweringError(
        f"gradient of {definition.type}: output {name} is the gradient of none of its inputs; rename it"
    )
