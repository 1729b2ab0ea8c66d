"""Files on HDFS, through the ``hadoop`` command."""

from __future__ import annotations

import logging
import os
import posixpath
import shutil
import zipfile

from fluidjax.files.hadoop import HadoopFiles, in_parallel, remote_path

__all__ = ["HDFSClient", "multi_download", "multi_upload"]

_logger = logging.getLogger(__name__)


class HDFSClient(HadoopFiles):
    """Copies single files and directories to and from a file system; arguments and errors as for ``HadoopFiles``."""

    def lsr(self, hdfs_path: str, only_file: bool = True, sort: bool = True) -> list[str]:
        """Recursively list the paths in a directory.

        Args:
            only_file: omit directories.
            sort: oldest first, by modification time in minutes.
        """
        found = [e for e in self._listing("-ls", "-R", hdfs_path) if not (only_file and e.is_dir)]
        return [entry.path for entry in (sorted(found, key=lambda e: e.time) if sort else found)]

    def upload(self, hdfs_path: str, local_path: str, overwrite: bool = False, retry_times: int = 5) -> bool:
        """Copy a local file to the directory ``hdfs_path``, created if missing.

        Returns:
            False for a local directory, for a file that already exists (unless ``overwrite``), and on failure.

        Raises:
            ValueError: ``local_path`` does not exist.
        """
        if not os.path.exists(local_path):
            raise ValueError(f"upload: expected a local file, and there is no {local_path!r}. Pass one that exists.")
        if os.path.isdir(local_path):
            _logger.error("upload takes a file, and %s is a folder; use multi_upload", local_path)
            return False
        target = posixpath.join(remote_path(hdfs_path), os.path.basename(local_path))
        if not self.is_exist(hdfs_path):
            self.makedirs(hdfs_path)
        elif self.is_exist(target):
            if not overwrite:
                _logger.error("%s is there already, and overwrite is False", target)
                return False
            self.delete(target)
        return self._did("-put", os.path.abspath(local_path), hdfs_path, retry_times=retry_times)

    def download(self, hdfs_path: str, local_path: str, overwrite: bool = False, unzip: bool = False) -> bool:
        """Copy a file or directory to the local directory ``local_path``, created if missing.

        Args:
            overwrite: replace an existing copy of the same name.
            unzip: unpack a zip file next to it.

        Returns:
            False if it is not on HDFS, if it already exists locally (unless ``overwrite``), and on failure.

        Raises:
            ValueError: ``hdfs_path`` does not end in a name, or ``overwrite`` would remove a different directory.
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


def _client(client: HDFSClient, what: str) -> HDFSClient:
    if not isinstance(client, HDFSClient):
        raise TypeError(f"{what} takes an HDFSClient first, received {type(client)}. Make one with HDFSClient(...).")
    return client


def _inside(file: str, folder: str) -> str:
    """The path of a listed file relative to its directory."""
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
    """Download one trainer's share of the files in a directory: every ``trainers``-th one, oldest first.

    Args:
        client: an HDFSClient.
        hdfs_path: the directory; its structure is preserved.
        local_path: the destination.
        trainer_id: index of this trainer among ``trainers``.
        multi_processes: number of commands to run concurrently.

    Returns:
        Local paths of the share.

    Raises:
        RuntimeError: a file was not downloaded, or already exists locally.
        ValueError: ``trainer_id`` is out of range, or the listing names a file outside the directory.
    """
    if not 0 <= trainer_id < trainers:
        raise ValueError(
            f"multi_download: expected trainer_id from 0 to {trainers - 1}, received {trainer_id}. Pass it."
        )
    share = _client(client, "multi_download").lsr(hdfs_path, sort=True)[trainer_id::trainers]
    places = {file: os.path.join(local_path, _inside(file, hdfs_path)) for file in share}
    client.make_local_dirs(local_path)
    in_parallel(
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
    """Upload all files of a local directory, preserving its structure.

    Args:
        client: an HDFSClient.
        hdfs_path: the destination.
        local_path: the directory.
        multi_processes: number of commands to run concurrently.
        overwrite: replace existing files.
        sync: has no effect, as in Fluid; the function waits for the uploads.

    Raises:
        RuntimeError: a file was not uploaded, or already exists.
    """
    _client(client, "multi_upload")
    files = [os.path.join(folder, name) for folder, _, names in sorted(os.walk(local_path)) for name in sorted(names)]

    def copy(file: str) -> bool:
        inside = os.path.relpath(os.path.dirname(file), local_path)
        target = posixpath.normpath(posixpath.join(remote_path(hdfs_path), *inside.split(os.sep)))
        return client.upload(target, file, overwrite, retry_times=5)

    in_parallel(copy, files, multi_processes, "multi_upload")
