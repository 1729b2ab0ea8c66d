"""Files on HDFS, through the ``hadoop`` command."""

from __future__ import annotations

import logging
import os
import posixpath
import shutil
import subprocess
import zipfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

__all__ = ["HDFSClient", "multi_download", "multi_upload"]

_logger = logging.getLogger(__name__)


class Entry(NamedTuple):
    """One line of a listing."""

    path: str
    is_dir: bool
    time: str


class HDFSClient:
    """Runs ``hadoop fs`` on one file system.

    Commands are started with an argument list, so paths need no quoting. Those that fail are tried again; a method
    then returns False (or an empty list) and logs what the command said.

    Args:
        hadoop_home: the folder whose ``bin/hadoop`` is run.
        configs: properties, such as ``fs.default.name`` and ``hadoop.job.ugi``.

    Raises:
        FileNotFoundError: by every method, when there is no ``hadoop`` that can be run.
        ValueError: by every method, for a path that is empty or that the command would take for an option.
    """

    def __init__(self, hadoop_home: str, configs: Mapping[str, str]):
        self._hadoop = os.path.join(hadoop_home, "bin", "hadoop")
        self.pre_commands = [self._hadoop, "fs", *(f"-D{key}={value}" for key, value in configs.items())]

    def _run(self, *arguments: str, retry_times: int = 1) -> subprocess.CompletedProcess[str]:
        """The result of the last try; properties stay out of the log, for they may hold a password."""
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
        """Whether there is a file or folder."""
        return self._run("-test", "-e", _remote(hdfs_path)).returncode == 0

    def is_dir(self, hdfs_path: str | None = None) -> bool:
        """Whether there is a folder."""
        return self.is_exist(hdfs_path) and self._run("-test", "-d", _remote(hdfs_path)).returncode == 0

    def upload(self, hdfs_path: str, local_path: str, overwrite: bool = False, retry_times: int = 5) -> bool:
        """Copy a local file into the folder ``hdfs_path``, which is made when absent.

        Returns:
            False for a local folder, for a file that is there already (unless ``overwrite``), and on failure.

        Raises:
            ValueError: there is no ``local_path``.
        """
        if not os.path.exists(local_path):
            raise ValueError(f"upload: expected a local file, and there is no {local_path!r}. Pass one that exists.")
        if os.path.isdir(local_path):
            _logger.error("upload takes a file, and %s is a folder; use multi_upload", local_path)
            return False
        target = posixpath.join(_remote(hdfs_path), os.path.basename(local_path))
        if not self.is_exist(hdfs_path):
            self.makedirs(hdfs_path)
        elif self.is_exist(target):
            if not overwrite:
                _logger.error("%s is there already, and overwrite is False", target)
                return False
            self.delete(target)
        return self._did("-put", os.path.abspath(local_path), hdfs_path, retry_times=retry_times)

    def download(self, hdfs_path: str, local_path: str, overwrite: bool = False, unzip: bool = False) -> bool:
        """Copy a file or folder into the local folder ``local_path``, which is made when absent.

        Args:
            overwrite: replace what is there under the same name.
            unzip: unpack a zip file beside itself.

        Returns:
            False for what is not on HDFS, for what is here already (unless ``overwrite``), and on failure.

        Raises:
            ValueError: ``hdfs_path`` does not end in a name; ``overwrite`` would remove another folder than its copy.
        """
        if not self.is_exist(hdfs_path):
            _logger.error("there is no %s", hdfs_path)
            return False
        name = posixpath.basename(hdfs_path.rstrip("/"))
        if name in ("", ".", ".."):
            raise ValueError(
                f"download: expected a path that ends in the name of a file or folder, received {hdfs_path!r}. Download"
                " what is in the folder one by one, or use multi_download."
            )
        target = os.path.join(local_path, name)
        if os.path.exists(target):
            if not overwrite:
                _logger.error("%s is there already, and overwrite is False", target)
                return False
            shutil.rmtree(target) if os.path.isdir(target) else os.remove(target)
        self.make_local_dirs(local_path)
        if not self._did("-get", hdfs_path, os.path.abspath(local_path), retry_times=5):
            return False
        if unzip and zipfile.is_zipfile(target):
            with zipfile.ZipFile(target) as packed:
                packed.extractall(local_path)
        return True

    def delete(self, hdfs_path: str) -> bool:
        """Remove a file, or a folder with all in it; True also where there is none."""
        if not self.is_exist(hdfs_path):
            return True
        return self._did("-rm", *(["-r"] if self.is_dir(hdfs_path) else []), hdfs_path, retry_times=0)

    def rename(self, hdfs_src_path: str, hdfs_dst_path: str, overwrite: bool = False) -> bool:
        """Move a file or folder; False where the target exists, unless ``overwrite`` removes it first."""
        if not self.is_exist(hdfs_src_path):
            _logger.error("there is no %s", hdfs_src_path)
            return False
        if self.is_exist(hdfs_dst_path):
            if not overwrite:
                _logger.error("%s is there already, and overwrite is False", hdfs_dst_path)
                return False
            self.delete(hdfs_dst_path)
        return self._did("-mv", hdfs_src_path, _remote(hdfs_dst_path))

    @staticmethod
    def make_local_dirs(local_path: str) -> None:
        """Make a local folder and those around it, where absent."""
        os.makedirs(local_path, exist_ok=True)

    def makedirs(self, hdfs_path: str) -> bool:
        """Make a folder and those around it; True where it is there already."""
        return self._did("-mkdir", "-p", _remote(hdfs_path))

    def ls(self, hdfs_path: str) -> list[str]:
        """Paths of what a folder holds."""
        return [entry.path for entry in self._listing("-ls", hdfs_path)]

    def lsr(self, hdfs_path: str, only_file: bool = True, sort: bool = True) -> list[str]:
        """Paths of what a folder and those inside it hold.

        Args:
            only_file: leave folders out.
            sort: oldest first, by the minute of the last change.
        """
        found = [e for e in self._listing("-ls", "-R", hdfs_path) if not (only_file and e.is_dir)]
        return [entry.path for entry in (sorted(found, key=lambda e: e.time) if sort else found)]

    def _listing(self, *arguments: str) -> list[Entry]:
        """The entries that ``hadoop fs -ls`` prints: rights, copies, owner, group, size, date, time and path."""
        if not self.is_exist(arguments[-1]):
            return []
        done = self._run(*arguments)
        if done.returncode:
            _logger.error("hadoop fs %s failed (%d): %s", " ".join(arguments), done.returncode, done.stderr.strip())
            return []
        fields = (line.split(maxsplit=7) for line in done.stdout.splitlines())
        return [Entry(f[7], f[0].startswith("d"), f"{f[5]} {f[6]}") for f in fields if len(f) == 8]


def _remote(path: str | None) -> str:
    if not path or path.startswith("-"):
        raise ValueError(f"expected a path on HDFS, such as '/user/me/data', received {path!r}. Pass one.")
    return path


def _client(client: HDFSClient, what: str) -> HDFSClient:
    if not isinstance(client, HDFSClient):
        raise TypeError(f"{what} takes an HDFSClient first, received {type(client)}. Make one with HDFSClient(...).")
    return client


def _in_parallel(copy: Callable[[str], bool], files: list[str], workers: int, what: str) -> None:
    """Copy files by several commands at once; RuntimeError that names those that did not go through."""
    with ThreadPoolExecutor(max_workers=workers) as pool:
        done = list(pool.map(copy, files))
    failed = [file for file, ok in zip(files, done, strict=True) if not ok]
    if failed:
        raise RuntimeError(
            f"{what}: expected to copy {len(files)} files, and {len(failed)} did not go through: {failed[:5]}. See the"
            " log for each one's reason, and call again; files that are there already need overwrite."
        )


def _inside(file: str, folder: str) -> str:
    """The path of a listed file from its folder on."""
    path = posixpath.relpath(file, folder)
    if path.startswith(".."):
        raise ValueError(
            f"multi_download: expected files of {folder!r}, and the listing names {file!r}. Pass the folder as hadoop"
            " prints it."
        )
    return path


def multi_download(
    client: HDFSClient, hdfs_path: str, local_path: str, trainer_id: int, trainers: int, multi_processes: int = 5
) -> list[str]:
    """Download one trainer's share of the files in a folder, every ``trainers``-th one, oldest first.

    Args:
        client: an HDFSClient.
        hdfs_path: the folder; folders inside it are kept.
        local_path: where to.
        trainer_id: number of this trainer, from 0, of ``trainers``.
        multi_processes: how many commands run at once.

    Returns:
        Local paths of the share.

    Raises:
        RuntimeError: a file was not downloaded, or is here already.
        ValueError: ``trainer_id`` is none of ``trainers``, or the listing names a file that is not in the folder.
    """
    if not 0 <= trainer_id < trainers:
        raise ValueError(
            f"multi_download: expected trainer_id from 0 to {trainers - 1}, received {trainer_id}. Pass it."
        )
    share = _client(client, "multi_download").lsr(hdfs_path, sort=True)[trainer_id::trainers]
    places = {file: os.path.join(local_path, _inside(file, hdfs_path)) for file in share}
    client.make_local_dirs(local_path)
    _in_parallel(
        lambda file: client.download(file, os.path.dirname(places[file])), share, multi_processes, "multi_download"
    )
    return [places[file] for file in share]


def multi_upload(
    client: HDFSClient,
    hdfs_path: str,
    local_path: str,
    multi_processes: int = 5,
    overwrite: bool = False,
    sync: bool = True,
) -> None:
    """Upload all files of a local folder; folders inside it are kept.

    Args:
        client: an HDFSClient.
        hdfs_path: where to.
        local_path: the folder.
        multi_processes: how many commands run at once.
        overwrite: replace files that are there already.
        sync: as in Fluid without effect; the uploads are waited for.

    Raises:
        RuntimeError: a file was not uploaded, or is there already.
    """
    _client(client, "multi_upload")
    files = [os.path.join(folder, name) for folder, _, names in sorted(os.walk(local_path)) for name in sorted(names)]

    def copy(file: str) -> bool:
        inside = os.path.relpath(os.path.dirname(file), local_path)
        target = posixpath.normpath(posixpath.join(_remote(hdfs_path), *inside.split(os.sep)))
        return client.upload(target, file, overwrite, retry_times=5)

    _in_parallel(copy, files, multi_processes, "multi_upload")
