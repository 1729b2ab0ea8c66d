"""The op registry: one Python function is a whole operator.

The function's signature is the OpProto, its body the kernel, its docstring the formula; a gradient rule stands beside
it. ``definition`` holds what is known of an op, ``notation`` parses how it is written, ``table`` finds it.
"""

from lowering.registry.attributes import check_attrs
from lowering.registry.definition import (
    MASKED,
    WISE,
    AttrSpec,
    Block,
    Blocks,
    Check,
    Float64s,
    Long,
    Longs,
    Masked,
    OpDef,
    Scalars,
    Sizes,
    Slot,
    Value,
    Wise,
)
from lowering.registry.levels import keeps_shape, level_from
from lowering.registry.notation import op
from lowering.registry.table import double_gradient, get_op, has_op, register, registered_ops

__all__ = [
    "MASKED", "WISE", "AttrSpec", "Block", "Blocks", "Check", "Float64s", "Long", "Longs", "Masked", "OpDef", "Scalars",
    "Sizes", "Slot", "Value", "Wise", "check_attrs", "double_gradient", "get_op", "has_op", "keeps_shape", "level_from",
    "op", "register", "registered_ops",
]  # fmt: skip
