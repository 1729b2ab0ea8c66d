"""Loop fission: what a DynamicRNN computes of its step inputs alone is computed for all their rows before the loop.

A block that multiplies the rows of each step by a weight, and adds a bias to them, does the same to all rows whatever
the step, so with the rows of all sequences packed in X [R, K]

    steps(X)[t] @ W + b  =  steps(X @ W + b)[t],

one product of R rows instead of one for each step; and of the gradients dX = d W^T and dW = X^T d likewise, over R
rows. As a rewriting of the program: the ops move in front of ``while``, their gradient ops after ``while_grad``, and
the loop reads and writes arrays of what they compute.

Invariant: an op moves only if each row it computes is read in one step and depends on nothing that the loop writes; and
its gradient op only if what that computes is used nowhere in the loop. When in doubt, an op stays.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from lowering.loops.fission_heads import Head, SplitLoop, find_heads
from lowering.program import EMPTY, GRAD, ROLE_BACKWARD, BlockView, OpView, ProgramView, VarView

_ARRAY = 13  # VarType.LOD_TENSOR_ARRAY


def split_loops(program: ProgramView, kept: Collection[str] = ()) -> ProgramView:
    """``program`` with what its outermost loops compute of rows alone moved out of them.

    Args:
        kept: names whose values a run is asked for.
    """
    for idx in [op.attrs["sub_block"] for op in program.blocks[0].ops if op.type == "while"]:
        loop = SplitLoop.of(program, idx, kept)
        heads = find_heads(loop) if loop is not None else []
        if loop is not None and heads:
            program = _Rewrite(loop, heads).program()
    return program


def _rows(head: Head) -> str:
    """The variable that holds what a moved op computes, all rows of it."""
    return f"{head.out}@ROWS"


def _steps(head: Head) -> str:
    """The array of its steps."""
    return f"{head.out}@STEPS"


class _Rewrite:
    """The program without ``heads`` in the loop."""

    def __init__(self, loop: SplitLoop, heads: list[Head]):
        self.loop, self.heads = loop, heads
        self.moved = {id(h.gradient) for h in heads if h.gradient is not None}
        self.made = {h.out: h for h in heads}
        self.whole = {h.source.name: h.source.rows for h in heads} | {h.out: _rows(h) for h in heads}
        self.read = [h for h in heads if self._read_inside(h)]
        self.begun = [h for h in heads if h.gradient is not None and not self._begun_outside(h)]
        self.arrays = [h for h in heads if h in self.read or h in self.begun]
        # array -> parts of its rows' gradient, computed by moved ops -> the rows
        self.parts: dict[str, dict[str, str]] = {}

    def program(self) -> ProgramView:
        """The whole program."""
        loop = self.loop
        blocks = list(loop.program.blocks)
        blocks[loop.body.idx] = _renumbered(loop.body, self._body())
        if loop.backward is not None:
            declared = {_steps(h) + GRAD: self._array(h, GRAD) for h in self.begun}
            blocks[loop.backward.idx] = _renumbered(loop.backward, self._backward(), declared)
        blocks[0] = _renumbered(blocks[0], self._outside(), self._declared())
        return replace(loop.program, blocks=tuple(blocks))

    def _read_inside(self, head: Head) -> bool:
        """Whether an op that stays reads what ``head`` computes."""
        moving = {id(h.op) for h in self.heads} | self.moved
        return any(id(op) not in moving for op in self.loop.readers(head.out))

    def _begun_outside(self, head: Head) -> bool:
        """Whether the gradient of what ``head`` computes comes from a moved op."""
        given = head.given
        return any(h.gradient is not None and given in h.gradient.output_names() for h in self.heads)

    # --- the loop's blocks ----------------------------------------------------------------------------------------

    def _body(self) -> list[OpView]:
        heads, found = {id(h.op) for h in self.heads}, []
        for op in self.loop.body.ops:
            if id(op) in heads:
                continue
            found.append(op)
            for h in self.read:
                if h.source.op is op:
                    inputs = {**op.inputs, "X": (_steps(h),)}
                    found.append(replace(op, inputs=inputs, outputs={"Out": (h.out,)}))
        return found

    def _backward(self) -> list[OpView]:
        gone = {n for h in self.heads if h.gradient is not None for n in h.gradient.output_names()}
        found: list[OpView] = []
        assert self.loop.backward is not None
        for op in self.loop.backward.ops:
            if id(op) in self.moved:
                continue
            if op.type in ("sum", "write_to_array") and gone.intersection(op.input_names()):
                left = [n for n in op.inputs["X"] if n not in gone]
                if not left:
                    gone.update(op.output_names() if op.type == "sum" else ())
                    continue
                op = replace(op, inputs={**op.inputs, "X": left})
            found.append(op)
        for h in self.begun:
            inputs = {"I": (h.source.index,), "X": (h.given,)}
            found.append(self._new(h, "write_to_array", inputs, _steps(h) + GRAD, backward=True))
        return found

    # --- around the loop ------------------------------------------------------------------------------------------

    def _outside(self) -> list[OpView]:
        loop, found = self.loop, []
        for op in loop.program.blocks[0].ops:
            if op is loop.op:
                found += [*self._before(), replace(op, inputs=self._with_arrays(op))]
            elif op is loop.grad:
                found += [self._while_grad(op), *self._after()]
            elif op.type == "array_to_lod_tensor" and self.parts.get(op.inputs["X"][0]):
                found += self._gathered(op)
            else:
                found.append(op)
        return found

    def _before(self) -> list[OpView]:
        found = []
        for h in self.heads:
            inputs = {slot: [self.whole.get(n, n) for n in names] for slot, names in h.op.inputs.items()}
            found.append(replace(h.op, inputs=inputs, outputs={"Out": (_rows(h),)}))
            if h in self.arrays:
                inputs = {"X": [_rows(h)], "RankTable": [h.source.table]}
                found.append(self._new(h, "lod_tensor_to_array", inputs, _steps(h)))
        return found

    def _with_arrays(self, op: OpView) -> Mapping[str, Any]:
        return {**op.inputs, "X": [*op.inputs["X"], *map(_steps, self.arrays)]}

    def _while_grad(self, op: OpView) -> OpView:
        assert self.loop.backward is not None
        inside = {n for o in self._backward() for n in o.output_names()}
        outer = list(op.outputs["X" + GRAD])
        for k, name in enumerate(op.inputs["X"]):
            if outer[k] != EMPTY and name + GRAD in self.loop.written_backward and name + GRAD not in inside:
                outer[k] = EMPTY
        outer += [_steps(h) + GRAD if h in self.begun else EMPTY for h in self.arrays]
        left = _pairs_among(op.attrs.get("op_role_var") or (), outer)
        attrs = {**op.attrs, "op_role_var": left}
        return replace(op, inputs=self._with_arrays(op), outputs={**op.outputs, "X" + GRAD: outer}, attrs=attrs)

    def _after(self) -> list[OpView]:
        found = []
        for h in self.begun:
            inputs = {"X": [_steps(h) + GRAD], "RankTable": [h.source.table]}
            found.append(self._new(h, "array_to_lod_tensor", inputs, _rows(h) + GRAD, backward=True))
        for h in reversed(self.heads):
            if h.gradient is not None:
                found.append(self._gradient(h, h.gradient))
        return found

    def _gradient(self, head: Head, op: OpView) -> OpView:
        """The gradient op of a moved op, over all rows."""
        inputs = {slot: [self.whole.get(n, n) for n in names] for slot, names in op.inputs.items()}
        inputs["Out" + GRAD] = [_rows(head) + GRAD]
        outputs = {slot: [self._gradient_of(head, slot, n) for n in names] for slot, names in op.outputs.items()}
        assert self.loop.grad is not None
        own = {n for names in outputs.values() for n in names}
        pairs = _pairs_among(self.loop.grad.attrs.get("op_role_var") or (), own)
        return replace(op, inputs=inputs, outputs=outputs, attrs={**op.attrs, "op_role_var": pairs})

    def _gradient_of(self, head: Head, slot: str, name: str) -> str:
        if name == EMPTY:
            return name
        if slot != "X" + GRAD:
            return self.loop.outer_gradient(name)
        if head.taken in self.made:
            return _rows(self.made[head.taken]) + GRAD
        array = self.loop.outer_gradient(head.source.array + GRAD)
        if not self.loop.uses_outside(array):
            return EMPTY
        part = f"{head.source.rows}{GRAD}@RENAME@{head.out}"
        self.parts.setdefault(array, {})[part] = head.source.rows
        return part

    def _gathered(self, op: OpView) -> list[OpView]:
        """The gradient of the packed rows: what the loop still computes of it, and the parts computed after it."""
        name, array = op.outputs["Out"][0], op.inputs["X"][0]
        parts, found = list(self.parts[array]), []
        assert self.loop.grad is not None
        if any(array in o.output_names() for o in [self._while_grad(self.loop.grad)]):
            parts.insert(0, name + "@RENAME@loop")
            found.append(replace(op, outputs={"Out": (parts[0],)}))
        return [*found, replace(op, type="sum", inputs={"X": parts}, outputs={"Out": (name,)})]

    def _new(self, head: Head, type: str, inputs: Mapping[str, Any], output: str, *, backward: bool = False) -> OpView:
        like = self.loop.grad if backward else self.loop.op
        assert like is not None
        attrs = {n: v for n, v in like.attrs.items() if n.startswith("op_") and n != "op_role_var"}
        attrs["op_role"] = ROLE_BACKWARD if backward else 0
        return replace(like, type=type, inputs=inputs, outputs={"Out": (output,)}, attrs=attrs)

    # --- variables ------------------------------------------------------------------------------------------------

    def _declared(self) -> dict[str, VarView]:
        found: dict[str, VarView] = {}
        for h in self.heads:
            var = replace(self.loop.body.vars[h.out], name=_rows(h), lod_level=h.source.lod_level)
            found[_rows(h)] = var
            found[_rows(h) + GRAD] = replace(var, name=_rows(h) + GRAD)
            found[_steps(h)], found[_steps(h) + GRAD] = self._array(h), self._array(h, GRAD)
        outer = self.loop.program.blocks[0].vars
        rows = {part: x for parts in self.parts.values() for part, x in parts.items()}
        return found | {part: replace(outer[x], name=part, persistable=False) for part, x in rows.items()}

    def _array(self, head: Head, suffix: str = "") -> VarView:
        return replace(self.loop.body.vars[head.out], name=_steps(head) + suffix, type=_ARRAY, lod_level=0)


def _pairs_among(pairs: Any, gradients: Collection[str]) -> list[str]:
    """Those (parameter, gradient) pairs of an ``op_role_var`` whose gradient an op computes."""
    kept = [(p, g) for p, g in zip(pairs[::2], pairs[1::2], strict=True) if g in gradients]
    return [name for pair in kept for name in pair]


def _renumbered(block: BlockView, ops: list[OpView], declared: Mapping[str, VarView] = {}) -> BlockView:  # noqa: B006
    numbered = tuple(op.moved(k, block.idx) for k, op in enumerate(ops))
    return replace(block, ops=numbered, vars={**block.vars, **declared})
