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
    """Copies single files and folders to and from a file system; see ``HadoopFiles`` for arguments and errors."""

    def lsr(self, hdfs_path: str, only_file: bool = True, sort: bool = True) -> list[str]:
        """Paths of what a folder and those inside it hold.

        Args:
            only_file: leave folders out.
            sort: oldest first, by the minute of the last change.
        """
        found = [e for e in self._listing("-ls", "-R", hdfs_path) if not (only_file and e.is_dir)]
        return [entry.path for entry in (sorted(found, key=lambda e: e.time) if sort else found)]

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


def _client(client: HDFSClient, what: str) -> HDFSClient:
    if not isinstance(client, HDFSClient):
        raise TypeError(f"{what} takes an HDFSClient first, received {type(client)}. Make one with HDFSClient(...).")
    return client


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
        target = posixpath.normpath(posixpath.join(remote_path(hdfs_path), *inside.split(os.sep)))
        return client.upload(target, file, overwrite, retry_times=5)

    in_parallel(copy, files, multi_processes, "multi_upload")
