"""What to tell a user whose feeds are not those that the program declares, or whose startup program did not run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from fluidjax.base.errors import explain
from fluidjax.base.values import LoDTensor
from fluidjax.execution.feeding.feed_checks import shape_fits
from fluidjax.framework import Program, Variable
from lowering.dtypes import to_numpy
from lowering.errors import OpError, UninitializedError, near


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
    typo = near(var.name, [name for name in feeds if name not in block.vars])
    return UninitializedError(
        explain(
            f"{error.reader} reads {var.name!r}, which was not fed{line}",
            f"feeds for {', '.join(needed)}",
            f"fed: {', '.join(feeds) or 'nothing'}",
            f"rename {typo[0]!r} to {var.name!r} in the feed"
            if typo
            else f"add {var.name!r} to the feed, or run with use_prune=True if no fetch depends on it",
        ),
        var.name,
    )


def told_of_feeds(error: OpError, program: Program, feed: Mapping[str, Any]) -> OpError:
    """The same error, which says too what was fed otherwise than the program declares it: the likeliest cause."""
    found = list(_fed_otherwise(program, feed))
    if found:
        error.args = (f"{error}\n  fed otherwise than declared: {'; '.join(found)}",)
    return error


def declared_state(program: Program) -> list[str]:
    """The names of the program's persistable variables: after a run that fails a scope has them too, perhaps empty."""
    return [name for name, var in program.global_block().vars.items() if var.persistable]


def _fed_otherwise(program: Program, feed: Mapping[str, Any]) -> Iterator[str]:
    for name, value in feed.items():
        var = program.global_block().vars.get(name)
        fed = value._value if isinstance(value, LoDTensor) else value
        if var is None or not isinstance(fed, np.ndarray):
            continue
        shape = (-1, *fed.shape[1:]) if isinstance(value, LoDTensor) and value._lod else fed.shape
        dtype = to_numpy(var.dtype)
        kinds = {"i": "iu", "u": "iu"}.get(dtype.kind, dtype.kind)
        if not shape_fits(var.shape, shape) or len(shape) < len(var.shape) or fed.dtype.kind not in kinds:
            yield f"{name!r} as {fed.dtype}{list(fed.shape)}, declared as {dtype}{list(var.shape)}"


def _is_data(var: Variable) -> bool:
    return var.is_data or var.desc.need_check_feed()
