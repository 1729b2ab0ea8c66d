"""Readers inside programs: READER variables, the ops that create them, and ``read`` ops.

A reader variable references the Python object that supplies its batches (``Variable._get_info``), as do its copies in
clones of the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidjax import unique_name
from fluidjax.base.enums import VarType
from fluidjax.base.errors import EnforceNotMet, explain
from fluidjax.base.mode import in_dygraph_mode
from fluidjax.framework import Block, Program, Variable, default_main_program
from fluidjax.framework.prune import part

LOADER = "loader"
_loader_names = unique_name.UniqueNameGenerator()  # apart from the programs' own names, which guards begin anew

_NOT_RUN = frozenset(("create_py_reader", "create_double_buffer_reader", "read"))  # loaders do what they say


def refuse_in_eager_mode(layer: str) -> None:
    """Raise EnforceNotMet in eager mode, where no program could read from a reader."""
    if in_dygraph_mode():
        raise EnforceNotMet(
            explain(
                f"{layer} makes a reader inside a program, and this is eager mode",
                "static mode",
                "a call under fluid.dygraph.guard()",
                "use fluid.io.DataLoader.from_generator, which eager mode iterates over",
            )
        )


def reader_var(
    block: Block, name: str, loader: Any, shapes: Sequence[Any], dtypes: Sequence[Any], lod_levels: Sequence[int]
) -> Variable:
    """A READER variable for batches with the given shapes, dtypes and LoD levels."""
    var = block.create_var(name=name, type=VarType.READER, persistable=True, stop_gradient=True)
    fields = var.proto.type.reader.lod_tensor
    del fields[:]
    for shape, dtype, level in zip(shapes, dtypes, lod_levels, strict=True):
        fields.add(lod_level=level, tensor={"data_type": int(dtype), "dims": [int(n) for n in shape]})
    var._set_info(LOADER, loader)
    return var


def like(block: Block, name: str, var: Variable) -> Variable:
    """A READER variable in ``block`` for the same batches as another."""
    copy = block.create_var(name=name, type=VarType.READER, persistable=True, stop_gradient=True)
    copy.proto.type.reader.CopyFrom(var.proto.type.reader)
    copy._set_info(LOADER, loader_of(var))
    return copy


def loader_of(var: Variable) -> Any:
    """The object that supplies the batches of a reader variable. Raises TypeError for any other variable."""
    loader = var._get_info(LOADER) if isinstance(var, Variable) else None
    if loader is None:
        raise TypeError(
            f"expected a reader, as fluid.layers.py_reader returns it, received {getattr(var, 'name', var)!r}; make "
            "one first"
        )
    return loader


def append_create_op(block: Block, queue: str, var: Variable, need_check_feed: Sequence[bool]) -> None:
    """Append the op that creates a reader from a queue."""
    fields = var.proto.type.reader.lod_tensor
    block.append_op(
        type="create_py_reader",
        inputs={"blocking_queue": queue},
        outputs={"Out": [var]},
        attrs={
            "shape_concat": [int(n) for field in fields for n in field.tensor.dims],
            "ranks": [len(field.tensor.dims) for field in fields],
            "lod_levels": [int(field.lod_level) for field in fields],
            "dtypes": [int(field.tensor.data_type) for field in fields],
            "need_check_feed": [int(checked) for checked in need_check_feed],
        },
    )


def append_double_buffer_op(block: Block, source: Variable, out: Variable, place: str = "AUTO") -> None:
    """Append the op that makes a reader prefetch."""
    block.append_op(
        type="create_double_buffer_reader",
        inputs={"UnderlyingReader": source},
        outputs={"Out": [out]},
        attrs={"place": place},
    )


def append_read_op(block: Block, reader: Variable, outs: Sequence[Variable], drop_last: bool = True) -> None:
    """Append the op that takes the next batch of a reader."""
    block.append_op(
        type="read", inputs={"Reader": [reader]}, outputs={"Out": list(outs)}, attrs={"drop_last": drop_last}
    )


def create_program_reader(loader: Any, feed_list: Sequence[Variable]) -> None:
    """Make the default main program read the variables from a loader.

    No two loaders of a process share a name: a training and a test program, built under a ``unique_name.guard`` each,
    run in one Scope, where their queues are.
    """
    block = default_main_program().current_block()
    queue, reader_name = _loader_names("lod_tensor_blocking_queue"), _loader_names("create_py_reader")
    buffer_name = _loader_names("double_buffer")
    shapes = [var.shape for var in feed_list]
    dtypes, levels = [var.dtype for var in feed_list], [var.lod_level for var in feed_list]
    reader = reader_var(block, reader_name, loader, shapes, dtypes, levels)
    append_create_op(block, queue, reader, [var.proto.need_check_feed for var in feed_list])
    if loader._use_double_buffer:
        buffered = like(block, buffer_name, reader)
        append_double_buffer_op(block, reader, buffered)
        reader = buffered
    append_read_op(block, reader, feed_list, loader._drop_last)


def readers_of(program: Program) -> list[tuple[Any, list[str]]]:
    """(loader, names of the variables it fills) for each ``read`` op in block 0."""
    token = program._version_token()
    cached = program.__dict__.get("_readers_cache")
    if cached is None or cached[0] != token:
        block = program.global_block()
        found = [
            (loader_of(block.var(op.input("Reader")[0])), op.output("Out")) for op in block.ops if op.type == "read"
        ]
        cached = program.__dict__["_readers_cache"] = (token, found)
    return cached[1]


def before_read(program: Program, count: int) -> Program | None:
    """The ops in front of the ``read`` op that follows ``count`` others, as a program; None where none of them runs."""
    key, kept = (program._version_token(), count), program.__dict__.setdefault("_before_read_cache", {})
    if key not in kept:
        ops = program.global_block().ops
        reads = [(index, op) for index, op in enumerate(ops) if op.type == "read"][count:]
        absent = {name for _, op in reads for name in op.output_arg_names}  # an op of them fails in Fluid
        ran = []
        for op in ops[: reads[0][0]]:
            if not absent.isdisjoint(op.input_arg_names):
                absent.update(op.output_arg_names)
            elif op.type not in _NOT_RUN:
                ran.append(op)
        kept.clear()
        kept[key] = part(program, ran) if ran else None
    return kept[key]


def drops_last(program: Program) -> bool:
    """Whether trailing batches too few for all devices are dropped, Fluid's default."""
    return all(op.attr("drop_last") for op in program.global_block().ops if op.type == "read")
