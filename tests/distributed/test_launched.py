"""Parameter-server jobs under the launcher, of which a process is killed: all go on from the last saved model."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from tests.distributed.processes import ROOT
from tests.launching.test_launching import alive

SCRIPT, STEPS = Path(__file__).with_name("fleet_script.py"), 12


def launched(folder: Path, mode: str, *fate: str) -> dict[int, float]:
    """The loss of each step of a job of one server and one worker, of which no process is left.

    ``fate``: who is killed, and when; see ``fleet_script.py``.
    """
    (folder / "models").mkdir(parents=True)
    command = [sys.executable, "-m", "fluidjax", "launch", "--servers", "1", "--workers", "1", "--max-restarts", "1"]
    told = {**os.environ, "PYTHONPATH": str(ROOT), "FLAGS_rpc_server_linger": "0", "OMP_NUM_THREADS": "1"}
    script = ["--log-dir", str(folder), str(SCRIPT), str(folder), mode, str(STEPS), *fate]
    done = subprocess.run([*command, *script], capture_output=True, text=True, timeout=900, check=False, env=told)
    assert done.returncode == 0, done.stderr + "\n".join(p.read_text() for p in folder.glob("*log.*"))
    assert ("was ended by SIGKILL" in done.stderr) == bool(fate), done.stderr
    assert not any(alive(int(line.split()[1])) for line in (folder / "pids").read_text().splitlines())
    lines = [line.split() for line in (folder / "trainer_0").read_text().splitlines()]
    return {int(step): float(loss) for step, loss in lines}


def test_a_killed_server_leaves_no_trace_in_a_synchronous_job(tmp_path: Path) -> None:
    """Killed after step 7, restarted from step 6, it ends with the bits of an uninterrupted run."""
    whole = launched(tmp_path / "whole", "sync")
    assert launched(tmp_path / "killed", "sync", "server_0", "7") == whole


def test_a_killed_trainer_of_a_geo_job_goes_on_from_the_saved_model(tmp_path: Path) -> None:
    losses = launched(tmp_path, "geo", "trainer_0", "8")
    assert sorted(losses) == list(range(1, STEPS + 1))
    assert np.mean([losses[step] for step in range(STEPS - 4, STEPS + 1)]) < losses[1] / 2
