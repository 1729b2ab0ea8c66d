"""The structure of values: how they are nested, their shapes and dtypes."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np


def abstract(value: Any) -> Any:
    """``value`` with each leaf replaced by its shape and dtype."""
    return jax.tree_util.tree_map(lambda v: jax.ShapeDtypeStruct(np.shape(v), traced_dtype(v)), value)


def traced_dtype(value: Any) -> Any:
    """The type that a value has once it is traced: host values of 64 bits have 32 where JAX has."""
    dtype = value.dtype if hasattr(value, "dtype") else np.asarray(value).dtype
    return jax.dtypes.canonicalize_dtype(dtype, allow_extended_dtype=True)


def same_nesting(a: Any, b: Any) -> bool:
    """Whether two values are nested alike, whatever their leaves."""
    one: Any = jax.tree_util.tree_structure(a)
    return bool(one == jax.tree_util.tree_structure(b))


def same_structure(a: Any, b: Any) -> bool:
    """Whether two values agree in nesting, shapes and dtypes."""
    a, b = abstract(a), abstract(b)
    return same_nesting(a, b) and all(
        x.shape == y.shape and x.dtype == y.dtype
        for x, y in zip(jax.tree_util.tree_leaves(a), jax.tree_util.tree_leaves(b), strict=True)
    )
