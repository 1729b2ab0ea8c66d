"""``paddle.distributed.utils``: the processes of a job, described and started by a script of the user's own."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Any

from fluidjax.command.aliases import child_environment
from fluidjax.launching import jobs, roles

logger = logging.getLogger("root")


@dataclass
class Hdfs:
    """Where a cluster finds its files."""

    hdfs_ugi: str | None = None
    hdfs_name: str | None = None
    hdfs_path: str | None = None

    def is_valid(self) -> bool:
        """Whether all of it is known."""
        return None not in (self.hdfs_ugi, self.hdfs_name, self.hdfs_path)

    def __str__(self) -> str:
        return f"hdfs_ugi:{self.hdfs_ugi} hdfs_name:{self.hdfs_name} hdfs_path{self.hdfs_path}"


@dataclass
class JobServer:
    """Who tells a cluster of its members."""

    endpoint: str | None = None

    def __str__(self) -> str:
        return str(self.endpoint)


@dataclass
class Trainer:
    """A process that trains, with its devices and its rank among all."""

    gpus: list[Any] = field(default_factory=list)
    endpoint: str | None = None
    rank: int | None = None

    def __str__(self) -> str:
        return f"gpu:{self.gpus} endpoint:{self.endpoint} rank:{self.rank}"


@dataclass
class Pod:
    """A machine, with its processes."""

    rank: int | None = None
    id: Any = None
    addr: str | None = None
    port: int | None = None
    trainers: list[Trainer] = field(default_factory=list)
    gpus: list[Any] = field(default_factory=list)

    def get_visible_gpus(self) -> str:
        """The machine's devices, with commas. Raises AssertionError if it has none."""
        assert self.gpus, f"this pod {self} can't see any gpus: expected some; set its gpus"
        return ",".join(map(str, self.gpus))

    def parse_response(self, res_pods: Any) -> None:
        """Do nothing, as in Fluid: no server of a job's members answers yet."""

    def __str__(self) -> str:
        trainers = [str(trainer) for trainer in self.trainers]
        where = f"rank:{self.rank} id:{self.id} addr:{self.addr} port:{self.port}"
        return f"{where} visible_gpu:{self.gpus} trainers:{trainers}"


class Cluster:
    """The machines of a job."""

    def __init__(self, hdfs: Hdfs | None = None) -> None:
        self.job_server: JobServer | None = None
        self.pods: list[Pod] = []
        self.hdfs = hdfs
        self.job_stage_flag: Any = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Cluster):
            return NotImplemented
        return (self.pods, self.job_stage_flag) == (other.pods, other.job_stage_flag)

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        pods = [str(pod) for pod in self.pods]
        return f"job_server:{self.job_server} pods:{pods} job_stage_flag:{self.job_stage_flag} hdfs:{self.hdfs}"

    def update_pods(self, cluster: Cluster) -> None:
        """Take over another cluster's machines."""
        self.pods = list(cluster.pods)

    def trainers_nranks(self) -> int:
        """The number of processes."""
        return len(self.trainers_endpoints())

    def pods_nranks(self) -> int:
        """The number of machines."""
        return len(self.pods)

    def trainers_endpoints(self) -> list[str | None]:
        """The endpoints of all processes."""
        return [trainer.endpoint for pod in self.pods for trainer in pod.trainers]

    def pods_endpoints(self) -> list[str]:
        """The endpoints of all machines. Raises AssertionError if one is not known."""
        for pod in self.pods:
            assert pod.addr is not None and pod.port is not None, f"{pod} has no valid endpoint; set its addr and port"
        return [f"{pod.addr}:{pod.port}" for pod in self.pods]

    def get_pod_by_id(self, pod_id: Any) -> Pod | None:
        """The machine of that id, or None."""
        return next((pod for pod in self.pods if str(pod.id) == str(pod_id)), None)


@dataclass
class TrainerProc:
    """A process that was started."""

    proc: Any = None
    log_fn: IO[Any] | None = None
    rank: int | None = None
    cmd: list[str] | None = None


def get_cluster(
    node_ips: Sequence[str], node_ip: str, trainer_endpoints: Sequence[Sequence[str]], selected_gpus: Sequence[Any]
) -> tuple[Cluster, Pod]:
    """A cluster with a process for each device of each machine, and the machine of address ``node_ip`` in it.

    Raises AssertionError if a machine has fewer endpoints than devices.
    """
    assert isinstance(trainer_endpoints, list), "trainer_endpoints must be list: one list of endpoints for each machine"
    cluster = Cluster()
    for rank, (address, endpoints) in enumerate(zip(node_ips, trainer_endpoints, strict=False)):
        assert len(endpoints) >= len(selected_gpus), (
            f"trainer_endpoints of {address}: expected one for each of {len(selected_gpus)} devices, received"
            f" {len(endpoints)}; name more"
        )
        first = rank * len(selected_gpus)
        members = enumerate(zip(selected_gpus, endpoints, strict=False), first)
        trainers = [Trainer([device], endpoint, number) for number, (device, endpoint) in members]
        cluster.pods.append(Pod(rank, addr=address, trainers=trainers))
    return cluster, cluster.pods[list(node_ips).index(node_ip)]


def find_free_ports(num: int) -> set[int]:
    """``num`` ports of this machine that nobody listens at; nothing reserves them."""
    return set(roles.free_ports(num))


def get_host_name_ip() -> tuple[str, str] | None:
    """This machine's name and address, or None if the address cannot be found."""
    name = socket.gethostname()
    try:
        return name, socket.gethostbyname(name)
    except OSError:
        return None


def get_logger(log_level: int | str, name: str = "root") -> logging.Logger:
    """A logger that writes to the standard error."""
    found = logging.getLogger(name)
    found.setLevel(log_level)
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(levelname)s %(asctime)s %(filename)s:%(lineno)d] %(message)s"))
    found.addHandler(handler)
    return found


def _truth(text: str) -> bool:
    return text.lower() in ("y", "yes", "t", "true", "on", "1")


def add_arguments(argname: str, type: Any, default: Any, help: str, argparser: Any, **kwargs: Any) -> None:
    """Declare ``--argname`` of a parser; bools are written as words."""
    kind = _truth if type is bool else type
    argparser.add_argument("--" + argname, default=default, type=kind, help=help + " Default: %(default)s.", **kwargs)


def start_local_trainers(
    cluster: Cluster,
    pod: Pod,
    training_script: str,
    training_script_args: Sequence[str],
    log_dir: str | None = None,
) -> list[TrainerProc]:
    """Start a machine's processes, each told of all as by ``launch``; their output goes to LOG_DIR/workerlog.N."""
    command = [sys.executable, "-u", training_script, *training_script_args]
    everyone = [str(endpoint) for endpoint in cluster.trainers_endpoints()]
    devices = [",".join(map(str, trainer.gpus)) for trainer in pod.trainers]
    first = pod.trainers[0].rank if pod.trainers else 0
    started = []
    for member, trainer in zip(roles.workers(command, everyone, first or 0, devices), pod.trainers, strict=True):
        environment = {**os.environ, **child_environment(), **member.told}
        for name in ("http_proxy", "https_proxy"):
            environment.pop(name, None)
        log = _log(log_dir, member.log)
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        started.append(TrainerProc(process, log, trainer.rank, command))
    return started


def _log(folder: str | None, name: str) -> IO[Any] | None:
    if folder is None:
        return None
    os.makedirs(folder, exist_ok=True)
    return open(os.path.join(folder, name), "a")


def terminate_local_procs(procs: Sequence[TrainerProc]) -> None:
    """End processes and what they started, and close their logs."""
    jobs.end([p.proc for p in procs])
    for p in procs:
        if p.log_fn is not None:
            p.log_fn.close()


def watch_local_trainers(procs: Sequence[TrainerProc], nranks: int) -> bool:
    """Whether a process still runs. If one has failed, the others are ended and SystemExit is raised."""
    with _ended_with(procs):
        codes = {p.rank: p.proc.poll() for p in procs}
        failed = [rank for rank, code in codes.items() if code not in (None, 0)]
        if failed:
            logger.error("of %d trainers, those of rank %s failed; see their logs", nranks, failed)
            sys.exit(1)
        return None in codes.values()


@contextmanager
def _ended_with(procs: Sequence[TrainerProc]) -> Iterator[None]:
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        terminate_local_procs(procs)
        raise
