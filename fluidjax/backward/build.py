"""``append_backward``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from fluidjax.backward.around import name_what_blocks_read
from fluidjax.backward.checkpoints import append_with_checkpoints
from fluidjax.backward.names import ROLE_FORWARD, ROLE_LOSS, grad_name
from fluidjax.backward.paths import find_path, no_grad_names, operands, stopped_gradients, stopped_names, unused_outputs
from fluidjax.backward.rewind import restore_counters
from fluidjax.backward.seeds import append_loss_gradient
from fluidjax.backward.variables import GradInfo, declare, rename_taken
from fluidjax.backward.walk import Walk
from fluidjax.base.garbage import no_collections
from fluidjax.framework import Block, Parameter, Program, Variable

_ROLE, _ROLE_VAR = "op_role", "op_role_var"


def append_backward(
    loss: Variable,
    parameter_list: Iterable[Variable | str] | None = None,
    no_grad_set: Iterable[Variable | str] | None = None,
    callbacks: list[Callable[..., None]] | None = None,
    checkpoints: list[Variable | str] | None = None,
) -> list[tuple[Variable, Variable | None]]:
    """Append the ops that compute d(loss)/d(parameters) to the program of ``loss``.

    The gradient of variable ``x`` is named ``x@GRAD``. The gradients of a variable used several times are summed;
    missing gradients required by an op are filled with zeros.

    Args:
        loss: a float Variable of shape [1]; of one of another shape, the sum of its elements is differentiated.
        parameter_list: the parameters, as Variables or names; all trainable ones if None.
        no_grad_set: Variables (or names) through which no gradient is propagated, in addition to ``stop_gradient``.
        callbacks: each is called after every op appended, as ``callback(block=..., context=...)``.
        checkpoints: Variables (or names) whose values are kept; activations between them are recomputed in the
            backward pass instead of being kept.

    Returns:
        [(parameter, gradient)] for the parameters that have one; None for one that only sub-blocks would have.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: ``loss`` is not the result of an op.
    """
    _check_arguments(loss, parameter_list, callbacks)
    with no_collections():
        return _append(loss, parameter_list, no_grad_set, list(callbacks or ()), checkpoints)


def _append(
    loss: Variable, parameter_list: Any, no_grad_set: Any, callbacks: list[Callable[..., None]], checkpoints: Any
) -> list[tuple[Variable, Variable | None]]:
    _mark_loss(loss)
    program = loss.block.program
    current = program.current_block_idx
    inside = current != 0  # the loss of one branch of a condition
    if not inside:
        program._appending_grad_times += 1
    name_what_blocks_read(program)
    stopped = stopped_gradients(program)
    stopped[0].update(grad_name(name) for name in no_grad_names(no_grad_set))
    target = _target_block(program, current)
    start = 0 if inside else len(target.ops)

    walk = Walk(stopped, callbacks=callbacks, order=program._appending_grad_times)
    append_loss_gradient(target, loss)
    starts = {grad_name(loss.name)} if program._appending_grad_times > 1 else None
    wanted = [loss.name]
    for block in _enclosing(program, current):
        wanted = _append_block(walk, block, wanted, target, starts, [] if inside else checkpoints)
    rename_taken(target, start, walk.grad_to_var, {})
    info = declare(target, start, walk.grad_to_var)
    walk.keep_values()
    if starts is not None and not inside:
        restore_counters(target, start, walk.written)
    program.current_block_idx = current

    names = _parameter_names(program, parameter_list)
    pairs = _parameters_and_gradients(program, names, info, None if inside else loss.block)
    _note_parameters(target, pairs)
    return pairs


def _append_block(
    walk: Walk, block: Any, wanted: list[str], target: Any, starts: set[str] | None, checkpoints: Any
) -> list[str]:
    """Append the grad ops along the path to ``wanted``; returns the variables of outer blocks where the path begins."""
    stopped = walk.stopped[block.idx]
    no_grad = stopped_names(stopped)
    paths = find_path(block, wanted, (), no_grad)
    no_grad |= unused_outputs(block, paths.ops, wanted, no_grad)
    stopped.update(grad_name(name) for name in no_grad)
    walk.of_block = paths.of_block
    if checkpoints:
        append_with_checkpoints(walk, block, paths.ops, target, starts, checkpoints)
    else:
        found = {name for op, _ in walk.written for name in op.output_arg_names}
        walk.append(block, paths.ops, target, starts, carried=found.intersection(map(grad_name, wanted)))
    read = [name for op in paths.ops for name in operands(op) if name not in no_grad]
    return [name for name in dict.fromkeys([*wanted, *read]) if not block.has_var(name)]


def _check_arguments(loss: Any, parameter_list: Any, callbacks: Any) -> None:
    if not isinstance(loss, Variable):
        raise TypeError(
            f"append_backward: loss is {loss!r} of type {type(loss).__name__}; expected a Variable. "
            "Pass the result of the last layer, not its name or value"
        )
    if callbacks is not None and not isinstance(callbacks, (list, tuple)):
        raise TypeError(
            f"append_backward: callbacks is a {type(callbacks).__name__}; expected a list of functions. "
            "Wrap the function in a list"
        )
    for callback in callbacks or ():
        if not callable(callback):
            raise ValueError(f"'callback' must be a callable object: received {callback!r}. Give functions")
    if parameter_list is not None and not isinstance(parameter_list, (list, tuple, set)):
        raise TypeError(
            f"append_backward: parameter_list is a {type(parameter_list).__name__}; expected a list, tuple or set of"
            " Variables or names. Wrap the one in a list"
        )
    for item in parameter_list or ():
        if not isinstance(item, (Variable, str)):
            raise TypeError(
                f"append_backward: parameter_list holds {item!r} of type {type(item).__name__}; expected Variables "
                "or names. Pass for example program.all_parameters()"
            )


def _mark_loss(loss: Variable) -> None:
    """Set the op_role of the op that computes the loss."""
    for op in reversed(loss.block.ops):
        if loss.name in op.output_arg_names:
            op._set_attr(_ROLE, ROLE_FORWARD | ROLE_LOSS)
            return
    raise ValueError(
        f"append_backward: no op of block {loss.block.idx} computes the loss {loss.name!r}; expected the result of "
        "an op of the program being differentiated. Call it on the loss itself, under the loss's own program"
    )


def _target_block(program: Program, current: int) -> Any:
    """The block for the grad ops: the global block or, for a loss inside a branch, a new block that mirrors it."""
    if current == 0:
        return program.block(0)
    block = program._create_block(program.block(current).parent_idx)
    block._set_forward_block_idx(current)
    return block


def _enclosing(program: Program, index: int) -> list[Any]:
    blocks = []
    while index >= 0:
        blocks.append(program.block(index))
        index = program.block(index).parent_idx
    return blocks


def _parameter_names(program: Program, parameter_list: Iterable[Variable | str] | None) -> list[str]:
    if parameter_list is not None:
        return [item if isinstance(item, str) else item.name for item in parameter_list]
    parameters = (v for v in program.global_block().vars.values() if isinstance(v, Parameter))
    return [parameter.name for parameter in parameters if parameter.trainable]


def _parameters_and_gradients(
    program: Program, names: list[str], info: GradInfo, outside: Block | None
) -> list[tuple[Variable, Variable | None]]:
    """A gradient that only a sub-block has, as of a parameter that was stopped, is None in the block ``outside``."""
    pairs: list[tuple[Variable, Variable | None]] = []
    for name in names:
        if name in info:
            gradient, block = info[name]
            found = block.var(gradient) if outside is None or outside.has_var(gradient) else None
            pairs.append((program.global_block().var(name), found))
    return pairs


def _note_parameters(block: Any, pairs: list[tuple[Variable, Variable | None]]) -> None:
    """Record [parameter, gradient, ...] in the op_role_var of the op that completes each gradient."""
    writer = {name: op for op in block.ops for name in op.output_arg_names}
    for parameter, gradient in pairs:
        op = None if gradient is None else writer.get(gradient.name)
        if gradient is None or op is None:
            continue
        names = [parameter.name, gradient.name]
        if op.has_attr(_ROLE_VAR):
            names += op.attr(_ROLE_VAR)
        op._set_attr(_ROLE_VAR, names)
