"""Feed and fetch ops that a program carries: whether they match a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fluidjax.base.enums import to_var_type
from fluidjax.framework import Block


def dtype_is_compatible_with(first: Any, second: Any) -> bool:
    """Whether two element types, each a VarType, a NumPy dtype or its name, are the same."""
    return to_var_type(first) == to_var_type(second)


def has_feed_operators(block: Block, feed_targets: Mapping[str, Any], feed_holder_name: str) -> bool:
    """Whether a block begins with feed ops.

    Args:
        block: a program's global block.
        feed_targets: name -> what is fed.
        feed_holder_name: the variable that the ops read.

    Raises AssertionError where they read another holder, ValueError where they feed other names.
    """
    ops = [op for op in block.ops if op.type == "feed"]
    _check_holder([op.input("X")[0] for op in ops], feed_holder_name)
    _check_names("feed", [op.output("Out")[0] for op in ops], list(feed_targets))
    return bool(ops)


def has_fetch_operators(block: Block, fetch_targets: Sequence[Any], fetch_holder_name: str) -> bool:
    """Whether a block has fetch ops.

    Args:
        block: a program's global block.
        fetch_targets: the Variables that are fetched, in the order of the ops' columns.
        fetch_holder_name: the variable that the ops write.

    Raises AssertionError where they write another holder or stand in another order, ValueError where they fetch
    other names.
    """
    ops = sorted((op for op in block.ops if op.type == "fetch"), key=lambda op: op.attr("col"))
    names, wanted = [op.input("X")[0] for op in ops], [var.name for var in fetch_targets]
    _check_holder([op.output("Out")[0] for op in ops], fetch_holder_name)
    _check_names("fetch", names, wanted)
    if names and names != wanted:
        raise AssertionError(f"fetch ops: expected the order {wanted}, received {names}. Pass targets in that order.")
    return bool(ops)


def _check_holder(found: Sequence[str], expected: str) -> None:
    if wrong := [name for name in found if name != expected]:
        raise AssertionError(f"feed or fetch ops hold {wrong[0]}: expected {expected}. Pass the name that they hold.")


def _check_names(kind: str, found: Sequence[str], wanted: Sequence[str]) -> None:
    if found and sorted(found) != sorted(wanted):
        raise ValueError(
            f"the {kind} ops of the program do not match '{kind}_targets': expected {sorted(found)}, received"
            f" {sorted(wanted)}. Pass those that the program has ops for."
        )
