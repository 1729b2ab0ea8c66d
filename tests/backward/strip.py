"""A recorded training program without its gradients, and the comparison of two programs op by op."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import fluidjax.framework as framework
from fluidjax.backward import append_backward
from fluidjax.framework import messages
from fluidjax.framework.attrs import read_attr
from fluidjax.proto.framework_pb2 import ProgramDesc

LOSS_GRADIENT = 257  # op_role of the op that starts the backward pass
BACKWARD = 1
# Their results never carry a gradient: Fluid's layers mark them.
CREATORS = frozenset(
    "fill_constant fill_constant_batch_size_like assign_value range uniform_random gaussian_random zeros_like "
    "fill_zeros_like one_hot one_hot_v2 sequence_mask shape diag".split()
)
# What the networks' own code marked.
MARKED = {
    "det_ssd": [f"flatten_{i}.tmp_0" for i in (14, 15, 17, 18)],
    "misc_tensor_ops": ["argsort_0.tmp_0", "top_k_0.tmp_0", "softmax_0.tmp_0"],
    "nlp_xlnet_last": ["cast_1.tmp_0", "dropout_1.tmp_0"],
    "cv_video_bsn_pem": ["tmp_20"],
    "nlp_ernie_base": ["stack_0.tmp_0"],
    "nlp_transformer": ["reduce_sum_1.tmp_0", "embedding_1.tmp_0", "embedding_3.tmp_0"],
}
NO_GRAD = {"opt_parameter_list_no_grad_set": {"emb"}}


@dataclass
class Op:
    """An op as compared: no callstack, and slots whose order is arbitrary as sorted lists."""

    type: str
    inputs: dict[str, list[str]]
    outputs: dict[str, list[str]]
    attrs: dict[str, Any]


def role(op: Any) -> int:
    return next((attr.i for attr in op.attrs if attr.name == "op_role"), 0)


def read_op(op: Any) -> Op:
    """What is compared of an OpDesc."""
    inputs = {slot.parameter: list(slot.arguments) for slot in op.inputs}
    outputs = {slot.parameter: list(slot.arguments) for slot in op.outputs}
    attrs = {a.name: read_attr(a) for a in op.attrs if a.name != "op_callstack"}
    if op.type == "while_grad":  # Paddle writes these in the order of a hash table
        inputs["Out@GRAD"] = sorted(inputs["Out@GRAD"])
        attrs["original_output_grad"] = sorted(attrs["original_output_grad"])
    return Op(op.type, inputs, outputs, attrs)


def loss_name(desc: ProgramDesc) -> str:
    """The variable whose gradient starts the backward pass."""
    first = next(op for op in desc.blocks[0].ops if role(op) == LOSS_GRADIENT)
    return first.outputs[0].arguments[0].removesuffix("@GRAD")


def forward_part(desc: ProgramDesc) -> ProgramDesc:
    """The program as it was when append_backward was called."""
    bare = ProgramDesc()
    bare.CopyFrom(desc)
    ops = bare.blocks[0].ops
    end = next(i for i, op in enumerate(ops) if role(op) == LOSS_GRADIENT)
    del ops[end:]
    first_grad_block = next((i for i, b in enumerate(bare.blocks) if b.forward_block_idx >= 0), len(bare.blocks))
    del bare.blocks[first_grad_block:]
    for block in bare.blocks:
        written = {n for op in block.ops for slot in op.outputs for n in slot.arguments}
        for index in reversed(range(len(block.vars))):
            if "@GRAD" in block.vars[index].name and block.vars[index].name not in written:
                del block.vars[index]
    return bare


def program_of(desc: ProgramDesc, startup: ProgramDesc, meta: dict[str, Any]) -> framework.Program:
    """The forward part as a Program, with parameters and stop_gradient as the network's layers had set them."""
    program = framework.Program.parse_from_string(forward_part(desc).SerializeToString())
    differentiated = {var.name.partition("@GRAD")[0] for b in desc.blocks for var in b.vars if "@GRAD" in var.name}
    made = (op for block in program.blocks for op in block.ops if op.type in CREATORS)
    created = {name for op in made for name in op.output_arg_names if "@GRAD" not in name}
    stopped = ({*created, *meta["feed_vars"]} - differentiated) | set(MARKED.get(meta["name"], ()))
    for block in program.blocks:
        for name, var in list(block.vars.items()):
            info = meta["vars"].get(name)
            if info is not None and info.get("parameter"):
                make_parameter(block, var, info.get("trainable") is not False)
            elif info is not None or name in stopped:
                var.stop_gradient = True
    order_parameters(program, startup)
    # Networks with a gradient penalty called gradients() once before.
    program._appending_grad_times = int(any(role(op) & BACKWARD for op in program.proto.blocks[0].ops))
    return program


def order_parameters(program: framework.Program, startup: ProgramDesc) -> None:
    """Put variables in the order in which the layers made them: the reverse of their initialisation."""
    written = [n for op in reversed(startup.blocks[0].ops) for slot in op.outputs for n in slot.arguments]
    place = {name: index for index, name in enumerate(written)}
    block = program.global_block()
    block.vars = dict(sorted(block.vars.items(), key=lambda item: place.get(item[0], len(place))))


def make_parameter(block: Any, var: Any, trainable: bool) -> None:
    """Make a variable of a parsed program the parameter it was."""
    parameter = framework.Parameter._of(block, var.proto)
    parameter.trainable = trainable
    parameter.stop_gradient = not trainable
    block.vars[var.name] = parameter


def backward_ops(desc: ProgramDesc) -> list[list[Op]]:
    """The ops of the backward pass, by block: those of block 0 from the loss's gradient on, and gradient blocks."""
    ops = list(desc.blocks[0].ops)
    start = next(i for i, op in enumerate(ops) if role(op) == LOSS_GRADIENT)
    main = [op for op in ops[start:] if role(op) & BACKWARD]
    inner = [block.ops for block in desc.blocks if block.forward_block_idx >= 0]
    return [[read_op(op) for op in block] for block in [main, *inner]]


def parameter_list(desc: ProgramDesc) -> list[str]:
    """The parameters that were asked for; op_role_var holds those of one op last to first."""
    names: list[str] = []
    for op in backward_ops(desc)[0]:
        names += reversed(op.attrs.get("op_role_var", [])[::2])
    return names


def rerun(desc: ProgramDesc, startup: ProgramDesc, meta: dict[str, Any]) -> ProgramDesc:
    """Our backward pass of the recorded forward program."""
    program = program_of(desc, startup, meta)
    options: dict[str, Any] = {"no_grad_set": NO_GRAD.get(meta["name"])}
    if "parameter_list" in meta["optimizer"]:
        options["parameter_list"] = parameter_list(desc)
    append_backward(program.global_block().var(loss_name(desc)), **options)
    return program.proto


def first_difference(expected: list[list[Op]], got: list[list[Op]]) -> str:
    """Where two backward passes differ first; '' when they do not."""
    if len(expected) != len(got):
        return f"{len(got)} gradient blocks, expected {len(expected)}"
    for number, (wanted, found) in enumerate(zip(expected, got, strict=True)):
        for index, (a, b) in enumerate(zip(wanted, found, strict=False)):
            if a != b:
                parts = [p for p in ("type", "inputs", "outputs", "attrs") if getattr(a, p) != getattr(b, p)]
                text = "; ".join(f"{p}: expected {getattr(a, p)}, got {getattr(b, p)}" for p in parts)
                return f"part {number} op {index} {a.type}: {text}"
        if len(wanted) != len(found):
            return f"part {number}: {len(found)} ops, expected {len(wanted)}"
    return ""


def declared(desc: ProgramDesc) -> dict[tuple[int, str], tuple[Any, ...]]:
    """What is declared of each gradient that is a tensor or an array: kind, shape, data type and LoD level."""
    found = {}
    for block in desc.blocks:
        for var in block.vars:
            tensor, holder = messages.tensor_desc(var), messages.lod_holder(var)
            if "@GRAD" in var.name and tensor is not None:
                level = holder.lod_level if holder is not None else None
                found[block.idx, var.name] = (var.type.type, tuple(tensor.dims), tensor.data_type, level)
    return found
