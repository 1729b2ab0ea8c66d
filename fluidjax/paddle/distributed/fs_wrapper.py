"""File systems for fleet checkpoints."""

from __future__ import annotations

import abc
import os
import shutil

__all__ = ["FS", "LocalFS"]


class FS(abc.ABC):
    """A file system."""

    @abc.abstractmethod
    def list_dirs(self, fs_path: str) -> list[str]:
        """The names of the subdirectories of a directory; empty if it does not exist."""

    @abc.abstractmethod
    def ls_dir(self, fs_path: str) -> list[str]:
        """The names of all entries of a directory."""

    @abc.abstractmethod
    def stat(self, fs_path: str) -> bool:
        """Whether a path exists."""

    @abc.abstractmethod
    def mkdir(self, fs_path: str) -> None:
        """Create a directory and its parents, unless it exists."""

    @abc.abstractmethod
    def mv(self, fs_src_path: str, fs_dst_path: str) -> None:
        """Rename a path."""

    @abc.abstractmethod
    def delete(self, fs_path: str) -> None:
        """Remove a file, or a directory with its contents, if it exists."""

    @abc.abstractmethod
    def need_upload_download(self) -> bool:
        """Whether files must be copied to and from this machine."""


class LocalFS(FS):
    """The local file system."""

    def list_dirs(self, fs_path: str) -> list[str]:
        """The names of the subdirectories of a directory; empty if it does not exist."""
        return [name for name in self.ls_dir(fs_path) if os.path.isdir(os.path.join(fs_path, name))]

    def ls_dir(self, fs_path: str) -> list[str]:
        """The names of all entries of a directory; empty if it does not exist."""
        return sorted(os.listdir(fs_path)) if self.stat(fs_path) else []

    def stat(self, fs_path: str) -> bool:
        """Whether a path exists."""
        return os.path.exists(fs_path)

    def mkdir(self, fs_path: str) -> None:
        """Create a directory and its parents, unless it exists."""
        os.makedirs(fs_path, exist_ok=True)

    def mv(self, fs_src_path: str, fs_dst_path: str) -> None:
        """Rename a path."""
        os.rename(fs_src_path, fs_dst_path)

    def rmr(self, fs_path: str) -> None:
        """Remove a directory with its contents."""
        shutil.rmtree(fs_path)

    def rm(self, fs_path: str) -> None:
        """Remove a file."""
        os.remove(fs_path)

    def delete(self, fs_path: str) -> None:
        """Remove a file, or a directory with its contents, if it exists."""
        if self.stat(fs_path):
            self.rm(fs_path) if os.path.isfile(fs_path) else self.rmr(fs_path)

    def need_upload_download(self) -> bool:
        """Always False."""
        return False
