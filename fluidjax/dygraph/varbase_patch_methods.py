"""Fluid adds VarBase's methods when it is imported; here the class has them, and there is nothing to add."""

from __future__ import annotations

__all__ = ["monkey_patch_varbase"]


def monkey_patch_varbase() -> None:
    """Nothing: VarBase has its methods."""
