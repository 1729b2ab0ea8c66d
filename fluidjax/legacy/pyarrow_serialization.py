"""``pyarrow.serialize``, by which PARL's processes talk, gone from pyarrow 15: objects travel as pickles."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from fluidjax.legacy.later import when_imported

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


def install() -> None:
    """Restore the names where pyarrow is imported from now on, or was before."""
    when_imported(NAME, restore)
