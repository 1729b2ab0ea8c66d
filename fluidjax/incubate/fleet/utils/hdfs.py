"""Access to HDFS for the workers of a fleet."""

from __future__ import annotations

import logging
import os
import posixpath
from collections.abc import Callable, Mapping, Sequence

from fluidjax.files.hadoop import HadoopFiles, in_parallel

__all__ = ["HDFSClient"]

_logger = logging.getLogger(__name__)


def get_logger(name: str, level: int, fmt: str) -> logging.Logger:
    """A logger that writes to a new file ``hdfs.log`` in the current directory.

    Args:
        name: name of the logger.
        level: minimum level to log.
        fmt: line format, as for logging.Formatter.
    """
    logger = logging.getLogger(name)
    logger.setLevel(level)
    handler = logging.FileHandler("hdfs.log", mode="w")
    handler.setFormatter(logging.Formatter(fmt=fmt))
    logger.addHandler(handler)
    return logger


class HDFSClient(HadoopFiles):
    """Copies many files in parallel to and from a file system, using the ``hadoop`` command.

    Args:
        hadoop_home: the directory containing ``bin/hadoop``; environment variables in it ("$HADOOP_HOME") are
            expanded.
        configs: properties, such as ``fs.default.name`` and ``hadoop.job.ugi``.

    Raises:
        FileNotFoundError: by every method, if there is no executable ``hadoop``.
        ValueError: by every method, for a path that is empty or would be taken for an option.
    """

    def __init__(self, hadoop_home: str, configs: Mapping[str, str]) -> None:
        super().__init__(os.path.expandvars(hadoop_home), configs)

    def is_file(self, hdfs_path: str | None = None) -> bool:
        """Whether a file exists."""
        return self.is_exist(hdfs_path) and not self.is_dir(hdfs_path)

    def cat(self, hdfs_path: str | None = None) -> str:
        """The text of a file, stripped of surrounding white space; empty if it does not exist."""
        if hdfs_path is None or not self.is_file(hdfs_path):
            return ""
        done = self._run("-cat", hdfs_path)
        return "" if done.returncode else done.stdout.strip()

    def lsr(self, hdfs_path: str, excludes: Sequence[str] = []) -> list[str]:  # noqa: B006 - Fluid's default
        """Paths of the files in a directory, recursively, in listing order, except ``excludes``."""
        found = self._listing("-ls", "-R", hdfs_path)
        return [entry.path for entry in found if not entry.is_dir and entry.path not in excludes]

    @staticmethod
    def split_files(files: list[str], trainer_id: int, trainers: int) -> list[str]:
        """A trainer's contiguous share of a list: five files for two trainers are split into three and two."""
        size, more = divmod(len(files), trainers)
        begin = trainer_id * size + min(trainer_id, more)
        return files[begin : begin + size + (trainer_id < more)]

    def download(
        self,
        hdfs_path: str,
        local_path: str,
        multi_processes: int = 5,
        overwrite: bool = False,
        retry_times: int = 5,
    ) -> list[str]:
        """Copy the contents of a directory to a local directory, created if missing.

        Args:
            multi_processes: number of commands to run concurrently.
            overwrite: has no effect, as in Fluid; ``hadoop`` refuses to replace a file.
            retry_times: how often to retry a failed copy.

        Returns:
            Paths of all files that are in the local directory afterwards.

        Raises:
            RuntimeError: a file could not be copied.
        """
        self.make_local_dirs(local_path)
        copy = self._copier("-get", os.path.abspath(local_path), retry_times)
        in_parallel(copy, self.ls(hdfs_path), multi_processes, "download")
        return [os.path.join(folder, name) for folder, _, names in os.walk(local_path) for name in names]

    def upload(
        self,
        hdfs_path: str,
        local_path: str,
        multi_processes: int = 5,
        overwrite: bool = False,
        retry_times: int = 5,
    ) -> None:
        """Copy a local file, or the contents of a local directory, to a directory, created if missing.

        Args:
            multi_processes: number of commands to run concurrently.
            overwrite: empty the directory ``hdfs_path`` first.
            retry_times: how often to retry a failed copy.

        Raises:
            RuntimeError: a file could not be copied.
        """
        files = _local_files(local_path)
        if not files:
            _logger.info("upload: there is nothing at %s", local_path)
            return
        if overwrite:
            self.delete(hdfs_path)
        if not self.is_exist(hdfs_path):
            self.makedirs(hdfs_path)
        in_parallel(self._copier("-put", hdfs_path, retry_times), files, multi_processes, "upload")

    def upload_dir(self, dest_dir: str, local_dir: str, overwrite: bool = False) -> bool:
        """Copy a local directory to the directory ``dest_dir``; returns whether it succeeded.

        Args:
            overwrite: remove the directory of that name in ``dest_dir`` first.
        """
        target, local = dest_dir.rstrip("/"), local_dir.rstrip("/")
        if overwrite:
            self.delete(posixpath.join(target, os.path.basename(local)))
        if not self.is_exist(target):
            self.makedirs(target)
        return self._did("-put", os.path.abspath(local), target, retry_times=5)

    def _copier(self, command: str, target: str, retry_times: int) -> Callable[[str], bool]:
        return lambda file: self._did(command, file, target, retry_times=retry_times)


def _local_files(path: str) -> list[str]:
    if os.path.isdir(path):
        return [os.path.abspath(os.path.join(path, name)) for name in sorted(os.listdir(path))]
    return [os.path.abspath(path)] if os.path.exists(path) else []
