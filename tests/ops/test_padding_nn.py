"""Padding rows change nothing in the nn, loss, embedding and metric ops."""

import jax
import numpy as np
import pytest

import lowering
from lowering.engine.call import call
from lowering.errors import NeedsExact
from lowering.values import LoDArray
from tests.lod.property import Case, Dense, Rows, draw, values_of
from tests.lod.test_padding import COUNT, TOTAL, compare

pytestmark = pytest.mark.usefixtures("compiled_quickly")

UNIT = Rows((3,), positive=True)  # between 0.5 and 1.5
LABEL = Rows((1,), below=3)
AFFINE = {"Scale": Dense((3,)), "Bias": Dense((3,))}
STATS = {**AFFINE, "Mean": Dense((3,)), "Variance": Dense((3,))}


def _pair(op, x="X", y="Y", attrs=None, ids="", shape=(1,)):
    return Case(op, {x: Rows(shape), y: Rows(shape)}, attrs or {}, ids)


_DEFORMED = {"Input": Rows((2, 4, 5)), "Filter": Dense((3, 2, 3, 3)), "Offset": Rows((18, 4, 5))}

CASES = [
    Case("cross_entropy", {"X": UNIT, "Label": LABEL}),
    Case("cross_entropy", {"X": UNIT, "Label": UNIT}, {"soft_label": True}, "soft"),
    Case("cross_entropy2", {"X": UNIT, "Label": LABEL}),
    Case("softmax_with_cross_entropy", {"Logits": Rows(), "Label": LABEL}),
    Case("softmax_with_cross_entropy", {"Logits": Rows(), "Label": UNIT}, {"soft_label": True}, "soft"),
    _pair("sigmoid_cross_entropy_with_logits", "X", "Label"),
    _pair("hinge_loss", "Logits", "Labels"),
    _pair("huber_loss", attrs={"delta": 0.5}),
    _pair("modified_huber_loss"),
    _pair("smooth_l1_loss", shape=(3,)),
    _pair("kldiv_loss", "X", "Target", {"reduction": "none"}),
    _pair("squared_l2_distance", shape=(3,)),
    _pair("teacher_student_sigmoid_loss", "X", "Label"),
    Case("squared_l2_distance", {"X": Rows(), "Y": Dense((1, 3))}, {}, "one-row"),
    Case("label_smooth", {"X": Rows()}, {"epsilon": 0.1}),
    Case("rank_loss", {"Label": Rows((1,)), "Left": Rows((1,)), "Right": Rows((1,))}),
    Case("margin_rank_loss", {"Label": Rows((1,)), "X1": Rows((1,)), "X2": Rows((1,))}),
    Case("bpr_loss", {"X": Rows(), "Label": LABEL}),
    Case("lookup_table", {"W": Dense((5, 2)), "Ids": Rows((1,), below=5)}),
    Case("lookup_table", {"W": Dense((5, 2)), "Ids": Rows((1,), below=5)}, {"padding_idx": 1}, "padding"),
    Case("lookup_table", {"W": Dense((5, 2)), "Ids": Rows((1,), below=5)}, {"is_sparse": True}, "sparse"),
    Case("lookup_table_v2", {"W": Dense((5, 2)), "Ids": Rows((2,), below=5)}, {"is_sparse": True}, "sparse"),
    Case("layer_norm", {"X": Rows(), "Scale": Dense((3,)), "Bias": Dense((3,))}),
    Case("affine_channel", {"X": Rows((3, 2)), **AFFINE}, {"data_layout": "NCHW"}),
    Case(
        "batch_norm",
        {"X": Rows(), "Scale": Dense((3,)), "Bias": Dense((3,)), "Mean": Dense((3,)), "Variance": Dense((3,))},
    ),  # fmt: skip
    Case("batch_norm", {"X": Rows((2, 3)), **STATS}, {"data_layout": "NHWC"}, "last"),
    Case("pool2d", {"X": Rows((2, 4, 4))}, {"pooling_type": "avg", "ksize": [2, 2], "strides": [2, 2]}),
    Case("pool2d", {"X": Rows((2, 4, 4))}, {"pooling_type": "max", "ksize": [2, 2]}, "max"),
    Case("pool2d", {"X": Rows((2, 4, 5))}, {"pooling_type": "avg", "ksize": [2, 2], "adaptive": True}, "adaptive"),
    Case("pad2d", {"X": Rows((2, 3, 4))}, {"paddings": [1, 0, 2, 1], "mode": "reflect"}),
    Case("conv2d", {"Input": Rows((2, 4, 4)), "Filter": Dense((3, 2, 2, 2))}),
    Case(
        "deformable_conv",
        {**_DEFORMED, "Mask": Rows((9, 4, 5))},
        {"paddings": [1, 1]},
    ),
    Case("deformable_conv_v1", _DEFORMED, {"paddings": [1, 1]}),
    Case("bilinear_tensor_product", {"X": Rows((3,)), "Y": Rows((2,)), "Weight": Dense((4, 3, 2))}),
    Case(
        "box_coder",
        {"PriorBox": Rows((4,)), "TargetBox": Rows((2, 4))},
        {"code_type": "decode_center_size", "axis": 1, "variance": [0.1, 0.1, 0.2, 0.2]},
    ),
    Case(
        "box_decoder_and_assign",
        {"PriorBox": Rows((4,)), "TargetBox": Rows((12,)), "BoxScore": UNIT, "PriorBoxVar": Dense((4,))},
    ),
    Case(
        "hierarchical_sigmoid",
        {"X": Rows(), "W": Dense((4, 3)), "Label": Rows((1,), below=5), "Bias": Dense((4, 1))},
        {"num_classes": 5},
    ),  # fmt: skip
    Case("accuracy", {"Out": Rows((2,)), "Indices": Rows((2,), below=3), "Label": LABEL}),
]

MIXING = [
    Case("sigmoid_cross_entropy_with_logits", {"X": Rows(), "Label": Rows()}, {"normalize": True}),
    Case("kldiv_loss", {"X": Rows(), "Target": Rows()}, {"reduction": "mean"}),
    Case("softmax_with_cross_entropy", {"Logits": Rows(), "Label": Rows()}, {"axis": 0, "soft_label": True}),
]


@pytest.fixture(autouse=True)
def wide():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_padding_changes_nothing(case, rng):
    for _ in range(3):
        compare(case, draw(case, rng, COUNT, TOTAL), rng)


@pytest.mark.parametrize("case", MIXING, ids=lambda c: c.op)
def test_ops_that_mix_rows_refuse_padding(case, rng):
    values = values_of(case, draw(case, rng, COUNT, TOTAL), TOTAL + 4, "first")
    attrs = lowering.check_attrs(case.op, dict(case.attrs))
    with pytest.raises(NeedsExact):
        call(lowering.get_op(case.op), values, attrs, {"key": None, "ctx": None})


def test_auc_counts_valid_rows_only():
    scores = np.array([[0.2, 0.8], [0.9, 0.1], [0.4, 0.6], [0.4, 0.6]], np.float32)
    labels, stats = np.array([[1], [0], [0], [0]]), np.zeros((1, 101), np.int64)
    padded = LoDArray(scores, (), np.int32(2))
    _, pos, neg = lowering.get_op("auc")(padded, labels, stats, stats, num_thresholds=100, slide_steps=0)
    assert (int(pos.sum()), int(neg.sum())) == (1, 1)
