"""Scripts that produce training data: lines in, MultiSlot text out, for the pipe command of ``fluid.dataset``.

class Words(MultiSlotDataGenerator):
    def generate_sample(self, line):
        def samples():
            yield [("words", [int(word) for word in line.split()]), ("label", [1])]
        return samples

Words().run_from_stdin()
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from fluidjax.base.errors import explain

__all__ = ["MultiSlotDataGenerator", "MultiSlotStringDataGenerator"]

Samples = Callable[[], Iterable[Any]]


class DataGenerator:
    """Reads lines, converts them to samples with the user's ``generate_sample``, and writes these as text."""

    def __init__(self) -> None:
        self._proto_info: list[tuple[str, str]] | None = None
        self.batch_size_ = 32

    def _set_line_limit(self, line_limit: int) -> None:
        """No effect, as in Fluid."""
        if not isinstance(line_limit, int):
            raise ValueError(f"line_limit{type(line_limit)} must be in int type")
        if line_limit < 1:
            raise ValueError("line_limit can not less than 1")
        self._line_limit = line_limit

    def set_batch(self, batch_size: int) -> None:
        """Set the number of samples passed to ``generate_batch``; 32 by default."""
        self.batch_size_ = batch_size

    def run_from_memory(self) -> None:
        """Write the samples of ``generate_sample(None)`` to standard output."""
        self._write(self.generate_sample(None)())

    def run_from_stdin(self) -> None:
        """Write the samples of each line of standard input to standard output."""
        self._write(sample for line in sys.stdin for sample in self.generate_sample(line)())

    def _write(self, samples: Iterable[Any]) -> None:
        for batch in self._batches(sample for sample in samples if sample is not None):
            for sample in self.generate_batch(batch)():
                sys.stdout.write(self._gen_str(sample))

    def _batches(self, samples: Iterable[Any]) -> Iterator[list[Any]]:
        batch = []
        for sample in samples:
            batch.append(sample)
            if len(batch) == self.batch_size_:
                yield batch
                batch = []
        if batch:
            yield batch

    def _gen_str(self, line: Any) -> str:
        """One sample as a line of text."""
        raise NotImplementedError(
            f"{type(self).__name__} does not say how a sample is written; derive from MultiSlotDataGenerator or"
            " MultiSlotStringDataGenerator"
        )

    def generate_sample(self, line: str | None) -> Samples:
        """To be overridden: returns a function without arguments that yields the samples of a line.

        A sample is a list (or tuple) of (name, values) in the order of the variables; None is skipped.
        """
        raise NotImplementedError(
            f"{type(self).__name__}.generate_sample is not written; return a function that yields samples such as"
            " [('words', [1926, 8, 17]), ('label', [1])]"
        )

    def generate_batch(self, samples: list[Any]) -> Samples:
        """May be overridden: returns a function that yields the samples of a batch, by default unchanged."""
        return lambda: iter(samples)


class MultiSlotStringDataGenerator(DataGenerator):
    """Writes values that are already strings, which is faster."""

    def _gen_str(self, line: Any) -> str:
        """[('words', ['1926', '08']), ('label', ['1'])] -> '2 1926 08 1 1'. Raises ValueError unless given a list."""
        _check_sample(line)
        return " ".join(" ".join([str(len(values)), *values]) for _, values in line) + "\n"


class MultiSlotDataGenerator(DataGenerator):
    """Writes integers and floats, checking that every sample has the same fields as the first."""

    def _gen_str(self, line: Any) -> str:
        """[('words', [1926, 8]), ('label', [1])] -> '2 1926 8 1 1'.

        Raises ValueError for anything but a list of (name, nonempty list of numbers), or fields other than those of the
        first sample.
        """
        _check_sample(line)
        self._check_names([name for name, _ in line])
        return " ".join(self._field(index, *field) for index, field in enumerate(line)) + "\n"

    def _check_names(self, names: list[str]) -> None:
        for name in names:
            if not isinstance(name, str):
                raise ValueError(_fault(f"name{type(name)} must be in str type", "the field's name", repr(name)))
        if self._proto_info is None:
            self._proto_info = [(name, "uint64") for name in names]
        known = [name for name, _ in self._proto_info]
        if len(known) != len(names):
            raise ValueError(
                _fault("the complete field set of two given line are inconsistent.", repr(known), repr(names))
            )
        for name, wanted in zip(names, known, strict=True):
            if name != wanted:
                raise ValueError(
                    _fault("the field name of two given line are not match", f"require<{wanted}>", f"get<{name}>")
                )

    def _field(self, index: int, name: str, values: Any) -> str:
        assert self._proto_info is not None
        if not isinstance(values, list):
            raise ValueError(_fault(f"elements{type(values)} must be in list type", "a list", f"{name}: {values!r}"))
        if not values:
            raise ValueError(
                _fault("the elements of each field can not be empty, you need padding it", "a value", f"{name}: []")
            )
        if any(_is_float(name, value) for value in values):
            self._proto_info[index] = (name, "float")
        return " ".join(map(str, [len(values), *values]))


def _check_sample(line: Any) -> None:
    if not isinstance(line, (list, tuple)):
        raise ValueError(
            _fault(
                "the output of process() must be in list or tuple type",
                "[('words', [1926, 8, 17]), ('label', [1])]",
                repr(line),
            )
        )


def _is_float(name: str, value: Any) -> bool:
    if isinstance(value, (float, np.floating)):
        return True
    if isinstance(value, (int, np.integer)):
        return False
    raise ValueError(
        _fault(f"the type of element{type(value)} must be in int or float", "a number", f"{name}: {value!r}")
    )


def _fault(what: str, expected: str, received: str) -> str:
    return explain(what, expected, received, "yield such samples from generate_sample")
