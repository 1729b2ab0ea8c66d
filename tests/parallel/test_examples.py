"""The examples train alike alone and as several processes, without a change of their text."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent.parent


def losses(text: str) -> list[float]:
    return [float(found) for found in re.findall(r"^batch \d+: loss (\S+)$", text, re.M)]


@pytest.mark.parametrize("name", ["digits", "clicks"])
def test_two_workers_train_as_one_process(name: str, tmp_path: Path) -> None:
    told = {**os.environ, "JAX_PLATFORMS": "cpu"}
    script = str(ROOT / "examples" / f"{name}.py")
    one = subprocess.run([sys.executable, script], capture_output=True, text=True, env=told, timeout=900, check=False)
    command = [sys.executable, "-m", "fluidjax", "launch", "--log-dir", str(tmp_path), script]
    two = subprocess.run(command, capture_output=True, text=True, env=told, timeout=900, check=False)
    assert (one.returncode, two.returncode) == (0, 0), one.stderr + two.stderr
    shares = [losses((tmp_path / f"workerlog.{rank}").read_text()) for rank in range(2)]
    alone = losses(one.stdout)
    np.testing.assert_allclose(np.mean(shares, axis=0), alone, atol=2e-5)
    assert alone[-1] < alone[0] / 2
