"""What ``fluid.core`` says of the ops that there are."""

from __future__ import annotations

from typing import Any

import lowering
from fluidjax.base.places import is_compiled_with_cuda
from fluidjax.framework import names
from fluidjax.framework.protos import op_proto


def op_support_gpu(op_type: str) -> bool:
    """Whether an op runs where an accelerator is: true for all ops if there is one, else for those without kernels."""
    return is_compiled_with_cuda() or op_type not in _get_all_register_op_kernels()


def get_all_op_protos() -> list[bytes]:
    """The serialized protos of all registered ops."""
    return [op_proto(name).SerializeToString() for name in lowering.registered_ops()]


# One kernel for each op, place and data type: XLA makes them of what it meets.
_KERNEL = "data_type[{}]:data_layout[ANY_LAYOUT]:place[CPUPlace]:library_type[PLAIN]"
_KERNEL_TYPES = ("float", "double", "float16", "bool", "int", "int64_t", "int16_t", "int8_t", "uint8_t")


def _get_all_register_op_kernels() -> dict[str, list[str]]:
    """Maps ops to their kernels in Fluid's notation; ops that run blocks or run on the host have none.

    XLA compiles an op for whatever dtypes it is given; dtypes that an op rejects are not listed.
    """
    kernels = [_KERNEL.format(name) for name in _KERNEL_TYPES]
    return {name: list(kernels) for name in lowering.registered_ops() if lowering.get_op(name).kind == "plain"}


def _get_use_default_grad_op_desc_maker_ops() -> list[str]:
    """The ops whose gradient reads all their inputs, outputs and output gradients."""
    return [name for name in lowering.registered_ops() if has_grad_op_maker(name) and _reads_all(name)]


def _reads_all(op_type: str) -> bool:
    definition = lowering.get_op(op_type)
    if definition.forward is not None or not lowering.has_op(f"{op_type}_grad"):
        return False
    outs = [slot.name for slot in definition.outputs]
    whole = {*(slot.name for slot in definition.inputs), *outs, *map(names.grad_var_name, outs)}
    return {slot.name for slot in lowering.get_op(f"{op_type}_grad").inputs} == whole


def has_grad_op_maker(op_type: str) -> bool:
    """Whether an op is registered and has a gradient.

    For a gradient op, only explicitly written gradients count: derived gradients exist for every order, whereas
    scripts descend from ``relu`` through ``relu_grad`` until there is no further gradient.
    """
    if not lowering.has_op(op_type):
        return False
    definition = lowering.get_op(op_type)
    return definition.differentiable if definition.forward is None else definition.has_written_gradient


has_non_empty_grad_op_maker = has_grad_op_maker


def has_infer_inplace(op_type: str) -> bool:
    """Whether an op's layer binds an output to the variable of an input."""
    return lowering.has_op(op_type) and bool(lowering.get_op(op_type).inplace)


def infer_no_need_buffer_slots(op_type: str, inputs: Any, outputs: Any, attrs: Any) -> set[str]:
    """The input slots of which an op needs only shape and dtype, not values.

    Args:
        op_type: a registered op; raises lowering.UnknownOpError for any other.
        inputs, outputs, attrs: accepted for compatibility with Fluid; they do not affect the answer.
    """
    return {slot.name for slot in lowering.get_op(op_type).inputs if slot.wants == "meta"}


def get_op_attrs_default_value(op_type: str | bytes) -> dict[str, Any]:
    """The default values of an op's attributes; attributes without a default are omitted."""
    name = op_type.decode() if isinstance(op_type, bytes) else op_type
    specs = lowering.get_op(name).attrs.values()
    return {spec.name: spec.default for spec in specs if not spec.required}
