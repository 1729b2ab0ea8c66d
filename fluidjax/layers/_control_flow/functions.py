"""Branches and loops in functional form: cond, case, switch_case, while_loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from fluidjax.base.errors import ArgumentError, explain
from fluidjax.data_feeder import check_dtype, check_type
from fluidjax.framework import Variable, in_dygraph_mode
from fluidjax.layer_helper import LayerHelper
from fluidjax.layers._control_flow import eager
from fluidjax.layers._control_flow.basic import equal
from fluidjax.layers._control_flow.blocks import While
from fluidjax.layers._control_flow.branches import ConditionalBlock
from fluidjax.layers._control_flow.checks import (
    VarType,
    dtype_name,
    require_callable,
    require_condition,
    require_dtype,
    require_variable,
)
from fluidjax.layers._control_flow.ragged import select_input
from fluidjax.layers.nn import logical_not
from fluidjax.layers.tensor import assign, cast, fill_constant
from fluidjax.layers.utils import (
    assert_same_structure,
    copy_mutable_vars,
    hold_mutable_vars,
    map_structure,
)

__all__ = ["case", "cond", "switch_case", "while_loop"]

_INCOMPATIBLE = "Incompatible return values of true_fn and false_fn in cond"  # scripts look for Fluid's words


def copy_var_to_parent_block(var: Variable | None, layer_helper: LayerHelper) -> Variable | None:
    """Copy ``var`` of the current block to a new variable in the parent block; None is passed through."""
    if var is None:
        return None
    program = layer_helper.main_program
    parent = program.block(program.current_block().parent_idx)
    outside = parent.create_var(dtype=var.dtype, shape=var.shape, type=var.type)
    assign(var, outside)
    return outside


def _names(structure: Any) -> Any:
    """The structure with each variable replaced by its name."""
    return map_structure(lambda var: getattr(var, "name", var), structure)


def _branch(pred: Variable, fn: Callable[[], Any], helper: LayerHelper) -> Any:
    with ConditionalBlock([pred], is_scalar_condition=True).block():
        result = fn()
        if result is None:
            return None
        return map_structure(lambda var: copy_var_to_parent_block(var, helper), result)


def cond(
    pred: Variable,
    true_fn: Callable[[], Any] | None = None,
    false_fn: Callable[[], Any] | None = None,
    name: str | None = None,
) -> Any:
    """``true_fn()`` if ``pred`` holds, ``false_fn()`` otherwise.

    Args:
        pred: bool Variable with one element.
        true_fn, false_fn: functions of no arguments that return a Variable, a nested list, tuple or dict of
            Variables, or None. Both must return the same structure. None stands for a function that does nothing.
        name: has no effect on the values.

    Returns:
        The structure returned by the functions, or None.

    Raises:
        TypeError: pred is not a Variable, or a function is not callable.
        ValueError: the functions return different structures.
    """
    if in_dygraph_mode():
        return eager.cond(pred, true_fn, false_fn)
    require_variable(pred, "pred", "cond")
    check_dtype(pred.dtype, "pred", ("bool",), "cond")
    check_type(name, "name", (str, type(None)), "fluid.layers.cond")
    helper = LayerHelper("cond", name=name)
    true_out = false_out = None
    if true_fn is not None:
        true_out = _branch(pred, require_callable(true_fn, "true_fn", "cond"), helper)
    if false_fn is not None:
        require_callable(false_fn, "false_fn", "cond")
        false_out = _branch(logical_not(pred), false_fn, helper)
    if true_out is None and false_out is None:
        return None
    for missing, other, given in (("true_fn", "false_fn", true_out), ("false_fn", "true_fn", false_out)):
        if given is None:
            raise ArgumentError(
                f"{_INCOMPATIBLE}: {missing} returns None while {other} returns non-None. Both must return the same "
                "structure of Variables, or both None."
            )
    try:
        assert_same_structure(true_out, false_out, check_types=False)
    except ValueError as error:
        raise ArgumentError(f"{_INCOMPATIBLE}: {error} Return the same structure from both.") from error
    mask = cast(pred, dtype="int32")
    return map_structure(lambda false, true: select_input([false, true], mask), false_out, true_out)


def _check_pair(pair: Any) -> tuple[Variable, Callable[[], Any]]:
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise TypeError(f"case: expected (pred, fn) tuples in pred_fn_pairs, received {pair!r}.")
    pred, fn = pair
    if not isinstance(pred, Variable):
        raise TypeError(f"case: expected a boolean Variable as pred, received {type(pred).__name__}.")
    return require_condition(pred, "case"), require_callable(fn, "fn", "case")


def case(
    pred_fn_pairs: Sequence[tuple[Variable, Callable[[], Any]]],
    default: Callable[[], Any] | None = None,
    name: str | None = None,
) -> Any:
    """Call the function of the first pair whose condition holds; if none does, ``default`` or the last function.

    Args:
        pred_fn_pairs: list or tuple of (bool Variable with one element, function).
        default: the function to call if no condition holds.
        name: has no effect on the values.

    Returns:
        The result of the function called; all functions must return the same structure.

    Raises:
        TypeError: a pair is not (Variable, function), or default is not callable.
        ValueError: there are neither pairs nor a default.
    """
    if not isinstance(pred_fn_pairs, list | tuple):
        raise TypeError(f"case: expected a list or tuple of (pred, fn), received {type(pred_fn_pairs).__name__}.")
    if not pred_fn_pairs and default is None:
        raise ArgumentError("case: pred_fn_pairs is empty, and there is no default. Give at least one (pred, fn).")
    pairs = [_check_pair(pair) for pair in pred_fn_pairs]
    if default is None:
        pred, default = pairs.pop()
        if not pairs:
            # With a single pair both branches are its function, as Fluid has it.
            pairs = [(pred, default)]
    require_callable(default, "default", "case")
    rest = default
    for pred, fn in reversed(pairs):
        rest = partial(cond, pred=pred, true_fn=fn, false_fn=rest)
    return rest()


def _indexed(branch_fns: Any) -> list[tuple[int, Callable[[], Any]]]:
    if not isinstance(branch_fns, list | tuple | Mapping):
        raise TypeError(
            f"switch_case: expected branch_fns as a list, tuple or dict, received {type(branch_fns).__name__}."
        )
    items = list(branch_fns.items()) if isinstance(branch_fns, Mapping) else list(branch_fns)
    if items and all(callable(fn) for fn in items):
        items = list(enumerate(items))
    seen: set[int] = set()
    for item in items:
        if not isinstance(item, tuple) or len(item) != 2:
            raise TypeError(f"switch_case: expected (index, fn) tuples in branch_fns, received {item!r}.")
        key, fn = item
        if not isinstance(key, int):
            raise TypeError(f"switch_case: expected int keys in branch_fns, received {type(key).__name__}.")
        if key in seen:
            raise ArgumentError(f"switch_case: the key {key} appears more than once in branch_fns. Make it unique.")
        seen.add(key)
        require_callable(fn, f"branch_fns[{key}]", "switch_case")
    return sorted(items, key=lambda item: item[0])


def switch_case(
    branch_index: Variable,
    branch_fns: Mapping[int, Callable[[], Any]] | Sequence[Any],
    default: Callable[[], Any] | None = None,
    name: str | None = None,
) -> Any:
    """Call the function whose key equals ``branch_index``; if none does, ``default`` or that of the largest key.

    Args:
        branch_index: Variable of shape [1]: uint8, int32 or int64.
        branch_fns: {int: function}, a list of (int, function), or a list of functions keyed 0, 1, ...
        default: the function to call if no key matches.
        name: has no effect on the values.

    Returns:
        The result of the function called; all functions must return the same structure.

    Raises:
        TypeError: branch_index has an unsupported dtype, a key is not an int, or a function is not callable.
        ValueError: a key is repeated, or there are neither functions nor a default.
    """
    require_dtype(branch_index, "branch_index", "switch_case", ("uint8", "int32", "int64"))
    helper_index = branch_index
    if dtype_name(branch_index.dtype) != "int64":
        helper_index = cast(branch_index, "int64")
    items = _indexed(branch_fns)
    if not items and default is None:
        raise ArgumentError("switch_case: branch_fns is empty, and there is no default. Give at least one function.")
    if default is None:
        default = items[-1][1]
        items = items[:-1] or items
    require_callable(default, "default", "switch_case")
    branches = [(equal(helper_index, fill_constant(shape=[1], dtype="int64", value=key)), fn) for key, fn in items]
    rest = default
    for pred, fn in branches:
        rest = partial(cond, pred=pred, true_fn=fn, false_fn=rest)
    return rest()


def _assign_loop_var(value: Variable, loop_var: Variable) -> None:
    """Assign a result of the body to its loop variable, except an outer array, which was already written in place."""
    if value.type == VarType.LOD_TENSOR_ARRAY:
        program = value.block.program
        parent = program.block(program.current_block().parent_idx)
        if parent._find_var_recursive(value.name) is not None:
            return
    assign(value, loop_var)


def while_loop(
    cond: Callable[..., Variable],
    body: Callable[..., Any],
    loop_vars: list | tuple,
    is_test: bool = False,
    name: str | None = None,
) -> list | tuple:
    """Repeat ``loop_vars = body(*loop_vars)`` as long as ``cond(*loop_vars)`` holds.

    Args:
        cond: function of the loop variables that returns a boolean scalar.
        body: function of the loop variables that returns new values with the same structure.
        loop_vars: Variables, or nested lists, tuples or dicts of Variables; overwritten in place.
        is_test: recorded in the op: true if no gradient will be needed.
        name: prefix for the names of the variables created.

    Returns:
        loop_vars, holding the final values.

    Raises:
        TypeError: cond or body is not callable, loop_vars is not a list or tuple, or cond does not return a boolean.
        ValueError: loop_vars is empty, or body returns a different structure.
    """
    require_callable(cond, "cond", "while_loop")
    require_callable(body, "body", "while_loop")
    if not isinstance(loop_vars, list | tuple):
        raise TypeError(f"while_loop: loop_vars must be a list or tuple, received {type(loop_vars).__name__}.")
    if not loop_vars:
        raise ArgumentError("while_loop: loop_vars is empty. Give at least one Variable.")
    if in_dygraph_mode():
        return eager.while_loop(cond, body, loop_vars)
    pre_cond = require_condition(cond(*loop_vars), "while_loop")
    loop = While(pre_cond, is_test, name)
    # A body may change a list or dict it is given; the loop variables must survive that.
    given = copy_mutable_vars(loop_vars) if hold_mutable_vars(loop_vars) else loop_vars
    with loop.block():
        results = body(*given)
        if not isinstance(results, list | tuple):
            results = [results]
        try:
            assert_same_structure(results, loop_vars, check_types=False)
        except ValueError:
            raise ArgumentError(
                explain(
                    "while_loop: body should return as many values as loop_vars, nested alike",
                    f"{_names(loop_vars)}",
                    f"{_names(results)}",
                    "return a new value for each of loop_vars, in their order",
                )
            ) from None
        now_cond = cond(*results)
        map_structure(_assign_loop_var, results, loop_vars)
        assign(now_cond, pre_cond)
    return loop_vars
