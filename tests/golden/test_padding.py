"""Recorded networks with sequences train alike padded and exact; ``python -m tests.golden.padding`` does folders."""

import pytest

from tests.golden import padding
from tests.golden.recordings import DATA
from tests.golden.zoocase import ZooCase

pytestmark = pytest.mark.usefixtures("compiled_quickly")

# One of each kind of padded program; the command trains the others.
SMALL = (
    "book_recommender_system",
    "book_understand_sentiment_dyn_rnn",
    "lod_expand",
    "lod_pool_sqrt",
    "rec_gru4rec_bpr",
)


@pytest.fixture(autouse=True)
def own_copy(monkeypatch):
    monkeypatch.setenv("FLUIDJAX_GOLDEN", str(DATA))


@pytest.mark.parametrize("name", SMALL)
def test_padding_changes_nothing(name):
    found = padding.compare(ZooCase(DATA / "zoo" / name))
    assert found.checks > 50
    assert not found.problems, "\n".join(found.problems)
    assert not found.unpadded, "the programs were to run padded, and fell back to exact rows"


def test_the_small_set_is_fed_sequences():
    assert set(SMALL) <= set(padding.ragged_cases())
