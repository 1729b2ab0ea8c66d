"""``paddle.tensor.linalg``: products, norms and factors of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidjax import layers
from fluidjax.paddle.tensor.at_once import surface, surfaces
from fluidjax.writing.checks import check_variable_and_dtype
from fluidjax.writing.emit import emit

__all__ = ["bmm", "cholesky", "cross", "dist", "dot", "matmul", "norm", "t", "transpose"]

bmm, cross, dist, dot, matmul, t, transpose = surfaces(layers, "bmm cross dist dot matmul t transpose")


@surface
def cholesky(x: Any, upper: bool = False) -> Any:
    """The triangle L with L L^T = x, or with ``upper`` U with U^T U = x; of each matrix of a batch."""
    return emit("cholesky", {"X": x}, x.dtype, {"upper": upper})


@surface
def norm(
    input: Any,
    p: float | str = "fro",
    axis: int | Sequence[int] | None = None,
    keepdim: bool = False,
    out: Any = None,
    name: str | None = None,
) -> Any:
    """The norm of vectors or matrices.

    Args:
        input: a variable of floating-point numbers.
        p: 'fro', the root of the sum of squares over two axes; or a number, the p-norm along one axis.
        axis: 'fro': two axes, the last two by default. A number: one axis, the last by default.
        keepdim: whether the axes stay, of size 1.
        out: a variable that is to hold the result.

    Raises ValueError where p and axis do not belong together, TypeError for other types than float32 and float64.
    """
    axes = [axis] if isinstance(axis, int) else list(axis or ())
    if p == "fro" or isinstance(p, (int, float)):
        check_variable_and_dtype(input, "input", ["float32", "float64"], "norm")
    if p == "fro" and len(axes) != 1:
        dims = axes or [-2, -1]
        found = emit("frobenius_norm", {"X": input}, input.dtype, {"dim": dims, "keep_dim": keepdim}, name=name)
    elif isinstance(p, (int, float)) and len(axes) < 2 or p == "fro":
        porder = 2.0 if p == "fro" else float(p)
        attrs = {"axis": axes[0] if axes else -1, "porder": porder, "keepdim": keepdim, "epsilon": 1e-12}
        found = emit("p_norm", {"X": input}, input.dtype, attrs, name=name)
    else:
        raise ValueError(
            f"norm: p={p!r} over axis={axis!r}. Expected 'fro' over two axes or a number along one. Sum abs(x) ** p"
            " yourself for another norm."
        )
    return found if out is None else layers.assign(found, out)
