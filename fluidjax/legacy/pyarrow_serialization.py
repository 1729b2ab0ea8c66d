"""``pyarrow.serialize``, by which PARL's processes talk, gone from pyarrow 15: objects travel as pickles.

pyarrow takes a tenth of a second to import, so its names are added only when a script imports it.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

NAME = "pyarrow"


class SerializationContext:
    """Which functions pickle and unpickle; types need no serializers of their own."""

    def __init__(self) -> None:
        self.dumps: Callable[[Any], bytes] = pickle.dumps
        self.loads: Callable[[Any], Any] = pickle.loads

    def set_pickle(self, serializer: Callable[[Any], bytes], deserializer: Callable[[Any], Any]) -> None:
        """Use these functions from now on."""
        self.dumps, self.loads = serializer, deserializer

    def register_type(self, type_: type, type_id: str, **functions: Any) -> None:
        """A pickle knows the type; nothing to do."""


class SerializedPyObject:
    """A pickle; ``to_buffer()`` gives what is sent."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def to_buffer(self) -> Any:
        """A ``pyarrow.Buffer``."""
        return sys.modules[NAME].py_buffer(self.data)


def serialize(value: Any, context: SerializationContext | None = None) -> SerializedPyObject:
    """Pickle a value."""
    return SerializedPyObject((context or SerializationContext()).dumps(value))


def deserialize(obj: Any, context: SerializationContext | None = None) -> Any:
    """The value in a buffer or in bytes."""
    return (context or SerializationContext()).loads(obj)


def restore(pyarrow: ModuleType) -> None:
    """Add the names to a pyarrow that lacks them."""
    if hasattr(pyarrow, "serialize"):
        return
    pyarrow.__dict__.update(
        SerializationContext=SerializationContext,
        default_serialization_context=SerializationContext,
        serialize=serialize,
        deserialize=deserialize,
    )


class Finder:
    """Finds pyarrow as Python does, and has ``restore`` called after it is executed."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The spec of pyarrow; None for other names."""
        spec = PathFinder.find_spec(name, path) if name == NAME else None
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            restore(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def install() -> None:
    """Restore the names where pyarrow is imported from now on, or was before."""
    if NAME in sys.modules:
        restore(sys.modules[NAME])
    elif Finder not in sys.meta_path:
        sys.meta_path.insert(0, Finder)
