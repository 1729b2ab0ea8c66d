"""``paddle.tensor.creation``: tensors of given numbers."""

from __future__ import annotations

from typing import Any

from fluidjax import layers
from fluidjax.paddle.tensor.at_once import surface, surfaces

__all__ = [
    "arange", "create_tensor", "crop_tensor", "diag", "eye", "fill_constant", "full", "full_like", "linspace",
    "meshgrid", "ones", "ones_like", "tril", "triu", "zeros", "zeros_like",
]  # fmt: skip

arange, create_tensor, crop_tensor, diag, fill_constant, full, full_like, meshgrid, tril, triu = surfaces(
    layers, "arange create_tensor crop_tensor diag fill_constant full full_like meshgrid tril triu"
)


@surface
def ones(shape: Any, dtype: Any = None, out: Any = None, device: str | None = None) -> Any:
    """Ones.

    Args:
        shape: a list, a tuple, a number for one axis, or a Variable.
        dtype: float32 unless it says otherwise.
        out: a variable that is to hold them.
        device: 'cpu', 'gpu' or None; XLA places values. ValueError for another.
    """
    return _filled(shape, dtype, 1, out, device)


@surface
def zeros(shape: Any, dtype: Any = None, out: Any = None, device: str | None = None) -> Any:
    """Zeros; arguments as for ``ones``."""
    return _filled(shape, dtype, 0, out, device)


def _filled(shape: Any, dtype: Any, value: float, out: Any, device: str | None) -> Any:
    dtype = dtype or ("float32" if out is None else out.dtype)
    return layers.full([shape] if isinstance(shape, int) else shape, value, out, dtype, device)


@surface
def ones_like(input: Any, dtype: Any = None, device: str | None = None, name: str | None = None) -> Any:
    """Ones in the shape of ``input``, of its data type unless ``dtype`` says otherwise."""
    return layers.full_like(input, 1, None, dtype, device, True, name)


@surface
def zeros_like(input: Any, dtype: Any = None, device: str | None = None, name: str | None = None) -> Any:
    """Zeros in the shape of ``input``, of its data type unless ``dtype`` says otherwise."""
    return layers.full_like(input, 0, None, dtype, device, True, name)


@surface
def eye(
    num_rows: int,
    num_columns: int | None = None,
    out: Any = None,
    dtype: Any = "float32",
    stop_gradient: bool = True,
    name: str | None = None,
) -> Any:
    """The matrix of ``num_rows`` rows, and as many columns unless ``num_columns`` is given, with ones on its diagonal.

    Raises TypeError for sizes that are no whole numbers, or less than 0.
    """
    found = layers.eye(num_rows, num_columns, None, dtype)
    found.stop_gradient = stop_gradient
    return found if out is None else layers.assign(found, out)


@surface
def linspace(
    start: Any,
    stop: Any,
    num: Any,
    dtype: Any = "float32",
    out: Any = None,
    device: str | None = None,
    name: str | None = None,
) -> Any:
    """``num`` numbers from ``start`` to ``stop``, at equal distances; ``device`` as for ``ones``."""
    if device not in (None, "cpu", "gpu"):
        raise ValueError(f"linspace: there is no device {device!r}. Expected 'cpu' or 'gpu'. Leave it out.")
    found = layers.linspace(start, stop, num, dtype)
    return found if out is None else layers.assign(found, out)
