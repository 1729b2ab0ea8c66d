"""CONTRIBUTING draws the house: every room is in the drawing, in few lines."""

from __future__ import annotations

import re

import pytest

from tests.architecture.test_imports import MODULES, ROOT

DRAWING = (ROOT / "CONTRIBUTING.md").read_text().split("```")[1].strip().splitlines()


@pytest.mark.parametrize("package", ["fluidjax", "lowering"])
def test_every_room_is_drawn(package: str) -> None:
    """Private folders are rooms behind a module, and not drawn."""
    rooms = {name.split(".")[1] for name in MODULES if name.startswith(package + ".") and name.count(".") > 1}
    drawn = {word for line in DRAWING if line.startswith("  ") for word in re.findall(r"(\w+)/", line)}
    assert sorted(room for room in rooms if not room.startswith("_") and room not in drawn) == []


def test_nothing_is_drawn_that_is_not_there() -> None:
    drawn = {word for line in DRAWING if line.startswith("  ") for word in re.findall(r"(\w+)/(?=[ \n]|$)", line)}
    assert all((ROOT / "fluidjax" / room).is_dir() or (ROOT / "lowering" / room).is_dir() for room in drawn)
    assert len(DRAWING) <= 24
