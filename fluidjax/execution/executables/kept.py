"""Records that processes leave each other: what was compiled once on a machine is neither traced nor lowered again.

A record is found by all that a compilation depends on: the program's content (whatever lines made its ops), the names,
forms and options of the step, the versions and sources of fluidjax and jax, jax's settings, and the machine. It holds
what came of it, an executable with what its trace found out or the reason why there is none, so that another process
takes the same path without tracing. Ops in it refer to the ops of the program at hand: errors name the current
lines of the user.

Programs whose generated names differ in nothing but their numbers are equal (see ``renaming``). Equal programs of one
process share their executables (``shared``): only the rest of the record is written and read.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Callable, Hashable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import jax

from fluidjax.execution.executables import background, preload
from fluidjax.execution.executables.executable import Executable, default_device
from fluidjax.execution.executables.machine import machine
from fluidjax.execution.executables.renaming import Renaming
from fluidjax.execution.executables.shared import Shared
from fluidjax.execution.executables.store import Store
from lowering.errors import Need
from lowering.program import OpView, ProgramView
from lowering.registry import OpDef, get_op

_PACKAGES = ("fluidjax", "lowering")
FOLDER = "steps"
# Settings of jax that change nothing about what is compiled.
_IRRELEVANT = ("cache", "log", "dump", "dispatch", "profile", "traceback")

# Raised for functions that call back into this process, and by backends that cannot write executables.
_UNPICKLABLE = (pickle.PicklingError, AttributeError, TypeError)
_UNWRITABLE = (*_UNPICKLABLE, ValueError, NotImplementedError, jax.errors.JaxRuntimeError)
# Attributes that say where and when an op was made.
_UNREAD = ("op_callstack", "op_namescope")

_store: Store | None = None
shared = Shared()


def keep_in(folder: str | None) -> None:
    """Keep records in a folder of the compilation cache's from now on; None: keep none."""
    global _store
    if folder is None:
        _store = None
    elif _store is None or _store.folder != Path(folder, FOLDER):
        _store = Store(Path(folder, FOLDER))


def store() -> Store | None:
    """Where records are kept; None: nowhere."""
    return _store


def use_cache(folder: str) -> None:
    """Cache compiled steps and XLA executables in ``folder`` for later processes; '' leaves the setting unchanged."""
    if folder:
        keep_in(folder)
        jax.config.update("jax_compilation_cache_dir", folder)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


class Record:
    """One compilation's record, which may not exist (yet).

    Args:
        store: where records are kept; None: nowhere.
        key: of what is compiled in this process; None: it is no one else's.
        program: the program that is compiled.
        names: its names.
    """

    def __init__(self, store: Store | None, key: str | None, program: ProgramView, names: Renaming):
        self._store = None if key is None else store
        self._key = key
        self._program = program
        self._names = names

    @property
    def wanted(self) -> bool:
        """Whether anything written is kept."""
        return self._store is not None

    def read(self) -> Any:
        """The compilation's outcome; None if unknown."""
        found = None if self._key is None else shared.get(self._key)
        if found is not None:
            form, executable = found
            return self._outcome(form, [executable])
        entry = None if self._store is None else preload.take(self._store, self._lasting_key)
        if entry is None:
            return None
        try:
            outcome = self._outcome(entry.form, entry.executables)
        except Exception:  # written by something else of the same name: reading it may raise anything
            return None
        self._share(entry.form, entry.executables)
        return outcome

    def write(self, outcome: Any) -> None:
        """Keep the compilation's outcome if another program can use it; executables are written beside the runs."""
        if self._key is None:
            return
        file = io.BytesIO()
        pickler = _Pickler(file, self._program, self._names)
        try:
            pickler.dump((outcome, _where(outcome)))
        except _UNPICKLABLE:
            return
        form, executables = file.getvalue(), pickler.executables
        self._share(form, executables)
        if self._store is not None:
            write = partial(self._write, self._store, form, executables)
            background.submit(write, lasting=True) if executables else write()

    def _outcome(self, form: bytes, executables: Sequence[Executable]) -> Any:
        outcome, where = _Unpickler(io.BytesIO(form), self._program, self._names, executables).load()
        return outcome if where == _where(outcome) else None

    def _share(self, form: bytes, executables: Sequence[Executable]) -> None:
        for executable in executables:
            if executable.pure:
                assert self._key is not None
                shared.put(self._key, form, executable)

    def _write(self, store: Store, form: bytes, executables: Sequence[Executable]) -> None:
        try:
            entry = preload.written(form, executables)
        except _UNWRITABLE:
            return
        if store.put(self._lasting_key, entry):
            preload.left(store, self._lasting_key, len(entry))

    @property
    def _lasting_key(self) -> str:
        return hashlib.sha256(repr((machine(), self._key)).encode()).hexdigest()


class Kept:
    """The records of one program's compilations."""

    def __init__(self, program: ProgramView):
        self._program = program

    def record(self, terms: Callable[[], Hashable], *, one_device: bool = True) -> Record:
        """The record of the compilation on these terms: everything but the program that decides its outcome.

        Compilations for several devices are not kept.
        """
        if not one_device or not self._lasting:
            return Record(None, None, self._program, self._names)
        key = self._names.counted(repr((_settings(), self._content, terms())))
        return Record(_store, hashlib.sha256(key.encode()).hexdigest(), self._program, self._names)

    @cached_property
    def _names(self) -> Renaming:
        return Renaming(self._program)

    @cached_property
    def _lasting(self) -> bool:
        """Whether all ops are computed by rules of this package, whose sources are part of the key."""
        return all(map(_own_rule, {op.type for block in self._program.blocks for op in block.ops}))

    @cached_property
    def _content(self) -> str:
        digest = hashlib.sha256(repr((self._program.version, sorted(self._program.op_versions.items()))).encode())

        def add(*what: Any) -> None:
            digest.update(self._names.counted(repr(what)).encode())

        for block in self._program.blocks:
            add(block.idx, block.parent_idx, block.forward_idx, block.vars)
            for op in block.ops:
                attrs = {name: value for name, value in op.attrs.items() if name not in _UNREAD}
                add(op.type, op.inputs, op.outputs, attrs)
        return digest.hexdigest()


def _own_rule(type: str) -> bool:
    definition: OpDef | None = get_op(type)
    while definition is not None:
        rules = [definition.fn] if definition.demands is None else [definition.fn, definition.demands.fn]
        # A rule written by exec belongs to no module.
        if any(str(rule.__module__).partition(".")[0] not in _PACKAGES for rule in rules):
            return False
        definition = definition.forward
    return True


def _where(outcome: Any) -> str:
    """The line that an outcome's message may quote."""
    return outcome.where if isinstance(outcome, Need) else ""


class _Pickler(pickle.Pickler):
    """Writes ops, rules and names by their places, and where each of the ``executables`` belongs, which it collects."""

    def __init__(self, file: io.BytesIO, program: ProgramView, names: Renaming):
        super().__init__(file)
        self._blocks, self._names = program.blocks, names
        self.executables: list[Executable] = []

    def persistent_id(self, value: Any) -> Any:
        if isinstance(value, Executable):
            self.executables.append(value)
            return "executable", len(self.executables) - 1
        if type(value) is str:
            parts = self._names.parts(value)
            return None if parts is None else ("text", parts)
        if isinstance(value, OpDef):
            return "rule", value.type
        if isinstance(value, OpView):
            if self._blocks[value.block_idx].ops[value.index] is not value:
                raise pickle.PicklingError(f"op {value.type} is not the program's")
            return "op", (value.block_idx, value.index)
        return None


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, program: ProgramView, names: Renaming, executables: Sequence[Executable]):
        super().__init__(file)
        self._blocks, self._names = program.blocks, names
        self._executables = executables

    def persistent_load(self, identity: Any) -> Any:
        kind, value = identity
        if kind == "executable":
            return self._executables[value]
        if kind == "rule":
            return get_op(value)
        if kind == "text":
            return self._names.text(value)
        block, index = value
        return self._blocks[block].ops[index]


def _settings() -> Hashable:
    device = default_device()
    given = sorted(jax.config.values.items())  # a new dict in each look
    kept = ((n, value) for n, value in given if not any(word in n for word in _IRRELEVANT))
    settings = ((n, getattr(jax.config, n, value)) for n, value in kept)
    return (device.platform, device.device_kind, device.id, device.client.platform_version), tuple(settings)
