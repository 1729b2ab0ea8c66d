"""The dataset cache, and downloads to it."""

from __future__ import annotations

import glob
import hashlib
import importlib
import os
import pickle
import pkgutil
import shutil
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from typing import Any

__all__ = ["DATA_HOME", "download", "md5file", "split", "cluster_files_reader"]

DATA_HOME = os.path.expanduser("~/.cache/paddle/dataset")
TIMEOUT_SECONDS = 30
RETRIES = 3


class DatasetUnavailable(RuntimeError):
    """A dataset is neither in the cache nor can it be downloaded."""


def must_mkdirs(path: str) -> None:
    """Create a directory and its parents, unless it exists."""
    os.makedirs(path, exist_ok=True)


def md5file(fname: str) -> str:
    """The MD5 checksum of a file, in hexadecimal."""
    digest = hashlib.md5(usedforsecurity=False)
    with open(fname, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def download(url: str, module_name: str, md5sum: str, save_name: str | None = None) -> str:
    """The path of a file in the cache, downloaded from ``url`` if it is missing or its checksum differs.

    Args:
        url: where to download it from.
        module_name: subdirectory of ``DATA_HOME``.
        md5sum: the expected checksum.
        save_name: file name in the cache; by default the last part of the URL.

    Raises DatasetUnavailable if the file is missing and cannot be downloaded.
    """
    folder = os.path.join(DATA_HOME, module_name)
    path = os.path.join(folder, save_name or url.split("/")[-1])
    if _sound(path, md5sum):
        return path
    must_mkdirs(folder)
    problem = ""
    for _ in range(RETRIES):
        sys.stderr.write(f"Cache file {path} not found, downloading {url}\n")
        problem = _fetch(url, path, md5sum)
        if not problem:
            return path
    raise DatasetUnavailable(
        f"Cannot download {url} within retry limit {RETRIES}\n"
        f"  expected: a file with MD5 {md5sum} at {path}\n"
        f"  received: {problem}\n"
        "  what to do: connect to the network, or fetch the file elsewhere and put it at that path"
    )


def _sound(path: str, md5sum: str) -> bool:
    return os.path.isfile(path) and md5file(path) == md5sum


def _fetch(url: str, path: str, md5sum: str) -> str:
    """Download to a temporary file, moved into place once its checksum matches; returns what went wrong, or ''."""
    aside = f"{path}.part-{os.getpid()}"
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as source, open(aside, "wb") as target:
            shutil.copyfileobj(source, target)
        found = md5file(aside)
        if found != md5sum:
            return f"a file with MD5 {found}"
        os.replace(aside, path)
    except (OSError, urllib.error.URLError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        if os.path.exists(aside):
            os.remove(aside)
    return ""


def fetch_all() -> None:
    """Download every dataset that is available as a whole."""
    for found in pkgutil.iter_modules([os.path.dirname(__file__)]):
        module = importlib.import_module(f"{__package__}.{found.name}")
        if hasattr(module, "fetch"):
            module.fetch()


def split(
    reader: Callable[[], Iterable[Any]],
    line_count: int,
    suffix: str = "%05d.pickle",
    dumper: Callable[..., Any] = pickle.dump,
) -> None:
    """Write the samples of a reader to files of ``line_count`` samples, named ``suffix % 0``, ``suffix % 1``, ...

    Files are written by ``dumper(list_of_samples, file)``. As in Fluid, the first file gets one sample more.
    """
    if not callable(dumper):
        raise TypeError(f"dumper should be callable, got {type(dumper).__name__}; pass a function like pickle.dump")
    lines: list[Any] = []
    count = 0
    for index, sample in enumerate(reader()):
        lines.append(sample)
        if index >= line_count and index % line_count == 0:
            _dump(lines, suffix % count, dumper)
            lines, count = [], count + 1
    if lines:
        _dump(lines, suffix % count, dumper)


def _dump(lines: list[Any], path: str, dumper: Callable[..., Any]) -> None:
    with open(path, "wb") as file:
        dumper(lines, file)


def cluster_files_reader(
    files_pattern: str, trainer_count: int, trainer_id: int, loader: Callable[..., Any] = pickle.load
) -> Callable[[], Iterator[Any]]:
    """A reader over this trainer's share of the files matching a pattern: every ``trainer_count``-th one.

    ``loader(file)`` reads a file; it defaults to pickle's, so only use your own files (see ``split``).
    """

    def reader() -> Iterator[Any]:
        if not callable(loader):
            raise TypeError(f"loader should be callable, got {type(loader).__name__}; pass a function like pickle.load")
        for path in sorted(glob.glob(files_pattern))[trainer_id::trainer_count]:
            with open(path, "rb") as file:
                yield from loader(file)

    return reader
