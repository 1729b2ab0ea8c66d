"""How the processes of a fleet meet: barriers, sums and gathers of role makers."""

from __future__ import annotations

import atexit
import contextlib
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fluidjax.base.errors import explain
from fluidjax.distributed.gloo import Gloo
from fluidjax.incubate.fleet.utils.http_server import KVServer

_LINGER = 5.0  # seconds that worker 0 waits at its end for others that still read from its server


class MockBarrier:
    """A barrier for a single process."""

    def barrier(self) -> None:
        """A no-op."""

    def barrier_all(self) -> None:
        """A no-op."""

    def all_reduce(self, obj: Any) -> Any:
        """Returns the value itself."""
        return obj

    def all_gather(self, obj: Any) -> list[Any]:
        """Returns the value in a list."""
        return [obj]


class Meeting:
    """The part of a role maker that talks to the other processes, once its role is known; see ``GeneralRoleMaker``."""

    _meeting: dict[str, Any]
    _worker_endpoints: list[str]
    _server_endpoints: list[str]
    _cur_endpoint: str
    _current_id: int
    _trainers_num: int
    _rank: int
    _size: int
    _node_type_comm: Any = None
    _all_comm: Any = None

    if TYPE_CHECKING:

        def _settle(self) -> None: ...

    def _works(self) -> bool:
        self._settle()
        return self._cur_endpoint in self._worker_endpoints

    def _meet(self) -> None:
        """Wait for the other processes: those of the same role, and all."""
        of_workers = self._cur_endpoint in self._worker_endpoints
        server = self._serve() if of_workers and self._current_id == 0 else None
        if of_workers and not int(os.environ.get("PADDLE_IS_BARRIER_ALL_ROLE", 1)):
            self._node_type_comm = MockBarrier()
        else:
            count = self._trainers_num if of_workers else len(self._server_endpoints)
            self._node_type_comm = self._gloo("trainer" if of_workers else "pserver", self._current_id, count)
        self._all_comm = self._gloo("all", self._rank, self._size)
        atexit.register(_part, [self._node_type_comm, self._all_comm], server)

    def _serve(self) -> KVServer | None:
        """The key-value server of worker 0, where processes meet at an address."""
        address = self._meeting.get("http_ip_port")
        if not address:
            return None
        sizes = {"trainer": self._trainers_num, "pserver": len(self._server_endpoints), "all": self._size}
        server = KVServer(int(address.rpartition(":")[2]), sizes)
        server.start()
        return server

    def _gloo(self, group: str, rank: int, size: int) -> Gloo:
        found, settings = Gloo(), self._meeting
        found.set_rank(rank)
        found.set_size(size)
        found.set_prefix(os.getenv("SYS_JOB_ID", ""))
        found.set_timeout_seconds(
            settings.get("init_timeout_seconds", 3600), settings.get("run_timeout_seconds", 9999999)
        )
        if settings.get("http_ip_port"):
            ip, _, port = settings["http_ip_port"].rpartition(":")
            found.set_http_store(ip, int(port), group)
        else:
            path = f"{settings['path'].rstrip('/')}/{group}"
            found.set_hdfs_store(path, settings.get("hdfs_name", ""), settings.get("hdfs_ugi", ""))
        found.init()
        return found

    def all_gather(self, input: Any) -> list[Any]:
        """The numbers of all workers and servers, by rank: first those of the workers."""
        return self._all_gather(input)

    def all_reduce_worker(self, input: Any, output: Any, mode: str = "sum") -> None:
        """Write the sum, max or min of an array over all workers into another; servers do nothing."""
        if self._works():
            self._all_reduce(input, output, mode)

    def barrier_worker(self) -> None:
        """Wait for all workers; servers do nothing."""
        self._barrier_worker()

    def barrier_all(self) -> None:
        """Wait for all workers and servers."""
        self._barrier_all()

    def _barrier_worker(self) -> None:
        if self._works():
            self._peers().barrier()

    def _barrier_server(self) -> None:
        if not self._works():
            self._peers().barrier()

    def _barrier_all(self) -> None:
        self._all().barrier()

    def _all_reduce(self, input: Any, output: Any, mode: str = "sum") -> None:
        output[:] = self._peers().all_reduce(list(input), mode)

    def _all_gather(self, obj: Any) -> list[Any]:
        return self._all().all_gather(obj)

    def _worker_gather(self, obj: Any) -> list[Any] | None:
        return self._peers().all_gather(obj) if self._works() else None

    def _worker_exchange(self, values: Sequence[bytes]) -> list[bytes]:
        """What each worker gave for this one."""
        found: list[bytes] = self._peers().exchange(values)
        return found

    def _worker_num(self) -> int:
        self._settle()
        return self._trainers_num

    def _server_num(self) -> int:
        self._settle()
        return len(self._server_endpoints)

    def _get_rank(self) -> int:
        self._settle()
        return self._rank

    def _get_size(self) -> int:
        self._settle()
        return self._size

    def _finalize(self) -> None:
        """Do nothing: the processes part when they end."""

    def _peers(self) -> Any:
        self._settle()
        return _met(self._node_type_comm)

    def _all(self) -> Any:
        self._settle()
        return _met(self._all_comm)


def _met(group: Any) -> Any:
    """The group; RuntimeError where the processes have no place to meet."""
    if group is None:
        raise RuntimeError(
            explain(
                "GeneralRoleMaker: the processes do not meet",
                "http_ip_port, an address of worker 0, or path, a folder that all processes see",
                "neither",
                "write GeneralRoleMaker(http_ip_port='127.0.0.1:6190') or GeneralRoleMaker(path='/shared/folder')",
            )
        )
    return group


def _part(groups: Sequence[Any], server: KVServer | None) -> None:
    """At the end of a process: leave the groups. The server stays until all have left, or for some seconds."""
    for group in groups:
        with contextlib.suppress(Exception):
            group.leave()
    end = time.monotonic() + _LINGER
    while server is not None and not server.shoud_stop() and time.monotonic() < end:
        time.sleep(0.02)
