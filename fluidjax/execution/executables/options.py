"""Options of XLA, as far as this XLA has them: they come and go from version to version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax

_unknown: set[str] = set()  # as XLA has said


def compile_with(lowered: jax.stages.Lowered, options: Mapping[str, Any]) -> jax.stages.Compiled:
    """Compile with those of the options that this XLA has: all of them are about speed alone."""
    known = {name: value for name, value in options.items() if name not in _unknown}
    try:
        return lowered.compile(known)
    except jax.errors.JaxRuntimeError as error:
        missing = {name for name in known if f"No such compile option: '{name}'" in str(error)}
        if not missing:
            raise
    _unknown.update(missing)
    return compile_with(lowered, known)
