"""What Fluid's C++ gives eager variables and its Python calls: scripts that go beneath the API use it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fluidjax.base.enums import VarType
from fluidjax.base.errors import EnforceNotMet, explain
from fluidjax.eager.values import Spec

if TYPE_CHECKING:
    from fluidjax.base.scope import Scope


class Beneath:
    """What a VarBase has beneath its documented methods."""

    __slots__ = ("held_scope",)  # instead of a value

    held_scope: Scope
    _name: str | int | None

    def _declare(self: Any, dtype: VarType, dims: Any, name: Any, kind: Any, persistable: Any) -> None:
        """Be a variable without a value."""
        self._name, self.persistable = str(name or ""), bool(persistable)
        self._declared = Spec.of(tuple(int(n) for n in dims or ()), dtype, VarType(kind or VarType.LOD_TENSOR))

    def _run_backward(self: Any, backward_strategy: Any, tracer: Any, retain_graph: bool) -> None:
        """``backward``, by a tracer that is given."""
        tracer.backward(self, backward_strategy, retain_graph)

    def _grad_value(self: Any) -> Any:
        """The LoDTensor of the gradient. Raises EnforceNotMet if there is none, or it is sparse."""
        grad = self._grad_ivar()
        if grad is None or grad.type != VarType.LOD_TENSOR:
            raise EnforceNotMet(
                explain(
                    f"_grad_value: variable {self.name} has no dense gradient",
                    "a gradient that is a LoDTensor",
                    "none" if grad is None else "SelectedRows",
                    "call backward before it" if grad is None else "call gradient(), which gives (values, rows)",
                )
            )
        return grad.value().get_tensor()

    def _set_grad_type(self: Any, type: VarType) -> None:
        """Declare the type of the gradient, which follows from the ops that make it. Raises TypeError for others."""
        if not isinstance(type, VarType):
            raise TypeError(
                f"_set_grad_type: expected a VarType, received {type!r}. Pass core.VarDesc.VarType.LOD_TENSOR or "
                "SELECTED_ROWS."
            )

    @staticmethod
    def _alive_vars() -> list[str]:
        """The variables that Fluid's own log counts: none unless it is on, which it never is here."""
        return []

    def __long__(self: Any) -> int:
        return int(self)
