"""Batches of a reader, of whichever kind, and a sample of them that stays the same."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from fluidjax.base.errors import EOFException, explain
from fluidjax.files import pickles
from fluidjax.files.atomic import write_file
from fluidjax.framework import Variable
from fluidjax.reader import DataLoaderBase

_LIST = "list"


def reads_by_itself(reader: Any) -> bool:
    """Whether a reader feeds its program: a variable of ``py_reader``, or a loader that is not iterable."""
    return isinstance(reader, Variable) or (
        isinstance(reader, DataLoaderBase) and not getattr(reader, "iterable", True)
    )


def results(reader: Any, run: Callable[[Any], Any]) -> Iterator[Any]:
    """``run(batch)`` for each batch of a reader; ``run(None)`` until its end for one that feeds its program."""
    if not reads_by_itself(reader):
        yield from map(run, reader())
        return
    reader.start()
    try:
        while True:
            yield run(None)
    except EOFException:
        reader.reset()


def sampled(reader: Callable[[], Iterable[Any]], rate: float, folder: str, number: int) -> Callable[[], Iterator[Any]]:
    """A reader of a part of the batches: the first, and each other one with the probability ``rate``.

    Args:
        folder: where samples are kept, each in a folder of its ``number``; one that is there is read from there.
        number: the seed, too.
    """
    kept = os.path.join(folder, str(number))

    def read() -> Iterator[Any]:
        if not os.path.isdir(kept):
            _keep(reader(), rate, kept, np.random.RandomState(number))
        with open(os.path.join(kept, _LIST)) as names:
            for name in names:
                with open(os.path.join(kept, name.strip()), "rb") as file:
                    yield [tuple(sample) for sample in pickles.loads(file.read(), file.name)["batch"]]

    return read


def _keep(batches: Iterable[Any], rate: float, folder: str, draws: np.random.RandomState) -> None:
    os.makedirs(folder)
    names: list[str] = []
    for batch in batches:
        if names and draws.uniform() >= rate:
            continue
        if isinstance(batch[0], dict):
            todo = "give an eval_reader of samples, or eval_rate: None"
            raise TypeError(explain("a part of a loader's batches", "a reader of lists of tuples", "feeds", todo))
        names.append(f"batch{len(names)}")
        content = {"batch": [[np.asarray(field) for field in sample] for sample in batch]}
        write_file(os.path.join(folder, names[-1]), [pickles.dumps(content)])
    write_file(os.path.join(folder, _LIST), ["".join(f"{name}\n" for name in names).encode()])
