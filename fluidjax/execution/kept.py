"""Records that processes leave each other: what was compiled once on a machine is neither traced nor lowered again.

A record is found by all that a compilation depends on: the program's content (whatever lines made its ops), the names,
forms and options of the step, the versions and sources of fluidjax and jax, jax's settings, and the machine. It holds
what came of it, an executable with what its trace found out or the reason why there is none, so that another process
takes the same path without tracing. Ops in it refer to the ops of the program at hand: errors name the current
lines of the user.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import platform
import zlib
from collections.abc import Callable, Hashable, Iterator
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import jax
import jaxlib

import lowering
from fluidjax.execution import background
from fluidjax.execution.executable import Executable, default_device
from fluidjax.execution.store import Store
from lowering.errors import Need
from lowering.machine import processors
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
        store, key: its location; None: nowhere.
        program: the program that is compiled.
    """

    def __init__(self, store: Store | None, key: str, program: ProgramView):
        self._store = store
        self._key = key
        self._program = program

    @property
    def wanted(self) -> bool:
        """Whether anything written is kept."""
        return self._store is not None

    def read(self) -> Any:
        """The compilation's outcome; None if unknown."""
        entry = None if self._store is None else self._store.get(self._key)
        if entry is None:
            return None
        try:
            outcome, where = _Unpickler(io.BytesIO(zlib.decompress(entry)), self._program).load()
        except Exception:  # written by something else of the same name: reading it may raise anything
            return None
        return outcome if where == _where(outcome) else None

    def write(self, outcome: Any) -> None:
        """Keep the compilation's outcome, if another process can use it; executables are written beside the runs."""
        if self._store is None:
            return
        if isinstance(outcome, Exception):
            self._write(self._store, outcome)
        else:
            background.submit(partial(self._write, self._store, outcome), lasting=True)

    def _write(self, store: Store, outcome: Any) -> None:
        file = io.BytesIO()
        try:
            _Pickler(file, self._program).dump((outcome, _where(outcome)))
        except _UNWRITABLE:
            return
        store.put(self._key, zlib.compress(file.getvalue(), 1))


class Kept:
    """The records of one program's compilations."""

    def __init__(self, program: ProgramView):
        self._program = program

    def record(self, terms: Callable[[], Hashable], *, one_device: bool = True) -> Record:
        """The record of the compilation on these terms: everything but the program that decides its outcome.

        Compilations for several devices are not kept.
        """
        if _store is None or not one_device or not self._lasting:
            return Record(None, "", self._program)
        key = repr((machine(), _settings(), self._content, terms()))
        return Record(_store, hashlib.sha256(key.encode()).hexdigest(), self._program)

    @cached_property
    def _lasting(self) -> bool:
        """Whether all ops are computed by rules of this package, whose sources are part of the key."""
        return all(map(_own_rule, {op.type for block in self._program.blocks for op in block.ops}))

    @cached_property
    def _content(self) -> str:
        digest = hashlib.sha256(repr((self._program.version, sorted(self._program.op_versions.items()))).encode())
        for block in self._program.blocks:
            digest.update(repr((block.idx, block.parent_idx, block.forward_idx, block.vars)).encode())
            for op in block.ops:
                attrs = {name: value for name, value in op.attrs.items() if name not in _UNREAD}
                digest.update(repr((op.type, op.inputs, op.outputs, attrs)).encode())
        return digest.hexdigest()


def _own_rule(type: str) -> bool:
    definition: OpDef | None = get_op(type)
    while definition is not None:
        rules = [definition.fn] if definition.demands is None else [definition.fn, definition.demands.fn]
        if any(rule.__module__.partition(".")[0] not in _PACKAGES for rule in rules):
            return False
        definition = definition.forward
    return True


def _where(outcome: Any) -> str:
    """The line that an outcome's message may quote."""
    return outcome.where if isinstance(outcome, Need) else ""


class _Pickler(pickle.Pickler):
    """Writes executables as their content, and ops and rules by name."""

    def __init__(self, file: io.BytesIO, program: ProgramView):
        super().__init__(file)
        self._blocks = program.blocks

    def persistent_id(self, value: Any) -> Any:
        if isinstance(value, Executable):
            return "executable", value.content()
        if isinstance(value, OpDef):
            return "rule", value.type
        if isinstance(value, OpView):
            if self._blocks[value.block_idx].ops[value.index] is not value:
                raise pickle.PicklingError(f"op {value.type} is not the program's")
            return "op", (value.block_idx, value.index)
        return None


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, program: ProgramView):
        super().__init__(file)
        self._blocks = program.blocks

    def persistent_load(self, identity: Any) -> Any:
        kind, value = identity
        if kind == "executable":
            return Executable.loaded(value)
        if kind == "rule":
            return get_op(value)
        block, index = value
        return self._blocks[block].ops[index]


# --- versions and machine -----------------------------------------------------------------------------------------


@cache
def machine() -> Hashable:
    """The versions of what compiles, and the machine it compiles for, apart from the device."""
    return (
        tuple(_sources(Path(lowering.__file__).parent.parent)),
        (jax.__version__, jaxlib.__version__, platform.python_version()),
        (platform.machine(), tuple(_processor()), processors()),
        tuple(sorted((n, v) for n, v in os.environ.items() if n in ("XLA_FLAGS", "LIBTPU_INIT_ARGS"))),
    )


def _sources(root: Path) -> Iterator[tuple[str, int, int]]:
    """Each source file with its size and time of change; reading them all takes longer than loading an executable."""
    pending = [str(root / package) for package in _PACKAGES]
    for folder in pending:
        with os.scandir(folder) as files:
            for file in sorted(files, key=lambda f: f.name):
                if file.is_dir():
                    pending.append(file.path)
                elif file.name.endswith(".py"):
                    found = file.stat()
                    yield file.path.removeprefix(str(root)), found.st_size, found.st_mtime_ns


def _processor() -> Iterator[str]:
    """The first processor's name and abilities: machine code for another one may not run."""
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if not line.strip():
                    break
                if line.startswith(("vendor_id", "cpu family", "model", "flags", "Features", "CPU")):
                    yield line
    except OSError:
        pass


def _settings() -> Hashable:
    device = default_device()
    names = (n for n in sorted(jax.config.values) if not any(word in n for word in _IRRELEVANT))
    settings = ((n, getattr(jax.config, n, jax.config.values[n])) for n in names)
    return (device.platform, device.device_kind, device.id, device.client.platform_version), tuple(settings)
