"""Removal of grad ops that no gradient flows through."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from fluidjax.backward.names import EMPTY, forward_name, in_args, is_grad, out_args
from lowering.program import GRAD, OpSpec, OpView


def drop_stopped(ops: list[OpSpec], stopped: set[str]) -> list[OpSpec]:
    """Drop ops that only compute gradients in ``stopped``, or only read such; zeros stand in for the others.

    Args:
        ops: grad ops in order.
        stopped: names of gradients that must not exist. Outputs of dropped ops are added.

    An op that reads stopped gradients among others gets ``fill_zeros_like`` of the forward variable inserted before it.
    What a dropped op would have written is stopped from there on, until another op writes it: before it, the name is
    the gradient of a later value (an overwritten variable has several, one carried by a loop comes from outside).
    """
    result: list[OpSpec] = []
    lost: set[str] = set()
    for op in ops:
        if _stopped(op, stopped, lost):
            lost.update(out_args(op))
            continue
        for name in in_args(op):
            if is_grad(name) and (name in stopped or name in lost):
                zeros = OpSpec("fill_zeros_like", {"X": [forward_name(name)]}, {"Out": [name]}, {})
                result.append(zeros)
        result.append(op)
        lost.difference_update(out_args(op))
    stopped |= lost
    return result


def _stopped(op: OpSpec, stopped: set[str], lost: set[str]) -> bool:
    if stopped.issuperset(out_args(op)):
        return True
    gradients = [name for name in in_args(op) if is_grad(name)]
    return bool(gradients) and all(name in stopped or name in lost for name in gradients)


def drop_clearing(ops: list[OpSpec], carried: Iterable[str], own: Callable[[str], bool]) -> list[OpSpec]:
    """Drop the ops that set a ``carried`` gradient to zero that is written again before it is read, or by no other op.

    A gradient that flows into a block whose ops do not write it ends there without help, in ``while_grad``.

    Args:
        own: whether a forward variable belongs to the block. An op that reads gradients of such variables alone, none
            of which is computed here, will be dropped and writes nothing.
    """
    live = list(_live(ops, own))
    written = {name for op in live if not clears(op) for name in _gives(op)}
    names, ids = set(carried), {id(op) for op in live}

    def needless(k: int, op: OpSpec) -> bool:
        name = out_args(op)[0]
        if not clears(op) or name not in names:
            return False
        rest = (later for later in ops[k + 1 :] if id(later) in ids)
        return name not in written if (read := read_first(name, rest)) is None else not read

    return [op for k, op in enumerate(ops) if not needless(k, op)]


def _live(ops: list[OpSpec], own: Callable[[str], bool]) -> Iterator[OpSpec]:
    made: set[str] = set()
    for op in ops:
        read = [name for name in in_args(op) if is_grad(name)]
        if not read or any(name in made or not own(forward_name(name)) for name in read):
            made.update(out_args(op))
            yield op


def read_first(name: str, ops: Iterable[OpSpec | OpView]) -> bool | None:
    """Whether ``name`` is read, or added to, before it is overwritten; None if neither."""
    for op in ops:
        if name in in_args(op):
            return True
        if name in out_args(op):
            return op.type == "write_to_array"
    return None


def clears(op: OpSpec | OpView) -> bool:
    """Whether the op sets a gradient to zero: see ``accumulate``."""
    return op.type == "fill_zeros_like" and list(op.inputs["X"]) == list(op.outputs["Out"])


def _gives(op: OpSpec) -> list[str]:
    """The gradients to which ``op`` gives a new value; that of a loop or branch returns those it is passed."""
    return out_args(op) + (op.inputs.get(f"Out{GRAD}", []) if "sub_block" in op.attrs else [])


def drop_disconnected(ops: list[OpSpec], forward_vars: set[str], carried: Iterable[str] = ()) -> list[OpSpec]:
    """Drop the sub-graphs of ``ops`` that begin at an op without gradient inputs and connect to nothing else.

    Zeros in place of a missing gradient are such a beginning: anything computed from zeros alone is dropped.

    Args:
        ops: grad ops in order.
        forward_vars: variables that exist without these ops.
        carried: gradients that flow into the block.
    """

    def fresh(names: list[str]) -> set[str]:
        return {name for name in names if name not in forward_vars and name != EMPTY}

    inputs = [fresh(names) for names in _read_by(ops, set(carried))]
    outputs = [fresh(out_args(op)) for op in ops]
    drop: set[int] = set()
    for head in range(len(ops)):
        if not inputs[head] and outputs[head]:
            drop |= _depend_alone(head, inputs, outputs, ops)
    return [op for index, op in enumerate(ops) if index not in drop]


def _read_by(ops: list[OpSpec], there: set[str]) -> Iterator[list[str]]:
    """What each op reads; a write to an array in ``there`` adds to its contents."""
    for op in ops:
        names = out_args(op)
        yield in_args(op) + ([n for n in names if n in there] if op.type == "write_to_array" else [])
        there.update(names)


def _depend_alone(head: int, inputs: list[set[str]], outputs: list[set[str]], ops: list[OpSpec]) -> set[int]:
    """``head`` and the ops that depend on it alone; nothing if one of its dependents also reads something else."""
    ready = set(outputs[head])
    found = {head}
    for index in range(head + 1, len(inputs)):
        if inputs[index] & ready and not clears(ops[index]):
            if not inputs[index] <= ready:
                return set()
            found.add(index)
            ready |= outputs[index]
        elif not clears(ops[index]):  # from here on, what it overwrites is another gradient
            ready -= outputs[index]
    return found
