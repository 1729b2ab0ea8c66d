"""The network recordings that are kept with the tests; ``python -m tests.golden.zoo`` replays whole folders."""

import pytest

from tests.golden.recordings import DATA
from tests.golden.zoo import PARTS, missing_ops
from tests.golden.zoocase import ZooCase
from tests.golden.zoorunner import replay


@pytest.fixture(autouse=True)
def own_copy(monkeypatch):
    monkeypatch.setenv("FLUIDJAX_GOLDEN", str(DATA))


NETWORKS = sorted(p.parent.name for p in (DATA / "zoo").glob("*/meta.json"))
# Small programs that also run op by op: one of each kind (dense, sparse, ragged, loops).
INTERPRETED = (
    "book_fit_a_line",
    "book_t_word2vec_sparse",
    "lod_pool_sum",
    "book_understand_sentiment_dyn_rnn",
    "opt_adam_sparse",
)


@pytest.mark.parametrize("name", NETWORKS)
def test_replay(name):
    report = replay(ZooCase(DATA / "zoo" / name), PARTS)
    assert report.passed, "\n".join([*report.problems, report.trace])


@pytest.mark.parametrize("name", INTERPRETED)
def test_replay_op_by_op(name):
    report = replay(ZooCase(DATA / "zoo" / name), ["trace", "steps"], interpret=True)
    assert report.passed, "\n".join([*report.problems, report.trace])


@pytest.mark.parametrize("name", NETWORKS)
def test_all_ops_are_registered(name, monkeypatch):
    assert missing_ops(name) == []
