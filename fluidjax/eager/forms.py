"""Finding an op's kernel from its arguments, without inspecting their content if they occurred before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fluidjax.base.enums import VarType
from fluidjax.eager.arguments import known_attrs
from fluidjax.eager.kernels import Kernel, freeze, kernel_of
from fluidjax.eager.recorded.pending import recorder
from lowering import get_op

# The kernels of ops by type, layouts and attributes as given, if nothing else is needed to tell them apart.
_forms: dict[Any, Kernel] = {}


def kernel_of_form(
    type: str, attrs: Mapping[str, Any], ins: list[Any], in_layout: Any, outs: list[Any], out_layout: Any
) -> Kernel:
    """The kernel of an op on these variables; in-place outputs and declared results matter too."""
    form = type, in_layout, out_layout, tuple([(k, freeze(v)) for k, v in attrs.items()])
    kernel = _forms.get(form)
    if kernel is not None:
        return kernel
    definition = get_op(type)
    aliases = aliases_of(ins, outs) if definition.inplace else ()
    declared: tuple[VarType, ...] = ()
    if "ctx" in definition.special:
        declared = tuple([out.dtype for out in outs])
    own = known_attrs(definition, attrs)
    kernel = kernel_of(type, own, in_layout, out_layout, aliases=aliases, declared=declared)
    kernel.given = {k: list(v) if v.__class__ is list else v for k, v in attrs.items()}
    if not definition.inplace and not declared and (not kernel.movable or type == "slice"):
        _forms[form] = kernel
    if all(source < 0 for source in aliases) and not definition.updates and _as_first(declared, ins):
        kernel.given_fresh = kernel.given
    return kernel


def _as_first(declared: Sequence[VarType], ins: Sequence[Any]) -> bool:
    """Whether results are declared as the first input is, as layers do for fresh variables, if at all."""
    return not declared or (bool(ins) and all(dtype == ins[0].dtype for dtype in declared))


def aliases_of(ins: Sequence[Any], outs: Sequence[Any]) -> tuple[int, ...]:
    """For each output the number of the input whose variable it is, -1 for none."""
    places = {id(v): k for k, v in reversed(list(enumerate(ins)))}
    return tuple([places.get(id(out), -1) for out in outs])


def expected_kernel() -> Kernel | None:
    """The kernel of the op that came next last time."""
    promised = recorder.promised
    if promised is not None and (kernel := promised.kernel) is not None:
        return kernel
    point = recorder.point.expected
    return None if point is None else point.kernel


def expected(
    type: str, attrs: Mapping[str, Any], ins: list[Any], in_layout: Any, outs: list[Any], out_layout: Any
) -> Kernel | None:
    """The kernel of an op, if it is the one that came next last time."""
    kernel = expected_kernel()
    if (
        kernel is None
        or kernel.type != type
        or kernel.ins != in_layout
        or kernel.outs != out_layout
        or not same(kernel.given, attrs)
    ):
        return None
    if kernel.definition.inplace and kernel.aliases != aliases_of(ins, outs):
        return None
    return None if kernel.declared and kernel.declared != tuple([out.dtype for out in outs]) else kernel


def same(given: Any, attrs: Mapping[str, Any]) -> bool:
    """Whether attributes equal those given before."""
    try:
        return given == attrs
    except ValueError:  # arrays among them
        return False
