"""docs/testing_ops.md: its Python runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from lowering.registry import table

PAGE = Path(__file__).parents[2] / "docs/testing_ops.md"


def test_the_guide_runs() -> None:
    names: dict[str, Any] = {}
    known = set(table.registered_ops())
    try:
        for number, block in enumerate(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)):
            exec(compile(block, f"{PAGE.name} block {number}", "exec", dont_inherit=True), names)
        names["TestCubed"]().test_output()
        names["TestCubed"]().test_grad()
    finally:
        for name in set(table._REGISTRY) - known:
            del table._REGISTRY[name]
