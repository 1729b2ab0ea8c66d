"""Op protos, generated from the lowering's registry."""

from __future__ import annotations

import lowering
from fluidjax.framework.attrs import BOOKKEEPING_TYPES, attr_type
from fluidjax.proto import framework_pb2 as pb
from lowering.program import BOOKKEEPING


def op_proto(op_type: str) -> pb.OpProto:
    """The OpProto message of a registered op. Raises lowering.UnknownOpError for any other."""
    definition = lowering.get_op(op_type)
    proto = pb.OpProto(type=op_type, comment=definition.doc)
    for slots, messages in ((definition.inputs, proto.inputs), (definition.outputs, proto.outputs)):
        for slot in (s for s in slots if not s.newer):
            message = messages.add(name=slot.name, comment=slot.param)
            message.duplicable, message.dispensable = slot.duplicable, slot.dispensable
            message.intermediate = slot.intermediate
    for spec in (s for s in definition.attrs.values() if not s.newer):
        proto.attrs.add(name=spec.name, type=int(attr_type(spec.type)), comment="")
    for name, kind in BOOKKEEPING_TYPES.items():
        proto.attrs.add(name=name, type=int(kind), comment="", generated=True)
    return proto


def get_all_op_protos() -> list[pb.OpProto]:
    """The protos of all registered ops."""
    return [op_proto(name) for name in lowering.registered_ops()]


class OpProtoHolder:
    """Op protos by type."""

    _instance: OpProtoHolder | None = None

    @classmethod
    def instance(cls) -> OpProtoHolder:
        """The single instance."""
        if cls._instance is None:
            cls._instance = cls()
        return cls._instance

    def get_op_proto(self, type: str) -> pb.OpProto:
        """The proto of an op type. Raises ValueError if it is not registered."""
        if not lowering.has_op(type):
            raise ValueError(f'Operator "{type}" has not been registered. Use one of lowering.registered_ops().')
        return op_proto(type)

    def update_op_proto(self) -> list[str]:
        """The types currently registered; the registry is queried each time."""
        return lowering.registered_ops()

    @staticmethod
    def generated_op_attr_names() -> set[str]:
        """The attributes that every op has in addition to its own."""
        return set(BOOKKEEPING)
