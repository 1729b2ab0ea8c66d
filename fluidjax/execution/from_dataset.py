"""Running a program over the batches of a data set, with fetches printed and dumped on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fluidjax.dataset import DatasetBase
from fluidjax.framework import default_main_program
from fluidjax.readers.dump import Dump, Texts
from fluidjax.readers.watching import looking

# (program, data set, fetch list) -> for each batch, the texts of its samples and what was fetched
Train = Callable[[Any, DatasetBase, list[Any]], Iterable[tuple[Texts, list[Any]]]]


def run_from_dataset(
    train: Train,
    program: Any,
    dataset: Any,
    fetch_list: Sequence[Any] | None,
    fetch_info: Sequence[str] | None,
    print_period: int,
    fetch_handler: Any,
) -> None:
    """Run a program, if None the main one, once for each batch; print fetches every ``print_period`` batches."""
    if dataset is None:
        missing = RuntimeError("dataset is need and should be initialized")
        missing.add_note("Expected a fluid data set, received None. Pass dataset=, made by fluid.DatasetFactory.")
        raise missing
    if not isinstance(dataset, DatasetBase):
        raise TypeError(f"dataset must be a fluid data set, received {type(dataset).__name__}; use DatasetFactory")
    trained = default_main_program() if program is None else program
    look = looking(fetch_list, fetch_info, print_period, fetch_handler)
    dump = Dump(trained.global_block(), trained._fleet_opt)
    for step, (texts, values) in enumerate(train(trained, dataset, [*look.fetches, *dump.names]), 1):
        count = len(look.fetches)
        dump.write(values[count:], texts)
        look(step, values[:count])


def pipelines(options: dict[str, Any], dataset: DatasetBase, wanted: int) -> int:
    """How many pipelines have something to read: ``wanted``, or one for each file if there are fewer files.

    Each has as many readers as the first section has threads (``options["concurrency_list"]``), which become fewer if
    there are not enough files for all; ``dataset.thread_num`` is then the number of all readers.
    """
    files, readers = len(dataset.filelist), options["concurrency_list"]
    found = min(wanted, files)
    if found < wanted:
        print(f"Pipeline training: {found} pipelines instead of {wanted}, as there are only {files} files")
    if files < found * readers[0]:
        print(
            f"Pipeline training: {files // found} readers each instead of {readers[0]}, as there are only {files} files"
        )
        readers[0] = files // found
    dataset.set_thread(readers[0] * found)
    return found
