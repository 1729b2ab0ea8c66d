"""Some recorded networks as C programs; ``python -m tests.golden.c`` converts whole folders, with -O3."""

import numpy as np
import pytest

from tests.golden.c import convert, rounding_alone
from tests.golden.recordings import DATA
from tests.golden.zoocase import ZooCase

# One of each kind: sparse rows, sequences, a recurrent block, branches, convolutions, random numbers.
QUICK = [
    ("opt_adam_sparse", "step"),
    ("lod_pool_sum", "step"),
    ("ut_RecurrentOpTest1", "step"),
    ("ctrl_ifelse", "forward"),
    ("book_recognize_digits_conv", "forward"),
    ("w2v_nce", "forward"),
    ("cv_ocr_crnn_ctc", "forward"),  # evaluators' sums, which begin with the first run
]


@pytest.mark.parametrize("name, part", QUICK)
def test_as_c(name, part, tmp_path):
    result = convert(ZooCase(DATA / "zoo" / name), part, tmp_path, ("-O1",))
    assert not result.absent and not result.problems, result


def test_zero_gradients_are_known_by_float64():
    """What the exact step leaves where it was may be moved by rounding, in both by about as much."""
    before = np.ones(3, np.float32)
    found, expected = before + np.float32(9e-5), before - np.float32(8e-5)
    assert "moved by 9.0e-05 through rounding alone" in rounding_alone(before, found, expected, 0.0)
    assert not rounding_alone(before, found, expected, 1e-4), "the exact step moves it"
    assert not rounding_alone(before, before + np.float32(9e-3), expected, 0.0), "much farther than the Executor"
