"""Network recordings replayed through ``fluidjax.to_jax``: training steps, final state, test program."""

from __future__ import annotations

import pytest

from tests.golden.functions import replay

NETWORKS = ["book_fit_a_line", "ctrl_ifelse", "lod_expand", "lod_pool_average", "opt_adam_sparse"]


@pytest.mark.parametrize("name", NETWORKS)
def test_replays_as_a_function(name):
    report = replay(name)
    assert report.passed, report.problems or "nothing was checked"
