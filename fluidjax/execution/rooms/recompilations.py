"""Counting how often one program is compiled, and saying what forces it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from fluidjax.framework.callstack import depth_of_user
from lowering.errors import Need
from lowering.program import ProgramView
from lowering.values import LoDArray, data_of

# Compilations after which a warning is due: a few batch sizes are nothing unusual.
_ENOUGH = 8
_NAMED = 3  # how many causes the warning names


class RecompilationWarning(UserWarning):
    """A program is compiled again and again, which takes far longer than its steps."""


class Recompilations:
    """What forced the compilations of one program; warns once when they were more than eight.

    A step counts once, however many pieces and attempts are compiled in it.
    """

    def __init__(self, program: ProgramView):
        self._program = program
        self._steps = 0
        self._causes: dict[str, None] = {}
        self._forms: dict[str, dict[str, None]] = {}

    def blame(self, need: Need, effect: str) -> None:
        """Note that an op's needs affected what has to be compiled."""
        where = need.where or "an op"
        self._causes[f"{where}: {str(need).splitlines()[0]}; {effect}"] = None

    def grew(self, buffer: str) -> None:
        """Note that a buffer was too small."""
        self._causes[f"the buffer {buffer} of a loop was too small, and is enlarged until it suffices"] = None

    def see(self, values: Mapping[str, Any]) -> None:
        """Note the forms of the values that something was compiled for."""
        for name, value in values.items():
            if hasattr(data_of(value), "shape"):
                self._forms.setdefault(name, {})[_form(value)] = None

    def step(self) -> None:
        """Note a step in which something was compiled; warn of the first one too many."""
        self._steps += 1
        if self._steps == _ENOUGH + 1:
            warnings.warn(self._message(), RecompilationWarning, stacklevel=depth_of_user())

    def _message(self) -> str:
        changing = {name: list(forms) for name, forms in self._forms.items() if len(forms) > 1}
        most = sorted(changing, key=lambda name: -len(changing[name]))
        varied = [self._varied(name, changing[name]) for name in most[: max(_NAMED - len(self._causes), 1)]]
        forced = "\n  ".join([*self._causes, *varied]) or "unknown"
        return (
            f"a program was compiled {self._steps} times, which takes far longer than its steps; no more is said of it."
            f"\n  forced by: {forced}\n  to do: feed batches of a few sizes (pad dense ones, feed ragged ones with"
            " their LoD), or replace the ops named above"
        )

    def _varied(self, name: str, forms: list[str]) -> str:
        return f"{self._source(name)} came as {', '.join(forms[:4])}{' ...' * (len(forms) > 4)}"

    def _source(self, name: str) -> str:
        writer = next((op for op in self._program.blocks[0].ops if name in op.output_names()), None)
        if writer is None:
            return f"{name!r}"
        line = writer.user_line()
        built = f", built at: {line}" if line else ""
        return f"{name!r} of op {writer.type} (#{writer.number} of block 0{built})"


def _form(value: Any) -> str:
    shape = list(data_of(value).shape)
    if not isinstance(value, LoDArray) or not value.lod:
        return str(shape)
    return f"{shape} with room for padding" if value.padded else f"{shape} of one LoD"
