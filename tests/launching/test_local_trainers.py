"""Processes that a script of the user's own starts, by ``paddle.distributed.utils``."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import pytest

from fluidjax.paddle.distributed import cloud_utils, launch, launch_ps, utils

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


def test_a_cluster_of_a_clouds_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"PADDLE_TRAINERS": "a,b", "POD_IP": "b", "PADDLE_TRAINER_ID": "1", "TRAINER_PORTS_NUM": "2"}
    for name, value in told.items():
        monkeypatch.setenv(name, value)

    def found(port: int | None = None, count: int = 2) -> tuple[list[str | None], list[int | None]]:
        cluster, pod = cloud_utils.get_cloud_cluster("127.0.0.1", "127.0.0.1", port, list(range(count)))
        return cluster.trainers_endpoints(), [trainer.rank for trainer in pod.trainers]

    assert found() == (["a:6170", "a:6171", "b:6170", "b:6171"], [2, 3])
    assert found(7000)[0][::2] == ["a:7000", "b:7000"]
    monkeypatch.setenv("PADDLE_PORT", "8000")
    assert found(7000)[0][::2] == ["a:8000", "b:8000"]
    assert found(7000, 3)[0][::3] == ["a:7000", "b:7000"]  # there are ports for two
    monkeypatch.setenv("DISTRIBUTED_TRAINER_ENDPOINTS", "a:1,a:2,b:3,b:4")
    assert found(7000, 1) == (["a:1", "b:3"], [1])
    monkeypatch.setenv("TRAINER_PORTS_NUM", "3")
    with pytest.raises(AssertionError, match="3 .TRAINER_PORTS_NUM. for each of 2 machines"):
        found()
    monkeypatch.delenv("PADDLE_TRAINERS")
    with pytest.raises(AssertionError, match="PADDLE_TRAINERS should not be None"):
        found()
    assert cloud_utils.get_trainers_num() == 1


def test_devices_and_the_cluster_of_a_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert launch.get_gpus("4, 5") == ["4", "5"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5,4")
    assert launch.get_gpus("4,5") == [2, 1]
    with pytest.raises(AssertionError, match="received 7"):
        launch.get_gpus("4,7")

    def found(**told: object) -> list[str | None]:
        options = {"cluster_node_ips": "a, b", "node_ip": "b", "started_port": None, "use_paddlecloud": False, **told}
        cluster, pod = launch.get_cluster_from_args(argparse.Namespace(**options), ["0", "1"])
        assert pod.addr == options["node_ip"]
        return cluster.trainers_endpoints()

    assert found() == ["a:6070", "a:6071", "b:6070", "b:6071"] and found(started_port=9)[-1] == "b:10"
    assert found(cluster_node_ips="b", use_paddlecloud=True) == ["b:6070", "b:6071"]
    with pytest.raises(ValueError, match="name this machine there"):
        found(node_ip="c")


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # no process computes beside a launcher
def test_servers_and_workers_from_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, time; print(os.environ['TRAINING_ROLE'], os.environ['PADDLE_PORT'])\n"
        "os.environ.get('PADDLE_TRAINER_ID') or time.sleep(600)"
    )
    told = ["--print_config", "False", "--server_num", "1", "--log_dir", str(tmp_path), str(script)]
    told = ["--endpoints", "127.0.0.1:7,127.0.0.1:8", "--node_ip", "10.0.0.1", *told]
    args = launch_ps.parse_args(told)
    assert (args.worker_num, args.start_port, args.training_script_args, args.print_config) == (2, 6170, [], False)
    assert launch_ps.launch(told) == 0  # they start, whatever is printed
    assert [(tmp_path / f"workerlog.{i}").read_text() for i in range(2)] == ["TRAINER 7\n"] * 2
    assert not (tmp_path / "serverlog.1").exists()  # the first --server_num of the endpoints start here
    with pytest.raises(ValueError, match="at most the number of --endpoints(.|\n)*received: 2"):
        launch_ps.launch([*told[:6], "--server_num", "3", str(script)])
    assert capsys.readouterr().out.splitlines()[-1] == "all parameter server are killed"


def test_members_as_text() -> None:
    """The texts of 1.8.5."""
    cluster, pod = utils.get_cluster(["a"], "a", [["a:1"]], ["0"])
    text = "rank:0 id:None addr:a port:None visible_gpu:[] trainers:[\"gpu:['0'] endpoint:a:1 rank:0\"]"
    assert str(pod) == text and pod.parse_response([]) is None
    assert str(cluster) == f"job_server:None pods:{[text]} job_stage_flag:None hdfs:None"
    assert (
        str(utils.Hdfs("u", "n", "p")) == "hdfs_ugi:u hdfs_name:n hdfs_pathp" and str(utils.JobServer("b:2")) == "b:2"
    )
