"""Processes that a script of the user's own starts, by ``paddle.distributed.utils``."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from fluidjax.paddle.distributed import utils

MACHINES = [["a:1", "a:2"], ["b:1", "b:2"]]


def test_a_cluster() -> None:
    cluster, pod = utils.get_cluster(["a", "b"], "b", MACHINES, ["0", "1"])
    assert cluster.trainers_endpoints() == ["a:1", "a:2", "b:1", "b:2"]
    assert (cluster.trainers_nranks(), cluster.pods_nranks()) == (4, 2)
    assert [(t.rank, t.gpus) for t in pod.trainers] == [(2, ["0"]), (3, ["1"])]
    assert cluster == utils.get_cluster(["a", "b"], "a", MACHINES, ["0", "1"])[0]
    assert cluster != utils.get_cluster(["a", "b"], "a", MACHINES, ["0"])[0]
    pod.id, pod.port, cluster.pods[0].port = "second", 7, 8
    assert cluster.get_pod_by_id("second") is pod and cluster.get_pod_by_id("third") is None
    assert cluster.pods_endpoints() == ["a:8", "b:7"]
    with pytest.raises(AssertionError, match="name more"):
        utils.get_cluster(["a", "b"], "a", MACHINES, ["0", "1", "2"])
    with pytest.raises(AssertionError, match="see any gpus"):
        pod.get_visible_gpus()


def start(folder: Path, text: str) -> list[utils.TrainerProc]:
    """Two processes that run a script."""
    script = folder / "script.py"
    script.write_text(text)
    cluster, pod = utils.get_cluster(["a"], "a", MACHINES[:1], ["0", "1"])
    return utils.start_local_trainers(cluster, pod, str(script), ["more"], str(folder / "logs"))


def watch(started: list[utils.TrainerProc]) -> None:
    while utils.watch_local_trainers(started, 2):
        time.sleep(0.05)


def test_processes_are_told_of_all(tmp_path: Path) -> None:
    names = ["PADDLE_TRAINER_ID", "PADDLE_CURRENT_ENDPOINT", "PADDLE_TRAINER_ENDPOINTS", "FLAGS_selected_gpus"]
    started = start(tmp_path, f"import os, sys\nprint(*(os.environ[n] for n in {names}), sys.argv[1])")
    watch(started)
    utils.terminate_local_procs(started)
    logs = [(tmp_path / "logs" / f"workerlog.{i}").read_text() for i in range(2)]
    assert logs == ["0 a:1 a:1,a:2 0 more\n", "1 a:2 a:1,a:2 1 more\n"]


def test_one_that_fails_ends_the_others(tmp_path: Path) -> None:
    started = start(
        tmp_path, "import os, time\nos.environ['PADDLE_TRAINER_ID'] == '1' and os._exit(3)\ntime.sleep(600)"
    )
    with pytest.raises(SystemExit):
        watch(started)
    assert all(p.proc.poll() for p in started)


def test_free_ports_differ() -> None:
    assert len(utils.find_free_ports(3)) == 3
