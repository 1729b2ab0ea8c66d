"""The trainer's side in the modes in which sending and receiving are not ops of their own.

======================  ========================================================================================
``Stepwise``            half async: at the end of a step, send, then receive
``Synchronous``         the same in rounds with all other trainers
``Background``          async: two threads send and receive beside the steps
``Geo`` (geo.py)        every few steps, exchanges the change of the trainer's own parameters
======================  ========================================================================================
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fluidjax.base.scope import Scope
from fluidjax.distributed.client import client
from fluidjax.distributed.parts import Target, merged, on_host
from fluidjax.execution.runs.outside import Outside
from fluidjax.execution.scopes.writer import write_back
from lowering.errors import OpError

_log = logging.getLogger(__name__)

_running: list[Communication] = []


def running() -> Communication:
    """The active communication of this process. Raises OpError if none was started."""
    if not _running:
        raise OpError(
            "this program sends through a communicator\n  expected: a fluid.communicator.Communicator that is started"
            "\n  received: none\n  what to do: call its start(), or fleet.init_worker(), before the program runs"
        )
    return _running[-1]


class Communication:
    """Sends values pushed by programs, and receives parameters into a scope.

    Args:
        sends: maps each variable to the location of its shards.
        receives: maps each parameter to the location of its shards.
        scope: where to store parameters.
        settings: Fluid's ``communicator_*`` flags, without that prefix.
    """

    def __init__(
        self, sends: Mapping[str, Target], receives: Mapping[str, Target], scope: Scope, settings: Mapping[str, str]
    ) -> None:
        self._sends, self._receives, self._scope = dict(sends), dict(receives), scope
        self._mean = settings.get("is_sgd_optimizer", "1") not in ("1", "true", "True")
        self._most = max(int(settings.get("max_merge_var_num", 1)), 1)
        self._room = max(int(settings.get("send_queue_size", 1)), 1)
        self._queues: dict[str, deque[Any]] = {name: deque() for name in self._sends}

    def start(self) -> None:
        """Start accepting values."""
        _running.append(self)

    def stop(self) -> None:
        """Stop accepting values."""
        if self in _running:
            _running.remove(self)

    def is_running(self) -> bool:
        """Whether it has been started."""
        return self in _running

    def push(self, names: Sequence[str], values: Sequence[Any], there: Sequence[str], outside: Outside) -> None:
        """Queue values to be sent; called by ``send`` ops."""
        for name, value in zip(names, values, strict=True):
            self._queues[name].append(on_host(value))

    def counts(self, counters: Sequence[str]) -> bool:
        """Whether servers are told of each step, for their schedule of the learning rate."""
        return True

    def barrier(self) -> None:
        """End of a step; called by ``send_barrier`` ops."""
        raise NotImplementedError

    def _taken(self) -> list[tuple[str, str, Any]]:
        """Pending values, limited per variable, as (endpoint, name, value)."""
        found = []
        for name, pushed in self._queues.items():
            values = [pushed.popleft() for _ in range(min(len(pushed), self._most))]
            if values:
                found += self._sends[name].split(merged(values, mean=self._mean))
        return found

    def _receive(self) -> None:
        """Receive the servers' parameters into the scope."""
        self._store(client.fetch(self._wanted(), now=False))

    def _wanted(self) -> list[tuple[str, str]]:
        """(endpoint, name there) of all parameters."""
        return [pair for target in self._receives.values() for pair in target.wanted()]

    def _store(self, received: Iterable[Any]) -> None:
        """Store what was ``_wanted`` into the scope."""
        parts = iter(received)
        values = {name: _whole([next(parts) for _ in target.names]) for name, target in self._receives.items()}
        write_back(self._scope, values)


def _whole(parts: list[Any]) -> Any:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


class _Uncounted(Communication):
    """Tells servers of no steps: as in Fluid, a schedule keeps the learning rate that it begins with."""

    _told = False

    def counts(self, counters: Sequence[str]) -> bool:
        """No step is counted, which the log says once."""
        if not self._told:
            self._told = True
            _log.warning(
                "%s: in fleet's sync and half-async strategies servers count no steps, so the learning rate stays as"
                " the schedule begins; the async strategy counts, and so does DistributeTranspiler in sync mode",
                ", ".join(counters),
            )
        return False


class Stepwise(_Uncounted):
    """Half async: each step ends by sending what it pushed and receiving what is available."""

    def barrier(self) -> None:
        """Send, then receive; a server takes what it is sent before it serves its parameters."""
        while sent := self._taken():
            client.tell(sent)
        self._receive()


class Synchronous(_Uncounted):
    """Sync: the steps of all trainers form a round.

    Args:
        endpoints: of all servers.
    """

    def __init__(self, *args: Any, endpoints: Sequence[str], trainer: int) -> None:
        super().__init__(*args)
        self._endpoints = endpoints
        client.introduce(trainer)

    def barrier(self) -> None:
        """Send, wait for the other trainers, then receive."""
        sent = self._taken()
        while more := self._taken():
            client.ask("SendVariable", sent)
            sent = more
        self._store(client.end_batch(sent, self._endpoints, self._wanted(), last=True))


class Background(Communication):
    """Async: one thread sends pushed values, another receives once enough has been sent."""

    def __init__(
        self, sends: Mapping[str, Target], receives: Mapping[str, Target], scope: Scope, settings: Mapping[str, str]
    ) -> None:
        super().__init__(sends, receives, scope, settings)
        self._before_receiving = max(int(settings.get("min_send_grad_num_before_recv", 1)), 1)
        self._changed = threading.Condition()
        self._sent = 0  # since something was received
        self._begun = False  # whether anything was sent at all
        self._threads: list[threading.Thread] = []
        self._stopping = False
        self._error: BaseException | None = None

    def start(self) -> None:
        """Start sending and receiving."""
        super().start()
        self._threads = [threading.Thread(target=self._guarded, args=(loop,), daemon=True) for loop in self._loops()]
        for thread in self._threads:
            thread.start()

    def _loops(self) -> list[Any]:
        return [self._send_loop, self._receive_loop]

    def stop(self) -> None:
        """Send what is pending, receive a last time, and stop. Who has sent nothing needs no server for that."""
        super().stop()
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        self._raise()
        if self._begun:
            self._receive()

    def push(self, names: Sequence[str], values: Sequence[Any], there: Sequence[str], outside: Outside) -> None:
        """Queue values to be sent; blocks while the variable's queue is full."""
        taken = [on_host(value) for value in values]
        with self._changed:
            for name, value in zip(names, taken, strict=True):
                self._put(self._queues[name], value)
            self._changed.notify_all()

    def _put(self, queue: deque[Any], value: Any) -> None:
        self._changed.wait_for(lambda: len(queue) < self._room or self._error is not None)
        self._raise()
        queue.append(value)

    def barrier(self) -> None:
        """A no-op in this mode."""

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _guarded(self, loop: Any) -> None:
        try:
            loop()
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _send_loop(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopping or any(self._queues.values()))
                taken = self._taken()
                self._changed.notify_all()
            if not taken:
                return
            client.ask("SendVariable", taken)
            with self._changed:
                self._begun = True
                self._sent += len(taken)
                self._changed.notify_all()

    def _receive_loop(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopping or self._sent >= self._before_receiving)
                if self._stopping:
                    return
                self._sent = 0
            self._receive()
