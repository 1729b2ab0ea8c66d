"""Executables of this process by what they were compiled from: programs of equal content share them.

One is found while any program still uses it. Some of those used last are held longer: a script that builds its net anew
for each fold, or in each of its tests, compiles it once and loads it once.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict

from fluidjax.execution.executables.executable import Executable

# So many executables are held though no program may use them any more: a Transformer's takes some 30 MB.
RECENT = 4


class Shared:
    """Executables by key, each with the form of the outcome that it is part of (see ``kept``)."""

    def __init__(self, recent: int = RECENT):
        self._recent = recent
        self._forms: weakref.WeakKeyDictionary[Executable, bytes] = weakref.WeakKeyDictionary()
        self._alive: weakref.WeakValueDictionary[str, Executable] = weakref.WeakValueDictionary()
        self._lately: OrderedDict[str, Executable] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str) -> tuple[bytes, Executable] | None:
        """The form and the executable of ``key``, which is then the most recently used; None: there is none."""
        with self._lock:
            found = self._alive.get(key)
            if found is None:
                return None
            self._hold(key, found)
            return self._forms[found], found

    def put(self, key: str, form: bytes, executable: Executable) -> None:
        """Share an executable from now on."""
        with self._lock:
            self._alive[key] = executable
            self._forms[executable] = form
            self._hold(key, executable)

    def clear(self) -> None:
        """Find none of them any more."""
        with self._lock:
            self._alive.clear()
            self._lately.clear()

    def _hold(self, key: str, executable: Executable) -> None:
        self._lately[key] = executable
        self._lately.move_to_end(key)
        if len(self._lately) > self._recent:
            self._lately.popitem(last=False)
