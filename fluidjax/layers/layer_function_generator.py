"""Layers made from the protos of their operators, and docstrings that quote these."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from string import Template
from typing import Any

from fluidjax.base.enums import AttrType
from fluidjax.base.unknown import unknown_name
from fluidjax.framework import OpProtoHolder, Variable
from fluidjax.layer_helper import LayerHelper
from fluidjax.proto import framework_pb2 as pb
from fluidjax.writing.checks import FLOATS, INTS, check_variable_and_dtype

__all__ = ["generate_layer_fn", "generate_activation_fn", "autodoc", "templatedoc"]

_INTEGERS_TOO = ("abs", "exp", "square")

Function = Callable[..., Any]


def _snake(name: str) -> str:
    """A slot's name as an argument: ``InsideWeight`` -> ``inside_weight``."""
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)).lower()


def _proto(op_type: str) -> pb.OpProto:
    return OpProtoHolder.instance().get_op_proto(op_type)


def _one_result(proto: pb.OpProto) -> str:
    """The name of the only output that is no intermediate. Raises ValueError where there is no such layer."""
    kept = [slot for slot in proto.outputs if not slot.intermediate]
    if len(kept) != 1:
        raise ValueError(
            f"op {proto.type} has {len(kept)} outputs: only one non intermediate output operator can be automatically"
            " generated. Write it with LayerHelper.append_op"
        )
    if kept[0].duplicable or any(slot.duplicable for slot in proto.outputs):
        raise ValueError(
            f"op {proto.type}: only non duplicable op can be automatically generated, but an output takes several"
            " variables. Write it with LayerHelper.append_op"
        )
    return str(kept[0].name)


def _bound(proto: pb.OpProto, args: list[Any], kwargs: dict[str, Any]) -> dict[str, list[Variable]]:
    """The variables of each input slot: by the slot's name in ``kwargs``, else the next of ``args``."""
    bound = {}
    for slot in proto.inputs:
        given = kwargs.pop(_snake(slot.name), None)
        if given is None and args:
            given = args.pop(0)
        if given is not None:
            bound[slot.name] = list(given) if isinstance(given, (list, tuple)) else [given]
    return bound


def _common_dtype(op_type: str, variables: Sequence[Any]) -> Any:
    for one in variables:
        if not isinstance(one, Variable):
            raise ValueError(f"input of {op_type} must be variable, received {type(one).__name__}. Pass a Variable.")
        if one.dtype != variables[0].dtype:
            raise ValueError(
                f"operator {op_type} must input same dtype. {one.dtype} vs {variables[0].dtype}: cast one."
            )
    return variables[0].dtype if variables else None


def _written(proto: pb.OpProto, helper: LayerHelper, dtype: Any, result: str, out: Any) -> dict[str, list[Variable]]:
    """The variables of the output slots: new ones, but for a given ``out``."""
    given = {} if out is None else {result: list(out) if isinstance(out, (list, tuple)) else [out]}
    return {
        slot.name: given.get(slot.name) or [helper.create_variable_for_type_inference(dtype)] for slot in proto.outputs
    }


def generate_layer_fn(op_type: str) -> Function:
    """A layer that writes one op: its variables in the order of the slots or by name, attributes by name.

    Args:
        op_type: of a registered op with one output.

    Returns a function that takes also ``name``, ``act``, and ``out`` (the variable to write), and returns the result.
    Raises ValueError where the op is unknown or its outputs are several; the function, where an input is no Variable
    or dtypes differ.
    """
    proto = _proto(op_type)
    result = _one_result(proto)

    def layer(*args: Any, **kwargs: Any) -> Variable:
        inputs = _bound(proto, list(args), kwargs)
        dtype = _common_dtype(op_type, [v for variables in inputs.values() for v in variables])
        helper = LayerHelper(op_type, **kwargs)
        outputs = _written(proto, helper, dtype, result, kwargs.get(_snake(result), kwargs.get("out")))
        attrs = {n: v for n, v in kwargs.items() if n in {a.name for a in proto.attrs}}
        helper.append_op(type=op_type, inputs=inputs, outputs=outputs, attrs=attrs)
        return helper.append_activation(outputs[result][0])

    layer.__name__ = op_type
    layer.__doc__ = _described(proto)
    return layer


def generate_activation_fn(op_type: str) -> Function:
    """A layer ``(x, name=None)`` of an op from X to Out. Raises TypeError where x is no Variable of floats."""
    proto = _proto(op_type)
    dtypes = (*FLOATS, *INTS) if op_type in _INTEGERS_TOO else FLOATS

    def layer(x: Variable, name: str | None = None) -> Variable:
        check_variable_and_dtype(x, "x", dtypes, op_type)
        helper = LayerHelper(op_type, x=x, name=name)
        out = helper.create_variable_for_type_inference(x.dtype)
        helper.append_op(type=op_type, inputs={"X": x}, outputs={"Out": out})
        return out

    layer.__name__ = op_type
    layer.__doc__ = _described(proto)
    return layer


def _described(proto: pb.OpProto) -> str:
    arguments = [f"    {_snake(slot.name)}: {slot.comment}" for slot in proto.inputs]
    return "\n".join([proto.comment, "", "Args:", *arguments, "", "Returns:", "    The output variable."])


def autodoc(comment: str = "") -> Callable[[Function], Function]:
    """A decorator: the function's docstring becomes that of the op of its name, and ``comment``."""

    def decorate(function: Function) -> Function:
        function.__doc__ = _described(_proto(function.__name__)) + comment
        return function

    return decorate


def templatedoc(op_type: str | None = None) -> Callable[[Function], Function]:
    """A decorator that fills ``${comment}``, ``${x_comment}`` and ``${x_type}`` of a docstring from an op's proto.

    Args:
        op_type: the op; that of the function's name by default.
    """

    def decorate(function: Function) -> Function:
        proto = _proto(function.__name__ if op_type is None else op_type)
        words = {"comment": proto.comment}
        for slot in (*proto.inputs, *proto.outputs):
            words |= {f"{_snake(slot.name)}_comment": slot.comment, f"{_snake(slot.name)}_type": "Variable"}
        for spec in proto.attrs:
            words |= {f"{spec.name}_comment": spec.comment, f"{spec.name}_type": AttrType(spec.type).name}
        function.__doc__ = Template(function.__doc__ or "").safe_substitute(words)
        return function

    return decorate


__getattr__ = unknown_name(__name__)
