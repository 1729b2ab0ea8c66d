"""Changes to packages that wait until a script imports them: importing them all takes longer than many a script."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from weakref import WeakSet

Change = Callable[[ModuleType], None]

_changes: dict[str, Change] = {}
_changed: WeakSet[ModuleType] = WeakSet()


class Finder:
    """Finds the modules to be changed as Python does, and has them changed after they are executed."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The spec of a module to be changed; None for other names."""
        spec = PathFinder.find_spec(name, path) if name in _changes else None
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            _change(module, _changes[name])

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def when_imported(name: str, change: Change) -> None:
    """Have ``change`` called once with the module ``name``: when it is imported, or now if it was. Idempotent."""
    _changes[name] = change
    if Finder not in sys.meta_path:
        sys.meta_path.insert(0, Finder)
    module = sys.modules.get(name)
    if module is not None:
        _change(module, change)


def _change(module: ModuleType, change: Change) -> None:
    if module not in _changed:
        _changed.add(module)
        change(module)
