"""File systems that checkpoints of a fleet go to."""

from __future__ import annotations

import abc
import os
import shutil

__all__ = ["FS", "LocalFS"]


class FS(abc.ABC):
    """A file system."""

    @abc.abstractmethod
    def list_dirs(self, fs_path: str) -> list[str]:
        """The names of the folders in a folder; none where it is missing."""

    @abc.abstractmethod
    def ls_dir(self, fs_path: str) -> list[str]:
        """The names of all that is in a folder."""

    @abc.abstractmethod
    def stat(self, fs_path: str) -> bool:
        """Whether a path is there."""

    @abc.abstractmethod
    def mkdir(self, fs_path: str) -> None:
        """Make a folder, with those around it, unless it is there."""

    @abc.abstractmethod
    def mv(self, fs_src_path: str, fs_dst_path: str) -> None:
        """Give a path another name."""

    @abc.abstractmethod
    def delete(self, fs_path: str) -> None:
        """Remove a file, or a folder with all that is in it, if it is there."""

    @abc.abstractmethod
    def need_upload_download(self) -> bool:
        """Whether files have to be copied there and back."""


class LocalFS(FS):
    """This machine's files."""

    def list_dirs(self, fs_path: str) -> list[str]:
        """The names of the folders in a folder; none where it is missing."""
        return [name for name in self.ls_dir(fs_path) if os.path.isdir(os.path.join(fs_path, name))]

    def ls_dir(self, fs_path: str) -> list[str]:
        """The names of all that is in a folder; none where it is missing."""
        return sorted(os.listdir(fs_path)) if self.stat(fs_path) else []

    def stat(self, fs_path: str) -> bool:
        """Whether a path is there."""
        return os.path.exists(fs_path)

    def mkdir(self, fs_path: str) -> None:
        """Make a folder, with those around it, unless it is there."""
        os.makedirs(fs_path, exist_ok=True)

    def mv(self, fs_src_path: str, fs_dst_path: str) -> None:
        """Give a path another name."""
        os.rename(fs_src_path, fs_dst_path)

    def rmr(self, fs_path: str) -> None:
        """Remove a folder with all that is in it."""
        shutil.rmtree(fs_path)

    def rm(self, fs_path: str) -> None:
        """Remove a file."""
        os.remove(fs_path)

    def delete(self, fs_path: str) -> None:
        """Remove a file, or a folder with all that is in it, if it is there."""
        if self.stat(fs_path):
            self.rm(fs_path) if os.path.isfile(fs_path) else self.rmr(fs_path)

    def need_upload_download(self) -> bool:
        """They have not."""
        return False
