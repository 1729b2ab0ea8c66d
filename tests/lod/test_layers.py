"""The ops that sequence layers write: types, attributes, names and shapes, as Paddle 1.8.5 writes them."""

from __future__ import annotations

import pytest

import fluidjax as fluid
from fluidjax import layers


def data(name, shape, dtype="float32", lod=0):
    return fluid.data(name, [None if d == -1 else d for d in shape], dtype, lod_level=lod)


def rows(name="x", width=8, dtype="float32", lod=1):
    return data(name, [-1, width], dtype, lod)


def ids(name="x"):
    return rows(name, 1, "int64")


# name: (call, [(op type, attributes among those written)], shape and LoD level of the first result)
CASES = {
    "pool": (
        lambda: layers.sequence_pool(rows(), "sqrt", pad_value=0.5),
        [("sequence_pool", {"pooltype": "SQRT", "pad_value": 0.5, "is_test": False})],
        ((-1, 8), 0),
    ),
    "last step of two levels": (
        lambda: layers.sequence_last_step(rows(lod=2)),
        [("sequence_pool", {"pooltype": "LAST", "pad_value": 0.0})],
        ((-1, 8), 1),
    ),
    "conv": (
        lambda: layers.sequence_conv(rows(), 5, 4, act="tanh"),
        [
            ("sequence_conv", {"contextLength": 4, "contextStart": -2, "contextStride": 1}),
            ("elementwise_add", {"axis": 1}),
            ("tanh", {}),
        ],
        ((-1, 5), 1),
    ),
    "expand": (
        lambda: layers.sequence_expand(rows(lod=0), rows("y", lod=2), ref_level=0),
        [("sequence_expand", {"ref_level": 0})],
        ((-1, 8), 0),
    ),
    "expand_as": (
        lambda: layers.sequence_expand_as(rows(lod=0), rows("y")),
        [("sequence_expand_as", {})],
        ((-1, 8), 1),
    ),
    "pad": (
        lambda: layers.sequence_pad(rows(), data("v", [1]), maxlen=5),
        [("sequence_pad", {"padded_length": 5})],
        ((-1, 5, 8), 0),
    ),
    "unpad": (
        lambda: layers.sequence_unpad(data("x", [-1, 5, 3]), data("n", [-1], "int64")),
        [("sequence_unpad", {})],
        ((-1, 3), 1),
    ),
    "reshape": (
        lambda: layers.sequence_reshape(rows(), 4),
        [("sequence_reshape", {"new_dim": 4})],
        ((-1, 4), 1),
    ),
    "enumerate": (
        lambda: layers.sequence_enumerate(ids(), 2, pad_value=3),
        [("sequence_enumerate", {"win_size": 2, "pad_value": 3})],
        ((-1, 2), 1),
    ),
    "mask": (
        lambda: layers.sequence_mask(data("x", [-1], "int64"), maxlen=4, dtype="float32"),
        [("sequence_mask", {"maxlen": 4, "out_dtype": 5})],
        ((-1, 4), 0),
    ),
    "lod_append": (
        lambda: layers.lod_append(rows(), [0, 1, 2]),
        [("lod_reset", {"append": True, "target_lod": [0, 1, 2]})],
        ((-1, 8), 2),
    ),
    "im2sequence": (
        lambda: layers.im2sequence(data("x", [-1, 3, 8, 8]), filter_size=[2, 1], padding=[1, 2]),
        [("im2sequence", {"kernels": [2, 1], "paddings": [1, 2, 1, 2], "strides": [1, 1]})],
        ((-1, 6), 1),
    ),
    "crf": (
        lambda: layers.linear_chain_crf(rows(), ids("l")),
        [("linear_chain_crf", {})],
        ((-1, 1), 0),
    ),
    "ctc": (
        lambda: layers.warpctc(rows(), rows("l", 1, "int32"), blank=2, norm_by_times=True),
        [("warpctc", {"blank": 2, "norm_by_times": True})],
        ((-1, 1), 0),
    ),
    "greedy decoder of a padded batch": (
        lambda: layers.ctc_greedy_decoder(
            data("x", [-1, 7, 8]), blank=0, input_length=data("n", [-1, 1], "int64"), padding_value=2
        ),
        [
            ("top_k", {"k": 1}),
            ("squeeze2", {"axes": [2]}),
            ("ctc_align", {"blank": 0, "merge_repeated": True, "padding_value": 2}),
        ],
        ((-1, 7), 0),
    ),
    "edit distance without some tokens": (
        lambda: layers.edit_distance(ids(), ids("y"), normalized=False, ignored_tokens=[0, 1]),
        [
            ("sequence_erase", {"tokens": [0, 1]}),
            ("sequence_erase", {"tokens": [0, 1]}),
            ("edit_distance", {"normalized": False}),
        ],
        ((-1, 1), 0),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_ops_written(name):
    call, wanted, result = CASES[name]
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        out = call()
    ops = main.global_block().ops
    assert [op.type for op in ops] == [op_type for op_type, _ in wanted]
    for op, (_, attrs) in zip(ops, wanted, strict=True):
        assert {key: op.attr(key) for key in attrs} == attrs
    first = out[0] if isinstance(out, (list, tuple)) else out
    assert (tuple(first.shape), first.lod_level) == result


def test_names_follow_the_layer():
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        assert layers.sequence_softmax(rows("x", 1), name="s").name == "s.tmp_0"
        assert layers.linear_chain_crf(rows("e"), ids("l")).name == "linear_chain_crf_0.tmp_3"


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: layers.sequence_pool(3, "sum"), TypeError, "must be Variable"),
        (lambda: layers.sequence_enumerate(rows(), 2), TypeError, "int32"),
        (lambda: layers.sequence_concat(rows()), TypeError, "must be list"),
        (lambda: layers.lod_reset(rows()), ValueError, "target_lod"),
        (lambda: layers.sequence_pool(rows(lod=0), "sum"), Exception, "lod_level"),
    ],
)
def test_wrong_arguments_are_named(call, error, words):
    with fluid.program_guard(fluid.Program(), fluid.Program()), pytest.raises(error, match=words):
        call()
