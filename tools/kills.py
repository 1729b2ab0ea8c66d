"""Kill processes of jobs at random moments, and see that the jobs end as if nobody had.

``python -m tools.kills [--job trainers|servers] [--times 20] [--seed 0] [--workers 2]``, for servers also
``[--mode async|half_async|geo] [--victim server|trainer]``

``trainers``: ``fluidjax launch`` starts ``tests/launching/train.py`` with a folder for checkpoints. After a part of the
time that the uninterrupted job took, one of its processes gets SIGKILL. The job has to end with the bits of the
uninterrupted one, at most 30 s and twice the usual time after the kill, and without a process left over.

``servers``: two trainers and two servers of ``tests/distributed/fleet_script.py`` in one of these modes. Some
milliseconds after a step of trainer 0 a server or trainer, as told, gets SIGKILL; a server is started again, from its
last checkpoint. The other trainers have to come to the last step, with at most twice the loss of an undisturbed job in
its last ten steps, and all have to end.

Prints a line for each; ends with 1 where one failed. Moments and processes are drawn from the seed.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from tests.distributed.processes import Processes

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "tests" / "launching" / "train.py"
FLEET = ROOT / "tests" / "distributed" / "fleet_script.py"
STEPS, NAMES = 60, ("trainer_0", "trainer_1", "server_0", "server_1")
PATIENCE = 30.0
FAULT = "WRONG: "


def start(folder: Path, workers: int) -> subprocess.Popen[bytes]:
    """A job that keeps all that it writes in a folder."""
    command = [sys.executable, "-m", "fluidjax", "launch", "--workers", str(workers), "--max-restarts", "2"]
    command += ["--checkpoints", str(folder / "kept"), "--log-dir", str(folder), str(SCRIPT), str(folder / "out")]
    told = {**os.environ, "JAX_PLATFORMS": "cpu"}
    return subprocess.Popen(command, env=told, cwd=ROOT, stderr=subprocess.DEVNULL)


def children(pid: int) -> list[int]:
    """The processes that a process has started and that are still there."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = status.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if int(parent) == pid and state not in "ZX":
            found.append(int(status.parent.name))
    return sorted(found)


def there(pid: int) -> bool:
    """Whether a process is still there."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def killed(job: subprocess.Popen[bytes], moment: float, draw: random.Random) -> tuple[list[int], str]:
    """(all processes that were there at the moment, or as soon as one was; which of them was killed, or '')."""
    time.sleep(moment)
    while not (workers := children(job.pid)):
        if job.poll() is not None:
            return [], ""
        time.sleep(0.01)
    victim = draw.randrange(len(workers))
    os.kill(workers[victim], signal.SIGKILL)
    return workers, f"process {victim}"


def values(folder: Path, workers: int) -> list[dict[str, np.ndarray]]:
    """What the processes ended with."""
    return [dict(np.load(folder / f"out.{rank}.npz")) for rank in range(workers)]


def same(one: list[dict[str, np.ndarray]], other: list[dict[str, np.ndarray]]) -> bool:
    """Whether all values agree, bit by bit."""
    return all(
        a.keys() == b.keys() and all(np.array_equal(a[n], b[n]) for n in a) for a, b in zip(one, other, strict=True)
    )


def fault(job: subprocess.Popen[bytes], folder: Path, whole: list[dict[str, np.ndarray]], patience: float) -> str:
    """What is wrong with how a job ended; nothing: ''."""
    try:
        code = job.wait(patience)
    except subprocess.TimeoutExpired:
        job.terminate()
        return f"not at its end after {patience:.0f} s"
    if code:
        return f"exit code {code}"
    return "" if same(values(folder, len(whole)), whole) else "values differ"


def trainers(folder: Path, draw: random.Random, usual: float, whole: list[dict[str, np.ndarray]]) -> str:
    """One job of trainers that loses one: what happened, with what is wrong after FAULT.

    A job that has ended before its moment came has lost nobody: another one takes its place.
    """
    for number in itertools.count():
        place = folder / str(number)
        place.mkdir()
        moment = draw.uniform(0.1, 0.98) * usual
        job = start(place, len(whole))
        seen, who = killed(job, moment, draw)
        begun = time.monotonic()
        found = fault(job, place, whole, 2 * usual + PATIENCE)
        found = found or ("a process is left over" if any(map(there, seen)) else "")
        if found or who:
            break
    end = f"{FAULT}{found}" if found else "same bits"
    return f"{who} killed after {moment:.1f} s, the job's end {time.monotonic() - begun:.1f} s later: {end}"


def of_servers(folder: Path, mode: str) -> Processes:
    """A job of two servers and two trainers that keeps all that it writes in a folder."""
    (folder / "models").mkdir()
    command = [str(FLEET), str(folder), mode, str(STEPS)]
    job = Processes(folder, 2, 2, command, PAUSE="0.03", FLAGS_rpc_deadline="30000")
    for name in NAMES:
        job.start(name)
    return job


def last_losses(job: Processes, name: str) -> float:
    """The mean loss of a trainer's last ten steps; NaN if it did not come to the last one."""
    lines = (job.folder / name).read_text().splitlines()
    return float(np.mean(job.losses(name)[-10:])) if lines and int(lines[-1].split()[0]) == STEPS else math.nan


def undisturbed(folder: Path, mode: str) -> float:
    """The loss that a job of servers ends with."""
    job = of_servers(folder, mode)
    try:
        assert not any([job.end(name, 60 + PATIENCE) for name in NAMES]), "the uninterrupted job failed"
        return float(np.mean([last_losses(job, name) for name in NAMES if name.startswith("trainer")]))
    finally:
        job.stop()


def servers(folder: Path, draw: random.Random, mode: str, kind: str, usual: float) -> str:
    """One job of two servers that loses one, or a trainer: what happened, with what is wrong after FAULT."""
    job = of_servers(folder, mode)
    moment, later, victim = draw.randrange(1, STEPS - 5), draw.random() * 0.05, f"{kind}_{draw.randrange(2)}"
    try:
        job.wait(lambda: len(job.losses("trainer_0")) >= moment)
        time.sleep(later)
        job.kill(victim)
        if kind == "server":
            job.start(victim)
        left = [name for name in NAMES if name != victim or kind == "server"]
        codes = {name: job.end(name, 60 + PATIENCE) for name in left}
        losses = [last_losses(job, name) for name in left if name.startswith("trainer")]
        right = not any(codes.values()) and all(loss < 2 * usual for loss in losses)
        end = f"losses {losses}" if right else f"{FAULT}exit codes {codes}, losses {losses} after {usual}"
    except AssertionError as error:
        end = f"{FAULT}{error}"
    finally:
        job.stop()
    return f"{victim} killed {1000 * later:.0f} ms after step {moment}: {end}"


def uninterrupted(folder: Path, workers: int) -> tuple[float, list[dict[str, np.ndarray]]]:
    """(how long a job of trainers takes, what it ends with)."""
    begun = time.monotonic()
    assert start(folder, workers).wait() == 0, "the uninterrupted job failed"
    return time.monotonic() - begun, values(folder, workers)


def main() -> int:
    """Kill so many times; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--job", choices=["trainers", "servers"], default="trainers", help="which job")
    parser.add_argument("--times", type=int, default=20, help="how many jobs lose a process")
    parser.add_argument("--seed", type=int, default=0, help="what moments and processes are drawn from")
    parser.add_argument("--workers", type=int, default=2, help="how many trainers a job of trainers has")
    parser.add_argument("--mode", choices=["async", "half_async", "geo"], default="async", help="of a job of servers")
    parser.add_argument("--victim", choices=["server", "trainer"], default="server", help="who of a job of servers")
    told = parser.parse_args()
    draw, faults = random.Random(told.seed), 0
    with tempfile.TemporaryDirectory() as place:
        folders = [Path(place, str(number)) for number in range(told.times + 1)]
        for folder in folders:
            folder.mkdir()
        if told.job == "trainers":
            usual, whole = uninterrupted(folders[0], told.workers)
        else:
            usual = undisturbed(folders[0], told.mode)
        for number, folder in enumerate(folders[1:], 1):
            happened = (
                servers(folder, draw, told.mode, told.victim, usual)
                if told.job == "servers"
                else trainers(folder, draw, usual, whole)
            )
            faults += FAULT in happened
            print(f"{number}: {happened}", flush=True)
    print(f"{told.times - faults} of {told.times}")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
