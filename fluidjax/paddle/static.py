"""``paddle.static``: Paddle 2's names for Fluid's programs, and its functions to load and save models."""

from __future__ import annotations

import os
from typing import Any

import fluidjax as fluid
from fluidjax import (
    CompiledProgram,
    Executor,
    Program,
    default_main_program,
    default_startup_program,
    global_scope,
    program_guard,
    scope_guard,
)
from fluidjax.backward import append_backward, gradients
from fluidjax.framework import name_scope

__all__ = [
    "CompiledProgram", "Executor", "Program", "append_backward", "default_main_program", "default_startup_program",
    "global_scope", "gradients", "load_inference_model", "name_scope", "program_guard", "save_inference_model",
    "scope_guard",
]  # fmt: skip


def load_inference_model(path_prefix: str | None, executor: Any, **kwargs: Any) -> list[Any]:
    """Load ``path_prefix`` + .pdmodel and .pdiparams; the parameters are placed in the global scope.

    Args:
        path_prefix: path of the files without suffix; or a directory, with the file names as keywords.
        executor: accepted for compatibility with Paddle.
        kwargs: ``model_filename`` and ``params_filename``.

    Returns [program, names to feed, variables to fetch]. Raises the errors of ``fluid.io.load_inference_model``.
    """
    names = {key: kwargs[key] for key in ("model_filename", "params_filename") if key in kwargs}
    if names or path_prefix is None:
        return fluid.io.load_inference_model(path_prefix, executor, **names)
    folder, name = os.path.split(path_prefix)
    parameters = f"{name}.pdiparams"
    has_parameters = os.path.exists(os.path.join(folder, parameters))
    return fluid.io.load_inference_model(
        folder or ".", executor, f"{name}.pdmodel", parameters if has_parameters else None
    )


def save_inference_model(path_prefix: str, feed_vars: Any, fetch_vars: Any, executor: Any, **kwargs: Any) -> None:
    """Save ``path_prefix`` + .pdmodel and .pdiparams.

    Args:
        path_prefix: path of the files without suffix.
        feed_vars, fetch_vars: the input and output variables.
        executor: whose scope holds the parameters.
        kwargs: ``program``; the main program by default.
    """
    folder, name = os.path.split(path_prefix)
    feeds = feed_vars if isinstance(feed_vars, (list, tuple)) else [feed_vars]
    fluid.io.save_inference_model(
        folder or ".",
        [var.name for var in feeds],
        fetch_vars,
        executor,
        kwargs.get("program"),
        f"{name}.pdmodel",
        f"{name}.pdiparams",
    )
