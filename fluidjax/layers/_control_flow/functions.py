"""Branches and loops as functions: cond, case, switch_case, while_loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from fluidjax.base.errors import ArgumentError, explain
from fluidjax.data_feeder import check_type
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


def copy_var_to_parent_block(var: Variable | None, layer_helper: LayerHelper) -> Variable | None:
    """Assign ``var`` of the current block to a new variable of the parent block; None stays None."""
    if var is None:
        return None
    program = layer_helper.main_program
    parent = program.block(program.current_block().parent_idx)
    outside = parent.create_var(dtype=var.dtype, shape=var.shape, type=var.type)
    assign(var, outside)
    return outside


def _names(structure: Any) -> Any:
    """A structure of variables with their names instead."""
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
    """``true_fn()`` when ``pred`` holds, ``false_fn()`` otherwise.

    Args:
        pred: bool Variable of one element.
        true_fn, false_fn: functions without arguments that return a Variable, a nested list, tuple or dict of
            them, or None. Both must return the same structure. None does nothing.
        name: has no effect on the values.

    Returns:
        The structure the functions return, or None.

    Raises:
        TypeError: pred is not a Variable, or a function cannot be called.
        ValueError: the functions return different structures.
    """
    if in_dygraph_mode():
        return eager.cond(pred, true_fn, false_fn)
    require_variable(pred, "pred", "cond")
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
                f"cond: {missing} returns None while {other} returns a value. Both must return the same "
                "structure of Variables, or both None."
            )
    try:
        assert_same_structure(true_out, false_out, check_types=False)
    except ValueError as error:
        raise ArgumentError(f"cond: true_fn and false_fn return different structures. {error}") from error
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
    """The function of the first pair whose condition holds; ``default``, or the last function, when none does.

    Args:
        pred_fn_pairs: list or tuple of (bool Variable of one element, function).
        default: function to run when no condition holds.
        name: has no effect on the values.

    Returns:
        What the functions return; all must return the same structure.

    Raises:
        TypeError: pairs that are not (Variable, function), or a default that cannot be called.
        ValueError: no pairs and no default.
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
    """The function whose key equals ``branch_index``; ``default``, or that of the largest key, when none does.

    Args:
        branch_index: Variable of shape [1]: uint8, int32 or int64.
        branch_fns: {int: function}, a list of (int, function), or a list of functions keyed 0, 1, ...
        default: function to run when no key is equal.
        name: has no effect on the values.

    Returns:
        What the functions return; all must return the same structure.

    Raises:
        TypeError: a branch_index of another dtype, keys that are not int, functions that cannot be called.
        ValueError: a key twice, or no functions and no default.
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
    """Carry a body's result over, except an array of an outer block: writing it was carrying it over."""
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
        cond: function of the loop variables that returns one boolean.
        body: function of the loop variables that returns as many, nested alike.
        loop_vars: Variables, nested lists, tuples or dicts of them; they are overwritten in place.
        is_test: recorded in the op: true if no gradient will be needed.
        name: prefix of the variables made.

    Returns:
        loop_vars, holding their last values.

    Raises:
        TypeError: cond or body cannot be called, loop_vars is not a list or tuple, cond does not return a boolean.
        ValueError: loop_vars is empty, or body returns another structure.
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
