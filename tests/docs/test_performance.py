"""docs/performance.md is what its numbers give."""

import json

from benchmarks import tables
from benchmarks.page import PARTS, ROOT

FOLDER = ROOT / "docs"


def test_the_page_is_written_from_the_numbers_beside_it() -> None:
    numbers = json.loads((FOLDER / "performance" / "numbers.json").read_text())
    assert set(numbers) == set(PARTS)
    assert (FOLDER / "performance.md").read_text() == tables.page(numbers)
