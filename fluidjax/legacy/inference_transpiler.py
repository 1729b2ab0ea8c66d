"""``InferenceTranspiler`` of Fluid 0.12 to 1.5, which fused batch normalisation and activations for inference."""

from __future__ import annotations

from typing import Any

from fluidjax.base.places import CPUPlace, CUDAPlace
from fluidjax.base.scope import Scope
from fluidjax.framework import Program


class InferenceTranspiler:
    """Leaves a program unchanged: the compiler makes the same fusions in each step, and predictors fold batch norms."""

    def transpile(self, program: Program, place: Any, scope: Scope | None = None) -> None:
        """Nothing; the program gives what it gave. Raises TypeError for arguments of other types, as it did."""
        for value, kinds, name in (
            (program, (Program,), "program should be as Program type"),
            (place, (CPUPlace, CUDAPlace), "place should be as CPUPlace/CUDAPlace type"),
            (scope, (Scope, type(None)), "scope should be as Scope type or None"),
        ):
            if not isinstance(value, kinds):
                raise TypeError(f"{name}, and it is {value!r:.60}. Pass (program, fluid.CPUPlace()).")
