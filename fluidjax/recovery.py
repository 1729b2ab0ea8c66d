"""Training that goes on where it was when its processes ended: checkpoints every so many steps.

::

    for batch in fluidjax.recovery.steps(exe, program, reader, epochs=3, every=100):
        exe.run(program, feed=..., fetch_list=[...])

What is kept: the program's persistable variables, with what several devices have for themselves; the seeds of its runs,
Python's and NumPy's random state, and the place in the reader. So a training that was started again ends with the same
bits. A checkpoint is copied off the device between two steps and written beside the next ones; it appears under its
name when all of it is on the disk, and counts when all processes of the job have written theirs.
"""

from __future__ import annotations

import json
import os
import random
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np

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
        self._rank, self._count = rank, count
        self._writing: threading.Thread | None = None
        self._failed: list[BaseException] = []
        os.makedirs(folder, exist_ok=True)

    def newest(self) -> int | None:
        """The step of the last checkpoint that all processes have written; None where there is none."""
        found: dict[int, set[int]] = {}
        for match in filter(None, map(_NAME.fullmatch, os.listdir(self._folder))):
            step, rank, count = map(int, match.groups())
            if count == self._count:
                found.setdefault(step, set()).add(rank)
        return max((step for step, ranks in found.items() if len(ranks) == self._count), default=None)

    def load(self, step: int) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """(values by name, what else was kept) of this process at a step."""
        with np.load(self._path(step), allow_pickle=False) as file:
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
            path = self._path(step)
            with open(path + ".part", "wb") as file:
                np.savez(file, **content)  # type: ignore[arg-type]
                file.flush()
                os.fsync(file.fileno())
            os.replace(path + ".part", path)
            self._drop_old()
        except BaseException as error:  # noqa: BLE001 - the thread that waits raises it
            self._failed.append(error)

    def _drop_old(self) -> None:
        """Keep this process's last ones: one of them is complete, as no process is more than one ahead."""
        own = [m for m in map(_NAME.fullmatch, os.listdir(self._folder)) if m and int(m[2]) == self._rank]
        for match in sorted(own, key=lambda m: int(m[1]))[:-_KEPT]:
            os.remove(os.path.join(self._folder, match[0]))

    def _path(self, step: int) -> str:
        return os.path.join(self._folder, f"step-{step:010}.rank-{self._rank}-of-{self._count}.npz")


def steps(
    executor: Executor,
    program: Program | CompiledProgram,
    reader: Callable[[], Iterable[Any]],
    *,
    epochs: int = 1,
    every: int = 100,
    scope: Scope | None = None,
    folder: str | None = None,
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

    Raises:
        TypeError: a variable is neither a tensor nor empty, and cannot be kept.
        OSError: a checkpoint cannot be written.
    """
    folder = os.environ.get(FOLDER) if folder is None else folder
    if folder is None:
        for _ in range(epochs):
            yield from reader()
        return
    rank, count = int(os.environ.get("PADDLE_TRAINER_ID", "0")), int(os.environ.get("PADDLE_TRAINERS_NUM", "1"))
    training = _Training(executor, program, scope or global_scope(), Checkpoints(folder, rank, count), every)
    yield from training.batches(reader, epochs)


class _Training:
    """Where a training is."""

    def __init__(self, executor: Executor, program: Any, scope: Scope, checkpoints: Checkpoints, every: int):
        self._executor = executor
        self._program = program
        self._inner: Program = program._program if isinstance(program, CompiledProgram) else program
        self._scope = scope
        self._checkpoints = checkpoints
        self._every = every
        self._step = self._epoch = self._position = 0
        self._began: Any = None  # the random state that the epoch began with

    def batches(self, reader: Callable[[], Iterable[Any]], epochs: int) -> Iterator[Any]:
        """The batches that are left, with checkpoints between them."""
        newest = self._checkpoints.newest()
        then = None if newest is None else self._restore(newest)
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
            for batch in batches:
                yield batch
                self._step, self._position = self._step + 1, self._position + 1
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
        self._checkpoints.save(self._step, values, facts)

    def _restore(self, step: int) -> Any:
        """Take all from a checkpoint; the random state of that moment."""
        values, facts = self._checkpoints.load(step)
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
