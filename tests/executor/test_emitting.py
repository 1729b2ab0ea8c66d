"""XLA's thread that emits kernels gives way to those that compile them; no other thread does."""

from __future__ import annotations

import os
import sys
import threading

import pytest

from fluidjax.execution import emitting


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


def test_nothing_is_looked_for_where_the_system_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emitting, "_found", emitting.threading.Event())
    monkeypatch.setattr(emitting.sys, "platform", "darwin")
    monkeypatch.setattr(emitting, "_worked", lambda: pytest.fail("threads were looked at"))
    with emitting.emitting_last():
        pass
    assert not emitting._found.is_set()
