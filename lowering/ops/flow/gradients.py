"""Gradient makers of the ops that run a sub-block: while, conditional_block, recurrent.

The backward pass has written the gradient sub-block before it asks for these: ``g.grad_block`` is its index and
``g.extra`` describes it (``ops``, and ``declared_outside(name)``).
"""

from __future__ import annotations

from lowering.engine.gradients.grad_maker import GradMaker
from lowering.program import EMPTY, GRAD, OpSpec
from lowering.registry import Block


def while_grad_maker(g: GradMaker) -> list[OpSpec]:
    """while_grad: the gradients of X that the sub-block computes; of Out those that it reads and does not make."""
    written = {name for op in g.extra.ops for name in op.output_names()}
    wanted = [name if name in written else EMPTY for name in g.input_grad("X", drop_empty=False)]
    read = _gradients_read(g, {*g.input("X"), *g.output("Out")})
    read += sorted(name for name in g.extra.carried & written if name not in read)
    attrs = {
        **g.attrs,
        "sub_block": Block(g.grad_block),
        "original_output_grad": read,
        "skip_eager_deletion_vars": [],
    }
    inputs = {
        "X": g.input("X"),
        "Out": g.output("Out"),
        "StepScopes": g.output("StepScopes"),
        f"Out{GRAD}": list(read),
    }
    return [OpSpec("while_grad", inputs, {f"X{GRAD}": wanted}, attrs)]


def _gradients_read(g: GradMaker, known: set[str]) -> list[str]:
    """What the gradient sub-block reads that neither it nor any block around it provides, in order."""
    read: dict[str, None] = {}
    for op in g.extra.ops:
        for name in op.input_names():
            if name not in known and not g.extra.declared_outside(name):
                read[name] = None
        known.update(op.output_names())
    return list(read)


def conditional_block_grad_maker(g: GradMaker) -> list[OpSpec]:
    """conditional_block_grad: a gradient for each of Input, in the branch that was taken."""
    inputs = {
        "Cond": g.input("Cond"),
        "Input": g.input("Input"),
        "Out": g.output("Out"),
        f"Out{GRAD}": g.output_grad("Out"),
        "Scope": g.output("Scope"),
    }
    outputs = {f"Input{GRAD}": g.input_grad("Input", drop_empty=False)}
    attrs = {
        "sub_block": Block(g.grad_block),
        "is_scalar_condition": g.attrs.get("is_scalar_condition", False),
    }
    return [OpSpec("conditional_block_grad", inputs, outputs, attrs)]


def recurrent_grad_maker(g: GradMaker) -> list[OpSpec]:
    """recurrent_grad: reads every forward slot; ``step_scopes@GRAD`` is the forward's own step_scopes."""
    inputs, outputs = {}, {}
    for slot in ("inputs", "initial_states", "parameters"):
        inputs[slot] = g.input(slot)
        outputs[slot + GRAD] = g.input_grad(slot, drop_empty=False)
    inputs["outputs"] = g.output("outputs")
    inputs[f"outputs{GRAD}"] = g.output_grad("outputs")
    inputs["step_scopes"] = inputs[f"step_scopes{GRAD}"] = g.output("step_scopes")
    return [OpSpec("recurrent_grad", inputs, outputs, {**g.attrs, "sub_block": Block(g.grad_block)})]
