"""The rules, by family; importing this package registers them all."""

from fluidjax.export.c.primitives import (
    arithmetic,
    contractions,
    indexing,
    joining,
    linalg,
    ordering,
    random_bits,
    reductions,
    views,
    windows,
)

__all__ = [
    "arithmetic",
    "contractions",
    "indexing",
    "joining",
    "linalg",
    "ordering",
    "random_bits",
    "reductions",
    "views",
    "windows",
]
