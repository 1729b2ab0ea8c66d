"""Input layers: fed variables, in-program readers, files."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from fluidjax import unique_name
from fluidjax.base.enums import VarType, to_var_type
from fluidjax.base.unknown import unknown_name
from fluidjax.data import input_variable
from fluidjax.data_feeder import check_type
from fluidjax.framework import Program, Variable, default_main_program, default_startup_program
from fluidjax.layer_helper import LayerHelper
from fluidjax.layers._servers import BlockGuardServ as BlockGuardServ
from fluidjax.layers._servers import ListenAndServ as ListenAndServ
from fluidjax.layers._servers import Recv as Recv
from fluidjax.layers._servers import Send as Send
from fluidjax.readers.generator import GeneratorLoader, loader_without_ops
from fluidjax.readers.reader_ops import (
    append_create_op,
    append_double_buffer_op,
    append_read_op,
    like,
    loader_of,
    reader_var,
    refuse_in_eager_mode,
)
from fluidjax.readers.tensor_queue import TensorQueue

__all__ = ["data", "read_file", "double_buffer", "py_reader", "create_py_reader_by_data", "load"]


def data(
    name: str,
    shape: Sequence[int | None],
    append_batch_size: bool = True,
    dtype: Any = "float32",
    lod_level: int = 0,
    type: VarType = VarType.LOD_TENSOR,
    stop_gradient: bool = True,
) -> Variable:
    """Declare a variable to be fed.

    Args:
        name: its name, used as the key in feeds.
        shape: its dimensions; None or -1 if unknown.
        append_batch_size: prepend an unknown batch dimension, unless some dimension is already unknown.
        dtype: its dtype.
        lod_level: number of LoD levels of its feeds; 0 for plain arrays.
        type: kind of variable.
        stop_gradient: whether to block gradients.

    Feeds are not checked against the shape; use ``fluid.data`` for that.

    Examples:
        >>> fluid.layers.data("image", [784]).shape
        (-1, 784)
    """
    check_type(name, "name", (bytes, str), "data")
    check_type(shape, "shape", (list, tuple), "data")
    dims = [-1 if dim is None else int(dim) for dim in shape]
    if append_batch_size and all(dim >= 0 for dim in dims):
        dims = [-1, *dims]
    return input_variable(name, dims, dtype, lod_level, type, stop_gradient)


FIRST_PUSH_SECONDS = 10.0  # that a run waits for the first batch of a thread that fills the queue


class _QueueLoader:
    """The batches of a ``py_reader``: the source set by ``decorate_...``, between ``start`` and ``reset``."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self.queue = TensorQueue(capacity)
        self._loader: GeneratorLoader | None = None

    def attach(self, fields: Sequence[Variable]) -> GeneratorLoader:
        """A loader for these fields; it adds nothing to the program, whose ops already exist."""
        self._loader = loader_without_ops(fields, self._capacity, self.queue)
        return self._loader

    def next_batch(self) -> list[Any]:
        """The next batch, of the queue where a script fills that."""
        return self.queue.next_batch() if self._loader is None and self._pushed() else self.loader.next_batch()

    def _pushed(self) -> bool:
        """Whether the script pushes the batches itself. A thread of it may be about to."""
        until = time.monotonic() + FIRST_PUSH_SECONDS
        while not self.queue.used and threading.active_count() > 1 and time.monotonic() < until:
            time.sleep(0.01)
        return self.queue.used

    @property
    def loader(self) -> GeneratorLoader:
        if self._loader is None:
            raise RuntimeError(
                "the reader has no source: expected a call of decorate_sample_list_generator, "
                "decorate_sample_generator or decorate_batch_generator before start(); call one of them"
            )
        return self._loader


def py_reader(
    capacity: int,
    shapes: Sequence[Sequence[int]],
    dtypes: Sequence[Any],
    lod_levels: Sequence[int] | None = None,
    name: str | None = None,
    use_double_buffer: bool = True,
) -> Variable:
    """A reader whose batches come from Python; unpack them with ``read_file``.

    Args:
        capacity: number of batches to prefetch.
        shapes, dtypes, lod_levels: of the variables in a batch; LoD levels default to 0.
        name: prefix for the names of its variables.
        use_double_buffer: add the prefetching op.

    Returns a READER variable with methods: ``decorate_paddle_reader`` (batches of samples, also called
    ``decorate_sample_list_generator``), ``decorate_sample_generator``, ``decorate_batch_generator`` (also called
    ``decorate_tensor_provider``), ``start`` and ``reset``. Runs consume it from ``start()`` until EOFException.
    ``thread`` is the thread that reads, None before the first ``start``; ``exited`` is True while ``reset`` ends it.
    """
    refuse_in_eager_mode("py_reader")
    levels = [0] * len(shapes) if lod_levels is None else list(lod_levels)
    kinds = [to_var_type(dtype) for dtype in dtypes]
    dims = [[int(dim) for dim in shape] for shape in shapes]
    return _py_reader(capacity, dims, kinds, levels, [False] * len(levels), name, use_double_buffer)


def create_py_reader_by_data(
    capacity: int, feed_list: Sequence[Variable], name: str | None = None, use_double_buffer: bool = True
) -> Variable:
    """A reader of batches that look like variables created by ``fluid.data``.

    ``read_file`` returns new variables of their shapes, data types and LoD levels, which the network is built on.
    Arguments and result as for ``py_reader``.
    """
    refuse_in_eager_mode("create_py_reader_by_data")
    return _py_reader(
        capacity,
        [var.shape for var in feed_list],
        [var.dtype for var in feed_list],
        [var.lod_level for var in feed_list],
        [var.proto.need_check_feed for var in feed_list],
        name,
        use_double_buffer,
    )


def _py_reader(
    capacity: int,
    shapes: Sequence[Any],
    dtypes: Sequence[Any],
    levels: Sequence[int],
    checked: Sequence[bool],
    name: str | None,
    use_double_buffer: bool,
) -> Variable:
    if name is None:
        queue = unique_name.generate("lod_tensor_blocking_queue")
        reader_name = unique_name.generate("create_py_reader")
        buffer_name = unique_name.generate("double_buffer") if use_double_buffer else ""
    else:
        queue, reader_name, buffer_name = f"{name}_queue", f"{name}_reader", f"{name}_double_buffer"
    source = _QueueLoader(capacity)
    startup = default_startup_program().current_block()
    made = reader_var(startup, reader_name, source, shapes, dtypes, levels)
    append_create_op(startup, queue, made, checked)
    main = default_main_program().current_block()
    reader = like(main, reader_name, made)
    if use_double_buffer:
        buffered = like(main, buffer_name, reader)
        append_double_buffer_op(main, reader, buffered)
        reader = buffered
    _give_methods(reader, source)
    return reader


def monkey_patch_reader_methods(reader: Variable) -> Variable:
    """Add the ``start`` and ``reset`` methods of its source to a READER variable."""
    source = loader_of(reader)
    if isinstance(source, _QueueLoader):
        reader.queue = source.queue  # type: ignore[attr-defined]
    reader.start = lambda: source.loader.start()  # type: ignore[attr-defined]
    reader.reset = lambda: source.loader.reset()  # type: ignore[attr-defined]
    return reader


def _give_methods(reader: Variable, source: _QueueLoader) -> None:
    """Allow the reader to be started, reset and given a source."""

    def decorator(method: str) -> Callable[..., None]:
        def decorate(*args: Any, **kwargs: Any) -> None:
            getattr(source.attach(_fields(reader)), method)(*args, **kwargs)

        return decorate

    def start() -> None:
        source.loader.start()
        reader.thread = source.loader.thread  # type: ignore[attr-defined]

    def reset() -> None:
        reader.exited = True  # type: ignore[attr-defined]
        source.loader.reset()
        reader.exited = False  # type: ignore[attr-defined]

    monkey_patch_reader_methods(reader)
    reader.start, reader.reset = start, reset  # type: ignore[attr-defined]
    reader.thread, reader.exited = None, False  # type: ignore[attr-defined]
    names = {
        "set_sample_list_generator": ("decorate_paddle_reader", "decorate_sample_list_generator"),
        "set_sample_generator": ("decorate_sample_generator",),
        "set_batch_generator": ("decorate_batch_generator", "decorate_tensor_provider"),
    }
    for method, spellings in names.items():
        for spelling in spellings:
            setattr(reader, spelling, decorator(method))


def _fields(reader: Variable) -> list[Variable]:
    """Placeholders, in a program of their own, for the variables that ``read_file`` names later."""
    block = Program().global_block()
    return [
        block.create_var(
            name=f"field_{index}",
            shape=list(field.tensor.dims),
            dtype=VarType(field.tensor.data_type),
            lod_level=field.lod_level,
        )
        for index, field in enumerate(reader.proto.type.reader.lod_tensor)
    ]


def double_buffer(reader: Variable, place: Any = None, name: str | None = None) -> Variable:
    """A reader that prefetches from another.

    Args:
        reader: a READER variable.
        place: where to put the batches; by default, where the program runs.
        name: its name; generated if None.
    """
    refuse_in_eager_mode("double_buffer")
    block = default_main_program().current_block()
    out = like(block, name or unique_name.generate("double_buffer"), reader)
    append_double_buffer_op(block, reader, out, "AUTO" if place is None else str(place).upper())
    source = loader_of(reader)
    if isinstance(source, _QueueLoader):
        _give_methods(out, source)
    return out


def read_file(reader: Variable) -> Variable | list[Variable]:
    """The variables of a reader's next batch: one, or a list of several.

    Raises TypeError if ``reader`` is not a reader.
    """
    loader_of(reader)
    block = default_main_program().current_block()
    helper = LayerHelper("read_file")
    outs = []
    for field in reader.proto.type.reader.lod_tensor:
        out = helper.create_variable_for_type_inference(VarType(field.tensor.data_type), stop_gradient=True)
        out.desc.set_shape(list(field.tensor.dims))
        out.desc.set_lod_level(field.lod_level)
        out.is_data = True
        outs.append(out)
    append_read_op(block, reader, outs)
    return outs[0] if len(outs) == 1 else outs


def load(out: Variable, file_path: str, load_as_fp16: bool | None = None) -> None:
    """Append an op that loads a variable, when the program runs, from a file written by ``save_vars``.

    Args:
        out: the variable to load into.
        file_path: path of the file.
        load_as_fp16: convert to float16.
    """
    attrs: dict[str, Any] = {"file_path": file_path}
    if load_as_fp16 is not None:
        attrs["load_as_fp16"] = load_as_fp16
    helper = LayerHelper("load", out=out, file_path=file_path)
    helper.append_op(type="load", inputs={}, outputs={"Out": out}, attrs=attrs)


__getattr__ = unknown_name(__name__)
