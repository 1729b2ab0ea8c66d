"""What a script's last process loaded first is loaded beside the start of its next one.

A second process neither traces nor compiles, but XLA takes tens of milliseconds to load an executable, and the run that
needs it waits. So the store also holds, for each command line, the keys of the entries that its last process took or
left first. From a process's first run on, most often a startup program's, the thread beside the runs loads these; a run
that comes first loads what it needs itself. Results do not depend on who loads.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
import zlib
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import jax

from fluidjax.execution.executables import background
from fluidjax.execution.executables.executable import Executable, default_device
from fluidjax.execution.executables.machine import machine
from fluidjax.execution.executables.store import Store
from lowering.machine import processors

COUNT = 8  # keys of a command line: a network's programs, and the first sizes of its batches
# Bytes of an entry that takes 35 ms to load: for less, beside 20 ms of a startup program, a thread costs what it saves.
WORTH = 48 << 10


class Loaded(NamedTuple):
    """A record's form, the executables that it refers to, and how many bytes hold them."""

    form: bytes
    executables: list[Executable]
    size: int


def written(form: bytes, executables: Sequence[Executable]) -> bytes:
    """The entry that ``loaded`` reads; raises what XLA and pickle raise for what cannot be written."""
    return zlib.compress(pickle.dumps((form, [executable.content() for executable in executables])), 1)


def loaded(store: Store, key: str, device: jax.Device) -> Loaded | None:
    """The store's entry of a key, on a device; None where there is none, or something else of the same name."""
    entry = store.get(key)
    if entry is None:
        return None
    try:
        form, contents = pickle.loads(zlib.decompress(entry))
        return Loaded(form, [Executable.loaded(content, device) for content in contents], len(entry))
    except Exception:  # written by something else of the same name: reading it may raise anything
        return None


class _Loading:
    """One entry, loaded by whoever comes first."""

    def __init__(self, store: Store, key: str, device: jax.Device):
        self.device = device
        self.once = background.Once(lambda: self._keep(loaded(store, key, device)))
        self._loaded: Loaded | None = None

    def _keep(self, found: Loaded | None) -> None:
        self._loaded = found

    def take(self) -> Loaded | None:
        self.once()
        return self._loaded


class Preload:
    """The entries that processes of one command line take first.

    Args:
        store: holds them.
        command: the command line.
        device: to load them on.
    """

    def __init__(self, store: Store, command: Hashable, device: jax.Device):
        self.store = store
        self._command = command
        self._device = device
        self._known: list[str] | None = None  # what the store says; None: not read yet
        self._taken: list[str] = []
        self._loadings: dict[str, _Loading] = {}

    def begin(self) -> None:
        """Read which entries they are, and load them one after another beside the runs."""
        known = (self.store.get(self._name) or b"").decode().split()
        self._loadings = {key: _Loading(self.store, key, self._device) for key in known if key not in self._taken}
        self._known = known
        self._tell()
        for loading in self._loadings.values():
            background.submit(loading.once)

    def take(self, key: str, device: jax.Device) -> Loaded | None:
        """The entry of a key, as ``loaded`` gives it: loaded here, where that has not begun."""
        loading = self._loadings.pop(key, None)
        ready = loading is not None and loading.device == device
        found = loading.take() if loading is not None and ready else loaded(self.store, key, device)
        if found is not None:
            self.note(key, found.size)
        return found

    def note(self, key: str, size: int) -> None:
        """An entry of so many bytes was taken, or left to later processes."""
        if size >= WORTH and key not in self._taken and len(self._taken) < COUNT:
            self._taken.append(key)
            self._tell()

    def _tell(self) -> None:
        """Tell the next process, if it would not know of what was taken."""
        if self._known is not None and not set(self._taken) <= set(self._known):
            self._known = list(self._taken)
            self.store.put(self._name, " ".join(self._known).encode())

    @property
    def _name(self) -> str:
        return hashlib.sha256(repr((machine(), "first", self._command)).encode()).hexdigest()


_preload: Preload | None = None


def begin(store: Store | None, device: jax.Device) -> None:
    """Before the first run of a process: begin to load what its command line's last process took first.

    On one processor nothing is loaded beside anything.
    """
    global _preload
    command = _command() if processors() > 1 else None
    if store is None or command is None or (_preload is not None and _preload.store is store):
        return
    _preload = Preload(store, command, device)
    background.submit(_preload.begin)


def take(store: Store, key: str) -> Loaded | None:
    """The store's entry of a key, on jax's default device; None where there is none."""
    if _preload is None or _preload.store is not store:
        return loaded(store, key, default_device())
    return _preload.take(key, default_device())


def left(store: Store, key: str, size: int) -> None:
    """An entry of so many bytes was stored."""
    if _preload is not None and _preload.store is store:
        _preload.note(key, size)


def _command() -> Hashable | None:
    """What tells a script's processes from others; None in a notebook or an interactive Python, where nothing does."""
    if not hasattr(sys.modules.get("__main__"), "__file__"):
        return None
    return os.path.abspath(sys.argv[0]), tuple(sys.argv[1:])
