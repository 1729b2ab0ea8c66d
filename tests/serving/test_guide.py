"""The guide's Python runs."""

from __future__ import annotations

from tests.docs import test_guide
from tests.serving import at_work

assert at_work.Server  # the guide's code needs what it needs


def test_the_guide_runs(tmp_path, monkeypatch):
    test_guide.test_a_page_runs("guide/serving.md", tmp_path, monkeypatch)
