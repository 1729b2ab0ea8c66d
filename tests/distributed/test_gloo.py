"""Barriers, sums and gathers between the processes of a fleet, here threads of one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.core import Gloo
from fluidjax.incubate.fleet.base import meeting, role_maker
from fluidjax.incubate.fleet.utils.http_server import KVServer
from tests.ports import free_endpoints

Setting = Callable[[Gloo], None]


def together(count: int, work: Callable[[Gloo], Any], setting: Setting) -> list[Any]:
    """What each of ``count`` threads gets of its own Gloo."""

    def one(rank: int) -> Any:
        gloo = Gloo()
        gloo.set_rank(rank)
        gloo.set_size(count)
        gloo.set_prefix("job/1")
        gloo.set_iface("lo")
        gloo.set_timeout_seconds(20, 20)
        setting(gloo)
        gloo.init()
        return work(gloo)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


@pytest.fixture(params=["http", "folder"])
def setting(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Where to meet."""
    if request.param == "folder":
        yield lambda gloo: gloo.set_hdfs_store(str(tmp_path / "meet"), "", "")
        return
    server = KVServer(0)
    server.start()
    yield lambda gloo: gloo.set_http_store("127.0.0.1", server.http_server.server_port, "all")
    server.stop()


def test_numbers_of_all(setting: Setting) -> None:
    """Sums are exact for integers; large arrays go in parts; a second meeting is none with the keys of the first."""
    large = np.arange(100_000) / 3

    def work(gloo: Gloo) -> list[Any]:
        found = [gloo.all_reduce([gloo.rank(), 2**60], mode) for mode in ("max", "min")]
        gloo.barrier()
        return [*found, gloo.all_gather(gloo.rank() + 0.5), gloo.all_reduce(large * gloo.rank()), gloo.size()]

    for _ in range(2):
        for high, low, gathered, total, size in together(3, work, setting):
            assert (high, low, gathered, size) == ([2, 2**60], [0, 2**60], [0.5, 1.5, 2.5], 3)
            np.testing.assert_array_equal(total, large + large * 2)


def test_what_cannot_be_reduced(setting: Setting) -> None:
    def work(gloo: Gloo) -> None:
        with pytest.raises(ValueError, match="mode sum, max or min"):
            gloo.all_reduce([1], "mean")
        with pytest.raises(ValueError, match="different numbers of values"):
            gloo.all_reduce([1] * (1 + gloo.rank()))

    together(2, work, setting)


def test_values_for_each(setting: Setting) -> None:
    """Each gets what the others gave for it, of any length."""

    def work(gloo: Gloo) -> list[bytes]:
        return gloo.exchange([bytes([gloo.rank()]) * (3 * to) for to in range(gloo.size())])

    assert together(3, work, setting) == [[bytes([rank]) * (3 * to) for rank in range(3)] for to in range(3)]


def test_who_does_not_come_is_told_of(setting: Setting) -> None:
    gloo = Gloo()
    with pytest.raises(ValueError, match="no store is set"):
        gloo.init()
    gloo.set_size(2)
    gloo.set_timeout_seconds(0.1, 0.1)
    setting(gloo)
    with pytest.raises(fluid.core.EnforceNotMet, match="waits for 2 processes(.|\n)*not all of them have come"):
        gloo.init()
    with pytest.raises(NotImplementedError, match="remote file systems"):
        gloo.set_hdfs_store("hdfs://host/path", "", "")


def test_a_fleets_processes_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers and a server meet by the address of worker 0, which serves until all have parted."""
    address, parting, own = free_endpoints(1)[0], [], threading.local()
    fleet = {"PADDLE_PSERVERS_IP_PORT_LIST": "127.0.0.1:3", "PADDLE_TRAINER_ENDPOINTS": "127.0.0.1:1,127.0.0.1:2"}
    monkeypatch.setattr(role_maker, "_told", lambda name: fleet.get(name) or own.told[name])
    monkeypatch.setattr(meeting.atexit, "register", lambda *call: parting.append(call))
    monkeypatch.setenv("PADDLE_PSERVER_ID", "0")

    def process(role: str, number: int) -> list[Any]:
        own.told = {"TRAINING_ROLE": role, "PADDLE_TRAINER_ID": str(number), "PADDLE_PSERVER_ID": str(number)}
        made = role_maker.GeneralRoleMaker(http_ip_port=address, init_timeout_seconds=30)
        total = [0.0, 0.0]
        made.all_reduce_worker(np.float32([number, 1]), total)
        made.barrier_worker()
        made.barrier_all()
        made._barrier_server()
        return [total, made.all_gather(made._get_rank() * 10), made._worker_gather(number), made._get_size()]

    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(process, ["TRAINER", "TRAINER", "PSERVER"], [0, 1, 0]))
    assert found[0] == found[1] == [[1.0, 2.0], [0, 10, 20], [0, 1], 3]
    assert found[2] == [[0.0, 0.0], [0, 10, 20], None, 3]
    for part, groups, server in sorted(parting, key=lambda call: call[2] is not None):
        part(groups, server)
    assert server.shoud_stop()
    server.stop()


def test_a_fleet_without_a_place_to_meet_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"PADDLE_PSERVERS_IP_PORT_LIST": "127.0.0.1:3", "PADDLE_TRAINER_ENDPOINTS": "127.0.0.1:1"}
    monkeypatch.setattr(role_maker, "_told", {**told, "TRAINING_ROLE": "TRAINER", "PADDLE_TRAINER_ID": "0"}.__getitem__)
    with pytest.raises(RuntimeError, match="do not meet(.|\n)*http_ip_port"):
        role_maker.GeneralRoleMaker().barrier_all()
