"""Jobs of several processes: what each is told, what happens when one dies, and that no trace of that is left."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fluidjax.launching import jobs, roles
from fluidjax.launching.guard import Guard
from fluidjax.recovery import Checkpoints

# The launcher forks, as it does where no process computes beside it.
pytestmark = pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")

PRINTS = "import os, sys; print(os.getpid(), flush=True);"


def member(code: str, serves: bool = False) -> jobs.Member:
    return jobs.Member("worker 0", "workerlog.0", (sys.executable, "-c", code), {}, serves)


def alive(pid: int) -> bool:
    """Whether a process is there that has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_workers_are_told_what_fluids_launcher_tells() -> None:
    everyone = roles.endpoints(["127.0.0.1", "127.0.0.2"], ["0", "1"], 6490)
    assert everyone == ["127.0.0.1:6490", "127.0.0.1:6491", "127.0.0.2:6490", "127.0.0.2:6491"]
    told = [m.told for m in roles.workers(["x"], everyone, 2, ["0", "1"])]
    assert told[1] == {
        "FLAGS_selected_gpus": "1",
        "PADDLE_CURRENT_ENDPOINT": "127.0.0.2:6491",
        "PADDLE_TRAINERS_NUM": "4",
        "PADDLE_TRAINER_ENDPOINTS": ",".join(everyone),
        "PADDLE_TRAINER_ID": "3",
    }
    assert roles.endpoints(["a", "b"], ["0"], None) == ["a:6070", "b:6070"]


def test_servers_and_workers_are_told_what_fluids_launcher_tells() -> None:
    servers = ["127.0.0.1:6570", "127.0.0.1:6571"]
    first, second, *workers = roles.servers_and_workers(["x"], servers, 2)
    common = {"PADDLE_PSERVERS_IP_PORT_LIST": ",".join(servers), "PADDLE_TRAINERS_NUM": "2", "POD_IP": "127.0.0.1"}
    assert first.told == {**common, "PADDLE_PORT": "6570", "TRAINING_ROLE": "PSERVER"}
    assert second.told == {**common, "PADDLE_PORT": "6571", "TRAINING_ROLE": "PSERVER"} and second.serves
    worker = {**common, "PADDLE_PORT": "6571", "TRAINING_ROLE": "TRAINER"}
    assert [w.told for w in workers] == [{**worker, "PADDLE_TRAINER_ID": str(i)} for i in range(2)]


def test_servers_end_with_the_last_worker(tmp_path: Path) -> None:
    waits = PRINTS + "import time; time.sleep(600)"
    server = jobs.Member("server 0", "serverlog.0", (sys.executable, "-c", waits), {}, serves=True)
    assert jobs.run(lambda: [server, member("print(1)")], log_dir=str(tmp_path)) == 0
    assert (tmp_path / "workerlog.0").read_text() == "1\n"
    assert not alive(int((tmp_path / "serverlog.0").read_text()))


def test_a_failure_ends_all_and_starts_all_again(tmp_path: Path) -> None:
    marker, said = tmp_path / "marker", list[str]()
    fails = f"import os, sys; new = not os.path.exists({str(marker)!r}); open({str(marker)!r}, 'w'); sys.exit(7 * new)"
    waits = PRINTS + f"import time; time.sleep(600 if not os.path.exists({str(marker)!r}) else 0)"
    other = jobs.Member("worker 1", "workerlog.1", (sys.executable, "-c", waits), {})
    job = lambda: [other, member("import time; time.sleep(0.5);" + fails)]  # noqa: E731
    assert jobs.run(job, log_dir=str(tmp_path), restarts=1, say=said.append) == 0
    assert said[0].startswith("worker 0 failed with exit code 7") and "1 of at most 1" in said[1]
    assert not any(map(alive, map(int, (tmp_path / "workerlog.1").read_text().split())))
    marker.unlink()
    assert jobs.run(job, log_dir=str(tmp_path), say=said.append) == 1


HOLDS_A_PORT = """
import signal, socket, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
held = socket.create_server(("127.0.0.1", 0))
print(held.getsockname()[1], flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("number, guarded", [(signal.SIGTERM, True), (signal.SIGKILL, True), (signal.SIGKILL, False)])
def test_no_process_outlives_the_launcher(tmp_path: Path, number: signal.Signals, guarded: bool) -> None:
    """Neither a worker nor what the worker started, which holds a port; also if the guard was killed before."""
    starts = f"subprocess.run([sys.executable, '-c', {HOLDS_A_PORT!r}])"
    code = "import signal, subprocess; signal.signal(signal.SIGTERM, signal.SIG_IGN);" + PRINTS + starts
    script = f"""
from fluidjax.launching import jobs
import sys
member = jobs.Member("worker 0", "workerlog.0", (sys.executable, "-c", {code!r}), {{}})
jobs.run(lambda: [member], log_dir={str(tmp_path)!r})
"""
    launcher = subprocess.Popen([sys.executable, "-c", script])
    log = tmp_path / "workerlog.0"
    until(lambda: log.exists() and log.read_text().count("\n") == 2, 120)
    if not guarded:
        (first,) = guards(launcher.pid)
        os.kill(first, signal.SIGKILL)
        until(lambda: guards(launcher.pid) not in ([], [first]), 120)
        assert launcher.poll() is None
    launcher.send_signal(number)
    launcher.wait(120)
    pid, port = map(int, log.read_text().split())
    until(lambda: not alive(pid) and is_free(port), 120)


def guards(launcher: int) -> list[int]:
    """The guard of a launcher, if there is one at this moment."""
    found = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    return [int(pid) for pid in found if "guard.py" in Path(f"/proc/{pid}/cmdline").read_text() and alive(int(pid))]


def test_a_guard_that_was_ended_is_replaced() -> None:
    with Guard() as guard:
        guard._process.kill()
        guard._process.wait()
        guard.add(2**22 + 1)
        guard.forget(2**22 + 1)
        guard.renew()
        assert guard._process.poll() is None


ENDS_AT_ONCE = """
import os, subprocess, sys
from fluidjax.launching import guard as module
idle = [sys.executable, "-c", "import time; time.sleep(300)"]
child = subprocess.Popen(idle, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
print(child.pid, flush=True)
with module.Guard() as guard:
    guard.add(child.pid)
    guard._process.kill()
    guard._process.wait()
    start = subprocess.Popen
    subprocess.Popen = lambda *args, **settings: (start(*args, **settings), os._exit(1))
    guard.renew()
"""


def test_a_new_guard_knows_the_groups_however_soon_its_launcher_ends() -> None:
    done = subprocess.run([sys.executable, "-c", ENDS_AT_ONCE], stdout=subprocess.PIPE, text=True, timeout=120)
    assert done.returncode == 1
    until(lambda: not alive(int(done.stdout)), 60)


def until(what: Callable[[], bool], seconds: float) -> None:
    """Wait for something to become true."""
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def launch(tmp_path: Path, name: str, *fate: str, workers: int = 2) -> subprocess.CompletedProcess[str]:
    """A job that has ended, and its standard error with the logs of its processes."""
    command = [sys.executable, "-m", "fluidjax", "launch", "--workers", str(workers), "--max-restarts", "1"]
    command += ["--checkpoints", str(tmp_path / f"{name}.kept"), "--log-dir", str(tmp_path)]
    script = [str(Path(__file__).parent / "train.py"), str(tmp_path / name), *fate]
    told = {**os.environ, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([*command, *script], capture_output=True, text=True, timeout=900, check=False, env=told)
    done.stderr += "\n".join(p.read_text() for p in sorted(tmp_path.glob("workerlog.*")))
    return done


def launched(tmp_path: Path, name: str, *fate: str, workers: int = 2) -> list[dict[str, np.ndarray]]:
    """What the processes end with."""
    done = launch(tmp_path, name, *fate, workers=workers)
    assert done.returncode == 0, done.stderr
    assert ("starting all processes again" in done.stderr) == bool(fate), done.stderr
    return [dict(np.load(tmp_path / f"{name}.{rank}.npz")) for rank in range(workers)]


def test_a_killed_trainer_leaves_no_trace(tmp_path: Path) -> None:
    """Two trainers, one killed at step 9: restarted from step 8, they end with the bits of an uninterrupted run."""
    whole = launched(tmp_path, "whole")
    again = launched(tmp_path, "killed", "9", "SIGKILL", "1")
    for one, other in zip(whole, again, strict=True):
        assert one.keys() == other.keys() and all(np.array_equal(one[n], other[n]) for n in one)
    steps = {p.name.split(".")[0] for p in (tmp_path / "killed.kept").iterdir()}
    assert steps == {"step-0000000012", "step-0000000016"}


def test_a_killed_launcher_leaves_no_trace(tmp_path: Path) -> None:
    """Its workers end by themselves, and what a new launcher resumes ends with the bits of an uninterrupted run."""
    whole = launched(tmp_path, "whole")
    for log in tmp_path.glob("workerlog.*"):
        log.unlink()
    assert launch(tmp_path, "killed", "9", "SIGKILL", "1", "launcher").returncode == -signal.SIGKILL
    assert not list(tmp_path.glob("killed.*.npz"))
    again = launched(tmp_path, "killed")
    for one, other in zip(whole, again, strict=True):
        assert one.keys() == other.keys() and all(np.array_equal(one[n], other[n]) for n in one)
    last = {(tmp_path / f"workerlog.{rank}").read_text().split("\n")[-2] for rank in range(2)}
    assert last in ({"steps 10"}, {"steps 14"})  # of 18: after step 8, or 4 if all died before that one was written


def test_a_checkpoint_counts_when_all_have_written_theirs(tmp_path: Path) -> None:
    first, second = Checkpoints(str(tmp_path), 0, 2), Checkpoints(str(tmp_path), 1, 2)
    values = {"w": np.arange(3, dtype="float16")}
    for step in (4, 8):
        first.save(step, values, {"step": step})
    first.wait()
    assert first.newest() is None
    second.save(4, values, json.loads("{}"))
    second.wait()
    assert first.newest() == second.newest() == 4
    found, facts = first.load(4)
    assert facts == {"step": 4} and found["w"].dtype == np.float16 and found["w"].tolist() == [0, 1, 2]
