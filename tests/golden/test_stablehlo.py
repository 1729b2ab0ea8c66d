"""Some recorded networks as StableHLO; ``python -m tests.golden.stablehlo`` takes whole folders."""

import pytest

from tests.golden.doors import models
from tests.golden.recordings import DATA
from tests.golden.stablehlo import TOLERANCE, check
from tests.golden.zoocase import ZooCase

pytestmark = pytest.mark.usefixtures("compiled_quickly")


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("book_fit_a_line", "any sizes"),
        ("lod_pool_sum", "any sizes"),
        ("book_t_understand_sentiment_conv", "any sizes"),
        ("book_t_understand_sentiment_stacked_lstm", "any sizes"),
        ("nlp_sentiment_cnn", "any sizes"),
        ("book_understand_sentiment_dyn_rnn", "any sizes"),
        ("ctrl_dynamic_rnn_memory_init", "its sizes"),
        ("lod_expand", "any sizes"),
    ],
)
def test_a_network_as_stablehlo(name, sizes, tmp_path):
    for kind, model in models(ZooCase(DATA / "zoo" / name), str(tmp_path / "model")):
        found, apart = check(model, tmp_path / kind)
        assert found == sizes and apart <= TOLERANCE, kind
