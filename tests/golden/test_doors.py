"""Some recorded networks through each way to predict; ``python -m tests.golden.doors`` takes whole folders."""

import pytest

from tests.golden.doors import check, models
from tests.golden.recordings import DATA
from tests.golden.zoocase import ZooCase


# Models that Paddle saved, dense and of sequences; branches.
@pytest.mark.parametrize("name", ["book_fit_a_line", "book_word2vec_sparse", "ctrl_ifelse", "lod_pool_sum"])
def test_doors(name, tmp_path):
    found = list(models(ZooCase(DATA / "zoo" / name), str(tmp_path)))
    assert found and all(check(model)[1] == [] for _, model in found)
