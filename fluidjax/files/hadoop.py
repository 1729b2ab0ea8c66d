"""A Hadoop file system, through the ``hadoop`` command."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

_logger = logging.getLogger(__name__)


class Entry(NamedTuple):
    """One line of a listing."""

    path: str
    is_dir: bool
    time: str


class HadoopFiles:
    """Runs ``hadoop fs`` on one file system: the common part of Fluid's clients.

    Commands are started with an argument list, so paths need no quoting. Failed commands are retried; if they keep
    failing, a method returns False (or an empty list) and logs the command's output.

    Args:
        hadoop_home: the directory whose ``bin/hadoop`` is run.
        configs: properties, such as ``fs.default.name`` and ``hadoop.job.ugi``.

    Raises:
        FileNotFoundError: by every method, if there is no executable ``hadoop``.
        ValueError: by every method, for a path that is empty or would be taken for an option by the command.
    """

    def __init__(self, hadoop_home: str, configs: Mapping[str, str]):
        self._hadoop = os.path.join(hadoop_home, "bin", "hadoop")
        self.pre_commands = [self._hadoop, "fs", *(f"-D{key}={value}" for key, value in configs.items())]

    def _run(self, *arguments: str, retry_times: int = 1) -> subprocess.CompletedProcess[str]:
        """The result of the last attempt; properties are not logged, as they may contain a password."""
        for attempt in range(retry_times + 1):
            try:
                done = subprocess.run([*self.pre_commands, *arguments], capture_output=True, text=True, check=False)
            except (FileNotFoundError, PermissionError) as error:
                raise FileNotFoundError(
                    f"the hadoop command cannot be run: expected an executable at {self._hadoop!r}, received"
                    f" {type(error).__name__}. Pass HDFSClient the folder of an installed Hadoop client."
                ) from error
            if done.returncode == 0:
                break
            _logger.debug("hadoop fs %s, try %d: %s", " ".join(arguments), attempt + 1, done.stderr.strip())
        return done

    def _did(self, *arguments: str, retry_times: int = 1) -> bool:
        done = self._run(*arguments, retry_times=retry_times)
        if done.returncode:
            _logger.error("hadoop fs %s failed (%d): %s", " ".join(arguments), done.returncode, done.stderr.strip())
        return done.returncode == 0

    def is_exist(self, hdfs_path: str | None = None) -> bool:
        """Whether a file or directory exists."""
        return self._run("-test", "-e", remote_path(hdfs_path)).returncode == 0

    def is_dir(self, hdfs_path: str | None = None) -> bool:
        """Whether a directory exists."""
        return self.is_exist(hdfs_path) and self._run("-test", "-d", remote_path(hdfs_path)).returncode == 0

    def delete(self, hdfs_path: str) -> bool:
        """Remove a file, or a directory with its contents; True even if there is none."""
        if not self.is_exist(hdfs_path):
            return True
        return self._did("-rm", *(["-r"] if self.is_dir(hdfs_path) else []), hdfs_path, retry_times=0)

    def rename(self, hdfs_src_path: str, hdfs_dst_path: str, overwrite: bool = False) -> bool:
        """Move a file or directory; False if the target exists, unless ``overwrite`` removes it first."""
        if not self.is_exist(hdfs_src_path):
            _logger.error("there is no %s", hdfs_src_path)
            return False
        if self.is_exist(hdfs_dst_path):
            if not overwrite:
                _logger.error("%s is there already, and overwrite is False", hdfs_dst_path)
                return False
            self.delete(hdfs_dst_path)
        return self._did("-mv", hdfs_src_path, remote_path(hdfs_dst_path))

    @staticmethod
    def make_local_dirs(local_path: str) -> None:
        """Create a local directory and its parents, if absent."""
        os.makedirs(local_path, exist_ok=True)

    def makedirs(self, hdfs_path: str) -> bool:
        """Create a directory and its parents; True if it already exists."""
        return self._did("-mkdir", "-p", remote_path(hdfs_path))

    def ls(self, hdfs_path: str) -> list[str]:
        """The paths in a directory."""
        return [entry.path for entry in self._listing("-ls", hdfs_path)]

    def _listing(self, *arguments: str) -> list[Entry]:
        """The entries printed by ``hadoop fs -ls``: permissions, replicas, owner, group, size, date, time and path."""
        if not self.is_exist(arguments[-1]):
            return []
        done = self._run(*arguments)
        if done.returncode:
            _logger.error("hadoop fs %s failed (%d): %s", " ".join(arguments), done.returncode, done.stderr.strip())
            return []
        fields = (line.split(maxsplit=7) for line in done.stdout.splitlines())
        return [Entry(f[7], f[0].startswith("d"), f"{f[5]} {f[6]}") for f in fields if len(f) == 8]


def remote_path(path: str | None) -> str:
    """A path that the command does not take for an option; ValueError for None."""
    if not path or path.startswith("-"):
        raise ValueError(f"expected a path on HDFS, such as '/user/me/data', received {path!r}. Pass one.")
    return path


def in_parallel(copy: Callable[[str], bool], files: list[str], workers: int, what: str) -> None:
    """Copy files by several concurrent commands; raises a RuntimeError naming those that failed."""
    with ThreadPoolExecutor(max_workers=workers) as pool:
        done = list(pool.map(copy, files))
    failed = [file for file, ok in zip(files, done, strict=True) if not ok]
    if failed:
        raise RuntimeError(
            f"{what}: expected to copy {len(files)} files, and {len(failed)} did not go through: {failed[:5]}. See the"
            " log for each one's reason, and call again; files that are there already need overwrite."
        )
