"""The role of a process in a fleet: worker or server, and its index."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from fluidjax.base.errors import explain
from fluidjax.base.unbuilt import unbuilt
from fluidjax.incubate.fleet.base.meeting import Meeting
from fluidjax.incubate.fleet.base.meeting import MockBarrier as MockBarrier

__all__ = [
    "Role",
    "RoleMakerBase",
    "MPISymetricRoleMaker",
    "UserDefinedRoleMaker",
    "UserDefinedCollectiveRoleMaker",
    "PaddleCloudRoleMaker",
    "GeneralRoleMaker",
]


class Role:
    """The role of a process."""

    WORKER = 1
    SERVER = 2


class RoleMakerBase:
    """Determines the role of this process, in ``generate_role``, which is called at the first query at the latest."""

    def __init__(self) -> None:
        self._worker_endpoints: list[str] = []
        self._server_endpoints: list[str] = []
        self._role_is_generated = False
        self._role: int | None = None
        self._current_id = -1

    def is_worker(self) -> bool:
        """Whether this process is a worker."""
        raise NotImplementedError("Please implement this method in child class")

    def is_server(self) -> bool:
        """Whether this process is a server."""
        raise NotImplementedError("Please implement this method in child class")

    def is_first_worker(self) -> bool:
        """Whether this process is worker 0."""
        raise NotImplementedError("Please implement this method in child class")

    def worker_num(self) -> int:
        """The number of workers."""
        raise NotImplementedError("Please implement this method in child class")

    def worker_index(self) -> int:
        """The index of this worker."""
        raise NotImplementedError("Please implement this method in child class")

    def server_index(self) -> int:
        """The index of this server."""
        raise NotImplementedError("Please implement this method in child class")

    def generate_role(self) -> None:
        """Determine the role of this process."""
        self._role_is_generated = True

    def get_trainer_endpoints(self) -> list[str]:
        """The endpoints of all workers."""
        return self._worker_endpoints

    def get_pserver_endpoints(self) -> list[str]:
        """The endpoints of all servers."""
        return self._server_endpoints

    def to_string(self) -> str:
        """A description of the role."""
        return (
            f"role: {self._role}, current_id: {self._current_id}, worker_endpoints: {self._worker_endpoints},"
            f" server_endpoints: {self._server_endpoints}"
        )

    def all_gather(self, input: Any) -> list[Any] | None:
        """Gather values from all processes; not supported by this role maker."""
        print("warning: RoleMakerBase does not have all gather.")
        return None

    def all_reduce_worker(self, input: Any, output: Any, mode: str = "sum") -> None:
        """Reduce an array over all workers; not supported by this role maker."""
        print("warning: RoleMakerBase does not have all reduce worker.")

    def barrier_worker(self) -> None:
        """Wait for all workers; not supported by this role maker."""
        print("warning: RoleMakerBase does not have barrier worker.")

    def barrier_all(self) -> None:
        """Wait for all processes; not supported by this role maker."""
        print("warning: RoleMakerBase does not have barrier all.")


class _Known(RoleMakerBase):
    """A role given by a kind, an index and the number of workers."""

    _trainers_num = 0

    def _settle(self) -> None:
        if not self._role_is_generated:
            self.generate_role()

    def is_worker(self) -> bool:
        """Whether this process is a worker."""
        self._settle()
        return self._role == Role.WORKER

    def is_server(self) -> bool:
        """Whether this process is a server."""
        self._settle()
        return self._role == Role.SERVER

    def is_first_worker(self) -> bool:
        """Whether this process is worker 0."""
        return self.is_worker() and self._current_id == 0

    def worker_num(self) -> int:
        """The number of workers."""
        self._settle()
        return self._trainers_num

    def worker_index(self) -> int:
        """The index of this worker; for a server, its own index."""
        self._settle()
        return self._current_id

    def server_index(self) -> int:
        """The index of this server; for a worker, its own index."""
        self._settle()
        return self._current_id

    def get_pserver_endpoints(self) -> list[str]:
        """The endpoints of all servers."""
        self._settle()
        return self._server_endpoints


class PaddleCloudRoleMaker(_Known):
    """A role given by launchers in the environment.

    Args:
        is_collective: False: PADDLE_PSERVERS_IP_PORT_LIST, PADDLE_TRAINERS_NUM, TRAINING_ROLE, and PADDLE_TRAINER_ID of
            workers, POD_IP and PADDLE_PORT of servers. True: PADDLE_TRAINER_ENDPOINTS, PADDLE_TRAINER_ID,
            PADDLE_TRAINING_ROLE and PADDLE_CURRENT_ENDPOINT.
    """

    def __init__(self, is_collective: bool = False) -> None:
        super().__init__()
        self._is_collective = is_collective

    def generate_role(self) -> None:
        """Read the environment. Raises ValueError if something is missing or invalid."""
        if self._role_is_generated:
            return
        if self._is_collective:
            self._generate_collective()
        else:
            self._generate()
        self._role_is_generated = True

    def _generate(self) -> None:
        endpoints = _told("PADDLE_PSERVERS_IP_PORT_LIST").split(",")
        workers, role = _number("PADDLE_TRAINERS_NUM"), _told("TRAINING_ROLE")
        if role == "TRAINER":
            self._role, self._current_id = Role.WORKER, _number("PADDLE_TRAINER_ID")
        elif role == "PSERVER":
            own = f"{_told('POD_IP')}:{_told('PADDLE_PORT')}"
            if own not in endpoints:
                raise _wrong("POD_IP:PADDLE_PORT", f"one of {', '.join(endpoints)}", own)
            self._role, self._current_id = Role.SERVER, endpoints.index(own)
        else:
            raise _wrong("TRAINING_ROLE", "TRAINER or PSERVER", role)
        self._trainers_num, self._server_endpoints = workers, endpoints

    def _generate_collective(self) -> None:
        self._current_id = int(os.getenv("PADDLE_TRAINER_ID", "0"))
        self._training_role = os.getenv("PADDLE_TRAINING_ROLE", "TRAINER")
        assert self._training_role == "TRAINER", "PADDLE_TRAINING_ROLE: expected TRAINER in collective mode"
        endpoints = os.getenv("PADDLE_TRAINER_ENDPOINTS")
        assert endpoints is not None, "can't find PADDLE_TRAINER_ENDPOINTS: start the script by a launcher"
        self._current_endpoint = os.getenv("PADDLE_CURRENT_ENDPOINT")
        self._worker_endpoints = endpoints.split(",")
        self._trainers_num = len(self._worker_endpoints)
        self._role = Role.WORKER


def _told(name: str) -> str:
    """An environment variable."""
    value = os.environ.get(name)
    if value is None:
        raise _wrong(name, "a value, which launchers set", "nothing")
    return value


def _number(name: str) -> int:
    text = _told(name)
    if not text.isdecimal():
        raise _wrong(name, "a number", text)
    return int(text)


def _wrong(name: str, expected: str, received: str) -> ValueError:
    return ValueError(
        explain(
            f"something wrong with PaddleCloud, please check environment: {name}",
            expected,
            received,
            "start the script by a launcher, such as paddle.distributed.launch_ps",
        )
    )


class UserDefinedRoleMaker(_Known):
    """A role given by the script.

    Args:
        current_id: index of this worker or server.
        role: ``Role.WORKER`` or ``Role.SERVER``.
        worker_num: number of workers.
        server_endpoints: endpoints of all servers, a list of host:port.
    """

    def __init__(
        self,
        current_id: int = 0,
        role: int = Role.WORKER,
        worker_num: int = 0,
        server_endpoints: list[str] | None = None,
    ) -> None:
        super().__init__()
        self._server_endpoints = _checked_endpoints("server_endpoints", server_endpoints)
        if role not in (Role.WORKER, Role.SERVER):
            raise TypeError("role must be as Role")
        self._role = role
        limit = len(self._server_endpoints) if role == Role.SERVER else None
        self._current_id = _checked_id(current_id, limit, "if role is Role.SERVER, current_id", "server_endpoints")
        if not isinstance(worker_num, int):
            raise TypeError("worker_num must be as int")
        if worker_num <= 0:
            raise ValueError("worker_num must be greater than 0")
        self._trainers_num = worker_num


class UserDefinedCollectiveRoleMaker(_Known):
    """A worker of a fleet without servers, as given by the script.

    Args:
        current_id: index of this worker.
        worker_endpoints: endpoints of all workers, a list of host:port.
    """

    def __init__(self, current_id: int = 0, worker_endpoints: list[str] | None = None) -> None:
        super().__init__()
        self._worker_endpoints = _checked_endpoints("worker_endpoints", worker_endpoints)
        self._trainers_num = len(self._worker_endpoints)
        self._current_id = _checked_id(current_id, self._trainers_num, "current_id", "worker_endpoints")
        self._role = Role.WORKER


def _checked_endpoints(what: str, endpoints: Any) -> list[str]:
    if not isinstance(endpoints, list):
        raise TypeError(f"{what} must be as string list")
    if not endpoints:
        raise ValueError(f"the length of {what} list must be greater than 0")
    if not all(isinstance(endpoint, str) for endpoint in endpoints):
        raise TypeError(f"every element in {what} list must be as string")
    if len(endpoints) != len(set(endpoints)):
        raise ValueError(f"{what} can't have duplicate elements")
    return endpoints


def _checked_id(current_id: Any, limit: int | None, subject: str, of: str) -> int:
    if not isinstance(current_id, int):
        raise TypeError("current_id must be as int")
    if current_id < 0:
        raise ValueError("current_id must be greater than or equal to 0")
    if limit is not None and current_id >= limit:
        raise ValueError(f"{subject} must be less than or equal to len({of}) - 1")
    return current_id


class GeneralRoleMaker(Meeting, _Known):
    """A role given by the environment, for a fleet that also knows the endpoints of its workers.

    PADDLE_PSERVERS_IP_PORT_LIST and PADDLE_TRAINER_ENDPOINTS list all processes; TRAINING_ROLE and PADDLE_TRAINER_ID
    identify a worker, PADDLE_PSERVER_ID (or POD_IP and PADDLE_PORT) a server. Barriers, reductions and gathers need a
    place where the processes meet: an address of worker 0, or a folder that all see; they go by way of it.

    Args:
        kwargs: http_ip_port ('ip:port' of worker 0) or path (of a folder); init_timeout_seconds (3600) and
            run_timeout_seconds (9999999). hdfs_name and hdfs_ugi are refused: folders of remote file systems have to
            be mounted.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__()
        self._meeting = kwargs

    def generate_role(self) -> None:
        """Read the environment. Raises ValueError if something is missing or invalid."""
        if self._role_is_generated:
            return
        servers, workers = (
            _told("PADDLE_PSERVERS_IP_PORT_LIST").split(","),
            _told("PADDLE_TRAINER_ENDPOINTS").split(","),
        )
        role = _told("TRAINING_ROLE")
        if role not in ("TRAINER", "PSERVER"):
            raise _wrong("TRAINING_ROLE", "TRAINER or PSERVER", role)
        if role == "TRAINER":
            self._role, own = Role.WORKER, workers[_number("PADDLE_TRAINER_ID")]
        else:
            self._role, own = Role.SERVER, _own_server(servers)
        self._current_id = (workers if self._role == Role.WORKER else servers).index(own)
        self._cur_endpoint, self._worker_endpoints, self._server_endpoints = own, workers, servers
        self._trainers_num, self._size = len(workers), len(workers) + len(servers)
        self._rank = [*workers, *servers].index(own)
        if self._meeting.get("http_ip_port") or self._meeting.get("path"):
            self._meet()
        self._role_is_generated = True

    def get_local_endpoint(self) -> str:
        """The endpoint of this process."""
        self._settle()
        return self._cur_endpoint

    def get_trainer_endpoints(self) -> list[str]:
        """The endpoints of all workers."""
        self._settle()
        return self._worker_endpoints

    def server_num(self) -> int:
        """The number of servers."""
        return len(self.get_pserver_endpoints())


def _own_server(servers: Sequence[str]) -> str:
    if "PADDLE_PSERVER_ID" in os.environ:
        return servers[_number("PADDLE_PSERVER_ID")]
    own = f"{_told('POD_IP')}:{_told('PADDLE_PORT')}"
    if own not in servers:
        raise _wrong("POD_IP:PADDLE_PORT", f"one of {', '.join(servers)}", own)
    return own


MPIRoleMaker = unbuilt(__name__, "MPIRoleMaker")
MPISymetricRoleMaker = unbuilt(__name__, "MPISymetricRoleMaker")
