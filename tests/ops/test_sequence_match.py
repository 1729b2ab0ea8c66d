"""Gradients of the ops whose sizes follow from known LoDs, by ``jax.vjp`` and central differences in float64."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import lowering
from lowering.engine.call import call
from lowering.program import GRAD
from lowering.values import LoDArray, data_of
from tests.lod.property import valid_rows

STEP = 1e-6


def ragged(rng, lengths, *width):
    off = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return LoDArray(rng.standard_normal((int(off[-1]), *width)), (off,))


def flat(rng, sizes):
    return ragged(rng, sizes, 1)


def match_matrix(rng):
    ins = {"X": ragged(rng, [2, 0, 3], 4), "Y": ragged(rng, [3, 2, 1], 4), "W": rng.standard_normal((4, 2, 4))}
    return ins, {"dim_t": 2}, ("X", "Y", "W")


def topk_pooling(rng):
    rows, cols = [2, 1, 3], [3, 2, 1]
    ins = {"ROW": ragged(rng, rows, 1), "COLUMN": ragged(rng, cols, 1)}
    ins["X"] = flat(rng, [2 * r * c for r, c in zip(rows, cols, strict=True)])
    return ins, {"topks": [1, 2], "channel_num": 2}, ("X",)


def variable_conv(rng):
    rows, cols = [3, 1, 2], [2, 3, 4]
    ins = {"ROW": ragged(rng, rows, 1), "COLUMN": ragged(rng, cols, 1), "W": rng.standard_normal((2, 12))}
    ins["X"] = flat(rng, [2 * r * c for r, c in zip(rows, cols, strict=True)])
    attrs = {"InputChannel": 2, "OutputChannel": 2, "KernelH": 2, "KernelW": 3, "StrideW": 2}
    return ins, attrs, ("X", "W")


def unpad(rng):
    ins = {"X": rng.standard_normal((3, 4, 2)), "Length": np.array([2, 0, 4])}
    return ins, {}, ("X",)


def chosen_instances(rng):
    tags = LoDArray(np.array([[1], [2], [3], [2]]), (np.array([0, 1, 2, 4], np.int32),))
    ins = {"Ins": ragged(rng, [2, 1, 3], 2), "Ins_tag": tags, "Filter_tag": np.array([2])}
    return ins, {"is_lod": True}, ("Ins",)


def run(op_type, ins, attrs):
    definition = lowering.get_op(op_type)
    values = {slot.name: ins.get(slot.name) for slot in definition.inputs}
    return call(definition, values, attrs, {"key": None, "ctx": None})


def pulled_back(op_type, ins, attrs, slot, d_out):
    """The gradient of one input by ``jax.vjp`` of the forward rule."""

    def forward(by):
        return data_of(run(op_type, {**ins, slot: moved(ins[slot], by)}, attrs)["Out"])

    return np.asarray(jax.vjp(forward, np.zeros(data_of(ins[slot]).shape))[1](d_out)[0])


def moved(value, by):
    return value.with_data(value.data + by) if isinstance(value, LoDArray) else value + by


PROVEN = {
    "match_matrix_tensor": match_matrix,
    "sequence_topk_avg_pooling": topk_pooling,
    "var_conv_2d": variable_conv,
    "sequence_unpad": unpad,
    "filter_by_instag": chosen_instances,
}


@pytest.mark.parametrize("op_type", PROVEN)
def test_gradient_is_the_derivative(op_type, rng):
    ins, attrs, wrt = PROVEN[op_type](rng)
    with jax.enable_x64(True):
        outs = run(op_type, ins, attrs)
        weights = rng.standard_normal(valid_rows(outs["Out"]).shape)
        padding = np.zeros((outs["Out"].shape[0] - len(weights), *weights.shape[1:]))
        d_out = outs["Out"].with_data(np.concatenate([weights, padding]))
        grads = run(op_type + "_grad", {**ins, **outs, "Out" + GRAD: d_out}, attrs)
        for slot in wrt:
            got = valid_rows(grads[slot + GRAD])
            direction = rng.standard_normal(got.shape)
            ends = [
                float(
                    np.sum(
                        valid_rows(run(op_type, {**ins, slot: moved(ins[slot], s * direction)}, attrs)["Out"]) * weights
                    )
                )
                for s in (STEP, -STEP)
            ]
            assert float(np.sum(got * direction)) == pytest.approx((ends[0] - ends[1]) / (2 * STEP), rel=1e-6), slot
            theirs = pulled_back(op_type, ins, attrs, slot, data_of(d_out))
            np.testing.assert_allclose(got, theirs[: len(got)], rtol=1e-9, atol=1e-12, err_msg=slot)


CHANNELS = {"var_conv_2d": "InputChannel", "sequence_topk_avg_pooling": "channel_num"}


@pytest.mark.parametrize("op_type, channels", CHANNELS.items())
def test_matrices_larger_than_their_numbers_are_refused(op_type, channels, rng):
    ins, attrs, _ = PROVEN[op_type](rng)
    with pytest.raises(ValueError, match=r"expected rows \* columns \* channels"):
        run(op_type, ins, {**attrs, channels: attrs[channels] + 5})
