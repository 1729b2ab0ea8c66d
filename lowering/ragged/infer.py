"""Shape inference of sequence, recurrent and structured ops, by declaring facts.

Their row counts follow from LoD, which exists only at run time: a program says -1 there, or (as Fluid does) keeps
the row count of the input. The ``shapes`` of each family of ops state Fluid's compile-time shapes and LoD levels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lowering.errors import OpError
from lowering.program import EMPTY, OpView, VarInfo, VarView

Facts = Mapping[str, tuple[Any, ...]]  # output slot -> (shape, LoD level, dtype number)
Infer = Callable[[OpView, Callable[[str], VarView | None]], dict[str, VarInfo]]


class Inputs:
    """The declared input variables of an op, by slot."""

    def __init__(self, op: OpView, var_of: Callable[[str], VarView | None]):
        self._op, self._var_of = op, var_of
        self.attrs = op.attrs

    def all(self, slot: str) -> list[VarView]:
        """The declared variables bound to a slot, in order, without empty and undeclared ones."""
        found = [self._var_of(n) for n in self._op.inputs.get(slot) or () if n != EMPTY]
        return [v for v in found if v is not None]

    def has(self, slot: str) -> bool:
        """Whether a declared variable is bound to a slot."""
        return bool(self.all(slot))

    def __call__(self, slot: str) -> VarView:
        found = self.all(slot)
        if not found:
            raise OpError(
                f"op {self._op.type}: input {slot} is required, and no declared variable is bound to it; received"
                f" inputs {dict(self._op.inputs)}; bind one where the op is appended"
            )
        return found[0]

    def ragged(self, slot: str) -> VarView:
        """An input that already needs a LoD in the program."""
        var = self(slot)
        if var.lod_level < 1:
            raise OpError(
                f"op {self._op.type}: input {slot} ({var.name!r}, shape {list(var.shape)}) has no LoD; expected"
                f" lod_level >= 1, received {var.lod_level}; declare it with lod_level=1 or use lod_reset"
            )
        return var


def inferred(facts: Callable[[Inputs], Facts]) -> Infer:
    """Turn a function from inputs to facts into a registry ``infer`` function."""

    def infer(op: OpView, var_of: Callable[[str], VarView | None]) -> dict[str, VarInfo]:
        found = {}
        for slot, (shape, level, dtype) in facts(Inputs(op, var_of)).items():
            for name in op.outputs.get(slot) or ():
                if name != EMPTY:
                    found[name] = VarInfo(tuple(shape), dtype, level)
        return found

    infer.__doc__ = facts.__doc__
    return infer


def like(source: str, out: str = "Out", *, level: int | None = None) -> Infer:
    """``out`` has the shape and dtype of ``source``, and its LoD level unless ``level`` says another."""

    def facts(of: Inputs) -> Facts:
        var = of(source)
        return {out: (var.shape, var.lod_level if level is None else level, var.dtype)}

    return inferred(facts)


def columns(shape: Any, width: int) -> tuple[int, ...]:
    """``shape`` with another last dim."""
    return (*shape[:-1], int(width))
