"""Which ops of a DynamicRNN compute something of the rows of its step inputs alone: see ``fission``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

from lowering.engine.dataflow import all_writes, definitions, sub_blocks, uses
from lowering.program import EMPTY, GRAD, BlockView, OpView, ProgramView, forward_name

# What moves may be so many times as wide as the rows it is computed from: arrays of all steps are held of it.
_WIDEST = 8


@dataclass(frozen=True)
class Source:
    """A step input: ``name`` is element ``index`` of ``array``, which holds the steps of ``rows`` by ``table``."""

    op: OpView
    name: str
    array: str
    index: str
    rows: str
    table: str
    lod_level: int


@dataclass(frozen=True)
class Head:
    """An op that moves, and its gradient op, if it has one; its slot X holds ``taken``: a source or another one's."""

    op: OpView
    source: Source
    gradient: OpView | None = None

    @property
    def out(self) -> str:
        """What the op computes."""
        return self.op.outputs["Out"][0]

    @property
    def taken(self) -> str:
        """The rows from which it does."""
        return self.op.inputs["X"][0]

    @property
    def given(self) -> str:
        """The gradient that its gradient op takes."""
        return self.gradient.inputs["Out" + GRAD][0] if self.gradient is not None else ""


@dataclass
class SplitLoop:
    """One ``while`` of the outermost block that runs as long as the longest sequence, and its gradient.

    Attributes:
        table: the rank table of its condition.
        kept: names whose values a run is asked for.
    """

    program: ProgramView
    op: OpView
    body: BlockView
    table: str
    kept: Collection[str]
    grad: OpView | None = None
    backward: BlockView | None = None

    def __post_init__(self) -> None:
        self.writers: dict[str, list[OpView]] = {}
        for block in self.program.blocks:
            for op in block.ops:
                for name in {*op.output_names()} if sub_blocks(op) else definitions(self.program, op):
                    self.writers.setdefault(name, []).append(op)
        self.written = all_writes(self.program, self.body.idx)
        self.counts = Counter(n for o in self.body.ops for n in definitions(self.program, o))
        self.written_backward = set() if self.backward is None else all_writes(self.program, self.backward.idx)

    @classmethod
    def of(cls, program: ProgramView, idx: int, kept: Collection[str]) -> SplitLoop | None:
        """The loop over block ``idx``; None if it has several gradients, or may end before the longest sequence."""
        op = next(o for o in program.blocks[0].ops if o.type == "while" and o.attrs["sub_block"] == idx)
        scopes = op.outputs.get("StepScopes") or [EMPTY]
        grads = [o for b in program.blocks for o in b.ops if o.type == "while_grad" and scopes[0] in o.input_names()]
        if len(grads) > 1 or any(o.block_idx for o in grads):
            return None
        table = _ranked_by(program, op, program.blocks[idx])
        if table is None:
            return None
        backward = program.blocks[grads[0].attrs["sub_block"]] if grads else None
        return cls(program, op, program.blocks[idx], table, kept, grads[0] if grads else None, backward)

    def readers(self, name: str) -> list[OpView]:
        """The ops of the loop and of its gradient that read ``name``."""
        blocks = [self.body] if self.backward is None else [self.body, self.backward]
        return [o for b in blocks for o in b.ops if name in uses(self.program, o) or name in o.input_names()]

    def outer_gradient(self, inside: str) -> str:
        """The name that a gradient which the loop sums has after it; ``@EMPTY@`` if there is none."""
        if self.grad is None:
            return EMPTY
        pairs = zip(self.grad.inputs["X"], self.grad.outputs.get("X" + GRAD) or (), strict=False)
        return next((g for n, g in pairs if n + GRAD == inside), EMPTY)

    def uses_outside(self, gradient: str) -> list[OpView]:
        """The ops around the loop and its gradient that read or write a gradient."""
        ops = self.program.blocks[0].ops
        return [o for o in ops if o is not self.grad and gradient in (*o.input_names(), *o.output_names())]


def _ranked_by(program: ProgramView, op: OpView, body: BlockView) -> str | None:
    """The rank table whose longest sequence's length bounds the steps of a loop, if its condition asks nothing else."""
    cond = op.inputs["Condition"][0]
    found = [o for o in body.ops if cond in definitions(program, o)]
    if len(found) != 1 or found[0].type != "less_than":
        return None
    limit = found[0].inputs["Y"][0]
    made = [o for b in program.blocks for o in b.ops if limit in o.output_names()]
    if len(made) != 1 or made[0].type != "max_sequence_len":
        return None
    return made[0].inputs["RankTable"][0]


# --- ops that compute row by row -----------------------------------------------------------------------------------


def _shape(loop: SplitLoop, name: str) -> tuple[int, ...]:
    var = loop.program.find_var(loop.body.idx, name)
    return () if var is None else tuple(var.shape)


def _product(loop: SplitLoop, op: OpView) -> bool:
    """[R, K] @ [K, N]."""
    weight = _shape(loop, op.inputs["Y"][0])
    matrices = len(_shape(loop, op.inputs["X"][0])) == 2 == len(weight)
    flat = op.attrs.get("x_num_col_dims", 1) == 1 == op.attrs.get("y_num_col_dims", 1)
    return matrices and flat and min(weight) > 0 and weight[1] <= _WIDEST * weight[0]


def _bias(loop: SplitLoop, op: OpView) -> bool:
    """[R, N] + [N]."""
    rows, bias = (_shape(loop, op.inputs[slot][0]) for slot in ("X", "Y"))
    return len(rows) == 2 and bias == rows[1:] and op.attrs.get("axis", -1) in (-1, 1)


def _activation(loop: SplitLoop, op: OpView) -> bool:
    return len(_shape(loop, op.inputs["X"][0])) == 2


_ROW_WISE: dict[str, Callable[[SplitLoop, OpView], bool]] = {
    "mul": _product,
    "elementwise_add": _bias,
    "relu": _activation,
    "sigmoid": _activation,
    "tanh": _activation,
}


# --- finding them ----------------------------------------------------------------------------------------------------


def find_heads(loop: SplitLoop) -> list[Head]:
    """The ops that move, in order."""
    sources: dict[str, Source] = {}
    heads: list[Head] = []
    for op in loop.body.ops:
        if op.type == "read_from_array":
            source = _source(loop, op)
            if source is not None:
                sources[source.name] = source
        elif op.type in _ROW_WISE and op.inputs["X"][0] in sources and _moves(loop, op):
            heads.append(Head(op, sources[op.inputs["X"][0]]))
            sources[heads[-1].out] = heads[-1].source
    heads = _worthwhile(heads)
    while True:
        with_gradients = [_with_gradient(loop, h) for h in heads]
        left = [h for h in with_gradients if h is not None and _gradient_moves(loop, h, with_gradients)]
        made = {h.out for h in left} | {h.source.name for h in left}
        left = _worthwhile([h for h in left if h.taken in made])
        if len(left) == len(heads):
            return left
        heads = [replace(h, gradient=None) for h in left]


def _worthwhile(heads: list[Head]) -> list[Head]:
    """Those that are products, or from which or to which one leads."""
    useful = {h.out for h in heads if h.op.type == "mul"}
    for h in heads:
        if h.taken in useful:
            useful.add(h.out)
    for h in reversed(heads):
        if h.out in useful:
            useful.add(h.taken)
    return [h for h in heads if h.out in useful]


def _source(loop: SplitLoop, op: OpView) -> Source | None:
    """What a read of an array's element is, if the array holds the steps of rows that nothing changes."""
    array, index, name = op.inputs["X"][0], op.inputs["I"][0], op.outputs["Out"][0]
    made = loop.writers.get(array, [])
    if len(made) != 1 or made[0].type != "lod_tensor_to_array" or made[0].block_idx or made[0].is_backward:
        return None
    rows, table = made[0].inputs["X"][0], made[0].inputs["RankTable"][0]
    var = loop.program.blocks[0].vars.get(rows)
    still = len(loop.writers.get(rows, [])) <= 1 == len(loop.writers.get(table, []))
    if table != loop.table or var is None or not still or loop.counts[name] != 1 or name not in loop.body.vars:
        return None
    return Source(op, name, array, index, rows, table, var.lod_level) if _counts_steps(loop, op, index) else None


def _counts_steps(loop: SplitLoop, read: OpView, index: str) -> bool:
    """Whether a read's index is only ever incremented, after it, and has its value again at the gradient's end."""
    moved = [o for o in loop.body.ops if index in definitions(loop.program, o)]
    after = all(o.type == "increment" and o.index > read.index for o in moved)
    if loop.backward is None or not after:
        return after
    back = [o for o in loop.backward.ops if index in definitions(loop.program, o)]
    return len(back) == len(moved) and all(o.type == "increment" for o in back)


def _moves(loop: SplitLoop, op: OpView) -> bool:
    """Whether the loop writes nothing that ``op`` reads but its rows, and its result once."""
    out, rows = op.outputs["Out"][0], op.inputs["X"][0]
    others = [n for n in op.input_names() if n != rows]
    still = all(n in loop.program.blocks[0].vars and n not in loop.written and n not in loop.body.vars for n in others)
    alone = op.output_names() == [out] and loop.counts[out] == 1 and out in loop.body.vars
    return still and alone and len(op.inputs["X"]) == 1 and GRAD not in out and _ROW_WISE[op.type](loop, op)


# --- their gradients -------------------------------------------------------------------------------------------------


def _with_gradient(loop: SplitLoop, head: Head) -> Head | None:
    """The head with its gradient op; None if more than one op, or another, computes gradients from its result's."""
    if loop.backward is None:
        return head
    ops = [o for o in loop.backward.ops if any(_is_gradient(n, head.out) for n in o.input_names())]
    ops = [o for o in ops if o.type != "sum"]
    if not ops:
        return None if any(_is_gradient(n, head.out) for n in loop.written_backward) else head
    fits = len(ops) == 1 and ops[0].type == head.op.type + "_grad" and _same_names(head.op, ops[0])
    return replace(head, gradient=ops[0]) if fits else None


def _is_gradient(name: str, of: str) -> bool:
    return GRAD in name and forward_name(name) == of


def _same_names(op: OpView, gradient: OpView) -> bool:
    """Whether a gradient op reads what its forward op read and wrote, and the gradient of that."""
    known = {**op.inputs, **op.outputs}
    given = {s: n for s, n in gradient.inputs.items() if any(x != EMPTY for x in n)}
    return all(list(known.get(s, ())) == list(n) for s, n in given.items() if GRAD not in s) and "Out" + GRAD in given


def _gradient_moves(loop: SplitLoop, head: Head, heads: Iterable[Head | None]) -> bool:
    """Whether nothing in the loop uses what a head's gradient op computes, and what it takes is written once."""
    op = head.gradient
    if op is None or loop.backward is None:
        return True
    others = [h.gradient for h in heads if h is not None and h.gradient is not None]
    made = [o for o in loop.backward.ops if head.given in o.output_names()]
    if len(made) != 1 or (any(made[0] is o for o in others) and len(_reads(loop.backward, head.given)) != 1):
        return False
    for slot, names in op.outputs.items():
        for name in names:
            if name == EMPTY:
                continue
            ok = _rows_gradient_moves if slot == "X" + GRAD else _operand_gradient_moves
            if not ok(loop, head, name, others):
                return False
    return True


def _reads(block: BlockView, name: str) -> list[OpView]:
    return [o for o in block.ops if name in o.input_names()]


def _operand_gradient_moves(loop: SplitLoop, head: Head, name: str, _: Any) -> bool:
    """The gradient of a weight or bias: only the sum over the steps is used."""
    assert loop.backward is not None
    alone = sum(name in o.output_names() for o in loop.backward.ops) == 1
    outer = loop.outer_gradient(name)
    return alone and outer != EMPTY and not _reads(loop.backward, name)


def _rows_gradient_moves(loop: SplitLoop, head: Head, name: str, others: list[OpView]) -> bool:
    """The gradient of the rows: it is what a moved op takes, or is added to the gradient of the step input's array."""
    assert loop.backward is not None
    reads = _reads(loop.backward, name)
    if len(reads) != 1 or sum(name in o.output_names() for o in loop.backward.ops) != 1:
        return False
    if head.taken != head.source.name:
        return any(reads[0] is o for o in others)
    if reads[0].type == "sum":
        reads = _reads(loop.backward, reads[0].outputs["Out"][0])
    array = head.source.array + GRAD
    written = len(reads) == 1 and reads[0].type == "write_to_array" and list(reads[0].outputs["Out"]) == [array]
    outer = loop.outer_gradient(array)
    used = loop.uses_outside(outer)
    return written and outer not in loop.kept and [o.type for o in used] in ([], ["array_to_lod_tensor"])
