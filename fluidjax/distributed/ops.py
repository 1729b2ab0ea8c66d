"""The functions called by the ops of trainers and servers; see ``lowering.ops.distributed.rpc``."""

from __future__ import annotations

import atexit
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from fluidjax.base.enums import to_numpy_dtype
from fluidjax.base.scope import held
from fluidjax.distributed import communicator
from fluidjax.distributed.client import FETCH_BARRIER, client
from fluidjax.distributed.parts import on_host
from fluidjax.distributed.server import Server
from fluidjax.execution.closing import when_closed
from fluidjax.execution.runs.outside import Outside
from fluidjax.execution.scopes.exchange import to_lowering
from fluidjax.files import host_ops
from lowering.engine.host import provide
from lowering.errors import OpError
from lowering.ops.distributed.tables import Lookup
from lowering.program import OpView, ProgramView
from lowering.registry import get_op


@dataclass
class _Talk:
    """State of one run: values to send, values fetched for later ops, servers that know that all is fetched."""

    outbox: list[tuple[str, str, Any]] = field(default_factory=list)
    fetched: dict[tuple[str, str], Any] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)


def _talk(outside: Outside) -> _Talk:
    return outside.kept.setdefault(_Talk, _Talk())


def send(names: Sequence[str], values: Sequence[Any], endpoints: Sequence[str], last: bool, outside: Outside) -> None:
    """Queue values for their endpoints; all are sent when the ``last`` op of a block asks for it."""
    talk = _talk(outside)
    for endpoint, name, value in zip(endpoints, names, values, strict=True):
        if value is None:
            raise OpError(f"op send: variable {name!r} has no value to be sent; run what computes it first")
        talk.outbox.append((endpoint, name, on_host(value)))
    if last:
        waiting, talk.outbox = talk.outbox, []
        client.tell(waiting)


def recv(
    trainer: int,
    wanted: Sequence[tuple[str, str]],
    batch: Callable[[], tuple[Sequence[tuple[str, str]], bool]],
    in_turn: bool,
    outside: Outside,
) -> list[Any]:
    """Values of (endpoint, name). Unless they were fetched before, a whole ``batch`` is, and kept for the ops to come.

    If it ends a round, as the batch also tells, the request counts as this trainer's fetch barrier.
    """
    client.introduce(trainer)
    talk = _talk(outside)
    if any(pair not in talk.fetched for pair in wanted):
        asked, ends = batch()
        pairs = list(dict.fromkeys(asked))
        ends = ends and len(pairs) == len(asked)
        talk.fetched = dict(zip(pairs, client.fetch(pairs, now=not in_turn, last=ends), strict=True))
        talk.told = {endpoint for endpoint, _ in pairs} if ends else set()
    return [talk.fetched.pop(pair) for pair in wanted]


def push(names: Sequence[str], values: Sequence[Any], there: Sequence[str], outside: Outside) -> None:
    """Pass values to the communicator."""
    communicator.running().push(names, values, there, outside)


def count(names: Sequence[str], values: Sequence[Any], endpoints: Sequence[str], at_runtime: bool) -> None:
    """Increment the counters of all servers, unless the communicator that sends ``at_runtime`` does not count."""
    if not at_runtime or communicator.running().counts(names):
        client.ask("DistributeNotify", [(e, name, v) for e in endpoints for name, v in zip(names, values, strict=True)])


def send_barrier(
    trainer: int, endpoints: Sequence[str], half_async: bool, batch: Sequence[tuple[str, str]], outside: Outside
) -> None:
    """Send queued values and tell servers that they are all, or tell a communicator that a step is over.

    ``batch``: all (endpoint, name) that a round ends by receiving, if it does; the same messages ask for them.
    """
    client.introduce(trainer)
    if half_async:
        communicator.running().barrier()
        return
    talk = _talk(outside)
    waiting, talk.outbox = talk.outbox, []
    asked = {*(endpoint for endpoint, _ in batch), *(endpoint for endpoint, _, _ in waiting)}
    ends = bool(batch) and len(set(batch)) == len(batch) and asked <= set(endpoints)
    found = client.end_batch(waiting, endpoints, batch if ends else (), last=ends)
    talk.fetched = dict(zip(batch, found, strict=True)) if ends else {}
    talk.told = set(endpoints) if ends else set()


def fetch_barrier(trainer: int, endpoints: Sequence[str], outside: Outside) -> None:
    """Tell the servers that do not know it yet that everything has been received."""
    client.introduce(trainer)
    talk = _talk(outside)
    client.notify([endpoint for endpoint in endpoints if endpoint not in talk.told], FETCH_BARRIER)
    talk.told = set()


def lookup(trainer: int, lookups: Sequence[Lookup]) -> list[np.ndarray]:
    """Look up rows in tables split into consecutive shards of given sizes."""
    client.introduce(trainer)
    asked = [_parts(each) for each in lookups]
    found = iter(client.ask("PrefetchVariable", [item for items in asked for item in items]))
    return [np.concatenate([next(found) for _ in items]) for items in asked]


def _parts(wanted: Lookup) -> list[tuple[str, str, np.ndarray]]:
    """(endpoint, table, ids there) of each part of the table that is asked."""
    ids, bounds = wanted.ids, list(pairwise(accumulate(wanted.heights, initial=0)))
    if ids.size and not 0 <= ids[0] <= ids[-1] < wanted.rows:
        raise OpError(
            f"op distributed_lookup_table: ids from {ids[0]} to {ids[-1]}\n  expected: 0 <= id < {wanted.rows}, the"
            " rows of the table\n  received: an id outside of it\n  what to do: correct the ids that are fed"
        )
    cuts = np.searchsorted(ids, [begin for begin, _ in bounds[1:]])
    parts = [part - begin for part, (begin, _) in zip(np.split(ids, cuts), bounds, strict=True)]
    asked = list(zip(wanted.endpoints, wanted.tables, parts, strict=True))
    return [item for item in asked if item[2].size] if ids.size else asked


def prefetch(trainer: int, endpoints: Sequence[str], names: Sequence[str], ids: Sequence[np.ndarray]) -> list[Any]:
    """The rows looked up by each endpoint for its ids."""
    return client.ask("PrefetchVariable", list(zip(endpoints, names, ids, strict=True)))


def checkpoint_notify(trainer: int, endpoints: Sequence[str], folder: str, table: str) -> None:
    """Have servers save their shards of a table under a directory."""
    client.introduce(trainer)
    client.ask(
        "CheckpointNotify", [(endpoint, table, np.frombuffer(folder.encode(), np.uint8)) for endpoint in endpoints]
    )


def recv_save(
    trainer: int, wanted: Sequence[tuple[str, str]], path: str, shape: Sequence[int], dtype: int, overwrite: bool
) -> None:
    """Save the shards held by servers as one file of the given shape.

    As in Fluid, a value held entire by several servers is written once for each, after a single shape header.
    """
    client.introduce(trainer)
    parts = [np.asarray(value).reshape(-1) for value in client.fetch(wanted, now=True)]
    host_ops.save_parts(parts, path, tuple(shape), to_numpy_dtype(dtype), overwrite)


def listen_and_serv(program: ProgramView, op: OpView, outside: Outside, env: MutableMapping[str, Any]) -> None:
    """Serve, then record in ``env`` the final values of the variables that the run started with."""
    Server(program, op, outside.scope).run()
    for name in env:
        if outside.scope.find_var(name) is not None:
            env[name] = to_lowering(held(outside.scope, name))


def fl_listen_and_serv(program: ProgramView, op: OpView, outside: Outside, env: MutableMapping[str, Any]) -> None:
    """Serve trainers that send parameters: rounds as for ``listen_and_serv``, with the differences given by the op."""
    rest = {spec.name: spec.default for spec in get_op("listen_and_serv").attrs.values()}
    listen_and_serv(program, replace(op, attrs=rest | dict(op.attrs)), outside, env)


for service in (send, push, count, recv, send_barrier, fetch_barrier, lookup, prefetch, checkpoint_notify, recv_save):
    provide(service.__name__, service)
provide("listen_and_serv", listen_and_serv)
provide("fl_listen_and_serv", fl_listen_and_serv)
when_closed(client.complete)
atexit.register(client.finish)
