"""Modules that an old protoc generated (``..._pb2.py``), under a protobuf that no longer runs them.

protoc before 3.19 wrote Python code that builds every descriptor by hand, which today's protobuf refuses. But such a
module also holds the whole file's descriptor as bytes, and everything else in it says the same again: so only the
bytes are taken, and the module's names are built from them as protoc's newer modules do.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

from google.protobuf import descriptor_pool

_NEWER = b"BuildTopDescriptorsAndMessages"  # what modules of protoc since 3.20 call

_BUILD = """
from fluidjax.legacy.protobuf_stubs import file_descriptor as _file_descriptor
from google.protobuf.internal import builder as _builder

DESCRIPTOR = _file_descriptor({data!r})
_builder.BuildMessageAndEnumDescriptors(DESCRIPTOR, globals())
_builder.BuildTopDescriptorsAndMessages(DESCRIPTOR, __name__, globals())
"""


@functools.cache
def file_descriptor(data: bytes) -> Any:
    """The descriptor in the bytes of a module; one however many names the module is imported by."""
    return descriptor_pool.Default().AddSerializedFile(data)


def serialized_file(tree: ast.Module) -> bytes | None:
    """The descriptor of the whole file that a module of protoc holds; None in any other module."""
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        for value in (word.value for word in call.keywords if word.arg == "serialized_pb"):
            return _bytes(value)
        if isinstance(call.func, ast.Attribute) and call.func.attr == "AddSerializedFile":
            return _bytes(call.args[0])
    return None


def _bytes(node: ast.expr) -> bytes | None:
    """b'...', '...' and _b('...')."""
    if isinstance(node, ast.Call) and len(node.args) == 1:
        return _bytes(node.args[0])
    value = node.value if isinstance(node, ast.Constant) else None
    return value.encode("latin1") if isinstance(value, str) else value if isinstance(value, bytes) else None


def _imports_stub(node: ast.stmt) -> bool:
    """``import a_pb2``, ``from a import b_pb2``, ``from a_pb2 import *``: what the file depends on."""
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").endswith("_pb2") or any(name.name.endswith("_pb2") for name in node.names)
    return isinstance(node, ast.Import) and any(name.name.endswith("_pb2") for name in node.names)


class StubLoader(SourceFileLoader):
    """Loads an old module from its descriptor alone. Its compiled code is not kept in a file."""

    def get_code(self, fullname: str) -> CodeType:
        """The module compiled from its source; no ``.pyc`` is read or written."""
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)

    def source_to_code(self, data: Any, path: Any, **options: Any) -> CodeType:  # type: ignore[override]
        """Code that builds the module from its descriptor and imports what it depends on; other source as it is."""
        tree = ast.parse(data, path)
        serialized = serialized_file(tree)
        if serialized is not None:
            tree.body = [n for n in tree.body if _imports_stub(n)] + ast.parse(_BUILD.format(data=serialized)).body
        return compile(tree, path, "exec", dont_inherit=True)


class StubFinder:
    """Finds the modules of an old protoc by the end of their names."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The spec of an old ``..._pb2.py``, with a StubLoader; None for other names and for newer modules."""
        spec = PathFinder.find_spec(name, path) if name.endswith("_pb2") else None
        if spec is None or type(spec.loader) is not SourceFileLoader:
            return None
        if _NEWER in spec.loader.get_data(spec.loader.path):
            return None
        spec.loader = StubLoader(spec.loader.name, spec.loader.path)
        return spec


def install() -> None:
    """Load such modules so from now on."""
    if StubFinder not in sys.meta_path:
        sys.meta_path.insert(0, StubFinder)
