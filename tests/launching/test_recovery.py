"""Trainings that go on with another number of processes: the order of all batches is kept."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

import fluidjax as fluid
from fluidjax import layers, recovery
from fluidjax.recovery import Checkpoints


def reader():
    order = list(range(10))
    random.shuffle(order)
    yield from order


def trained(folder: Path, monkeypatch: pytest.MonkeyPatch, workers: int, epochs: int = 2, share: bool = True) -> list:
    """The batches that each of so many processes gets, all in step, until the training is at its end."""
    jobs = []
    for rank in range(workers):
        monkeypatch.setenv("PADDLE_TRAINER_ID", str(rank))
        monkeypatch.setenv("PADDLE_TRAINERS_NUM", str(workers))
        main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
        with fluid.program_guard(main, startup), fluid.unique_name.guard():
            layers.create_global_var([1], 1.0, "float32", persistable=True, name="w")
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(startup, scope=scope)
        random.seed(3)
        settings = {"every": 1, "folder": str(folder), "scope": scope, "share": share}
        jobs.append(Job(recovery.steps(executor, main, reader, epochs=epochs, **settings)))
        jobs[-1].advance()  # it reads the environment
    return jobs


class Job:
    """One process: what it was given, and its own random state."""

    def __init__(self, steps) -> None:
        self.steps, self.state, self.batches = steps, random.getstate(), []

    def advance(self) -> bool:
        random.setstate(self.state)
        batch = next(self.steps, None)
        self.state = random.getstate()
        self.batches += [] if batch is None else [batch]
        return batch is not None


def run(jobs: list[Job], steps: int = 100) -> list[list[int]]:
    """The batches of each step, in the order of the processes; the first step is what they have already."""
    while len(jobs[0].batches) < steps and all([job.advance() for job in jobs]):
        pass
    for job in jobs:
        job.steps.close()
    for thread in threading.enumerate():
        if thread.name == "checkpoint":
            thread.join()
    return [*map(list, zip(*(job.batches for job in jobs), strict=True))]


def flat(steps: list[list[int]]) -> list[int]:
    return [batch for together in steps for batch in together]


def test_the_order_of_all_batches_is_kept_when_processes_are_more_or_fewer(tmp_path, monkeypatch):
    alone = flat(run(trained(tmp_path / "alone", monkeypatch, 1)))
    assert sorted(alone) == sorted([*range(10)] * 2)
    folder = tmp_path / "several"
    first = run(trained(folder, monkeypatch, 2), steps=3)  # the last of them is not kept yet
    assert flat(first) == alone[:6]
    then = run(trained(folder, monkeypatch, 3), steps=2)
    assert flat(then) == alone[4:10]
    last = run(trained(folder, monkeypatch, 1))
    assert flat(last) == alone[7:]


def test_what_does_not_do_for_all_processes_is_left_out(tmp_path, monkeypatch):
    steps = run(trained(tmp_path, monkeypatch, 3, epochs=1))
    assert [len(together) for together in steps] == [3, 3, 3]


def test_batches_of_each_process_alone_do_not_go_to_others(tmp_path, monkeypatch):
    run(trained(tmp_path, monkeypatch, 2, share=False), steps=3)
    with pytest.raises(ValueError, match="share=True"):
        trained(tmp_path, monkeypatch, 3)


def test_a_process_stands_in_for_those_that_are_no_more(tmp_path):
    four = [Checkpoints(str(tmp_path), rank, 4) for rank in range(4)]
    for step in (4, 8):
        for one in four:
            one.save(step, {}, {})
            one.wait()
    two = [Checkpoints(str(tmp_path), rank, 2) for rank in range(2)]
    assert two[0].newest_of_any() == (8, 4) and two[0].newest() is None
    for step in (12, 16):
        for one in two:
            one.save(step, {}, {})
            one.wait()
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        f"step-{step:010}.rank-{rank}-of-2.npz" for step in (12, 16) for rank in (0, 1)
    ]
