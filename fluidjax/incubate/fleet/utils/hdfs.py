"""The Hadoop file system, as the workers of a fleet use it."""

from __future__ import annotations

import logging
import os
import posixpath
from collections.abc import Callable, Mapping, Sequence

from fluidjax.files.hadoop import HadoopFiles, in_parallel

__all__ = ["HDFSClient"]

_logger = logging.getLogger(__name__)


def get_logger(name: str, level: int, fmt: str) -> logging.Logger:
    """A logger that writes into a new file ``hdfs.log`` of the current folder.

    Args:
        name: of the logger.
        level: the least level that is written.
        fmt: the format of a line, as logging.Formatter takes it.
    """
    logger = logging.getLogger(name)
    logger.setLevel(level)
    handler = logging.FileHandler("hdfs.log", mode="w")
    handler.setFormatter(logging.Formatter(fmt=fmt))
    logger.addHandler(handler)
    return logger


class HDFSClient(HadoopFiles):
    """Copies many files at once to and from a file system, by the command ``hadoop``.

    Args:
        hadoop_home: the folder whose ``bin/hadoop`` is run; variables of the environment in it ("$HADOOP_HOME") are
            replaced by their values.
        configs: properties, such as ``fs.default.name`` and ``hadoop.job.ugi``.

    Raises:
        FileNotFoundError: by every method, when there is no ``hadoop`` that can be run.
        ValueError: by every method, for a path that is empty or that the command would take for an option.
    """

    def __init__(self, hadoop_home: str, configs: Mapping[str, str]) -> None:
        super().__init__(os.path.expandvars(hadoop_home), configs)

    def is_file(self, hdfs_path: str | None = None) -> bool:
        """Whether there is a file."""
        return self.is_exist(hdfs_path) and not self.is_dir(hdfs_path)

    def cat(self, hdfs_path: str | None = None) -> str:
        """The text of a file without the white space around it; empty where there is no such file."""
        if hdfs_path is None or not self.is_file(hdfs_path):
            return ""
        done = self._run("-cat", hdfs_path)
        return "" if done.returncode else done.stdout.strip()

    def lsr(self, hdfs_path: str, excludes: Sequence[str] = []) -> list[str]:  # noqa: B006 - Fluid's default
        """Paths of the files in a folder and those inside it, in the order of the listing, without ``excludes``."""
        found = self._listing("-ls", "-R", hdfs_path)
        return [entry.path for entry in found if not entry.is_dir and entry.path not in excludes]

    @staticmethod
    def split_files(files: list[str], trainer_id: int, trainers: int) -> list[str]:
        """A trainer's share of a list, in one piece: five files for two trainers are dealt as three and two."""
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
        """Copy what a folder holds into a local folder, which is made when absent.

        Args:
            multi_processes: how many commands run at once.
            overwrite: as in Fluid without effect; ``hadoop`` refuses to replace a file.
            retry_times: how often a copy that failed is tried again.

        Returns:
            Paths of all files that are in the local folder afterwards.

        Raises:
            RuntimeError: a file did not go through.
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
        """Copy a local file, or all that a local folder holds, into a folder, which is made when absent.

        Args:
            multi_processes: how many commands run at once.
            overwrite: empty the folder ``hdfs_path`` first.
            retry_times: how often a copy that failed is tried again.

        Raises:
            RuntimeError: a file did not go through.
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
        """Copy a local folder into the folder ``dest_dir``; whether it went through.

        Args:
            overwrite: remove the folder of that name in ``dest_dir`` first.
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
