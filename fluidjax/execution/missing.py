"""What to tell a user whose run reads a variable without a value: no feed, or the startup program did not run."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

from fluidjax.base.errors import explain
from fluidjax.framework import Program, Variable
from lowering.errors import UninitializedError


def explained(error: UninitializedError, program: Program, feeds: Collection[str]) -> UninitializedError:
    """The error in the words of the program: which feeds it needs and got, or which program to run first."""
    block = program.global_block()
    var = block.vars.get(error.variable)
    if var is None or not (var.persistable or _is_data(var)):
        return error
    line = f"\n  read by: {error.line}" if error.line else ""
    if not _is_data(var):
        return UninitializedError(
            explain(
                f"{error.reader} reads {var.name!r}, which is uninitialized{line}",
                "a value in the scope: the startup program draws it, or a model's files bring it",
                "a scope without one",
                "run exe.run(fluid.default_startup_program()) once before this program, in the same scope; or load a"
                " model",
            ),
            var.name,
        )
    needed = [name for name, other in block.vars.items() if _is_data(other)]
    typo = get_close_matches(var.name, [name for name in feeds if name not in block.vars], 1)
    return UninitializedError(
        explain(
            f"{error.reader} reads {var.name!r}, which was not fed{line}",
            f"feeds for {', '.join(needed)}",
            f"fed: {', '.join(feeds) or 'nothing'}",
            f"rename {typo[0]!r} to {var.name!r} in the feed" if typo else f"add {var.name!r} to the feed",
        ),
        var.name,
    )


def _is_data(var: Variable) -> bool:
    return var.is_data or var.desc.need_check_feed()
