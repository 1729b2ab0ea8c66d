"""The thread that runs the model, taking requests from a queue, several of the same kind at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import Future
from typing import Protocol

from fluidjax.serving.batching import joined, kind_of, samples_of, split, widened
from fluidjax.serving.model import ServedModel
from fluidjax.serving.settings import Settings
from fluidjax.serving.tensors import Tensor
from fluidjax.serving.warming import warm_up

Outputs = dict[str, Tensor]


class Watcher(Protocol):
    """The observer of runs."""

    def ran(self, samples: int, seconds: float) -> None:
        """Called after a run with its number of samples and duration."""


class Job:
    """The inputs of a request, and the future of its outputs."""

    def __init__(self, inputs: Mapping[str, Tensor]):
        self.inputs = inputs
        self.samples = samples_of(inputs) or 0
        self.kind: Hashable = kind_of(inputs) if self.samples else None
        self.arrived = time.monotonic()
        self.outputs: Future[Outputs] = Future()


class Worker(threading.Thread):
    """Runs a model; ``ready`` is set once it is warm.

    Attributes:
        alone: the reason why requests are not batched; None if they are.
    """

    def __init__(self, model: ServedModel, settings: Settings, watcher: Watcher):
        super().__init__(name="fluidjax-serve", daemon=True)
        self._model, self._settings, self._watcher = model, settings, watcher
        self._changed = threading.Condition()
        self._jobs: list[Job] = []
        self._closing = False
        self.ready = threading.Event()
        self.alone: str | None = "the model is not warm yet"

    def submit(self, inputs: Mapping[str, Tensor]) -> Future[Outputs]:
        """Queue a request; cancelling the returned future removes it, unless it is already running."""
        job = Job(inputs)
        with self._changed:
            self._jobs.append(job)
            self._changed.notify()
        return job.outputs

    def close(self) -> None:
        """Finish all queued requests, then stop."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self.is_alive():
            self.join()

    def run(self) -> None:
        """The body of the thread."""
        self.alone = warm_up(self._model, self._settings.max_batch, self._settings.shapes)
        self.ready.set()
        while jobs := self._next():
            wanted = [job for job in jobs if job.outputs.set_running_or_notify_cancel()]
            if wanted:
                self._serve(wanted)

    def _next(self) -> list[Job]:
        """The oldest request with those that can join it, once there are enough or time is up; empty at the end."""
        with self._changed:
            while not self._jobs and not self._closing:
                self._changed.wait()
            while self._jobs and not self._closing and (left := self._left(self._jobs[0])) > 0:
                self._changed.wait(left)
            taken = self._batch()
            self._jobs = [job for job in self._jobs if job not in taken]
            return taken

    def _left(self, first: Job) -> float:
        """Seconds left to wait for more requests."""
        if self.alone or first.kind is None or sum(j.samples for j in self._jobs) >= self._settings.max_batch:
            return 0.0
        return first.arrived + self._settings.max_delay - time.monotonic()

    def _batch(self) -> list[Job]:
        if not self._jobs:
            return []
        first, *others = self._jobs
        taken, room = [first], self._settings.max_batch - first.samples
        for job in others if not self.alone and first.kind is not None else ():
            if job.kind == first.kind and job.samples <= room:
                taken.append(job)
                room -= job.samples
        return taken

    def _serve(self, jobs: Sequence[Job]) -> None:
        """Deliver outputs or errors; if a batch fails, each of its requests is run alone."""
        try:
            results = self._outputs(jobs)
        except Exception as error:
            if len(jobs) == 1:
                jobs[0].outputs.set_exception(error)
                return
            for job in jobs:
                self._serve([job])
            return
        for job, outputs in zip(jobs, results, strict=True):
            job.outputs.set_result(outputs)

    def _outputs(self, jobs: Sequence[Job]) -> list[Outputs]:
        started = time.perf_counter()
        if self.alone or jobs[0].kind is None:
            results = [self._model.run(job.inputs) for job in jobs]
        else:
            counts = [job.samples for job in jobs]
            batch = widened(joined([job.inputs for job in jobs]))
            results = split(self._model.run(batch), [*counts, (samples_of(batch) or 0) - sum(counts)])[:-1]
        self._watcher.ran(sum(job.samples for job in jobs), time.perf_counter() - started)
        return results
