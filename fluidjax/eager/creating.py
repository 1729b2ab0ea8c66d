"""The variables that a tracer makes, and their names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import numpy as np

from fluidjax import unique_name
from fluidjax.base.enums import VarType, to_var_type
from fluidjax.eager.made import Made
from fluidjax.eager.recorded.pending import recorder
from fluidjax.eager.values import Spec, Value, value_of
from fluidjax.eager.variables.sharing import shared
from fluidjax.eager.variables.varbase import ParamBase, VarBase
from fluidjax.eager.whole.together import clear_gradients


class Creating:
    """The part of a tracer that makes variables.

    Attributes:
        ids: the number of the next variable named here (see ``framework.direct``), under "tmp".
        made: the parameters that layers made.
    """

    ids: dict[str, int]
    made: Made

    def no_grad(self) -> AbstractContextManager[None]:
        """Context manager: nothing is recorded."""
        raise NotImplementedError

    def generate(self, key: str) -> str:
        """``key_N``; N counts the names of all keys."""
        self.draw(1)
        return f"{key}_{self.ids['tmp'] - 1}"

    def draw(self, count: int) -> None:
        """Leave out names: those of results that Fluid computes where nothing is computed here."""
        self.ids["tmp"] += count

    def create_var(
        self,
        type: VarType = VarType.LOD_TENSOR,
        name: str | None = None,
        shape: Sequence[int] | None = None,
        dtype: Any = None,
        persistable: bool = False,
        **kwargs: Any,
    ) -> VarBase:
        """A variable without a value; arguments as for ``Block.create_var``."""
        var = VarBase._of(name or self.generate("generated_var"), None)
        var.persistable = bool(persistable)
        sizes = tuple(int(n) for n in shape or ())
        var._declared = Spec.of(sizes, VarType.FP32 if dtype is None else to_var_type(dtype), VarType(type))
        if kwargs.get("initializer") is not None:
            kwargs["initializer"](var, var.block)
        return var

    def temporary(self, dtype: Any = None, direct: bool = True) -> VarBase:
        """A variable for a result; `direct` supplies its number (see ``framework.direct``)."""
        var = VarBase._temporary(self.ids_of(direct))
        if dtype is not None:
            var._declared = _declared(dtype)
        return var

    def ids_of(self, direct: bool) -> dict[str, int]:
        """The source of numbers for results."""
        return self.ids if direct else unique_name.generator.ids

    def create_parameter(self, *args: Any, initializer: Any = None, **kwargs: Any) -> ParamBase:
        """A parameter, initialised immediately; arguments as for ``Block.create_parameter``."""
        param = ParamBase(*args, **kwargs)
        if initializer is not None:
            with self.no_grad():
                initializer(param, param.block)
        param._stop_gradient = False
        return self.made.add(param)

    def to_variable(self, array: np.ndarray, name: str | None = None, share: bool = False) -> VarBase:
        """A variable with the value of an array; ``share``: also with later writes to it, if possible."""
        called: str | int | None = name
        if not name:
            ids = self.ids
            number = ids["tmp"]
            called = ~number  # ``generated_var_N``, written when it is asked for
            ids["tmp"] = number + 1
        held = shared(array) if share else None
        return VarBase._of(called, value_of(array) if held is None else held, True)

    def variable_of(self, value: Value) -> VarBase:
        """A variable bound to a value."""
        return VarBase._of(None, value)

    # Gradients of many variables.

    @staticmethod
    def promised() -> Any:
        """The step of which nothing is recorded yet (see ``whole.promised``); None for none."""
        return recorder.promised

    @staticmethod
    def gradients_of(parameters: Iterable[Any]) -> list[tuple[Any, Any]]:
        """(parameter, the variable of its gradient) for those that are trained and have one."""
        promised = recorder.promised
        known = None if promised is None else promised.gradients(parameters)
        if known is not None:
            return known
        return [(p, g) for p in parameters if p.trainable and (g := p._grad_ivar()) is not None]

    @staticmethod
    def clear_gradients(parameters: Iterable[Any]) -> None:
        """Zero the gradients of those that are trained."""
        clear_gradients(parameters)


@cache
def _declared(dtype: Any) -> Spec:
    return Spec.of((), to_var_type(dtype))
