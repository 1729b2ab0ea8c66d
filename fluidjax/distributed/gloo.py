"""``core.Gloo``: barriers and sums between the processes of a fleet, through a store of keys and values.

The store is a key-value server (``fluid.incubate.fleet.utils.http_server``) or a folder that all processes see. Each
operation has a number: a process writes its value under its rank, and waits for those of all others. When it has them,
all have finished the operation before, so two places for each rank suffice, which operations take in turn.
"""

from __future__ import annotations

import http.client
import os
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol
from urllib.parse import quote

import numpy as np

from fluidjax.base.errors import EnforceNotMet, explain

_REDUCTIONS: dict[str, Any] = {"sum": np.sum, "max": np.max, "min": np.min}
_PART = 1 << 19  # bytes of a value in one request
_SHORTEST, _LONGEST = 0.001, 0.05  # seconds between two looks at the store


class Store(Protocol):
    """Values by key, which all processes see."""

    def read(self, key: str) -> bytes | None:
        """The value of a key; None where there is none."""

    def write(self, key: str, value: bytes) -> None:
        """Set the value of a key."""


class FolderStore:
    """A file for each key.

    Args:
        path: the folder, which is made when missing.
    """

    def __init__(self, path: str):
        self._path = path
        os.makedirs(path, exist_ok=True)

    def read(self, key: str) -> bytes | None:
        """The value of a key; None where there is none."""
        try:
            with open(os.path.join(self._path, quote(key, "")), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def write(self, key: str, value: bytes) -> None:
        """Set the value of a key, at once."""
        place = os.path.join(self._path, quote(key, ""))
        with open(f"{place}.tmp", "wb") as file:
            file.write(value)
        os.replace(f"{place}.tmp", place)


class HTTPStore:
    """The keys of a scope of a key-value server; EnforceNotMet where it answers otherwise than it should.

    Args:
        ip, port: of the server, which may come later.
        scope: which keys.
        seconds: how long a connection may be refused.
    """

    def __init__(self, ip: str, port: int, scope: str, seconds: float):
        self._place, self._scope, self._seconds = (ip, port), scope, seconds

    def read(self, key: str) -> bytes | None:
        """The value of a key; None where there is none."""
        return self._ask("GET", key, None)

    def write(self, key: str, value: bytes) -> None:
        """Set the value of a key."""
        self._ask("PUT", key, value)

    def leave(self, key: str) -> None:
        """Tell the server that a key is no longer needed."""
        self._seconds = 0.0
        self._ask("DELETE", key, None)

    def _ask(self, method: str, key: str, body: bytes | None) -> bytes | None:
        end = time.monotonic() + self._seconds
        while True:
            try:
                return self._once(method, key, body)
            except OSError as error:
                if time.monotonic() >= end:
                    raise EnforceNotMet(_unanswered(self._place, error)) from error
                time.sleep(_LONGEST)

    def _once(self, method: str, key: str, body: bytes | None) -> bytes | None:
        connection = http.client.HTTPConnection(*self._place, timeout=30)
        try:
            connection.request(method, f"/{quote(self._scope, '')}/{quote(key, '')}", body)
            answer = connection.getresponse()
            value = answer.read()
        finally:
            connection.close()
        if answer.status not in (200, 404):
            raise EnforceNotMet(_unanswered(self._place, answer.status))
        return value if answer.status == 200 else None


def _unanswered(place: tuple[str, int], found: Any) -> str:
    return explain(
        f"Gloo: the key-value server at {place[0]}:{place[1]} does not answer",
        "the server that worker 0 keeps until all processes have ended",
        f"{found}",
        "see whether worker 0 has ended, or another process has the port",
    )


class Gloo:
    """A group of processes; the methods are those of Fluid's ``core.Gloo``."""

    def __init__(self) -> None:
        self._rank, self._size, self._prefix = 0, 1, ""
        self._seconds = 3600.0, 9999999.0
        self._make: Callable[[], Store] | None = None
        self._store: Store | None = None
        self._session = b""
        self._count = 0

    def set_rank(self, rank: int) -> None:
        """The number of this process."""
        self._rank = rank

    def set_size(self, size: int) -> None:
        """How many processes there are."""
        self._size = size

    def set_prefix(self, prefix: str) -> None:
        """What the keys begin with, so that several jobs may share a store."""
        self._prefix = prefix

    def set_iface(self, iface: str) -> None:
        """Accepted as in Fluid: processes only talk to the store."""

    def set_timeout_seconds(self, init_seconds: float, run_seconds: float) -> None:
        """How long ``init``, and an operation, wait for other processes."""
        self._seconds = float(init_seconds), float(run_seconds)

    def set_http_store(self, ip: str, port: int, scope: str) -> None:
        """Meet at a key-value server."""
        self._make = lambda: HTTPStore(ip, port, scope, self._seconds[0])

    def set_hdfs_store(self, path: str, fs_name: str, fs_ugi: str) -> None:
        """Meet in a folder that all processes see. NotImplementedError for one of a remote file system."""
        if fs_name or path.startswith(("hdfs:", "afs:")):
            raise NotImplementedError(
                explain(
                    "Gloo does not meet in remote file systems",
                    "a folder that is mounted on all hosts, or the ip and port of worker 0",
                    f"{path!r} of {fs_name!r}",
                    "give GeneralRoleMaker path= (without hdfs_name), or http_ip_port='ip:port'",
                )
            )
        self._make = lambda: FolderStore(path)

    def init(self) -> None:
        """Wait for all processes. EnforceNotMet after the time that was set for it."""
        if self._make is None:
            raise ValueError(
                explain(
                    "Gloo.init: no store is set",
                    "set_http_store or set_hdfs_store before init",
                    "neither",
                    "call one of them",
                )
            )
        self._store = self._make()
        self._session = self._meet()

    def rank(self) -> int:
        """The number of this process."""
        return self._rank

    def size(self) -> int:
        """How many processes there are."""
        return self._size

    def barrier(self) -> None:
        """Wait for all processes."""
        self._exchanged(b"")

    def all_reduce(self, values: Sequence[Any], mode: str = "sum") -> list[Any]:
        """The sum, max or min over all processes of each number; the processes have equally many."""
        if mode not in _REDUCTIONS:
            raise ValueError(
                explain("Gloo.all_reduce", "mode sum, max or min", f"{mode!r}", "give one of them"),
            )
        arrays = [_numbers(part) for part in self._exchanged(_bytes(values))]
        if len({len(a) for a in arrays}) > 1:
            raise ValueError(
                explain(
                    "Gloo.all_reduce: processes gave different numbers of values",
                    "as many in each",
                    f"{[len(a) for a in arrays]}, by rank",
                    "reduce arrays of one length",
                )
            )
        return _REDUCTIONS[mode](np.stack(arrays), axis=0).tolist()

    def all_gather(self, value: Any) -> list[Any]:
        """The numbers of all processes, by rank."""
        return [_numbers(part)[0].item() for part in self._exchanged(_bytes([value]))]

    def exchange(self, values: Sequence[bytes]) -> list[bytes]:
        """What each process gave for this one, by rank: ``values`` has one for each process."""
        sizes = np.array([len(value) for value in values], "<i8").tobytes()
        return [_part(found, self._rank, self._size) for found in self._exchanged(sizes + b"".join(values))]

    # --- through the store ----------------------------------------------------------------------------------------

    def _meet(self) -> bytes:
        """What tells this meeting from earlier ones that have left their keys: a part from each process."""
        nonce, ranks = secrets.token_bytes(8), range(self._size)
        for wait in _waits(self._seconds[0], self._absent):
            self._write(f"hello.{self._rank}", nonce)
            if self._rank == 0:
                self._write("welcome", b"".join(self._read(f"hello.{rank}") or b"" for rank in ranks))
            welcome = self._read("welcome") or b""
            if len(welcome) == 8 * self._size and welcome[8 * self._rank :][:8] == nonce:
                self._write(f"agreed.{self._rank}", welcome)
                if all(self._read(f"agreed.{rank}") == welcome for rank in ranks):
                    return welcome
            wait()
        raise AssertionError("unreachable")

    def _exchanged(self, value: bytes) -> list[bytes]:
        """What each process gave to this operation, by rank."""
        self._count += 1
        turn, head = self._count % 2, self._session + self._count.to_bytes(8, "little")
        parts = [value[at : at + _PART] for at in range(0, len(value), _PART)]
        for at, part in enumerate(parts):
            self._write(f"{self._rank}.{turn}.{at}", part)
        self._write(f"{self._rank}.{turn}", head + len(parts).to_bytes(4, "little"))
        return [self._awaited(rank, turn, head) for rank in range(self._size)]

    def _awaited(self, rank: int, turn: int, head: bytes) -> bytes:
        for wait in _waits(self._seconds[1], self._absent):
            found = self._read(f"{rank}.{turn}") or b""
            if found[:-4] == head:
                count = int.from_bytes(found[-4:], "little")
                return b"".join(self._read(f"{rank}.{turn}.{at}") or b"" for at in range(count))
            wait()
        raise AssertionError("unreachable")

    def _absent(self) -> EnforceNotMet:
        late = f"one of them has not come to operation {self._count}"
        missing = late if self._session else "not all of them have come"
        return EnforceNotMet(
            explain(
                f"Gloo: process {self._rank} waits for {self._size} processes",
                "all of them, within the time that was set",
                missing,
                "see whether one has failed, or calls barriers and reductions in another order",
            )
        )

    def _read(self, key: str) -> bytes | None:
        assert self._store is not None, "Gloo: init comes first"
        return self._store.read(f"{self._prefix}.{key}")

    def _write(self, key: str, value: bytes) -> None:
        assert self._store is not None, "Gloo: init comes first"
        self._store.write(f"{self._prefix}.{key}", value)

    def leave(self) -> None:
        """Tell the store's server that this process needs it no longer."""
        if isinstance(self._store, HTTPStore):
            self._store.leave(f"{self._prefix}.{self._rank}")


def _waits(seconds: float, absent: Callable[[], Exception]) -> Any:
    """Functions that wait, longer each time; raises what ``absent`` gives when all the time has passed."""
    end, pause = time.monotonic() + seconds, _SHORTEST
    while True:
        yield lambda pause=pause: time.sleep(pause)
        pause = min(2 * pause, _LONGEST)
        if time.monotonic() > end:
            raise absent()


def _bytes(values: Sequence[Any]) -> bytes:
    array = np.asarray(values).reshape(-1)
    return b"i" + array.astype("<i8").tobytes() if array.dtype.kind in "iub" else b"f" + array.astype("<f8").tobytes()


def _part(joined: bytes, number: int, count: int) -> bytes:
    """One of ``count`` values that follow their sizes."""
    ends = 8 * count + np.cumsum(np.frombuffer(joined, "<i8", count))
    return joined[ends[number - 1] if number else 8 * count : ends[number]]


def _numbers(value: bytes) -> np.ndarray:
    return np.frombuffer(value, "<i8" if value[:1] == b"i" else "<f8", offset=1)
