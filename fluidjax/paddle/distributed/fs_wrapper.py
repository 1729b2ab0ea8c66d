"""File systems for fleet checkpoints."""

from __future__ import annotations

import os
import posixpath
import shutil
import subprocess
import time
from collections.abc import Sequence

from fluidjax.base.errors import explain

__all__ = ["BDFS", "FS", "LocalFS"]


class FS:
    """A file system. Its own ones raise NotImplementedError for what they leave out."""

    def list_dirs(self, fs_path: str) -> list[str]:
        """The names of the subdirectories of a directory; empty if it does not exist."""
        raise self._left_out("list_dirs")

    def ls_dir(self, fs_path: str) -> list[str] | tuple[list[str], list[str]]:
        """The names of all entries of a directory."""
        raise self._left_out("ls_dir")

    def stat(self, fs_path: str) -> bool:
        """Whether a path exists."""
        raise self._left_out("stat")

    def upload(self, local_path: str, fs_path: str) -> None:
        """Copy a file or a directory of this machine to a path, or into it if that is a directory."""
        raise self._left_out("upload")

    def download(self, fs_path: str, local_path: str) -> None:
        """Copy a file or a directory to a path of this machine, or into it if that is a directory."""
        raise self._left_out("download")

    def mkdir(self, fs_path: str) -> None:
        """Create a directory, unless it exists."""
        raise self._left_out("mkdir")

    def mv(self, fs_src_path: str, fs_dst_path: str) -> None:
        """Rename a path."""
        raise self._left_out("mv")

    def rmr(self, fs_path: str) -> None:
        """Remove a directory with its contents."""
        raise self._left_out("rmr")

    def rm(self, fs_path: str) -> None:
        """Remove a file."""
        raise self._left_out("rm")

    def delete(self, fs_path: str) -> None:
        """Remove a file, or a directory with its contents, if it exists."""
        raise self._left_out("delete")

    def need_upload_download(self) -> bool:
        """Whether files must be copied to and from this machine."""
        raise self._left_out("need_upload_download")

    def _left_out(self, name: str) -> NotImplementedError:
        kind = type(self).__name__
        return NotImplementedError(
            explain(f"{kind} has no {name}", "a method of that name", "a class without it", f"write {kind}.{name}")
        )


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

    def upload(self, local_path: str, fs_path: str) -> None:
        """Copy a file or a directory to a path, or into it if that is a directory."""
        into = os.path.join(fs_path, os.path.basename(os.path.normpath(local_path)))
        target = into if os.path.isdir(fs_path) else fs_path
        if os.path.isdir(local_path):
            shutil.copytree(local_path, target)
        else:
            shutil.copy(local_path, target)

    def download(self, fs_path: str, local_path: str) -> None:
        """Copy a file or a directory to a path, or into it if that is a directory."""
        self.upload(fs_path, local_path)

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


class BDFS(FS):
    """A Hadoop file system, by the ``hadoop`` command of the PATH, which is started anew until it succeeds.

    Args:
        hdfs_name: its address, such as ``hdfs://host:port``.
        hdfs_ugi: its user and password, with a comma.
        time_out: milliseconds after which a command that still fails raises RuntimeError.
        sleep_inter: milliseconds between two attempts.
    """

    def __init__(self, hdfs_name: str, hdfs_ugi: str, time_out: int = 20 * 60 * 1000, sleep_inter: int = 1000) -> None:
        self._command = ["hadoop", "fs", f"-Dfs.default.name={hdfs_name}", f"-Dhadoop.job.ugi={hdfs_ugi}"]
        self._time_out, self._sleep_inter = time_out, sleep_inter

    def list_dirs(self, fs_path: str) -> list[str]:
        """The names of the subdirectories of a directory; empty if it does not exist."""
        return self.ls_dir(fs_path)[0] if self.stat(fs_path) else []

    def ls_dir(self, fs_path: str) -> tuple[list[str], list[str]]:
        """(the names of the subdirectories of a directory, those of its files)."""
        fields = [line.split(maxsplit=7) for line in self._output("-ls", fs_path).splitlines()]
        entries = [(f[0][0] == "d", posixpath.basename(f[7].rstrip("/"))) for f in fields if len(f) == 8]
        return [name for folder, name in entries if folder], [name for folder, name in entries if not folder]

    def is_dir(self, fs_path: str) -> bool:
        """Whether a directory exists."""
        return self._holds("-d", fs_path)

    def stat(self, fs_path: str) -> bool:
        """Whether a path exists."""
        return self._holds("-e", fs_path)

    def upload(self, local_path: str, fs_path: str) -> None:
        """Copy a file or a directory of this machine to a path, or into it if that is a directory."""
        self._output("-put", local_path, fs_path)

    def download(self, fs_path: str, local_path: str) -> None:
        """Copy a file or a directory to a path of this machine, or into it if that is a directory."""
        self._output("-get", fs_path, local_path)

    def mkdir(self, fs_path: str) -> None:
        """Create a directory and its parents, unless it exists."""
        if not self.stat(fs_path):
            self._output("-mkdir", "-p", fs_path)

    def mv(self, fs_src_path: str, fs_dst_path: str) -> None:
        """Rename a path."""
        self._output("-mv", fs_src_path, fs_dst_path)

    def rmr(self, fs_path: str) -> None:
        """Remove a directory with its contents, if it exists."""
        if self.stat(fs_path):
            self._output("-rm", "-r", fs_path)

    def rm(self, fs_path: str) -> None:
        """Remove a file, if it exists."""
        if self.stat(fs_path):
            self._output("-rm", fs_path)

    def delete(self, fs_path: str) -> None:
        """Remove a file, or a directory with its contents, if it exists."""
        self.rmr(fs_path) if self.is_dir(fs_path) else self.rm(fs_path)

    def need_upload_download(self) -> bool:
        """Always True."""
        return True

    def _holds(self, question: str, path: str) -> bool:
        """What ``-test`` says by its exit code: 0 or 1; others are failures of the command."""
        return self._run("-test", question, path, fine=(0, 1)).returncode == 0

    def _output(self, *arguments: str) -> str:
        return self._run(*arguments, fine=(0,)).stdout

    def _run(self, *arguments: str, fine: tuple[int, ...]) -> subprocess.CompletedProcess[str]:
        """The first attempt that ended with a fine exit code; the properties are not shown: they hold a password."""
        end = time.monotonic() + self._time_out / 1000
        while True:
            done = self._attempt(arguments, end - time.monotonic())
            if done.returncode in fine:
                return done
            if time.monotonic() + self._sleep_inter / 1000 > end:
                raise RuntimeError(
                    explain(
                        f"hadoop fs {' '.join(arguments)} failed for {self._time_out} ms",
                        f"exit code {' or '.join(map(str, fine))}",
                        f"{done.returncode}, {done.stderr.strip()}",
                        "look at the path and the address, or pass a larger time_out",
                    )
                )
            time.sleep(self._sleep_inter / 1000)

    def _attempt(self, arguments: Sequence[str], seconds: float) -> subprocess.CompletedProcess[str]:
        command = [*self._command, *arguments]
        try:
            return subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds)
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(command, 124, "", "it did not end in time")
