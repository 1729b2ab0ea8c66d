"""``core.ops``: each op as a function of eager variables, ``core.ops.scale(x, "scale", 2.0)``.

Arguments are the variables of the input slots in the proto's order, then what the outputs need, then the names and
values of attributes in turn. Results are fresh variables.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import lowering
from fluidjax.base.enums import VarType
from fluidjax.base.errors import explain
from fluidjax.base.mode import current_tracer
from fluidjax.eager.variables.varbase import VarBase
from fluidjax.framework.protos import op_proto

# Dispensable inputs that are given all the same.
_GIVEN = {
    "assign": ("X",),
    "fake_quantize_dequantize_moving_average_abs_max": ("X", "InScale", "InAccum", "InState"),
    "gru_unit": ("Input", "HiddenPrev", "Weight", "Bias"),
    "label_smooth": ("X", "PriorDist"),
    "layer_norm": ("X", "Scale", "Bias"),
}

# Outputs for which the caller gives the variables: state that is updated, and results that are written again.
_WRITTEN = {
    "accuracy": ("Correct", "Total"),
    "adam": ("ParamOut", "Moment1Out", "Moment2Out", "Beta1PowOut", "Beta2PowOut"),
    "batch_norm": ("MeanOut", "VarianceOut"),
    "fill_constant": ("Out",),
    "matmul": ("Out",),
    "momentum": ("ParamOut", "VelocityOut"),
    "sgd": ("ParamOut",),
}


class Ops:
    """The namespace ``core.ops``."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__") or not lowering.has_op(name):
            raise AttributeError(f"core.ops has no op {name!r}; expected one of dir(core.ops). Look it up there")
        return _function(name)

    def __dir__(self) -> list[str]:
        return lowering.registered_ops()


@cache
def _function(name: str) -> Callable[..., Any]:
    proto = op_proto(name)
    ins = [slot.name for slot in proto.inputs if not slot.dispensable or slot.name in _GIVEN.get(name, ())]
    outs = [(slot.name, slot.duplicable) for slot in proto.outputs if not slot.dispensable]
    written = _WRITTEN.get(name, ())
    asked = [slot for slot, several in outs if several or slot in written]
    count = len(ins) + len(asked)

    def run(*args: Any) -> Any:
        if len(args) < count or (len(args) - count) % 2:
            raise TypeError(_wrong_count(name, ins, asked, len(args)))
        inputs = dict(zip(ins, args, strict=False))
        given = dict(zip(asked, args[len(ins) : count], strict=True))
        like = _dtype(args[0]) if ins else VarType.FP32
        tracer = _tracer(name)
        outputs = {slot: _outputs(tracer, given.get(slot), several, like) for slot, several in outs}
        tracer.trace_op(name, inputs, outputs, dict(zip(args[count::2], args[count + 1 :: 2], strict=True)))
        results = tuple(outputs.values())
        return results[0] if len(results) == 1 else results or None

    run.__name__ = run.__qualname__ = name
    run.__doc__ = lowering.get_op(name).doc
    return run


def _outputs(tracer: Any, given: Any, several: bool, like: VarType) -> Any:
    """An output slot's variables: as many as `given` says, or these themselves."""
    if several and isinstance(given, int):
        return [tracer.temporary(like) for _ in range(given)]
    return tracer.temporary(like) if given is None else given


def _dtype(given: Any) -> VarType:
    first = given[0] if isinstance(given, (list, tuple)) and given else given
    return first.dtype if isinstance(first, VarBase) else VarType.FP32


def _tracer(name: str) -> Any:
    tracer = current_tracer()
    if tracer is None:
        raise RuntimeError(
            explain(
                f"core.ops.{name} was called outside of eager mode",
                "a call under fluid.dygraph.guard()",
                "no tracer",
                "use the layer of that name in static programs",
            )
        )
    return tracer


def _wrong_count(name: str, ins: list[str], asked: list[str], given: int) -> str:
    slots = ", ".join([*ins, *asked]) or "no variables"
    return explain(
        f"core.ops.{name} got arguments that do not pair up",
        f"{slots}, then names and values of attributes in turn",
        f"{given} arguments",
        "give every attribute's name before its value",
    )


ops = Ops()
