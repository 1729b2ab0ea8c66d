"""A few ops, each by an OpTest class; and an op of our own."""

from __future__ import annotations

from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np
import pytest

import lowering
from lowering.registry import table
from tests.optest.op_test import OpTest

RNG = np.random.default_rng(16)
X = RNG.uniform(0.1, 1, (3, 4))
LENGTHS = [[2, 1, 3]]


class TestTanh(OpTest):
    op_type = "tanh"
    inputs = {"X": X}
    outputs = {"Out": np.tanh(X)}

    def test_output(self) -> None:
        self.check_output()

    def test_grad(self) -> None:
        self.check_grad(["X"], ["Out"])


class TestConcat(OpTest):
    op_type = "concat"
    inputs = {"X": [("x0", X), ("x1", X[:, :2])]}
    outputs = {"Out": np.concatenate([X, X[:, :2]], 1)}
    attrs = {"axis": 1}

    def test_output(self) -> None:
        self.check_output()

    def test_grad(self) -> None:
        self.check_grad(["x0", "x1"], ["Out"])


class TestSplit(OpTest):
    op_type = "split"
    inputs = {"X": X}
    outputs = {"Out": [("left", X[:, :1]), ("right", X[:, 1:])]}
    attrs = {"axis": 1, "sections": [1, 3]}

    def test_output(self) -> None:
        self.check_output()

    def test_grad(self) -> None:
        self.check_grad(["X"], ["left", "right"])


class TestReshape(OpTest):
    op_type = "reshape2"
    inputs = {"X": X}
    outputs = {"Out": X.reshape(2, 6), "XShape": None}
    attrs = {"shape": [2, -1]}

    def test_output(self) -> None:
        self.check_output()

    def test_grad(self) -> None:
        self.check_grad(["X"], ["Out"])


class TestSequencePool(OpTest):
    op_type = "sequence_pool"
    rows = RNG.uniform(-1, 1, (6, 3))
    inputs = {"X": (rows, LENGTHS)}
    outputs = {"Out": np.stack([rows[:2].sum(0), rows[2], rows[3:].sum(0)]), "MaxIndex": None}
    attrs = {"pooltype": "SUM"}

    def test_output(self) -> None:
        self.check_output()

    def test_grad(self) -> None:
        self.check_grad(["X"], ["Out"])


class TestSequenceReverse(OpTest):
    op_type = "sequence_reverse"
    rows = RNG.uniform(-1, 1, (6, 3))
    inputs = {"X": (rows, LENGTHS)}
    outputs = {"Y": (rows[[1, 0, 2, 5, 4, 3]], LENGTHS)}

    def test_output(self) -> None:
        self.check_output()

    def test_grad(self) -> None:
        self.check_grad(["X"], ["Y"])


@pytest.fixture(scope="module", autouse=True)
def cubed() -> Iterator[None]:
    """An op of our own, for as long as this module's tests run."""

    @lowering.op(out="Out", rows=lowering.WISE)
    def optest_cubed(x, *, scale: float = 1.0):
        """Out = scale * X^3."""
        return jnp.asarray(scale, x.dtype) * x**3

    @optest_cubed.grad
    def _(x, d_out, *, scale):
        return 3 * jnp.asarray(scale, x.dtype) * x**2 * d_out

    yield
    for name in ("optest_cubed", "optest_cubed_grad"):
        del table._REGISTRY[name]


class TestOwnOp(OpTest):
    op_type = "optest_cubed"
    inputs = {"X": X}
    outputs = {"Out": 2 * X**3}
    attrs = {"scale": 2.0}

    def test_output(self) -> None:
        self.check_output()

    def test_grad(self) -> None:
        self.check_grad(["X"], ["Out"])


class TestCtcAlign(OpTest):
    """Only the run knows how many rows are left, in eager mode as well."""

    op_type = "ctc_align"
    inputs = {"Input": (np.array([[0], [3], [3], [0], [5], [0], [0]], "int32"), [[3, 4]])}
    outputs = {"Output": (np.array([[3], [5]], "int32"), [[1, 1]])}

    def test_output(self) -> None:
        self.check_output()


class TestFusedElementwise(OpTest):
    """Its maker binds a gradient of the value between, which no rule computes."""

    op_type = "fused_elemwise_activation"
    inputs = {"X": X, "Y": X[::-1]}
    outputs = {"Out": X + X[::-1], "IntermediateOut": X[::-1]}
    attrs = {"functor_list": ["elementwise_add", "relu"], "save_intermediate_out": True}

    def test_output(self) -> None:
        self.check_output()

    def test_grad(self) -> None:
        self.check_grad(["X", "Y"], ["Out"])


class TestGenerateProposalLabels(OpTest):
    """An op on the host that may draw, in eager mode as well."""

    op_type = "generate_proposal_labels"
    _boxes = np.array([[0, 0, 9, 9], [20, 20, 39, 39]], "float32")
    inputs = {
        "RpnRois": (_boxes, [[2]]),
        "GtClasses": (np.array([[1]], "int32"), [[1]]),
        "IsCrowd": (np.array([[0]], "int32"), [[1]]),
        "GtBoxes": (_boxes[:1], [[1]]),
        "ImInfo": np.array([[50, 50, 1]], "float32"),
    }
    outputs = {
        "Rois": (_boxes[[0, 0, 1]], [[3]]),
        "LabelsInt32": (np.array([[1], [1], [0]], "int32"), [[3]]),
        "BboxTargets": None,
        "BboxInsideWeights": None,
        "BboxOutsideWeights": None,
    }
    attrs = {
        "batch_size_per_im": 4,
        "fg_fraction": 0.5,
        "fg_thresh": 0.5,
        "bg_thresh_hi": 0.5,
        "bg_thresh_lo": 0.0,
        "bbox_reg_weights": [0.1, 0.1, 0.2, 0.2],
        "class_nums": 2,
        "use_random": False,
    }

    def test_output(self) -> None:
        self.check_output()


class TestWrongExpectation(OpTest):
    """The class itself: what is wrong is found."""

    op_type = "tanh"
    inputs = {"X": X}
    outputs = {"Out": np.tanh(X) + 1e-3}

    def test_a_wrong_output_is_found(self) -> None:
        with pytest.raises(AssertionError, match="tanh, program: Out"):
            self.check_output()

    def test_a_wrong_gradient_is_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(self, "_differences", lambda wrt, of: np.ones(X.shape))
        with pytest.raises(AssertionError, match="tanh, program: X@GRAD"):
            self.check_grad(["X"], ["Out"])
