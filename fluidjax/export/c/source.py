"""The C file: the runtime, kernels, the step, and the tables that main needs."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np

from fluidjax.base.errors import explain
from fluidjax.export.c.emit import Code, Emitter
from fluidjax.export.c.trace import Leaf, Traced
from fluidjax.export.c.types import array_text, c_string, c_type
from fluidjax.export.function import ExportError
from fluidjax.export.graph import Value
from lowering.values import SelectedRows, TensorArray

# Larger sizes can only be an error (or malice) in a model's shapes.
MOST_BYTES = 1 << 42
# Weights up to this many bytes are embedded in the C file unless requested otherwise.
INSIDE = 1 << 16
_ST = {"float32": "F32", "float64": "F64", "bool": "BOOL"}


@dataclass
class Port:
    """An input or output of the executable.

    Attributes:
        name: the variable.
        file: the stem of its .npy files.
        data: the array; ``levels``: offsets of each LoD level; ``rows`` and ``sequences``: numbers of valid ones.
        longest: the longest sequence that fits, by level.
    """

    name: str
    file: str
    data: Value
    levels: list[Value]
    rows: Value | None = None
    sequences: Value | None = None
    longest: tuple[int, ...] = ()


@dataclass
class Source:
    """A program in C.

    Attributes:
        text: the file.
        weights: the weights file, in safetensors format.
        inputs, outputs: the ports.
        arena: bytes of memory in addition to the weights.
        kernels, statements: the number of functions, and of statements in the step.
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
    inputs = [_port(name, None, leaves) for name, leaves in traced.feeds.items()]
    outputs = [_port(name, tree, leaves) for name, tree, leaves in traced.fetches]
    for port in inputs:
        port.longest = traced.longest.get(port.name, ())
    _name_files(inputs)
    _name_files(outputs)
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
        _ports(traced, code, inputs, outputs),
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


# ---- ports ----


def _port(name: str, tree: Any, leaves: list[Leaf]) -> Port:
    if isinstance(tree, (SelectedRows, TensorArray)):
        raise ExportError(
            explain(
                f"the output {name!r} is no array",
                "arrays and sequences",
                type(tree).__name__,
                "fetch an array that is computed from it",
            )
        )
    found = {leaf.path: leaf.value for leaf in leaves}
    if set(found) == {""}:
        return Port(name, "", found[""], [])
    levels = [value for path, value in found.items() if path.startswith(".lod[")]
    return Port(name, "", found[".data"], levels, found.get(".nrows"), found.get(".nseq"))


def _name_files(ports: list[Port]) -> None:
    """Name files after variables where the names are plain, unique and short."""
    taken: set[str] = set()
    for at, port in enumerate(ports):
        plain = re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,100}", port.name) and not re.search(r"\.\d+$", port.name)
        name = port.name if plain and port.name.lower() not in taken else f"array_{at}"
        while name.lower() in taken:
            name += "_"
        taken.add(name.lower())
        port.file = name


def _ports(traced: Traced, code: Code, inputs: list[Port], outputs: list[Port]) -> str:
    dims = max((len(p.data.shape) for p in (*inputs, *outputs)), default=0)
    most = max(dims, 8)
    levels = max((len(p.levels) for p in (*inputs, *outputs)), default=0) or 1
    constants: list[str] = []

    def where(value: Value) -> str:
        if not value.scalar:
            return code.addresses[value]
        name = f"o{len(constants)}"
        constants.append(f"static {c_type(value.dtype)} {name}[] = {{{array_text(value.constant)}}};")  # type: ignore
        return name

    connected = []
    for word, ports in (("inputs", inputs), ("outputs", outputs)):
        for at, port in enumerate(ports):
            connected.append(f"  {word}[{at}].data = (void *){where(port.data)};")
            connected += [f"  {word}[{at}].level[{i}] = (void *){where(v)};" for i, v in enumerate(port.levels)]
            for field in ("rows", "sequences"):
                count = getattr(port, field)
                if count is not None:
                    connected.append(f"  {word}[{at}].{field} = (void *){where(count)};")
    key = where(traced.key)
    return f"""#define MOST_DIMS {most}
#define INPUTS {len(inputs)}
#define OUTPUTS {len(outputs)}
struct port {{
  const char *name, *file;
  char kind;
  int size, dims;
  long shape[MOST_DIMS];
  int levels, level_bytes[{levels}];
  long level_size[{levels}], longest[{levels}];
  int rows_size, sequences_size;
  void *data, *level[{levels}], *rows, *sequences;
}};
static struct port inputs[] = {_port_table(inputs)};
static struct port outputs[] = {_port_table(outputs)};
static uint32_t *key;
{chr(10).join(constants)}
static void connect(void)
{{
{chr(10).join(connected)}
  key = {key};
}}"""


def _port_table(ports: list[Port]) -> str:
    rows = [f"  {{{', '.join(_port_fields(port))}}}" for port in ports]
    return "{\n" + ",\n".join(rows or ["  {NULL}"]) + "\n}"


def _port_fields(port: Port) -> list[str]:
    """The fields of struct port, in order."""
    data = port.data
    counts = [v.dtype.itemsize if v is not None else 0 for v in (port.rows, port.sequences)]
    return [
        c_string(port.name),
        c_string(port.file),
        f"'{data.dtype.kind}'",
        str(data.dtype.itemsize),
        str(len(data.shape)),
        _numbers(data.shape),
        str(len(port.levels)),
        _numbers([v.dtype.itemsize for v in port.levels]),
        _numbers([v.size for v in port.levels]),
        _numbers(port.longest or [data.shape[0] for _ in port.levels]),
        *map(str, counts),
        "NULL",
        "{NULL}",
        "NULL",
        "NULL",
    ]


def _numbers(values: Sequence[int]) -> str:
    return f"{{{', '.join(map(str, values)) or '0'}}}"


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
