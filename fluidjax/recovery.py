"""Training that resumes after its processes have died, from periodic checkpoints.

::

    for batch in fluidjax.recovery.steps(exe, program, reader, epochs=3, every=100):
        exe.run(program, feed=..., fetch_list=[...])

A checkpoint contains the program's persistable variables, including per-device ones; the random seeds of its runs,
the random state of Python and NumPy, and the position in the reader. A resumed training therefore ends bit for bit like
an uninterrupted one. A checkpoint is copied off the device between two steps and written during the following ones; it
appears under its name once completely on disk, and is valid once all processes of the job have written theirs.

With ``share=True``, the reader yields the batches of all processes, in a single order, and each process takes its
share. The training can then be resumed with a different number of processes, in the same order of batches.
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
from fluidjax.execution.steps.seeds import resume, state_of
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
        folder: directory shared by all processes.
        rank, count: index of this process, and number of processes.
    """

    def __init__(self, folder: str, rank: int = 0, count: int = 1):
        self._folder = folder
        self._rank, self.count = rank, count
        self._writing: threading.Thread | None = None
        self._failed: list[BaseException] = []
        os.makedirs(folder, exist_ok=True)

    def newest(self) -> int | None:
        """The step of the latest checkpoint written by all processes, or None."""
        return max((step for step, count in self._complete() if count == self.count), default=None)

    def newest_of_any(self) -> tuple[int, int] | None:
        """(step, number of processes) of the latest checkpoint written by all processes of its time."""
        return max(self._complete(), default=None)

    def _complete(self) -> list[tuple[int, int]]:
        found = Counter((int(m[1]), int(m[3])) for m in map(_NAME.fullmatch, os.listdir(self._folder)) if m)
        return [(step, count) for (step, count), ranks in found.items() if ranks == count]

    def load(self, step: int, count: int | None = None) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """(values by name, other saved state) of this process at a step, or of one of ``count`` others."""
        there = self.count if count is None else count
        with np.load(self._path(step, self._rank % there, there), allow_pickle=False) as file:
            facts = json.loads(file[_FACTS].tobytes())
            dtypes = facts.pop("dtypes")
            return {n: file[n].view(dtypes[n]) for n in file.files if n != _FACTS}, facts

    def save(self, step: int, values: dict[str, np.ndarray], facts: dict[str, Any]) -> None:
        """Write values, which must not change any more, and JSON-serialisable facts, in the background.

        Raises OSError if the previous checkpoint could not be written.
        """
        self.wait()
        self._writing = threading.Thread(target=self._write, args=(step, values, facts), name="checkpoint")
        self._writing.start()

    def wait(self) -> None:
        """Wait until the last checkpoint is written. Raises OSError if it could not be."""
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
        """Keep this process's latest checkpoints, one of which is complete, as no process is more than one ahead.

        Checkpoints of processes that no longer exist are deleted by a process acting for them.
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
    """The batches of a training, starting with the first one not yet processed.

    Args:
        executor: runs the program.
        program: run on each batch; its startup program has been run.
        reader: yields the batches of an epoch, reproducibly for a given random state.
        epochs: number of epochs.
        every: number of steps between checkpoints.
        scope: the scope; the global scope if None.
        folder: directory for checkpoints; by default that of ``fluidjax launch --checkpoints``. Without one, none are
            written.
        share: whether the reader yields the batches of all processes, identically in each, of which this process takes
            every n-th; batches left over at the end of an epoch are dropped. Otherwise, the reader yields this
            process's own batches.

    Raises:
        ValueError: the last checkpoint has a different number of processes, and the batches are not shared.
        TypeError: a variable is neither a tensor nor empty, and cannot be saved.
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
    """Which of a reader's batches a process takes: of every ``size``, the one at index ``own``."""

    own: int
    size: int

    def of(self, batches: Iterator[Any]) -> Iterator[Any]:
        """This process's batches; all processes get the same number."""
        while len(together := list(islice(batches, self.size))) == self.size:
            yield together[self.own]


class _Training:
    """The progress of a training."""

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
        """The remaining batches, with checkpoints between them."""
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
        """Restore everything from a checkpoint of the given number of processes; returns its random state."""
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
        """Raise ValueError unless the reader yields what it did for ``count`` processes, ``size`` batches at a time."""
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
        """The scope that holds per-device variables."""
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
    """The random state of Python and NumPy, JSON-serialisable."""
    version, numbers, gauss = random.getstate()
    name, keys, *others = np.random.get_state(legacy=True)
    return [[version, list(numbers), gauss], [name, np.asarray(keys).tolist(), *others]]


def _set_random_state(state: Any) -> None:
    (version, numbers, gauss), (name, keys, *others) = state
    random.setstate((version, tuple(numbers), gauss))
    np.random.set_state((name, np.array(keys, np.uint32), *others))
