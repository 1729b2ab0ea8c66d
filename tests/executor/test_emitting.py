"""XLA's thread that emits kernels gives way to those that compile them; no other thread does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from typing import cast

import pytest

from fluidjax.execution.executables import emitting


@pytest.mark.skipif(sys.platform != "linux", reason="threads have priorities of their own on Linux")
def test_only_the_thread_that_was_found_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emitting, "_found", threading.Event())
    before, after = os.getpriority(os.PRIO_PROCESS, 0), []

    def give_way() -> None:
        emitting._set_back(threading.get_native_id())
        after.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    thread = threading.Thread(target=give_way)
    thread.start()
    thread.join()
    assert after == [min(19, before + 10)] and emitting._found.is_set()
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


def test_the_thread_that_works_first_is_found() -> None:
    """Where it is clear which one that is, and early enough, or what compiles was not there before."""
    enough, long = emitting._ENOUGH, emitting._EARLY
    assert emitting._first({1: 0, 2: enough}, late=False) == 2
    assert emitting._first({1: 0, 2: enough - 1}, late=False) is None
    assert emitting._first({1: enough, 2: enough}, late=True) is None
    assert emitting._first({1: 0, 2: long + 1}, late=False) is None
    assert emitting._first({1: 0, 2: long + 1}, late=True) == 2
    assert emitting._first({}, late=True) is None


@pytest.mark.parametrize(("one_emits", "system"), [(True, "darwin"), (False, "linux")])
def test_nothing_is_looked_for_where_the_system_says_nothing_or_each_thread_emits(
    monkeypatch: pytest.MonkeyPatch, one_emits: bool, system: str
) -> None:
    monkeypatch.setattr(emitting, "_found", emitting.threading.Event())
    monkeypatch.setattr(emitting.sys, "platform", system)
    monkeypatch.setattr(emitting, "_ONE_EMITS", one_emits)
    monkeypatch.setattr(emitting, "_worked", lambda: pytest.fail("threads were looked at"))
    with emitting.emitting_last():
        pass
    assert not emitting._found.is_set()


class _Looks:
    """What threads have worked, look by look, in place of an event that tells the end of a compilation."""

    def __init__(self, *looks: dict[int, int]):
        self.left = list(looks)

    def wait(self, seconds: float) -> bool:
        del self.left[:1]
        return len(self.left) == 1

    def worked(self) -> dict[int, int]:
        return self.left[0]


def test_threads_that_are_not_told_apart_are_looked_at_less_and_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look takes half a millisecond, of the processor that compiles."""
    passed: list[float] = []

    class Done:
        def wait(self, seconds: float) -> bool:
            passed.append(seconds)
            return sum(passed) > 20

    monkeypatch.setattr(emitting, "_found", threading.Event())
    monkeypatch.setattr(emitting, "_worked", lambda: {1: 10**9, 2: 10**9})
    emitting._watch({}, cast(threading.Event, Done()))
    assert passed[:10] == [emitting._LOOK] * 10
    assert len(passed) < 100


_EMITS, _COMPILES, _MS = 1, 2, 1_000_000
_ALONE, _BOTH, _LAST = (
    {_EMITS: 8 * _MS},
    {_EMITS: 30 * _MS, _COMPILES: 4 * _MS},
    {_EMITS: 90 * _MS, _COMPILES: 90 * _MS},
)


@pytest.mark.parametrize(
    ("before", "looks", "left"),
    [
        ({_EMITS: 0}, (_ALONE, _BOTH, _LAST), 2),  # the program's own compilation makes the thread that compiles
        ({_EMITS: 0, _COMPILES: 0}, (_ALONE, _BOTH, _LAST), 2),  # one of jax's own made it, before anybody watched
        ({_EMITS: 0, _COMPILES: 0}, (_ALONE, _ALONE, _ALONE), 1),  # nothing compiled for long: at the end
    ],
)
def test_it_is_set_back_as_soon_as_another_compiles(
    monkeypatch: pytest.MonkeyPatch, before: dict[int, int], looks: tuple[dict[int, int], ...], left: int
) -> None:
    """Not at the end of the program: until then all its kernels would have waited."""
    script, found = _Looks(before, *looks), []
    monkeypatch.setattr(emitting, "_found", threading.Event())
    monkeypatch.setattr(emitting, "_worked", script.worked)
    monkeypatch.setattr(emitting, "_set_back", lambda thread: found.append((thread, len(script.left))))
    emitting._watch(before, cast(threading.Event, script))
    assert found == [(_EMITS, left)]


@pytest.mark.skipif(sys.platform != "linux", reason="threads have priorities of their own on Linux")
def test_a_thread_that_also_compiles_keeps_its_share() -> None:
    """From the second program on such threads were there before, as the one that only emits is.

    On one processor only one of them works at a time.
    """
    script = """
import os
import jax
import jax.numpy as jnp
from fluidjax.execution.executables.emitting import emitting_last

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
for rows in (30, 31, 32):
    lowered = jax.jit(lambda x: [x := jnp.sin(x) @ x + i for i in range(20)]).lower(jnp.ones((rows, rows)))
    with emitting_last():
        lowered.compile()
print(sorted(os.getpriority(os.PRIO_PROCESS, int(thread)) for thread in os.listdir("/proc/self/task")))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    lower = [priority for priority in json.loads(done.stdout) if priority > os.getpriority(os.PRIO_PROCESS, 0)]
    assert len(lower) <= emitting._ONE_EMITS
