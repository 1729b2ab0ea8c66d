"""A no-op counterpart of Fluid's patching of VarBase, whose methods are defined by the class here."""

from __future__ import annotations

__all__ = ["monkey_patch_varbase"]


def monkey_patch_varbase() -> None:
    """Do nothing: VarBase defines its methods itself."""
