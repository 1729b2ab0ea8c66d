"""Fluid's patching of VarBase, whose methods are defined by the class here: what is left is what they were called."""

from __future__ import annotations

from fluidjax.eager.variables.varbase import VarBase

__all__ = ["monkey_patch_varbase"]

OLDER = ("numpy", "backward", "gradient", "clear_gradient")  # Fluid 1.3 (``fluid.imperative``) put an underscore before


def monkey_patch_varbase() -> None:
    """Give VarBase's methods their names of Fluid 1.3 too: ``loss._backward()``, ``w._gradient()``, ``x._numpy()``."""
    for name in OLDER:
        setattr(VarBase, f"_{name}", getattr(VarBase, name))
