"""Operator: a view of an OpDesc message."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import lowering
from fluidjax.base.enums import AttrType, OpRole
from fluidjax.base.errors import ArgumentError
from fluidjax.base.older import hidden
from fluidjax.framework import callstack, descs, messages, names
from fluidjax.framework.attrs import BOOKKEEPING_TYPES, attr_type, declared_type, read_attr
from fluidjax.framework.captures import captured
from fluidjax.framework.op_desc import OpDescView
from fluidjax.framework.text import message_text
from fluidjax.framework.variable import EagerVariable, Variable
from fluidjax.proto import framework_pb2 as pb
from lowering.engine.shapes.validate import unknown_attrs

if TYPE_CHECKING:
    from fluidjax.framework.block import Block


class Operator:
    """An op of a block; created by ``Block.append_op``.

    Args:
        block: the block it belongs to.
        desc: the message to view. If it already has a type, the other arguments are ignored.
        type: the op's type.
        inputs: a Variable, a name, or a list of them, per slot.
        outputs: likewise.
        attrs: attributes; missing ones, and those that are None, take their defaults.

    Raises ValueError for an unknown type, unknown slots, or missing required ones.
    """

    # As in Program.
    __slots__ = ("__dict__", "__weakref__", "_attrs", "_generation", "_inputs", "_outputs", "_view", "proto")

    OP_WITHOUT_KERNEL_SET = frozenset(
        "feed fetch recurrent go rnn_memory_helper_grad conditional_block while send recv listen_and_serv "
        "fl_listen_and_serv ncclInit select checkpoint_notify gen_nccl_id c_gen_nccl_id c_comm_init "
        "c_sync_calc_stream c_sync_comm_stream queue_generator dequeue enqueue".split()
    )

    def __init__(
        self,
        block: Block,
        desc: Any,
        type: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        outputs: Mapping[str, Any] | None = None,
        attrs: Mapping[str, Any] | None = None,
    ) -> None:
        self.block = block
        self.proto: pb.OpDesc = getattr(desc, "proto", desc)
        self._forget()
        if self.proto.type:
            return
        if type is None:
            error = ValueError("`type` to initialized an Operator can not be None.")
            error.add_note("Expected the op's type. Call append_op(type='relu', ...).")
            raise error
        stack = callstack.record(skip=2)
        _Builder(self, type, stack).build(inputs, outputs or {}, attrs or {})

    if not TYPE_CHECKING:  # which would take any name for one

        def __getattr__(self, name: str) -> Any:
            return hidden(self, "Operator", name)

    # The caches of what the message holds.

    def _forget(self) -> None:
        self._generation = self.block.program._raw_generation
        self._inputs: dict[str, list[str]] | None = None
        self._outputs: dict[str, list[str]] | None = None
        self._attrs: dict[str, Any] | None = None
        self._view: Any = None

    def _changed(self) -> None:
        self._forget()
        self.block._op_changed()

    def _fresh(self) -> None:
        if self._generation != self.block.program._raw_generation:
            self._forget()

    @property
    def _input_map(self) -> dict[str, list[str]]:
        self._fresh()
        if self._inputs is None:
            self._inputs = {slot.parameter: list(slot.arguments) for slot in self.proto.inputs}
        return self._inputs

    @property
    def _output_map(self) -> dict[str, list[str]]:
        self._fresh()
        if self._outputs is None:
            self._outputs = {slot.parameter: list(slot.arguments) for slot in self.proto.outputs}
        return self._outputs

    @property
    def _attr_map(self) -> dict[str, Any]:
        """Attribute values; blocks as their indices."""
        self._fresh()
        if self._attrs is None:
            self._attrs = {attr.name: read_attr(attr) for attr in self.proto.attrs}
        return self._attrs

    # What it is.

    @property
    def desc(self) -> OpDescView:
        """Fluid's OpDesc."""
        return OpDescView(self.proto, self._changed, self.block.desc)

    @property
    def type(self) -> str:
        """The op's type."""
        return self.proto.type

    @property
    def idx(self) -> int:
        """The op's position in its block."""
        for index, op in enumerate(self.block.ops):
            if op is self:
                return index
        raise ValueError(f"Can't find op {self.type} in its block: it was removed. Use an op of block.ops.")

    # Slots.

    def input(self, name: str) -> list[str]:
        """The variable names in an input slot; empty if there is no such slot."""
        return list(self._input_map.get(name, ()))

    def output(self, name: str) -> list[str]:
        """The variable names in an output slot; empty if there is no such slot."""
        return list(self._output_map.get(name, ()))

    @property
    def input_names(self) -> list[str]:
        """The input slots."""
        return list(self._input_map)

    @property
    def output_names(self) -> list[str]:
        """The output slots."""
        return list(self._output_map)

    @property
    def input_arg_names(self) -> list[str]:
        """The names of all variables read, slot by slot."""
        return [name for slot in self._input_map.values() for name in slot]

    @property
    def output_arg_names(self) -> list[str]:
        """The names of all variables written, slot by slot."""
        return [name for slot in self._output_map.values() for name in slot]

    def _mentions(self, name: str) -> bool:
        """Whether the op reads or writes a variable, or refers to it in its role attributes."""
        about = self._attr_map.get(names.OP_ROLE_VAR, ())
        return name in self.input_arg_names or name in self.output_arg_names or name in about

    def _rename_input(self, old_name: str, new_name: str) -> None:
        self.desc._rename_input(old_name, new_name)

    def _rename_output(self, old_name: str, new_name: str) -> None:
        self.desc._rename_output(old_name, new_name)

    # Attributes.

    def has_attr(self, name: str) -> bool:
        """Whether the op has that attribute."""
        return name in self._attr_map

    def attr(self, name: str) -> Any:
        """The value of an attribute; a block as its desc. Raises EnforceNotMet if it does not exist."""
        if name not in self._attr_map:
            return self.desc.attr(name)
        value = self._attr_map[name]
        kind = self.attr_type(name) if "block" in name else None
        if kind == AttrType.BLOCK:
            return self.block.program.block(value).desc
        if kind == AttrType.BLOCKS:
            return [self.block.program.block(index).desc for index in value]
        return list(value) if isinstance(value, list) else value

    def attr_type(self, name: str) -> AttrType:
        """An attribute's type."""
        return self.desc.attr_type(name)

    @property
    def attr_names(self) -> list[str]:
        """The names of all attributes."""
        return list(self._attr_map)

    def all_attrs(self) -> dict[str, Any]:
        """All attributes; blocks as Block."""
        values = dict(self._attr_map)
        for attr in self.proto.attrs:
            if attr.type == AttrType.BLOCK:
                values[attr.name] = self._block_attr(attr.name)
            elif attr.type == AttrType.BLOCKS:
                values[attr.name] = self._blocks_attr(attr.name)
        return values

    def _set_attr(self, name: str, value: Any) -> None:
        """Set an attribute; a new one gets the type declared by the op's proto, or else implied by the value."""
        self._update_desc_attr(name, value)

    def _update_desc_attr(self, name: str, value: Any) -> None:
        if isinstance(value, (Variable, descs.BlockDescView)):
            value = value.name if isinstance(value, Variable) else value.id
        messages.set_attr(self.proto, name, value, None if self.has_attr(name) else declared_type(self.type, name))
        self._changed()

    def _remove_attr(self, name: str) -> None:
        self.desc.remove_attr(name)

    def _block_attr_id(self, name: str) -> int:
        return self._attr_map[name]

    def _block_attr(self, name: str) -> Block:
        return self.block.program.block(self._block_attr_id(name))

    def _blocks_attr_ids(self, name: str) -> list[int]:
        return list(self._attr_map[name])

    def _blocks_attr(self, name: str) -> list[Block]:
        return [self.block.program.block(index) for index in self._blocks_attr_ids(name)]

    def _sub_block_ids(self) -> list[int]:
        """The indices of all blocks that attributes refer to."""
        found: list[int] = []
        for attr in self.proto.attrs:
            if attr.type == AttrType.BLOCK:
                found.append(attr.block_idx)
            elif attr.type == AttrType.BLOCKS:
                found.extend(attr.blocks_idx)
        return found

    def _has_kernel(self, op_type: str) -> bool:
        return op_type not in self.OP_WITHOUT_KERNEL_SET

    def _is_optimize_op(self) -> bool:
        return bool(self._attr_map.get(names.OP_ROLE, 0) & OpRole.Optimize)

    # Text.

    def to_string(self, throw_on_error: bool) -> str:
        """The message as text. With `throw_on_error`, raises ValueError if a required field is missing."""
        return message_text(self.proto, throw_on_error)

    def __str__(self) -> str:
        return self.to_string(throw_on_error=True)

    __repr__ = __str__


def tell_left_out(op_type: str, kind: str, unknown: Sequence[str], known: Iterable[str]) -> None:
    """Warn about arguments unknown to the op. Fluid drops them silently, although they may be misspelt."""
    if unknown:
        expected = ", ".join(sorted(known)) or "none"
        warnings.warn(
            f"op {op_type}: {kind} {', '.join(unknown)} is not one of the op's: {expected}."
            " It is left out, as in Paddle; rename it if it is misspelt",
            stacklevel=callstack.depth_of_user(),
        )


class _Builder:
    """Fills in the message of a new op: checks slots and attributes, then infers its outputs."""

    def __init__(self, op: Operator, op_type: str, stack: list[str]) -> None:
        self.op, self.type, self.stack = op, op_type, stack

    def build(self, inputs: Mapping | None, outputs: Mapping, attrs: Mapping) -> None:
        try:
            spec = lowering.get_op(self.type)
        except lowering.UnknownOpError as unknown:
            error = ValueError(f'Operator "{self.type}" has not been registered.')
            error.add_note(f"{unknown} ({self._where()})")
            raise error from unknown
        self.op.proto.type = self.type
        self._fill_slots(self.op.proto.inputs, "Input", inputs or {}, spec.inputs, keep_absent=inputs is not None)
        self._fill_slots(self.op.proto.outputs, "Output", outputs, spec.outputs, keep_absent=False)
        self._fill_attrs(attrs, spec)
        self.op._forget()
        for argument in outputs.values():
            for variable in argument if isinstance(argument, (list, tuple)) else (argument,):
                if isinstance(variable, Variable):
                    variable.op = self.op

    def _where(self) -> str:
        return "at " + callstack.describe_entry(callstack.user_entry(self.stack))

    def _fail(self, text: str) -> ArgumentError:
        return ArgumentError(f"op {self.type} ({self._where()}): {text}")

    def _fill_slots(self, messages: Any, kind: str, given: Mapping, slots: Sequence[Any], keep_absent: bool) -> None:
        """Write the slots in order of their names. An absent optional input becomes an empty slot.

        Only an op without any inputs, such as ``fill_constant``, has no input slots at all.
        """
        for slot in sorted(slots, key=lambda slot: slot.name):
            argument = given.get(slot.name)
            if argument is None:
                if not slot.dispensable:
                    raise self._fail(f"{kind} {slot.name} not found. Give it: {kind.lower()}s={{'{slot.name}': ...}}.")
                if keep_absent and not slot.newer:
                    messages.add(parameter=slot.name)
                continue
            messages.add(parameter=slot.name, arguments=self._names(argument, kind, slot))
        known = {slot.name for slot in slots}
        unknown = [k for k in given if k not in known and given[k] is not None]
        tell_left_out(self.type, f"{kind.lower()} slot", unknown, known)

    def _names(self, argument: Any, kind: str, slot: Any) -> list[str]:
        items = list(argument) if isinstance(argument, (list, tuple)) else [argument]
        if len(items) > 1 and not slot.duplicable:
            raise self._fail(
                f"{kind} {slot.name} expects only one {kind.lower()}, but {len(items)} are given. Give one variable."
            )
        found = []
        for item in items:
            if isinstance(item, bytes):
                item = item.decode()
            if not isinstance(item, (str, Variable)):
                raise TypeError(
                    f"op {self.type} ({self._where()}): {kind.lower()} {slot.name} holds {item!r} of type "
                    f"{type(item).__name__}. Expected a Variable, a variable's name, or a list of them."
                )
            if isinstance(item, EagerVariable):
                item = captured(self.op.block.program, item)
            found.append(item if isinstance(item, str) else item.name)
        return found

    def _fill_attrs(self, attrs: Mapping, spec: Any) -> None:
        program = self.op.block.program
        own = {k: _plain(v) for k, v in attrs.items() if v is not None and k not in BOOKKEEPING_TYPES}
        unknown = unknown_attrs(self.type, own, newer=False)
        tell_left_out(self.type, "attribute", unknown, spec.attrs)
        own = {k: v for k, v in own.items() if k not in unknown}
        try:
            own = lowering.check_attrs(self.type, own)
        except lowering.AttrError as error:
            raise lowering.AttrError(f"{error} ({self._where()})") from error
        proto = self.op.proto
        for name, value in own.items():
            declared = spec.attrs.get(name)
            _add_attr(proto, name, value, None if declared is None else attr_type(declared.type))
        for name, default in (
            (names.OP_ROLE, int(program._op_role)),
            (names.OP_ROLE_VAR, program.op_role_var),
            (names.OP_NAMESCOPE, program._name_scope_path()),
            (names.OP_DEVICE, self._device_recorded()),
        ):
            value = attrs.get(name)
            _add_attr(proto, name, default if value is None else _plain(value), BOOKKEEPING_TYPES[name])
        _add_attr(proto, names.OP_CALLSTACK, self.stack, AttrType.STRINGS)

    def _device_recorded(self) -> str:
        """The device of the guard around this op; none, with a warning, for an op without a kernel."""
        device = self.op.block.program._device()
        if not device or self.op._has_kernel(self.type):
            return device
        warnings.warn(
            f"The Op({self.type}) is not support to set device. It has no kernel of its own, so op_device stays empty "
            f"({self._where()}); expected ops that compute under device_guard({device!r}). Leave the guard for it.",
            stacklevel=callstack.depth_of_user(),
        )
        return ""


def _add_attr(proto: pb.OpDesc, name: str, value: Any, kind: AttrType | None) -> None:
    try:
        messages.add_attr(proto, name, value, kind)
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(f"op {proto.type}: attribute {name}: {error}.") from error


def _plain(value: Any) -> Any:
    """An attribute value in the form expected by the checks: blocks as indices, variables as names."""
    if isinstance(value, Variable):
        return value.name
    if isinstance(value, descs.BlockDescView):
        return value.id
    if hasattr(value, "idx") and hasattr(value, "ops"):
        return value.idx
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value
