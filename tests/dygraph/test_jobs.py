"""The order in which blocks are compiled."""

from __future__ import annotations

import threading

import pytest

from fluidjax.eager.sequences.jobs import BETTER, Jobs
from fluidjax.execution.executables import background


class Sequence:
    def __init__(self, last: int) -> None:
        self.last = last


def test_what_ran_last_is_compiled_first_and_a_later_request_replaces_an_earlier_one() -> None:
    jobs, begun, go = Jobs(), threading.Event(), threading.Event()
    done: list[str] = []
    old, new = Sequence(1), Sequence(2)

    def first() -> None:
        begun.set()
        go.wait()

    jobs.add(Sequence(0), "whole", first)
    begun.wait()
    jobs.add(old, "chunks", lambda: done.append("old"))
    jobs.add(new, "chunks", lambda: done.append("for fewer outputs"))
    jobs.add(new, "rest", lambda: done.append("rest"))
    jobs.add(new, "chunks", lambda: done.append("new"))
    go.set()
    jobs.wait()
    assert sorted(done[:2]) == ["new", "rest"]
    assert done[2:] == ["old"]


def test_what_is_there_is_compiled_better_when_nothing_else_waits() -> None:
    jobs, begun, go = Jobs(), threading.Event(), threading.Event()
    done: list[str] = []

    def first() -> None:
        begun.set()
        go.wait()

    jobs.add(Sequence(0), "whole", first)
    begun.wait()
    jobs.add(Sequence(9), BETTER, lambda: done.append("better"))
    jobs.add(Sequence(1), "whole", lambda: done.append("whole"))
    go.set()
    jobs.wait()
    assert done == ["whole", "better"]


def test_an_error_is_raised_where_the_work_is_waited_for() -> None:
    jobs = Jobs()

    def fail() -> None:
        raise ValueError("cannot be compiled")

    with pytest.warns(RuntimeWarning, match="ValueError: cannot be compiled\n  expected: .*\n  to do: "):
        jobs.add(Sequence(0), "whole", fail)
        with pytest.raises(ValueError, match="cannot be compiled"):
            jobs.wait()
        background.wait()
    jobs.wait()
