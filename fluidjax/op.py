"""Ops created by name and run singly: ``fluid.op.Operator("scale", X="x", Out="y", scale=2.0).run(scope, place)``.

For trying out an op without a program around it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import lowering
from fluidjax.base.enums import AttrType
from fluidjax.execution.single import NativeOperator
from fluidjax.framework.messages import set_attr
from fluidjax.framework.protos import get_all_op_protos, op_proto
from fluidjax.proto import framework_pb2 as pb
from lowering.program import BOOKKEEPING

__all__ = ["OpDescCreationMethod", "OpInfo", "Operator", "OperatorFactory", "get_all_op_protos", "is_str"]


def is_str(s: Any) -> bool:
    """Whether a value is a string."""
    return isinstance(s, str)


class OpDescCreationMethod:
    """Creates OpDescs of one type from keyword arguments.

    Args:
        op_proto: the op's OpProto message. Raises TypeError for anything else.
    """

    def __init__(self, op_proto: pb.OpProto):
        if not isinstance(op_proto, pb.OpProto):
            raise TypeError(
                f"OpDescCreationMethod: op_proto is a {type(op_proto).__name__}; expected an OpProto message. Take one"
                " of fluid.op.get_all_op_protos()"
            )
        self.__op_proto__ = op_proto
        self.__extra_attrs__ = set(BOOKKEEPING)

    def __call__(self, *args: Any, **kwargs: Any) -> pb.OpDesc:
        """An OpDesc.

        Args:
            **kwargs: a variable's name or a list of names per slot, a value per attribute; others are ignored.

        Raises ValueError for positional arguments or several names in a slot that takes one; TypeError for names that
        are not strings and values that do not match their attribute.
        """
        if args:
            raise ValueError(
                f"Operator {self.__op_proto__.type}: received {len(args)} positional arguments. Except the argument"
                ' "type", all of the other arguments should be keyword arguments: write X="x"'
            )
        desc = pb.OpDesc(type=self.__op_proto__.type)
        for what, slots, bound in (
            ("Input", self.__op_proto__.inputs, desc.inputs),
            ("Output", self.__op_proto__.outputs, desc.outputs),
        ):
            for slot in slots:  # in the proto's order, which need not be that of the names
                bound.add(parameter=slot.name, arguments=self._names(what, slot, kwargs.get(slot.name, ())))
        for spec in self.__op_proto__.attrs:
            if kwargs.get(spec.name) is not None:
                self._set(desc, spec, kwargs[spec.name])
        return desc

    def _names(self, what: str, slot: Any, value: Any) -> list[str]:
        names = [value] if is_str(value) else list(value) if isinstance(value, Sequence) else value
        if not isinstance(names, list) or not all(map(is_str, names)):
            raise TypeError(
                f"Operator {self.__op_proto__.type}: {what} {slot.name} is {value!r}; expected a variable's name or a"
                f' list of names. Write {slot.name}="x"'
            )
        if not slot.duplicable and len(names) > 1:
            raise ValueError(
                f"Operator {self.__op_proto__.type}: {what} {slot.name} expects only one {what.lower()}, but"
                f" {len(names)} are given. Give one name"
            )
        return names

    def _set(self, desc: pb.OpDesc, spec: Any, value: Any) -> None:
        try:
            set_attr(desc, spec.name, value, AttrType(spec.type))
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"Operator {desc.type}: attribute {spec.name} is {value!r} of type {type(value).__name__}; expected"
                f" {AttrType(spec.type).name}. {error}"
            ) from None

    @staticmethod
    def any_is_true(generator: Any) -> bool:
        """Whether any item is true."""
        return any(generator)


@dataclass(frozen=True)
class OpInfo:
    """Information about an op type.

    Attributes:
        name: the type.
        method: creates the op from keyword arguments.
        inputs, outputs: (slot, whether it takes several variables).
        attrs: names of the attributes.
    """

    name: str
    method: Callable[..., NativeOperator]
    inputs: list[tuple[str, bool]]
    outputs: list[tuple[str, bool]]
    attrs: list[str]


def create_op_creation_method(op_proto: pb.OpProto) -> OpInfo:
    """The information about the op of a proto, including the function that creates one."""
    make_desc = OpDescCreationMethod(op_proto)

    def method(*args: Any, **kwargs: Any) -> NativeOperator:
        return NativeOperator(make_desc(*args, **kwargs))

    return OpInfo(
        op_proto.type,
        method,
        [(slot.name, slot.duplicable) for slot in op_proto.inputs],
        [(slot.name, slot.duplicable) for slot in op_proto.outputs],
        [spec.name for spec in op_proto.attrs],
    )


class OperatorFactory:
    """Creates ops by type, querying the registry only for the types requested."""

    def __init__(self) -> None:
        self._infos: dict[str, OpInfo] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> NativeOperator:
        """Create an op.

        Args:
            type: the op type, given first or by keyword.
            **kwargs: a variable's name or a list of names per slot, a value per attribute.

        Raises ValueError for other positional arguments or an unknown type; see ``OpDescCreationMethod``.
        """
        if "type" in kwargs:
            op_type = kwargs.pop("type")
        elif len(args) == 1:
            op_type, args = args[0], ()
        else:
            raise ValueError(
                f'Operator: received {len(args)} positional arguments. Except the argument "type",all of the other'
                ' arguments should be keyword arguments: write Operator("scale", X="x", Out="y")'
            )
        return self.get_op_info(op_type).method(*args, **kwargs)

    def types(self) -> list[str]:
        """All op types."""
        return [proto.type for proto in get_all_op_protos()]

    def get_op_info(self, t: str) -> OpInfo:
        """Information about op type ``t``. Raises ValueError if it is not registered."""
        if t not in self._infos:
            self._infos[t] = create_op_creation_method(_proto(t))
        return self._infos[t]

    def get_op_input_names(self, type: str) -> list[str]:
        """The input slots of a type."""
        return [name for name, _ in self.get_op_info(type).inputs]

    def get_op_inputs(self, type: str) -> list[tuple[str, bool]]:
        """The input slots of a type, and whether they take several variables."""
        return self.get_op_info(type).inputs

    def get_op_output_names(self, type: str) -> list[str]:
        """The output slots of a type."""
        return [name for name, _ in self.get_op_info(type).outputs]

    def get_op_outputs(self, type: str) -> list[tuple[str, bool]]:
        """The output slots of a type, and whether they take several variables."""
        return self.get_op_info(type).outputs

    def get_op_attr_names(self, type: str) -> list[str]:
        """The attributes of a type."""
        return self.get_op_info(type).attrs


def _proto(op_type: str) -> pb.OpProto:
    if not lowering.has_op(op_type):
        raise ValueError(
            f"The operator: {op_type} is not registered. Expected one of Operator.types(). Look it up there"
        )
    return op_proto(op_type)


Operator = OperatorFactory()
