"""Elements of arrays that a step of a loop reads for nothing but products of matrices.

An element is read in a branch (see ``arrays.element_at``), as XLA:CPU would fuse a plain read into the write of another
buffer. It computes products apart from what uses them, so what goes into products alone is read plainly.
"""

from __future__ import annotations

from collections.abc import Iterable

from lowering.engine.dataflow import uses
from lowering.loops.contractions import contractions
from lowering.loops.facts import written_alone
from lowering.program import BlockView, OpView, ProgramView
from lowering.values import TensorArray


def multiplied(program: ProgramView, body: BlockView, names: Iterable[str]) -> frozenset[str]:
    """Those of ``names`` that one op of ``body`` writes, and that nothing reads but products.

    Args:
        names: none of them leaves a step: what the gradient reads of them lies elsewhere.
    """
    found = written_alone(program, body).intersection(names)
    for op in body.ops:
        found.difference_update(set(uses(program, op)).difference(_factors(program, op)))
    return frozenset(found)


def has_matrices(array: TensorArray) -> bool:
    """Whether elements are matrices of several rows and columns: XLA makes sums of products with vectors."""
    shape = getattr(array.buffer, "shape", ())
    return len(shape) > 2 and min(shape[1:]) > 1


def _factors(program: ProgramView, op: OpView) -> set[str]:
    """The matrices that an op multiplies; none where the product is known to have a single column, or not known."""
    found = contractions().get(f"{op.type}_grad")
    out = None if found is None else program.find_var(op.block_idx, op.outputs["Out"][0])
    if found is None or out is None or not out.shape or out.shape[-1] == 1:
        return set()
    return {name for slot in (found.source, *found.reads) for name in op.inputs.get(slot) or ()}
