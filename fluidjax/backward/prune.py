"""Taking out of a list of grad ops what no gradient flows through."""

from __future__ import annotations

from fluidjax.backward.names import EMPTY, forward_name, in_args, is_grad, out_args
from lowering.program import GRAD, OpSpec


def drop_stopped(ops: list[OpSpec], stopped: set[str]) -> list[OpSpec]:
    """Drop ops that only compute gradients in ``stopped``, or only read such; zeros stand in for the others.

    Args:
        ops: grad ops in order.
        stopped: names of gradients that must not exist. Outputs of dropped ops are added.

    An op that reads one stopped gradient among others gets ``fill_zeros_like`` of the forward variable in front.
    """
    kept = [op for op in ops if not _stopped(op, stopped)]
    result: list[OpSpec] = []
    for op in kept:
        for name in in_args(op):
            if is_grad(name) and name in stopped:
                zeros = OpSpec("fill_zeros_like", {"X": [forward_name(name)]}, {"Out": [name]}, {})
                result.append(zeros)
        result.append(op)
    return result


def _stopped(op: OpSpec, stopped: set[str]) -> bool:
    outputs = out_args(op)
    if not outputs or all(name in stopped for name in outputs):
        return True
    gradients = [name for name in in_args(op) if is_grad(name)]
    if gradients and all(name in stopped for name in gradients):
        stopped.update(outputs)
        return True
    return False


def drop_clearing(ops: list[OpSpec]) -> list[OpSpec]:
    """Drop the ops that set to zero a gradient that is written again before it is read, or by no other op.

    A gradient that flows into a block whose ops do not write it ends there by itself: ``while_grad`` sees to it.
    """
    written = {name for op in ops if not _clears(op) for name in _gives(op)}
    return [op for k, op in enumerate(ops) if not (_clears(op) and _needless(out_args(op)[0], ops[k + 1 :], written))]


def _gives(op: OpSpec) -> list[str]:
    """The gradients that ``op`` has a new value for; the gradient of a loop or branch gives back what it is handed."""
    return out_args(op) + (op.inputs.get(f"Out{GRAD}", []) if "sub_block" in op.attrs else [])


def _clears(op: OpSpec) -> bool:
    return op.type == "fill_zeros_like" and op.inputs["X"] == op.outputs["Out"]


def _needless(name: str, behind: list[OpSpec], written: set[str]) -> bool:
    for op in behind:
        if name in in_args(op):
            return False
        if name in out_args(op):
            return True
    return name not in written


def drop_disconnected(ops: list[OpSpec], forward_vars: set[str]) -> list[OpSpec]:
    """Drop the sub-graphs of ``ops`` that begin at an op without gradient inputs and meet nothing else.

    Zeros that fill in for a missing gradient are such a beginning: what is computed from zeros alone is not kept.

    Args:
        ops: grad ops in order.
        forward_vars: variables that exist without these ops.
    """

    def fresh(names: list[str]) -> set[str]:
        return {name for name in names if name not in forward_vars and name != EMPTY}

    inputs = [fresh(in_args(op)) for op in ops]
    outputs = [fresh(out_args(op)) for op in ops]
    drop: set[int] = set()
    for head in range(len(ops)):
        if not inputs[head] and outputs[head]:
            drop |= _depend_alone(head, inputs, outputs, ops)
    return [op for index, op in enumerate(ops) if index not in drop]


def _depend_alone(head: int, inputs: list[set[str]], outputs: list[set[str]], ops: list[OpSpec]) -> set[int]:
    """``head`` and the ops that depend on it alone; nothing if one of its dependents also reads something else."""
    ready = set(outputs[head])
    found = {head}
    for index in range(head + 1, len(inputs)):
        if inputs[index] & ready and not _clears(ops[index]):
            if not inputs[index] <= ready:
                return set()
            found.add(index)
            ready |= outputs[index]
    return found
