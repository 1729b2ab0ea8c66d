"""Variables that a program's first run finds in a form other than every later run does; see ``engine.either``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from fluidjax.base.scope import Scope, held
from fluidjax.base.values import LoDTensor
from fluidjax.execution.scopes.state import gather_plain, is_plain
from fluidjax.execution.steps.traceable import BEFORE, FIRST


class Starts:
    """What is known of such variables.

    Attributes:
        forms: the form that each variable settles in.
        possible: whether one compiled step may serve the first run and the later ones.
    """

    def __init__(self) -> None:
        self.forms: dict[str, jax.ShapeDtypeStruct] = {}
        self.possible = True
        self._before: dict[str, Any] = {}

    def see(self, scope: Scope, forms: Mapping[str, jax.ShapeDtypeStruct]) -> bool:
        """Note what a run over ``scope`` would change; returns whether a step for both forms is worth a try."""
        if self.forms or any(_held(scope, n) and not is_plain(scope, n) for n in forms):
            return False
        self.forms = dict(forms)
        self._before = self.unsettled(scope)
        return True

    def give_up(self) -> None:
        """Compile the first run for itself, as after any change of form."""
        self.forms, self._before, self.possible = {}, {}, False

    def unsettled(self, scope: Scope) -> dict[str, Any]:
        """What ``scope`` holds under the names that are not in their last form yet; None: nothing."""
        if any(_held(scope, n) and not is_plain(scope, n) for n in self.forms):
            self.give_up()
        found = {n: gather_plain(scope, [n]) for n in self.forms}
        now = {n: arrays[0] if arrays else None for n, arrays in found.items()}
        return {n: v for n, v in now.items() if v is None or not self._settled(n, v)}

    def _settled(self, name: str, value: Any) -> bool:
        form = self.forms[name]
        return (value.shape, value.dtype) == (form.shape, form.dtype)

    def places(self, unsettled: Mapping[str, Any]) -> dict[str, Any]:
        """Placeholders for variables in their last form, for a run that does not read them in it."""
        return {n: _zeros(self.forms[n]) for n in unsettled}

    def inputs(self, unsettled: Mapping[str, Any]) -> dict[str, Any]:
        """The additional inputs of a step."""
        if not self.forms:
            return {}
        before = {n: unsettled.get(n, None if v is None else _zeros(v)) for n, v in self._before.items()}
        first = jax.device_put(np.asarray(bool(unsettled)))
        return {FIRST: first, **{BEFORE + n: v for n, v in before.items() if v is not None}}

    def settled_inputs(self, kept: Sequence[Any]) -> tuple[Any, ...]:
        """``kept``, which ends with a first run's ``inputs``, for the runs after it."""
        inputs = tuple(self.inputs({}).values())
        return (*kept[: len(kept) - len(inputs)], *inputs)


def _held(scope: Scope, name: str) -> bool:
    """Whether a variable holds anything."""
    holder = held(scope, name)
    return holder is not None and (not isinstance(holder, LoDTensor) or holder._is_initialized())


def _zeros(form: Any) -> jax.Array:
    return jax.device_put(np.zeros(form.shape, form.dtype))
