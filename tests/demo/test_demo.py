"""The demo, shortened: what it trains and saves, a fresh process loads and predicts with, and draws."""

import re
import subprocess
import sys

import pytest

for package in ("sklearn", "matplotlib", "tqdm"):
    pytest.importorskip(package, reason=f"the demo imports {package}: pip install '.[demo]'")


def test_trained_model_predicts_in_a_fresh_process(tmp_path):
    from demo.train import train

    folder = tmp_path / "model"
    folder.mkdir()
    accuracy = train(folder, epochs=6)
    assert accuracy > 0.9
    run = subprocess.run([sys.executable, "-m", "demo.predict", str(folder)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    right, total = map(int, re.search(r"(\d+) of (\d+) test digits right", run.stdout).groups())
    assert abs(right / total - accuracy) < 1e-6
    assert (tmp_path / "digits.png").read_bytes().startswith(b"\x89PNG")
