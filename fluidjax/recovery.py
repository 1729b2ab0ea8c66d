"""Training that goes on where it was when its processes ended: checkpoints every so many steps.

::

    for batch in fluidjax.recovery.steps(exe, program, reader, epochs=3, every=100):
        exe.run(program, feed=..., fetch_list=[...])

What is kept: the program's persistable variables, with what several devices have for themselves; the seeds of its runs,
Python's and NumPy's random state, and the place in the reader. So a training that was started again ends with the same
bits. A checkpoint is copied off the device between two steps and written beside the next ones; it appears under its
name when all of it is on the disk, and counts when all processes of the job have written theirs.

With ``share=True`` the reader gives the batches of all processes, in one order, and each process takes its share. A
training may then be started again with another number of processes: it goes on in the same order where the last ended.
"""

from __future__ import annotations

import json
import os
import random
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from fluidjax.base.errors import explain
from fluidjax.base.places import CPUPlace
from fluidjax.base.scope import Scope, global_scope
from fluidjax.base.values import LoDTensor
from fluidjax.compiler import CompiledProgram
from fluidjax.execution.seeds import resume, state_of
from fluidjax.executor import Executor
from fluidjax.framework import Program

__all__ = ["Checkpoints", "steps"]

FOLDER = "FLUIDJAX_CHECKPOINTS"
_FACTS, _LOCAL = "@FACTS", "@LOCAL/"
_NAME = re.compile(r"step-(\d+)\.rank-(\d+)-of-(\d+)\.npz")
_KEPT = 2


class Checkpoints:
    """The checkpoints of one process of a job.

    Args:
        folder: where they are, for all processes.
        rank, count: which process this is, and of how many.
    """

    def __init__(self, folder: str, rank: int = 0, count: int = 1):
        self._folder = folder
        self._rank, self.count = rank, count
        self._writing: threading.Thread | None = None
        self._failed: list[BaseException] = []
        os.makedirs(folder, exist_ok=True)

    def newest(self) -> int | None:
        """The step of the last checkpoint that all processes have written; None where there is none."""
        return max((step for step, count in self._complete() if count == self.count), default=None)

    def newest_of_any(self) -> tuple[int, int] | None:
        """(step, how many processes there were) of the last checkpoint that all of them have written."""
        return max(self._complete(), default=None)

    def _complete(self) -> list[tuple[int, int]]:
        found = Counter((int(m[1]), int(m[3])) for m in map(_NAME.fullmatch, os.listdir(self._folder)) if m)
        return [(step, count) for (step, count), ranks in found.items() if ranks == count]

    def load(self, step: int, count: int | None = None) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """(values by name, what else was kept) of this process at a step, or of one of ``count`` others."""
        there = self.count if count is None else count
        with np.load(self._path(step, self._rank % there, there), allow_pickle=False) as file:
            facts = json.loads(file[_FACTS].tobytes())
            dtypes = facts.pop("dtypes")
            return {n: file[n].view(dtypes[n]) for n in file.files if n != _FACTS}, facts

    def save(self, step: int, values: dict[str, np.ndarray], facts: dict[str, Any]) -> None:
        """Write values, which are not to change any more, and facts for JSON, beside what follows.

        Raises OSError where the one before could not be written.
        """
        self.wait()
        self._writing = threading.Thread(target=self._write, args=(step, values, facts), name="checkpoint")
        self._writing.start()

    def wait(self) -> None:
        """Return when the last one is written. OSError where it could not be."""
        if self._writing is not None:
            self._writing.join()
            self._writing = None
        if self._failed:
            raise self._failed.pop()

    def _write(self, step: int, values: dict[str, np.ndarray], facts: dict[str, Any]) -> None:
        try:
            facts = {**facts, "dtypes": {n: v.dtype.name for n, v in values.items()}}
            content = {_FACTS: np.frombuffer(json.dumps(facts).encode(), np.uint8), **values}
            path = self._path(step, self._rank, self.count)
            with open(path + ".part", "wb") as file:
                np.savez(file, **content)  # type: ignore[arg-type]
                file.flush()
                os.fsync(file.fileno())
            os.replace(path + ".part", path)
            self._drop_old()
        except BaseException as error:  # noqa: BLE001 - the thread that waits raises it
            self._failed.append(error)

    def _drop_old(self) -> None:
        """Keep this process's last ones: one of them is complete, as no process is more than one ahead.

        Those of processes that are no more are dropped by one that stands in for them.
        """
        there = [m for m in map(_NAME.fullmatch, os.listdir(self._folder)) if m]
        own = {int(m[2]) for m in there if int(m[2]) % self.count == self._rank}
        last = sorted({int(m[1]) for m in there if int(m[2]) == self._rank})[-_KEPT:]
        for match in (m for m in there if int(m[2]) in own and int(m[1]) < last[0]):
            os.remove(os.path.join(self._folder, match[0]))

    def _path(self, step: int, rank: int, count: int) -> str:
        return os.path.join(self._folder, f"step-{step:010}.rank-{rank}-of-{count}.npz")


def steps(
    executor: Executor,
    program: Program | CompiledProgram,
    reader: Callable[[], Iterable[Any]],
    *,
    epochs: int = 1,
    every: int = 100,
    scope: Scope | None = None,
    folder: str | None = None,
    share: bool = False,
) -> Iterator[Any]:
    """The batches of a training, from the first one that it has not had yet.

    Args:
        executor: runs the program.
        program: what is run on each batch; its startup program has run.
        reader: gives the batches of an epoch, the same ones where the random state is the same.
        epochs: how often.
        every: steps between two checkpoints.
        scope: default the global scope.
        folder: where checkpoints are; default what ``fluidjax launch --checkpoints`` says. Without one, none is taken.
        share: whether the reader gives the batches of all processes, the same ones in each, of which this process takes
            every so many; what is left at an epoch's end and does not do for all processes is left out. Otherwise the
            reader gives this process's own batches.

    Raises:
        ValueError: the last checkpoint is of another number of processes, and the reader's batches are not shared.
        TypeError: a variable is neither a tensor nor empty, and cannot be kept.
        OSError: a checkpoint cannot be written.
    """
    folder = os.environ.get(FOLDER) if folder is None else folder
    rank, count = int(os.environ.get("PADDLE_TRAINER_ID", "0")), int(os.environ.get("PADDLE_TRAINERS_NUM", "1"))
    taken = _Share(rank, count) if share else _Share(0, 1)
    if folder is None:
        for _ in range(epochs):
            yield from taken.of(iter(reader()))
        return
    training = _Training(executor, program, scope or global_scope(), Checkpoints(folder, rank, count), every, taken)
    yield from training.batches(reader, epochs)


class _Share(NamedTuple):
    """Which of a reader's batches a process takes: of every ``size``, the one numbered ``own``."""

    own: int
    size: int

    def of(self, batches: Iterator[Any]) -> Iterator[Any]:
        """The batches that are this process's; all processes get as many."""
        while len(together := list(islice(batches, self.size))) == self.size:
            yield together[self.own]


class _Training:
    """Where a training is."""

    def __init__(
        self, executor: Executor, program: Any, scope: Scope, checkpoints: Checkpoints, every: int, share: _Share
    ) -> None:
        self._executor = executor
        self._program = program
        self._inner: Program = program._program if isinstance(program, CompiledProgram) else program
        self._scope = scope
        self._checkpoints = checkpoints
        self._every = every
        self._share = share
        self._step = self._epoch = self._position = 0
        self._began: Any = None  # the random state that the epoch began with

    def batches(self, reader: Callable[[], Iterable[Any]], epochs: int) -> Iterator[Any]:
        """The batches that are left, with checkpoints between them."""
        newest = self._checkpoints.newest_of_any()
        then = None if newest is None else self._restore(*newest)
        while self._epoch < epochs:
            if then is None:
                self._began = _random_state()
            _set_random_state(self._began)
            batches = iter(reader())
            for _ in islice(batches, self._position):
                pass
            if then is not None:
                _set_random_state(then)
                then = None
            for batch in self._share.of(batches):
                yield batch
                self._step, self._position = self._step + 1, self._position + self._share.size
                if self._step % self._every == 0:
                    self._save()
            self._epoch, self._position = self._epoch + 1, 0
        self._checkpoints.wait()

    def _save(self) -> None:
        values, lods = _values(self._scope, self._names())
        local = self._local()
        if local is not None:
            own, _ = _values(local, local.local_var_names())
            values.update({_LOCAL + n: v for n, v in own.items()})
        facts = {"step": self._step, "epoch": self._epoch, "position": self._position, "lods": lods}
        facts |= {"seeds": state_of(self._inner), "began": self._began, "random": _random_state()}
        facts["share"] = self._share.size
        self._checkpoints.save(self._step, values, facts)

    def _restore(self, step: int, count: int) -> Any:
        """Take all from a checkpoint of so many processes; the random state of that moment."""
        values, facts = self._checkpoints.load(step, count)
        self._check_order(count, facts.get("share", 1))
        local = self._local()
        for name, value in values.items():
            where = local if name.startswith(_LOCAL) else self._scope
            assert where is not None
            tensor = where.var(name.removeprefix(_LOCAL)).get_tensor()
            tensor.set(value, CPUPlace())
            if name in facts["lods"]:
                tensor.set_lod(facts["lods"][name])
        resume(self._inner, *facts["seeds"])
        self._step, self._epoch, self._position = facts["step"], facts["epoch"], facts["position"]
        self._began = facts["began"]
        return facts["random"]

    def _check_order(self, count: int, size: int) -> None:
        """ValueError unless the reader gives what it gave ``count`` processes, ``size`` batches at once."""
        now = self._checkpoints.count, self._share.size
        if now != (count, size) and (count != size or now[0] != now[1]):
            raise ValueError(
                explain(
                    "recovery: which batches were used cannot be told, as the number of processes changed",
                    "as many processes as before, or steps(..., share=True) before and now",
                    f"checkpoints of {count}, whose reader gave {size} batches at once; now {now[0]} and {now[1]}",
                    "give the reader the batches of all processes and pass share=True, or begin in another folder",
                )
            )

    def _names(self) -> list[str]:
        return [v.name for v in self._inner.list_vars() if v.persistable]

    def _local(self) -> Scope | None:
        """Where several devices have what is their own."""
        if not isinstance(self._program, CompiledProgram):
            return None
        several = self._program._run_at(self._executor.place, self._scope)
        return None if several is None else several.local


def _values(scope: Scope, names: Iterable[str]) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """(copies of the tensors by name, the LoDs of those that have one)."""
    values, lods = {}, {}
    with scope._lock:
        for name in names:
            variable = scope.find_var(name)
            holder = None if variable is None else variable._holder
            if holder is None or (isinstance(holder, LoDTensor) and not holder._is_initialized()):
                continue
            if not isinstance(holder, LoDTensor):
                raise TypeError(
                    f"recovery: variable {name!r} holds a {type(holder).__name__}: expected tensors, which checkpoints"
                    " keep; let the program not have it persistable"
                )
            values[name] = np.array(holder)
            if holder.lod():
                lods[name] = holder.lod()
    return values, lods


def _random_state() -> Any:
    """Python's and NumPy's, as JSON has it."""
    version, numbers, gauss = random.getstate()
    name, keys, *others = np.random.get_state(legacy=True)
    return [[version, list(numbers), gauss], [name, np.asarray(keys).tolist(), *others]]


def _set_random_state(state: Any) -> None:
    (version, numbers, gauss), (name, keys, *others) = state
    random.setstate((version, tuple(numbers), gauss))
    np.random.set_state((name, np.array(keys, np.uint32), *others))
