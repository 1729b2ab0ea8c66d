"""Files hold one idea, and words mean one thing."""

from __future__ import annotations

import re

from tests.architecture.test_imports import MODULES

# Most files have fewer than 350 lines; a class of Fluid's with all that it can do has a few more.
LONGEST = 450


def test_files_are_of_one_idea() -> None:
    lengths = {name: len(path.read_text().splitlines()) for name, path in MODULES.items()}
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST} == {}
    assert sum(lines > 350 for lines in lengths.values()) <= 25


def test_after_is_not_called_behind() -> None:
    """What comes later is after, what is hidden has a name: few files have something that stands behind another."""
    found = [name for name, path in MODULES.items() if re.search(r"\bbehind\b", path.read_text())]
    assert len(found) <= 6
