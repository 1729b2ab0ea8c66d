"""Attributes of Paddle 2.6's ops: computed with, known to change nothing, or refused; none is ignored silently."""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
import lowering
from fluidjax.command import cli
from fluidjax.framework import program_view
from fluidjax.proto import framework_pb2 as pb
from lowering.engine.shapes.validate import problems
from lowering.registry.newer import HINTS, NEUTRAL, NEUTRAL_ANYWHERE, is_known

# Of no effect on what is computed here: what devices and processes share, and what a layer of the server knows.
ELSEWHERE = {
    "broadcast": "ring_id",
    "c_comm_init": "device_id endpoints",
    "distributed_lookup_table": "is_distributed",
}
# Parameters of rules that their formulas do not need: attribute -> ops.
UNREAD = {
    # Random numbers follow from the program's seed and the op's, which the key holds.
    "seed": "cudnn_lstm dpsgd fused_dropout_add gaussian_inplace gaussian_random nce randint randperm rnn sampling_id"
    " tdm_sampler top_p_sampling truncated_gaussian_random uniform_random uniform_random_batch_size_like"
    " uniform_random_inplace",
    "random_seed": "top_p_sampling",
    "dropout_seed": "fused_bias_dropout_residual_layer_norm",
    "dropout_fix_seed": "fused_bias_dropout_residual_layer_norm",
    "fix_seed": "fused_dropout_add",
    "rng_name": "flash_attn flash_attn_unpadded",
    # Which kernel runs, where, and how it parts its work.
    "is_test": "conv2d conv2d_transpose conv3d depthwise_conv2d depthwise_conv2d_transpose dequantize_linear lrn pool2d"
    " softmax",
    "data_format": "sequence_softmax softmax transpose transpose2",
    "dst_place_type": "memcpy memcpy_d2h memcpy_h2d",
    "place": "full_int_array",
    "im2col_step": "deformable_conv deformable_conv_v1",
    "is_sparse": "fused_embedding_seq_pool hierarchical_sigmoid lookup_table lookup_table_v2 nce",
    "min_row_size_to_use_multithread": "adam adamw",
    "output_format": "quantize",
    "use_seq": "fused_embedding_fc_lstm fusion_gru fusion_lstm",
    "sync_stats": "data_norm",
    "nranks": "c_allgather c_concat c_reducescatter c_split",
    "rank": "c_concat c_split",
    "numeric_stable_mode": "softmax_with_cross_entropy",
    # What the inputs' shapes and data types say too.
    "hidden_size": "rnn",
    "input_size": "cudnn_lstm rnn",
    "max_len": "cudnn_lstm",
    "seq_len": "masked_multihead_attention",
    "max_seqlen_q": "flash_attn_unpadded memory_efficient_attention",
    "max_seqlen_k": "flash_attn_unpadded memory_efficient_attention",
    "num": "unstack",
    "vocab_size": "c_embedding",
    "in_dtype": "cast frobenius_norm reduce_all reduce_amax reduce_amin reduce_any reduce_max reduce_mean reduce_min"
    " reduce_prod reduce_sum",
    "infer_flags": "slice strided_slice",
    "ksize": "unpool3d",
    "strides": "unpool3d",
    "paddings": "unpool3d",
    # What gradients alone ask for, or which outputs are wanted.
    "epsilon": "data_norm p_norm",
    "lr": "pyramid_hash",
    "distribute_update_vars": "pyramid_hash",
    "norm_by_times": "warpctc",
    "overwrite": "gather",
    "soft_max_lower_bound": "teacher_student_sigmoid_loss",
    "soft_max_up_bound": "teacher_student_sigmoid_loss",
    "summary_decay_rate": "data_norm",
    "save_intermediate_out": "fused_elemwise_activation fused_elemwise_add_activation",
    # What the check of an input's numbers asks.
    "allow_out_of_range": "one_hot_v2",
    # Paddle's own kernels do not ask either, or take one value alone.
    "begin_norm_axis": "skip_layernorm",
    "check_name": "coalesce_tensor",
    "combiner": "fused_embedding_seq_pool",
    "curve": "auc",
    "data_layout": "data_norm",
    "moving_rate": "dequantize_linear",
    "round_type": "dequantize_linear",
    "share_dims_and_dtype": "share_buffer",
    "sorted": "top_k_v2",
    "transpose_K": "multihead_matmul",
    "transpose_Q": "multihead_matmul",
    "transpose_V": "multihead_matmul",
    "unpooling_type": "unpool",
}
MODEL = Path(__file__).with_name("model") / "inference.pdmodel"


@cache
def attributes() -> dict[str, list[str]]:
    """The attributes of each op of 2.6.2 that is registered here, those of its kernels on some devices included."""
    found = json.loads(Path(__file__).with_name("attributes.json").read_text())
    return {type: names.split() for type, names in found.items() if lowering.has_op(type)}


def test_each_attribute_is_known() -> None:
    unknown = []
    for type, names in attributes().items():
        known = lowering.get_op(type).attrs
        given = {*known, *(spec.later for spec in known.values()), *ELSEWHERE.get(type, "").split()}
        unknown += [f"{type}.{name}" for name in names if name not in given and not is_known(type, name)]
    assert unknown == [] and len(attributes()) > 350


def test_the_hints_are_those_of_no_rule() -> None:
    """What is said to be a hint is no attribute that a rule computes with."""
    read = {(type, name) for type in attributes() for name, spec in lowering.get_op(type).attrs.items() if spec.param}
    assert [key for key in NEUTRAL if key in read] == []
    assert NEUTRAL_ANYWHERE.keys() & HINTS == set()


def unread(type: str) -> list[str]:
    """The attributes that a rule takes and its body does not name."""
    source = textwrap.dedent(inspect.getsource(lowering.get_op(type).fn))
    rule = next(node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.Lambda))
    read = {node.id for node in ast.walk(rule) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    return [arg.arg for arg in rule.args.kwonlyargs if arg.arg not in read]


def test_what_a_rule_takes_it_reads() -> None:
    plain = [type for type in attributes() if lowering.get_op(type).kind == "plain"]
    found = {(name, type) for type in plain for name in unread(type)}
    assert found == {(name, type) for name, types in UNREAD.items() for type in types.split()}


def program(type: str, inputs: dict[str, list[int]], outputs: list[str], attrs: dict[str, Any]) -> pb.ProgramDesc:
    """An op of Paddle 2.6 on float32 variables of these shapes."""
    made, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(made, startup):
        block = made.global_block()
        for slot, shape in inputs.items():
            block.create_var(name=slot.lower(), shape=shape, dtype="float32", is_data=True)
        for slot in outputs:
            block.create_var(name=f"{slot.lower()}_out", dtype="float32")
        block.append_op(
            type=type,
            inputs={slot: [slot.lower()] for slot in inputs},
            outputs={slot: [f"{slot.lower()}_out"] for slot in outputs},
        )
    message = pb.ProgramDesc.FromString(made.desc.serialize_to_string())
    message.version.version = 2006002
    op = message.blocks[0].ops[0]
    kept = [attr for attr in op.attrs if attr.name not in attrs]
    del op.attrs[:]
    op.attrs.extend(kept)
    for name, value in attrs.items():
        op.attrs.add(name=name).CopyFrom(attribute(name, value))
    return message


def attribute(name: str, value: Any) -> pb.OpDesc.Attr:
    """An attribute that holds the value."""
    kinds = {bool: (pb.BOOLEAN, "b"), int: (pb.INT, "i"), float: (pb.FLOAT, "f"), str: (pb.STRING, "s")}
    if isinstance(value, list):
        return pb.OpDesc.Attr(name=name, type=pb.INTS, ints=value)
    kind, field = kinds[type(value)]
    return pb.OpDesc.Attr(name=name, type=kind, **{field: value})


def told(message: pb.ProgramDesc) -> str:
    return "\n".join(problems(program_view(fluid.Program.parse_from_string(message.SerializeToString()))))


X, CONV = {"X": [2, 3]}, {"Input": [1, 2, 4, 4], "Filter": [3, 2, 1, 1]}
BINARY = {"X": [2, 3], "Y": [2, 3]}
REFUSED = [
    ("elementwise_fmax", BINARY, ["Out"], "axis", 0, -1),
    ("elementwise_heaviside", BINARY, ["Out"], "axis", 1, -1),
    ("lu", {"X": [3, 3]}, ["Out", "Pivots", "Infos"], "pivots", False, True),
    ("quantize", {"Input": [2, 3]}, ["Output"], "Shift", 3.0, 0.0),
    ("quantize", {"Input": [2, 3]}, ["Output"], "bfloat16", True, False),
    ("dequantize", {"Input": [2, 3]}, ["Output"], "Shift", 3.0, 0.0),
]


@pytest.mark.parametrize(("type", "inputs", "outputs", "name", "value", "neutral"), REFUSED)
def test_what_is_not_built_is_refused(type, inputs, outputs, name, value, neutral) -> None:
    text = told(program(type, inputs, outputs, {name: value}))
    assert f"attribute {name} is {value!r}, and nothing is built but {neutral!r}" in text
    assert told(program(type, inputs, outputs, {name: neutral})) == ""


@pytest.mark.parametrize("version", [0, 2006002])
def test_what_onednn_computes_with_an_op_is_refused_if_it_is_not_built(version, tmp_path, capsys) -> None:
    message = program("conv2d", CONV, ["Output"], {"fuse_activation": "mish", "use_mkldnn": True})
    message.version.version = version
    text = told(message)
    assert "attribute fuse_activation is 'mish', which oneDNN's kernel adds to the op" in text and "conv2d (#0" in text
    with pytest.raises(lowering.UnknownOpError, match="fuse_activation"):
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(fluid.Program.parse_from_string(message.SerializeToString()), {}, [])
    (tmp_path / "__model__").write_bytes(message.SerializeToString())
    assert cli.main(["check", str(tmp_path)]) == 1
    assert "oneDNN" in capsys.readouterr().out
    plain = program("conv2d", CONV, ["Output"], {"fuse_activation": "mish", "use_mkldnn": False})
    assert told(plain) == ""  # whose kernel does not ask for it
    assert told(program("conv2d", CONV, ["Output"], {"fuse_alpha": 6.0, "use_mkldnn": True})) == ""


SQUARE = np.arange(16, dtype="float32").reshape(1, 1, 4, 4)
# What 2.6.2 gives for 3 rows and columns of it, whichever of the two ops is asked.
RESIZED = {
    "nearest": [[0, 1, 2], [4, 5, 6], [8, 9, 10]],
    "bilinear": [[0, 4 / 3, 8 / 3], [16 / 3, 20 / 3, 8], [32 / 3, 12, 40 / 3]],
}


def ran(message: pb.ProgramDesc, feed: dict[str, np.ndarray], fetch: str) -> np.ndarray:
    loaded = fluid.Program.parse_from_string(message.SerializeToString())
    return fluid.Executor(fluid.CPUPlace()).run(loaded, feed, [fetch], scope=fluid.Scope())[0]


@pytest.mark.parametrize("method", RESIZED)
@pytest.mark.parametrize("type", ["nearest_interp_v2", "bilinear_interp_v2"])
def test_the_method_and_not_the_op_says_how_images_are_resized(type, method) -> None:
    attrs = {"interp_method": method, "out_h": 3, "out_w": 3, "align_corners": False}
    message = program(type, {"X": [1, 1, 4, 4]}, ["Out"], attrs)
    np.testing.assert_allclose(ran(message, {"x": SQUARE}, "out_out")[0, 0], RESIZED[method], rtol=1e-6)


def test_an_unknown_method_is_refused() -> None:
    message = program("bilinear_interp_v2", {"X": [1, 1, 4, 4]}, ["Out"], {"interp_method": "area", "out_h": 3})
    with pytest.raises(lowering.OpError, match="interp_method is 'area', expected one of nearest"):
        ran(message, {"x": SQUARE}, "out_out")


@pytest.mark.parametrize("name", ["value", "value_float"])
def test_any_value_fills(name) -> None:
    """2.6 has ``value``; earlier ones ``value_float`` and ``value_int``."""
    message = program("fill_any", X, ["Out"], {name: 3.0})
    np.testing.assert_array_equal(ran(message, {"x": np.ones((2, 3), "float32")}, "out_out"), np.full((2, 3), 3.0))
