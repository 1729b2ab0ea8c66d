"""Some recorded networks as C programs; ``python -m tests.golden.c`` converts whole folders, with -O3."""

import pytest

from tests.golden.c import convert
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
