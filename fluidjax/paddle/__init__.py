"""The package imported by ``import paddle``: readers, datasets and ``paddle.fluid``."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import fluidjax as fluid
from fluidjax.paddle import batch as _batch
from fluidjax.paddle import check_import_scipy as _check
from fluidjax.paddle import compat, reader, sysconfig, version

batch = _batch.batch
check_import_scipy = _check.check_import_scipy

__version__ = version.full_version
__git_commit__ = version.commit

# fmt: off
__all__ = [
    "Tensor", "autograd", "batch", "check_import_scipy", "compat", "complex", "dataset", "distributed", "fluid", "ones",
    "randn", "reader", "square", "sysconfig", "tanh", "utils", "version",
]
# fmt: on


_MODULES = ("autograd", "complex", "dataset", "distributed", "inference", "static", "utils")
_TENSORS = ("Tensor", "ones", "randn", "square", "tanh")


def __getattr__(name: str) -> Any:
    """Import submodules and tensor functions on first access."""
    if name == "v2":  # what the package was called inside, before Fluid 0.12
        return sys.modules[__name__]
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _TENSORS:
        return getattr(importlib.import_module(f"{__name__}.tensor"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
