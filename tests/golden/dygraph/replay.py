"""Running recorded scripts of eager mode; ``python -m tests.golden.dygraph [FOLDER]`` runs a folder of them.

A folder holds scripts, ``dyg_common.py`` that they share, and their recordings beside them or in ``recorded``.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import fluidjax as fluid
from tests.golden.dygraph.compare import difference

CASES = Path(__file__).parent / "cases"


def names(folder: Path = CASES) -> list[str]:
    """The scripts of a folder that have a recording."""
    return sorted(path.stem for path in folder.glob("*.py") if _recording(folder, path.stem).exists())


def _recording(folder: Path, name: str) -> Path:
    places = [folder, folder / "recorded", folder.parent / "recorded"]
    return next((p / f"{name}.json" for p in places if (p / f"{name}.json").exists()), places[0] / f"{name}.json")


def problem(name: str, blocks: bool, folder: Path = CASES) -> str | None:
    """Run a script, op by op or with blocks; the first difference from its recording, None for none."""
    os.environ["FLUID_MODULE"] = "fluidjax"
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    before = fluid.get_flags("FLAGS_eager_blocks")
    fluid.set_flags({"FLAGS_eager_blocks": blocks})
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found: Any = json.loads(json.dumps(importlib.import_module(name).run()))
    finally:
        fluid.set_flags(before)
    return difference(json.loads(_recording(folder, name).read_text()), found)
