"""The README's Python runs as it stands, block after block."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

import fluidjax as fluid

ROOT = Path(__file__).parents[2]


def test_the_blocks_run_one_after_the_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    names: dict[str, object] = {}
    with (
        fluid.program_guard(fluid.Program(), fluid.Program()),
        fluid.unique_name.guard(),
        fluid.scope_guard(fluid.Scope()),
    ):
        for number, block in enumerate(blocks):
            if 'load_inference_model("folder"' in block:
                fluid.io.save_inference_model("folder", ["x"], [names["prediction"]], names["exe"])
            exec(compile(block, f"README block {number}", "exec"), names)
    assert len(blocks) >= 5
    assert np.asarray(names["predicted"]).shape == (20, 1)
    assert names["feeds"] == ["x"]
