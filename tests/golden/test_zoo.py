"""The network recordings that are kept with the tests; ``python -m tests.golden.zoo`` replays whole folders."""

import pytest

from tests.golden.recordings import DATA
from tests.golden.zoo import PARTS, missing_ops
from tests.golden.zoocase import ZooCase
from tests.golden.zoorunner import replay


@pytest.fixture(autouse=True)
def own_copy(monkeypatch):
    monkeypatch.setenv("FLUIDJAX_GOLDEN", str(DATA))


ALL = sorted(p.parent.name for p in (DATA / "zoo").glob("*/meta.json"))
# Much like others, or long to compile: their programs serve other tests, and the command replays them too.
ALIKE = """
book_recognize_digits_mlp
book_t_understand_sentiment_stacked_lstm
clip_value
ctrl_dynamic_rnn_memory_init
cv_gan_dcgan
cv_ocr_crnn_ctc
lod_pool_average
lod_pool_sqrt
lr_exponential_staircase
lr_noam_lr
lr_polynomial_cycle
nlp_sentiment_bow
nlp_sentiment_cnn
opt_adadelta_dense
opt_decayed_adagrad_dense
opt_ftrl_dense
opt_lars_dense
opt_momentum_dense
opt_momentum_nesterov_sparse
opt_rmsprop_dense
rec_youtube_dnn
ut_RecurrentOpMultipleMemoryTest
ut_RecurrentOpTest1
w2v_hsigmoid
w2v_nce
w2v_nce_sparse
""".split()
NETWORKS = [name for name in ALL if name not in ALIKE]
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


def test_all_ops_are_registered():
    assert {name: missing_ops(name) for name in ALL} == dict.fromkeys(ALL, [])
