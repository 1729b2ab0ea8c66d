"""The C file: the runtime, kernels, the step, and the tables that main needs."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np

from fluidjax.base.errors import explain
from fluidjax.export.c.emit import Code, Emitter
from fluidjax.export.c.ports import Port, name_files, port_of, table_of
from fluidjax.export.c.trace import Traced
from fluidjax.export.c.types import array_text, c_string, c_type
from fluidjax.export.function import ExportError
from fluidjax.export.graph import Value

# Larger sizes can only be an error (or malice) in a model's shapes.
MOST_BYTES = 1 << 42
# Weights up to this many bytes are embedded in the C file unless requested otherwise.
INSIDE = 1 << 16
_ST = {"float32": "F32", "float64": "F64", "bool": "BOOL"}


@dataclass
class Source:
    """A program in C.

    Attributes:
        text: the file.
        weights: the weights file, in safetensors format.
        inputs, outputs: the ports.
        arena: bytes of memory in addition to the weights.
        kernels, statements: the number of functions, and of statements in the step.
        inside: whether the weights are embedded in the text.
    """

    text: str
    weights: bytes
    inputs: list[Port]
    outputs: list[Port]
    arena: int
    kernels: int
    statements: int
    inside: bool


def source_of(traced: Traced, stem: str, inside: bool | None = None) -> Source:
    """The C file of a traced step.

    Args:
        stem: the file name without its ending.
        inside: whether the weights are embedded in the C file; None embeds small ones.
    """
    head, offsets, blob = _weights(traced)
    emitter = Emitter(traced.body, offsets, [(old.value, new.value) for old, new in traced.replaced])
    check_size(max((value.nbytes for value in emitter.lifetimes.begin), default=0))
    code = emitter.code()
    check_size(code.arena + len(blob))
    inside = len(blob) <= INSIDE if inside is None else inside
    inputs = [port_of(name, None, leaves) for name, leaves in traced.feeds.items()]
    outputs = [port_of(name, tree, leaves) for name, tree, leaves in traced.fetches]
    for port in inputs:
        port.longest = traced.longest.get(port.name, ())
    name_files(inputs)
    name_files(outputs)
    parts = [
        "/* A Fluid program, written by fluidjax convert: cc -O3 -std=c99 -fno-math-errno FILE.c -lm */",
        _runtime("prelude.h"),
        _runtime("matmul.h"),
        _constants(code),
        *code.kernels,
        "static void step(void)\n{\n" + "\n".join(code.lines) + "\n}",
        _weights_text(head, blob, inside, f"{stem}.safetensors"),
        f"#define ARENA ((size_t){max(code.arena, 1)})",
        f"#define MEMORY_WORDS {c_string(f'{code.arena + len(blob)} bytes')}",
        table_of(traced, code, inputs, outputs),
        _runtime("main.h"),
    ]
    text = "\n\n".join(parts) + "\n"
    return Source(text, head + blob, inputs, outputs, code.arena, len(code.kernels), len(code.lines), inside)


def _runtime(name: str) -> str:
    return (files("fluidjax.export.c") / "runtime" / name).read_text()


# ---- weights ----


def _weights(traced: Traced) -> tuple[bytes, dict[Value, int], bytes]:
    """(header of the safetensors file, value -> offset, data), widest types first so that all are aligned."""
    leaves = [leaf for name in traced.parameters for leaf in traced.parameters[name]]
    leaves.sort(key=lambda leaf: -leaf.value.dtype.itemsize)
    table: dict[str, Any] = {"__metadata__": {"format": "np"}}
    offsets, parts, at = {}, [], 0
    for leaf in leaves:
        array = traced.arrays[leaf.value]
        raw = np.ascontiguousarray(array).tobytes()
        offsets[leaf.value] = at
        kind = _ST.get(array.dtype.name, f"{array.dtype.kind.upper()}{8 * array.dtype.itemsize}")
        table[leaf.name + leaf.path] = {
            "dtype": kind, "shape": list(array.shape), "data_offsets": [at, at + len(raw)],
        }  # fmt: skip
        at += len(raw)
        parts.append(raw)
    text = json.dumps(table).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, offsets, b"".join(parts)


def _weights_text(head: bytes, blob: bytes, inside: bool, file: str) -> str:
    lines = [f"#define WEIGHTS ((size_t){len(blob)})", f"#define WEIGHTS_FILE {c_string(file)}"]
    # C99 guarantees string literals of 4095 characters only; arrays have no such limit.
    lines.append(f"static const unsigned char weights_head[] = {{{_bytes(head + bytes(1))}}};")
    if inside:
        words = np.frombuffer(blob + bytes(-len(blob) % 4 or 4), "<u4")
        body = ", ".join(map(hex, words.tolist()))
        lines += ["#define WEIGHTS_INSIDE 1", f"static const uint32_t initial_weights[] = {{{_wrapped(body)}}};"]
    return "\n".join(lines)


def _bytes(raw: bytes) -> str:
    return _wrapped(", ".join(map(str, raw)))


def _wrapped(text: str) -> str:
    return re.sub(r"(.{1,110}), ?", r"\1,\n", text)


def _constants(code: Code) -> str:
    # C has no empty arrays: one element takes their place.
    return "\n".join(
        f"static const {c_type(a.dtype)} {name}[] = {{{_wrapped(array_text(a)) or 0}}};" for name, a in code.constants
    )


# ---- sizes ----


def check_size(size: int, most: int = MOST_BYTES) -> None:
    """Raise ExportError if the bytes exceed what any machine has."""
    if size > most:
        raise ExportError(
            explain(
                "the step needs more memory than any machine has",
                f"at most {most} bytes",
                f"{size} bytes",
                "a smaller batch",
            )
        )
