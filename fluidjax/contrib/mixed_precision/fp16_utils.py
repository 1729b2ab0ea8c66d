"""Rewriting a program to 16 bits, and updating the loss scaling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidjax import layers
from fluidjax.base.enums import VarType
from fluidjax.contrib.mixed_precision.fp16_lists import AutoMixedPrecisionLists
from fluidjax.framework import Block, Operator, Program, Variable

_HOLDS_FLOATS = (VarType.LOD_TENSOR, VarType.SELECTED_ROWS, VarType.LOD_TENSOR_ARRAY)
_SUFFIX = {VarType.FP32: "fp32", VarType.FP16: "fp16", VarType.BF16: "bf16"}
_READERS = ("create_py_reader", "read")
_NORMALISATIONS = ("batch_norm", "sync_batch_norm")
_BACKWARD, _OPTIMIZE = 1, 2


def find_true_prev_op(ops: Sequence[Operator], cur_op: Operator, var_name: str) -> Operator | None:
    """The last op before ``cur_op`` that writes ``var_name``, or None."""
    found = None
    for op in ops:
        if op is cur_op:
            break
        if var_name in op.output_arg_names:
            found = op
    return found


def find_true_post_op(ops: Sequence[Operator], cur_op: Operator, var_name: str) -> list[Operator]:
    """The ops after ``cur_op`` that read ``var_name``."""
    place = next(index for index, op in enumerate(ops) if op is cur_op)
    return [op for op in ops[place + 1 :] if var_name in op.input_arg_names]


def find_op_index(block_desc: Any, cur_op_desc: Any) -> int:
    """The position of an OpDesc in its BlockDesc, or -1."""
    for index in range(block_desc.op_size()):
        if block_desc.op(index).proto is cur_op_desc.proto:
            return index
    return -1


def _names_black(op: Operator, lists: AutoMixedPrecisionLists) -> bool:
    names = lists.black_varnames or set()
    return not names.isdisjoint(op.input_arg_names) or not names.isdisjoint(op.output_arg_names)


class _Marks:
    """Classifies the ops of a block: 16 bits (white), 32 bits (black), or whatever they are given."""

    def __init__(self, block: Block, lists: AutoMixedPrecisionLists) -> None:
        self.lists = lists
        self.white: set[int] = set()
        self.black: set[int] = set()
        writer: dict[str, Operator] = {}
        for op in block.ops:
            if op.type not in _READERS:
                self._mark(op, writer)
            writer.update(dict.fromkeys(op.output_arg_names, op))

    def _mark(self, op: Operator, writer: dict[str, Operator]) -> None:
        lists = self.lists
        if _names_black(op, lists) or op.type in lists.black_list:
            self.black.add(id(op))
        elif op.type in lists.white_list:
            self.white.add(id(op))
        elif op.type in lists.gray_list:
            before = [writer[name] for name in op.input_arg_names if name in writer]
            if any(id(prev) in self.black or prev.type in lists.black_list for prev in before):
                self.black.add(id(op))
            elif any(id(prev) in self.white or prev.type in lists.white_list for prev in before):
                self.white.add(id(op))
        else:
            self.black.add(id(op))


def rewrite_program(main_prog: Program, amp_lists: AutoMixedPrecisionLists) -> None:
    """Insert casts so that white ops compute in 16 bits and black ones in 32; gray ones follow their inputs.

    Call it before the backward pass is appended. Parameters stay float32 and are cast before each use.

    Args:
        main_prog: the program; its global block is rewritten.
        amp_lists: the op types.
    """
    block = main_prog.global_block()
    marks = _Marks(block, amp_lists)
    low = amp_lists.dtype
    for op in list(block.ops):
        if id(op) in marks.black:
            _cast_inputs(block, op, low, VarType.FP32)
        elif id(op) in marks.white:
            _cast_inputs(block, op, VarType.FP32, low)
            _lower_outputs(block, op, low)


def _cast_inputs(block: Block, op: Operator, source: VarType, target: VarType) -> None:
    """Make ``op`` read casts to ``target`` of those inputs whose dtype is ``source``."""
    lowers = source == VarType.FP32
    place = next(index for index, other in enumerate(block.ops) if other is op)
    for slot in op.input_names:
        if lowers and op.type in _NORMALISATIONS and slot != "X":
            continue
        for name in op.input(slot):
            var = block._var_recursive(name)
            if var.type not in _HOLDS_FLOATS:
                continue
            if var.dtype == source:
                op._rename_input(name, _cast(block, place, var, target).name)
            elif op.has_attr("in_dtype"):
                op._set_attr("in_dtype", int(target))


def _cast(block: Block, place: int, var: Variable, target: VarType) -> Variable:
    """The cast of ``var``, inserted at position ``place`` unless it exists."""
    name = f"{var.name}.cast_{_SUFFIX[target]}"
    found = block.vars.get(name)
    if found is not None and found.dtype == target:
        return found
    made = block.create_var(name=name, dtype=target, persistable=False, stop_gradient=False)
    attrs = {"in_dtype": int(var.dtype), "out_dtype": int(target)}
    block._insert_op(place, type="cast", inputs={"X": var}, outputs={"Out": made}, attrs=attrs)
    return made


def _lower_outputs(block: Block, op: Operator, low: VarType) -> None:
    for slot in op.output_names:
        if op.type in _NORMALISATIONS and slot != "Y":
            continue
        for name in op.output(slot):
            var = block._var_recursive(name)
            if var.type in _HOLDS_FLOATS and var.dtype == VarType.FP32:
                var.desc.set_dtype(low)
                if op.has_attr("out_dtype"):
                    op._set_attr("out_dtype", int(low))


def update_role_var_grad(main_prog: Program, params_grads: Sequence[tuple[Variable, Variable]]) -> None:
    """Record parameters on the ops that complete their 16-bit gradients, and move the casts to 32 bits after them.

    Raises:
        ValueError: a cast is not part of the backward pass, or its result is read by anything but an update.
    """
    block = main_prog.global_block()
    for param, grad in params_grads:
        op = next((op for op in reversed(block.ops) if grad.name in op.output_arg_names), None)
        if op is not None and grad.dtype == VarType.FP32 and op.type == "cast":
            _move_cast(block, op, param, grad)


def _move_cast(block: Block, op: Operator, param: Variable, grad: Variable) -> None:
    if not (op.attr("op_role") & _BACKWARD and op.has_attr("op_role_var")):
        raise ValueError(
            f"the cast that makes {grad.name!r} has op_role {op.attr('op_role')}; expected one of the backward pass. "
            "Call update_role_var_grad right after backward"
        )
    op._remove_attr("op_role_var")
    low_grad = op.input(op.input_names[0])[0]
    writer = next(other for other in reversed(block.ops) if low_grad in other.output_arg_names)
    pair = [param.name, low_grad]
    writer._set_attr("op_role_var", pair + (writer.attr("op_role_var") if writer.has_attr("op_role_var") else []))
    op._set_attr("op_role", _OPTIMIZE)
    if op is block.ops[-1]:
        return
    readers = find_true_post_op(block.ops, op, grad.name)
    if readers:
        raise ValueError(
            f"{grad.name!r} is read by op {readers[0].type}; expected updates alone to read a parameter's gradient. "
            "Call update_role_var_grad right after backward"
        )
    place = next(index for index, other in enumerate(block.ops) if other is op)
    inputs = {slot: op.input(slot) for slot in op.input_names}
    outputs = {slot: op.output(slot) for slot in op.output_names}
    block._append_op_desc(op.type, inputs, outputs, op.all_attrs(), like=op)
    block._remove_op(place)


def update_loss_scaling(
    is_overall_finite: Variable,
    prev_loss_scaling: Variable,
    num_good_steps: Variable,
    num_bad_steps: Variable,
    incr_every_n_steps: Variable,
    decr_every_n_nan_or_inf: Variable,
    incr_ratio: float,
    decr_ratio: float,
) -> None:
    """Append ops that increase the loss scaling after enough consecutive good steps and decrease it after bad ones.

    All Variables have shape [1].

    Args:
        is_overall_finite: bool, whether this step's gradients are finite.
        prev_loss_scaling: float32, updated in place; never below 1.
        num_good_steps, num_bad_steps: int32 counters, updated in place.
        incr_every_n_steps, decr_every_n_nan_or_inf: int32, the numbers of steps required.
        incr_ratio, decr_ratio: the multipliers.
    """
    zero = layers.fill_constant(shape=[1], dtype="int32", value=0)
    counters = (num_good_steps, num_bad_steps)
    with layers.Switch() as finite:
        with finite.case(is_overall_finite):
            enough = layers.less_than(incr_every_n_steps, num_good_steps + 1)
            with layers.Switch() as raising:
                with raising.case(enough):
                    _raise_scaling(prev_loss_scaling, incr_ratio)
                    _reset(counters, zero)
                with raising.default():
                    layers.increment(num_good_steps)
                    layers.assign(zero, num_bad_steps)
        with finite.default():
            enough = layers.less_than(decr_every_n_nan_or_inf, num_bad_steps + 1)
            with layers.Switch() as lowering:
                with lowering.case(enough):
                    _lower_scaling(prev_loss_scaling, decr_ratio)
                    _reset(counters, zero)
                with lowering.default():
                    layers.assign(zero, num_good_steps)
                    layers.increment(num_bad_steps)


def _reset(counters: Sequence[Variable], zero: Variable) -> None:
    for counter in counters:
        layers.assign(zero, counter)


def _raise_scaling(scaling: Variable, ratio: float) -> None:
    raised = scaling * ratio
    is_finite = layers.isfinite(raised)
    with layers.Switch() as switch:
        with switch.case(is_finite):
            layers.assign(raised, scaling)
        with switch.default():
            pass


def _lower_scaling(scaling: Variable, ratio: float) -> None:
    lowered = scaling * ratio
    one = layers.fill_constant(shape=[1], dtype="float32", value=1.0)
    below = layers.less_than(lowered, one)
    with layers.Switch() as switch:
        with switch.case(below):
            layers.assign(one, scaling)
        with switch.default():
            layers.assign(lowered, scaling)
