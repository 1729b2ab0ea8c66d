"""``gradients`` (``calc_gradient``): d(targets)/d(inputs) between any variables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fluidjax.backward.around import name_what_blocks_read
from fluidjax.backward.names import grad_name
from fluidjax.backward.paths import find_path, no_grad_names, stopped_gradients, stopped_names, unused_outputs
from fluidjax.backward.rewind import restore_counters
from fluidjax.backward.seeds import append_ones
from fluidjax.backward.variables import declare, rename_taken
from fluidjax.backward.walk import Walk
from fluidjax.framework import Variable


def calc_gradient(
    targets: Variable | list[Variable],
    inputs: Variable | list[Variable],
    target_gradients: Variable | list[Variable | None] | None = None,
    no_grad_set: Iterable[Variable | str] | None = None,
) -> list[Variable | None]:
    """Append the ops that compute sum over i of target_gradients[i] * d(targets[i])/d(inputs).

    Args:
        targets: the variables to differentiate, one Variable or several, of the same program.
        inputs: the variables to differentiate with respect to; none of them: all that ``targets`` depend on.
        target_gradients: Variables shaped like ``targets``; None (for all, or one of them) means ones.
        no_grad_set: Variables (or names) through which no gradient is propagated.

    Returns:
        One gradient Variable per input, of the same shape; None if no gradient reaches it.

    Raises:
        ValueError: the numbers or shapes of targets and target gradients differ.
        TypeError: an argument contains anything but Variables.
    """
    targets = _variables(targets, "targets")
    inputs = _variables(inputs, "inputs")
    if not targets:
        raise ValueError("gradients: targets is empty; expected at least one Variable. Pass what to differentiate")
    given = _target_gradients(targets, target_gradients)
    block = targets[0].block
    program = block.program
    _check_program(program, inputs)
    program._appending_grad_times += 1

    name_what_blocks_read(program)
    stopped = stopped_gradients(program)
    stopped[0].update(grad_name(name) for name in no_grad_names(no_grad_set))
    start = len(block.ops)
    starts, renamed = _seed(block, targets, given)
    no_grad = stopped_names(stopped[0])
    names = [target.name for target in targets]
    paths = find_path(block, names, [v.name for v in inputs], no_grad)
    no_grad |= unused_outputs(block, paths.ops, names, no_grad)
    stopped[0].update(grad_name(name) for name in no_grad)

    walk = Walk(stopped, of_block=paths.of_block, order=program._appending_grad_times, renamed=dict(renamed))
    walk.append(block, paths.ops, block, starts if program._appending_grad_times > 1 else None)
    rename_taken(block, start, walk.grad_to_var, renamed)
    info = declare(block, start, walk.grad_to_var)
    walk.keep_values()
    if walk.order > 1:
        restore_counters(block, start, walk.written)
    return [info[v.name][1].var(info[v.name][0]) if v.name in info else None for v in inputs]


def gradients(
    targets: Variable | list[Variable],
    inputs: Variable | list[Variable],
    target_gradients: Variable | list[Variable | None] | None = None,
    no_grad_set: Iterable[Variable | str] | None = None,
) -> list[Variable | None]:
    """Append the ops that compute sum over i of target_gradients[i] * d(targets[i])/d(inputs).

    Applied to a gradient, it computes second derivatives.

    Args:
        targets: the variables to differentiate, one Variable or several, of the same program.
        inputs: the variables to differentiate with respect to; none of them: all that ``targets`` depend on.
        target_gradients: Variables shaped like ``targets``; None (for all, or one of them) means ones.
        no_grad_set: Variables (or names) through which no gradient is propagated.

    Returns:
        One gradient Variable per input, of the same shape; None if no gradient reaches it.

    Raises:
        ValueError: the numbers or shapes of targets and target gradients differ.
        TypeError: an argument contains anything but Variables.
    """
    return calc_gradient(targets, inputs, target_gradients, no_grad_set)


def _variables(given: Any, what: str) -> list[Variable]:
    items = list(given) if isinstance(given, (list, tuple)) else [given]
    for item in items:
        if not isinstance(item, Variable):
            raise TypeError(
                f"gradients: {what} holds {item!r} of type {type(item).__name__}; expected Variables of a program. "
                "Pass a Variable or a list of them"
            )
    return items


def _target_gradients(targets: list[Variable], given: Any) -> list[Variable | None]:
    if given is None:
        return [None] * len(targets)
    gradients = list(given) if isinstance(given, (list, tuple)) else [given]
    for item in gradients:
        if item is not None and not isinstance(item, Variable):
            raise TypeError(
                f"gradients: target_gradients holds {item!r:.60} of type {type(item).__name__}; expected a Variable, or"
                " None for ones. Make one by layers.fill_constant or layers.assign"
            )
    if len(gradients) != len(targets):
        raise ValueError(
            f"gradients: {len(targets)} targets but {len(gradients)} target_gradients; expected as many. "
            "Give one per target, None for ones"
        )
    for target, gradient in zip(targets, gradients, strict=True):
        if gradient is not None and tuple(gradient.shape) != tuple(target.shape):
            raise ValueError(
                f"gradients: target {target.name!r} has shape {tuple(target.shape)} but its target gradient "
                f"{gradient.name!r} has shape {tuple(gradient.shape)}; expected the same. Reshape the gradient"
            )
    return gradients


def _check_program(program: Any, inputs: list[Variable]) -> None:
    for variable in inputs:
        if variable.block.program is not program:
            raise ValueError(
                f"gradients: input {variable.name!r} belongs to another program than the targets; expected the same. "
                "Build both under one program_guard"
            )


def _seed(block: Any, targets: list[Variable], given: list[Variable | None]) -> tuple[set[str], dict[str, str]]:
    """The initial gradients: ones are written, given ones are read in place of ``target@GRAD``."""
    starts: set[str] = set()
    renamed: dict[str, str] = {}
    for target, gradient in zip(targets, given, strict=True):
        name = grad_name(target.name)
        starts.add(name)
        if gradient is not None:
            renamed[name] = gradient.name
            continue
        append_ones(block, target)
    return starts, renamed
