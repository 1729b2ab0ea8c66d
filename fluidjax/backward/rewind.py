"""A second backward pass needs counters as they were before the first pass rewound them.

The gradient of ``increment`` really decrements its variable, and ``while_grad`` returns a loop's counters to their
values at the start of the loop. A later pass that writes the gradient of ``array_read(array, i)`` would then find
another ``i`` than the forward op did. Where that matters, the value is copied before the earlier pass and restored in
the later one, ahead of the gradients of the ops that ran before the earlier pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from fluidjax import unique_name
from fluidjax.backward.names import ROLE_BACKWARD, ROLE_OPTIMIZE, is_grad
from fluidjax.backward.versions import KEPT
from fluidjax.framework.view import op_view, program_view
from lowering.engine.dataflow import definitions, needs

if TYPE_CHECKING:
    from fluidjax.framework import Block, Operator


def restore_counters(block: Block, start: int, written: Iterable[tuple[Operator, Operator | None]]) -> None:
    """Insert the copies needed by the pass whose ops begin at ``start``.

    Args:
        written: the pass's grad ops, each with its forward op.
    """
    written = list(written)
    for begin, end in reversed(_stretches(block.ops[:start])):
        index = _first_from_before(block, begin, written)
        if index is None:
            continue
        rewound = _rewound(block, begin, end)
        for name in sorted(rewound & _read(block, index)):
            kept = _kept(block, begin, end, name)
            if kept is not None:
                _assign(block, index, kept, name)
                continue
            kept = unique_name.generate(name + KEPT)
            var = block._var_recursive(name)
            block.create_var(name=kept, dtype=var.dtype, shape=var.shape, stop_gradient=True)
            _assign(block, index, kept, name)
            _assign(block, begin, name, kept)
            index, end = index + 1, end + 1


def _is_backward(op: Operator) -> bool:
    return bool(op.has_attr("op_role") and int(op.attr("op_role")) & (ROLE_BACKWARD | ROLE_OPTIMIZE))


def _stretches(ops: list[Operator]) -> list[tuple[int, int]]:
    """[begin, end) of each run of backward and optimizer ops."""
    found: list[tuple[int, int]] = []
    for index, op in enumerate(ops):
        if _is_backward(op):
            if found and found[-1][1] == index:
                found[-1] = (found[-1][0], index + 1)
            else:
                found.append((index, index + 1))
    return found


def _first_from_before(block: Block, begin: int, written: list[tuple[Operator, Operator | None]]) -> int | None:
    """Where the pass reaches the first gradient of an op located before ``begin``."""
    position = {id(op): index for index, op in enumerate(block.ops)}
    for op, origin in written:
        if id(op) in position and origin is not None and position.get(id(origin), begin) < begin:
            return position[id(op)]
    return None


def _rewound(block: Block, begin: int, end: int) -> set[str]:
    """Forward variables, computed before ``begin``, that the ops [begin, end) write."""
    made = {name for op in block.ops[:begin] if not _is_backward(op) for name in _writes(block, op)}
    parameters = {name for name in made if getattr(block._find_var_recursive(name), "persistable", False)}
    again = {name for op in block.ops[begin:end] for name in _writes(block, op) if not is_grad(name)}
    return (made - parameters) & again


def _kept(block: Block, begin: int, end: int, name: str) -> str | None:
    """The copy of ``name`` that an earlier pass made at ``begin``."""
    for op in block.ops[begin:end]:
        if op.type == "assign" and op.input("X") == [name] and op.output("Out")[0].startswith(name + KEPT):
            return op.output("Out")[0]
    return None


def _read(block: Block, index: int) -> set[str]:
    view = program_view(block.program)
    return {name for op in block.ops[index:] for name in needs(view, op_view(op))}


def _writes(block: Block, op: Operator) -> list[str]:
    return definitions(program_view(block.program), op_view(op))


def _assign(block: Block, index: int, source: str, target: str) -> Any:
    attrs = {"op_role": ROLE_BACKWARD, "op_device": ""}
    return block._append_op_desc("assign", {"X": [source]}, {"Out": [target]}, attrs, index=index)
