"""Warns when a notebook cell that builds a network is run again, which builds it twice in the same program."""

from __future__ import annotations

import sys
import warnings
from typing import Any

from fluidjax.framework import Program, callstack
from fluidjax.framework.block import OP_ADDED


def _current_cell() -> tuple[Any, int] | None:
    """(the identity of the running notebook cell, its execution count); None outside notebooks."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None:
        return None
    sources = shell.user_ns.get("In") or [""]
    parent = shell.get_parent() if hasattr(shell, "get_parent") else {}
    cell = (parent or {}).get("metadata", {}).get("cellId")
    return sources[-1] if cell is None else cell, len(sources) - 1


def note_op(program: Program) -> None:
    """Called when an op is added to `program`: warns if an earlier run of the same cell has added ops to it."""
    if "IPython" not in sys.modules:
        return
    running = _current_cell()
    if running is None:
        return
    cell, run = running
    before = program._cells.get(cell)
    program._cells[cell] = run
    if before is not None and before != run:
        warnings.warn(
            f"this cell was run before, as [{before}], and its ops are still in the program; run again as [{run}] it "
            "adds them a second time. Put the network inside `with fluid.program_guard(fluid.Program(), "
            "fluid.Program()):`, so that each run of the cell begins with empty programs.",
            stacklevel=callstack.depth_of_user(),
        )


def watch_cells() -> None:
    """Have ``note_op`` called for every op that a layer adds."""
    if note_op not in OP_ADDED:
        OP_ADDED.append(note_op)
