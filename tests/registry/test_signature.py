"""Signatures of rules are read as ``inspect`` reads them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from lowering import get_op
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
