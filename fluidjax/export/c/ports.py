"""The inputs and outputs of the executable: its tables, the files of each, and where their arrays are in C."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fluidjax.base.errors import explain
from fluidjax.export.c.emit import Code
from fluidjax.export.c.trace import Leaf, Traced
from fluidjax.export.c.types import array_text, c_string, c_type
from fluidjax.export.function import ExportError
from fluidjax.export.graph import Value
from lowering.values import SelectedRows, TensorArray


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


def port_of(name: str, tree: Any, leaves: list[Leaf]) -> Port:
    """The port of a variable whose arrays are these, without its file; ``tree``: its value, if that is an output."""
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


def name_files(ports: list[Port]) -> None:
    """Name files after variables where the names are plain, unique and short."""
    taken: set[str] = set()
    for at, port in enumerate(ports):
        plain = re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,100}", port.name) and not re.search(r"\.\d+$", port.name)
        name = port.name if plain and port.name.lower() not in taken else f"array_{at}"
        while name.lower() in taken:
            name += "_"
        taken.add(name.lower())
        port.file = name


def table_of(traced: Traced, code: Code, inputs: list[Port], outputs: list[Port]) -> str:
    """C's tables of the ports, and ``connect``, which tells them where the arrays are."""
    places = _Places(code)
    connected = [*places.lines("inputs", inputs), *places.lines("outputs", outputs)]
    connected.append(f"  key = {places.of(traced.key)};")
    ports = (*inputs, *outputs)
    most = max((len(port.data.shape) for port in ports), default=0)
    levels = max((len(port.levels) for port in ports), default=0) or 1
    return f"""#define MOST_DIMS {max(most, 8)}
#define INPUTS {len(inputs)}
#define OUTPUTS {len(outputs)}
{_STRUCT.replace("LEVELS", str(levels))}
static struct port inputs[] = {_rows(inputs)};
static struct port outputs[] = {_rows(outputs)};
static uint32_t *key;
{chr(10).join(places.constants)}
static void connect(void)
{{
{chr(10).join(connected)}
}}"""


_STRUCT = """struct port {
  const char *name, *file;
  char kind;
  int size, dims;
  long shape[MOST_DIMS];
  int levels, level_bytes[LEVELS];
  long level_size[LEVELS], longest[LEVELS];
  int rows_size, sequences_size;
  void *data, *level[LEVELS], *rows, *sequences;
};"""


class _Places:
    """Where the step's values are; constants, which the step has folded, get arrays of their own."""

    def __init__(self, code: Code) -> None:
        self._addresses = code.addresses
        self.constants: list[str] = []

    def of(self, value: Value) -> str:
        """C's expression for the address of a value."""
        if not value.scalar:
            return self._addresses[value]
        name = f"o{len(self.constants)}"
        self.constants.append(f"static {c_type(value.dtype)} {name}[] = {{{array_text(value.constant)}}};")  # type: ignore
        return name

    def lines(self, word: str, ports: Sequence[Port]) -> Iterator[str]:
        """The lines of ``connect`` for the ports in the table ``word``."""
        for at, port in enumerate(ports):
            yield f"  {word}[{at}].data = (void *){self.of(port.data)};"
            for i, level in enumerate(port.levels):
                yield f"  {word}[{at}].level[{i}] = (void *){self.of(level)};"
            for field in ("rows", "sequences"):
                count = getattr(port, field)
                if count is not None:
                    yield f"  {word}[{at}].{field} = (void *){self.of(count)};"


def _rows(ports: list[Port]) -> str:
    rows = [f"  {{{', '.join(_fields(port))}}}" for port in ports]
    return "{\n" + ",\n".join(rows or ["  {NULL}"]) + "\n}"


def _fields(port: Port) -> list[str]:
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
