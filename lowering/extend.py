"""``jax.extend``: inspecting and building jaxprs, the bits of random keys, modules of MLIR."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr


@cache
def extend() -> Any:
    """``jax.extend``. It imports all of Pallas, so it is imported only once something is traced."""
    import jax.extend.mlir.ir

    return jax.extend


def scan_counts(params: Mapping[str, Any]) -> tuple[int, int]:
    """How many constants and how many carried values come first among what a ``scan`` takes, by its parameters."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    constants, carried, _ = params["ft_in"].unpack()  # since jax 0.11
    return len(constants), len(carried)


def is_literal(value: Any) -> bool:
    """Whether what an equation reads is a number written into it, not a variable."""
    return hasattr(value, "val")  # without the import that the class would take


def function_of(
    whole: ClosedJaxpr, inputs: Sequence[Any], outputs: Sequence[Any], equations: Sequence[Any], effects: Any
) -> Callable[..., Any]:
    """Some equations of ``whole`` as a function of the variables ``inputs``, which returns the list of ``outputs``."""
    names = whole.jaxpr.debug_info.with_unknown_names()
    part = extend().core.Jaxpr(whole.jaxpr.constvars, inputs, outputs, equations, effects, names)
    return extend().core.jaxpr_as_fun(extend().core.ClosedJaxpr(part, whole.consts))
