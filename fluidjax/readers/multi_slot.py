"""The MultiSlot text format: one sample per line and, for each variable, a count followed by that many numbers.

2 11 12 1 0.5      ->  ids = [11, 12], price = [0.5]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import IO, Any

import numpy as np
from google.protobuf.text_encoding import CEscape

from fluidjax.base.enums import to_numpy_dtype
from fluidjax.base.errors import explain
from fluidjax.base.lod import lengths_to_offsets
from fluidjax.base.places import CPUPlace
from fluidjax.base.values import LoDTensor
from fluidjax.command.aliases import child_environment
from fluidjax.files.errors import FileFormatError, bad_file
from fluidjax.framework import Variable

SHOWN_BYTES = 4096  # of what a pipe command wrote to its standard error


class Sample(list[np.ndarray]):
    """One flat array for each variable.

    Attributes:
        texts: what the line has before its numbers, by name.
    """

    texts: Mapping[str, str] = MappingProxyType({})


class Batch(dict[str, Any]):
    """A feed of several samples.

    Attributes:
        texts: those of each sample, where they are kept.
    """

    texts: Sequence[Mapping[str, str]] = ()


def read_file(path: str, command: str, variables: Sequence[Variable], texts: Sequence[str] = ()) -> Iterator[Sample]:
    """The samples of a file, piped through a shell command first unless it is ``cat`` or ''.

    Args:
        texts: what each line has before its numbers, "id" or "content": each a 1 and a word.
    """
    if command.strip() in ("", "cat"):
        with open(path, "rb") as file:
            yield from _samples(file, path, variables, texts)
        return
    yield from _piped(path, command, variables, texts)


def _piped(path: str, command: str, variables: Sequence[Variable], texts: Sequence[str]) -> Iterator[Sample]:
    """The samples in the output of a shell command; raises RuntimeError with its stderr if it fails."""
    with (
        open(path, "rb") as file,
        tempfile.TemporaryFile() as words,
        subprocess.Popen(
            command, shell=True, stdin=file, stdout=subprocess.PIPE, stderr=words, env=child_environment()
        ) as pipe,
    ):
        assert pipe.stdout is not None
        try:
            yield from _samples(pipe.stdout, f"{path} through {command!r}", variables, texts)
        except FileFormatError:
            if not pipe.stdout.read(1):  # the command has ended: perhaps in the middle of a line
                _check_ended(pipe, words, command, path)
            raise
        _check_ended(pipe, words, command, path)


def _check_ended(pipe: subprocess.Popen[bytes], words: IO[bytes], command: str, path: str) -> None:
    """Show the stderr of the command; raise RuntimeError if it exited with a nonzero status."""
    status = pipe.wait()
    words.seek(max(words.seek(0, os.SEEK_END) - SHOWN_BYTES, 0))
    said = words.read().decode("utf-8", "replace").strip()
    if status:
        received = f"exit status {status}, and this on its standard error:\n{said}" if said else f"exit status {status}"
        todo = f"mend the command; to see it alone: {command} < {path}"
        raise RuntimeError(explain(f"the pipe command {command!r} failed on {path}", "exit status 0", received, todo))
    if said:
        print(said, file=sys.stderr)


def _samples(
    lines: Iterable[bytes], label: str, variables: Sequence[Variable], texts: Sequence[str]
) -> Iterator[Sample]:
    dtypes = [to_numpy_dtype(var.dtype) for var in variables]
    for number, line in enumerate(lines, 1):
        if line.strip():
            here = f"{label}, line {number}"
            words = line.split()
            given = _texts(words, here, texts)
            sample = _sample(words[2 * len(given) :], here, variables, dtypes)
            if given:
                sample.texts = given
            yield sample


def _texts(words: list[bytes], label: str, texts: Sequence[str]) -> dict[str, str]:
    """The texts at the beginning of a line."""
    found = {}
    for at, text in enumerate(texts):
        pair = words[2 * at : 2 * at + 2]
        if len(pair) < 2 or pair[0] != b"1":
            received = b" ".join(pair).decode("utf-8", "replace") or "the end of the line"
            raise bad_file(
                f"{label}: the {text} is missing",
                "1 and a word, before the numbers",
                received,
                f"write the {text} of each line, or do not tell the data set that lines have one",
            )
        found[text] = pair[1].decode("utf-8", "replace")
    return found


def _sample(words: list[bytes], label: str, variables: Sequence[Variable], dtypes: Sequence[np.dtype]) -> Sample:
    sample, at = Sample(), 0
    for var, dtype in zip(variables, dtypes, strict=True):
        values = words[at + 1 : at + 1 + _count(words, at, label, var)]
        try:
            sample.append(np.array([float(v) if dtype.kind == "f" else int(v) for v in values], dtype))
        except (ValueError, OverflowError) as error:
            received = " ".join(v.decode("utf-8", "replace") for v in values[:8])
            raise bad_file(
                f"{label}: the values of {var.name!r} are no {dtype}", f"{dtype} numbers", received
            ) from error
        at += 1 + len(values)
    if at != len(words):
        raise bad_file(
            f"{label}: numbers are left over",
            f"values for {[var.name for var in variables]} only",
            f"{len(words) - at} more words",
            "name the variables of the file, in its order, with set_use_var",
        )
    return sample


def _count(words: list[bytes], at: int, label: str, var: Variable) -> int:
    """The number of values that follow for a variable, checked against the number of words left."""
    left = len(words) - at - 1
    word = words[at] if left >= 0 else b"the end of the line"
    if left < 0 or not word.isdigit() or int(word) > left:
        raise bad_file(
            f"{label}: the count of {var.name!r} is wrong",
            f"a number of at most {max(left, 0)}, and as many values",
            word.decode("utf-8", "replace"),
            "write a count and the values for each variable, in the order of set_use_var",
        )
    return int(word)


def to_feed(samples: Sequence[Sequence[np.ndarray]], variables: Sequence[Variable]) -> Batch:
    """The feed of a batch: LoDTensors for variables with LoD, arrays [batch, ...] for others."""
    feed = Batch()
    for index, var in enumerate(variables):
        parts = [sample[index] for sample in samples]
        if var.lod_level:
            tensor = LoDTensor()
            tensor.set(_shaped(var, np.concatenate, parts, -1), CPUPlace())
            tensor.set_lod(lengths_to_offsets([[len(part) for part in parts]]))
            feed[var.name] = tensor
        else:
            feed[var.name] = _shaped(var, np.stack, parts, len(parts))
    return feed


def _shaped(var: Variable, join: Callable[..., np.ndarray], parts: Sequence[np.ndarray], rows: int) -> np.ndarray:
    try:
        return join(parts).reshape(rows, *var.shape[1:])
    except ValueError as error:
        raise bad_file(
            f"the samples of a batch do not fit variable {var.name!r}",
            f"as many values in each as shape {list(var.shape)} says",
            f"{[len(part) for part in parts[:8]]} values",
            "write as many values for each sample, or declare the variable with lod_level=1",
        ) from error


def desc_text(feed_class: str, batch_size: int, command: str, variables: Sequence[Variable]) -> str:
    """The description of a data feed in the text format of Paddle's DataFeedDesc message."""
    lines = [f'name: "{feed_class}"', f"batch_size: {batch_size}", "multi_slot_desc {"]
    for var in variables:
        kind = "float" if to_numpy_dtype(var.dtype).kind == "f" else "uint64"
        lines += ["  slots {", f'    name: "{var.name}"', f'    type: "{kind}"']
        if not var.lod_level:
            lines += ["    is_dense: true"]
        lines += ["    is_used: true"]
        if not var.lod_level:
            lines += [f"    shape: {dim}" for dim in var.shape]
        lines += ["  }"]
    return "\n".join([*lines, "}", f'pipe_command: "{CEscape(command, True)}"', ""])
