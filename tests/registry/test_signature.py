"""Signatures of rules are read as ``inspect`` reads them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import pytest

import lowering
from lowering import RegistryError, get_op
from lowering.registry import registered_ops
from lowering.registry.signature import EMPTY, params


def expected(fn: Callable[..., Any]) -> tuple[list[Any], list[Any]]:
    found: tuple[list[Any], list[Any]] = [], []
    for p in inspect.signature(fn, eval_str=True).parameters.values():
        parts = (EMPTY if part is p.empty else part for part in (p.default, p.annotation))
        if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY):
            found[p.kind is p.KEYWORD_ONLY].append((p.name, *parts))
    return found


def plain(x, y=2, *rest, a: int, b: list[int] = [1], **more):  # noqa: B006
    """No annotation of this module's parameters is a string of builtins only."""


@functools.wraps(plain)
def wrapped(*args: Any, **keywords: Any) -> None:
    """Declared as ``plain``."""


@pytest.mark.parametrize("fn", [plain, wrapped, lambda: None, lambda *, key=None: None])
def test_functions_of_all_kinds(fn: Callable[..., Any]) -> None:
    assert params(fn) == expected(fn)


def test_all_rules() -> None:
    for type in registered_ops():
        assert params(get_op(type).fn) == expected(get_op(type).fn), type


def test_padding_rows_are_declared_by_type() -> None:
    """Rows of a gradient come through the op's outputs and their gradients too."""
    huber = get_op("huber_loss")
    assert lowering.Wise("residual d_out").params(huber.gradient) == ["residual", "d_out"]
    assert lowering.Wise("x").params(get_op("mul")) == ["x"]
    assert lowering.Wise("x").params(get_op("mul").gradient) == ["x", "d_out"]
    assert lowering.WISE.params(huber) == []
    with pytest.raises(RegistryError, match=r"op text: rows is 'wise x'; expected WISE"):
        lowering.op("text", rows="wise x")(lambda x: x)
