"""Files on HDFS that list the models saved on successive days: formatting and writing their lines."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fluidjax.incubate.fleet.utils.hdfs import HDFSClient
from fluidjax.incubate.fleet.utils.workers import Workers


class Donefiles(Workers):
    """Records saved models in files next to them on HDFS, written by worker 0."""

    def write_model_donefile(
        self,
        output_path: str,
        day: Any,
        pass_id: Any,
        xbox_base_key: Any,
        hadoop_fs_name: str,
        hadoop_fs_ugi: str,
        hadoop_home: str = "$HADOOP_HOME",
        donefile_name: str = "donefile.txt",
    ) -> None:
        """Record a saved model in a file of its directory, once: day, key, path, pass and 0, separated by tabs.

        Args:
            output_path: the directory on HDFS.
            day: of the model, yyyymmdd.
            pass_id: of the model; -1 for that of the whole day.
            xbox_base_key: a number.
            hadoop_fs_name: the file system.
            hadoop_fs_ugi: user and password.
            hadoop_home: installation directory of the client.
            donefile_name: name of the file.
        """
        if self._fleet.worker_index() == 0:
            client = _client_of(hadoop_fs_name, hadoop_fs_ugi, hadoop_home)
            lines = _read_lines(client, f"{output_path}/{donefile_name}")
            path = f"{output_path.rstrip('/')}/{day}/{0 if str(pass_id) == '-1' else pass_id}/"
            known = {(int(line.split("\t")[0]), int(line.split("\t")[3])) for line in lines}
            line = f"{day}\t{int(xbox_base_key)}\t{path}\t{pass_id}\t0"
            self._note(client, output_path, donefile_name, lines, line, (int(day), int(pass_id)) in known)
        self._wait()

    def write_xbox_donefile(
        self,
        output_path: str,
        day: Any,
        pass_id: Any,
        xbox_base_key: Any,
        data_path: str | list[str],
        hadoop_fs_name: str,
        hadoop_fs_ugi: str,
        monitor_data: dict[str, Any] = {},  # noqa: B006 - Fluid's default
        hadoop_home: str = "$HADOOP_HOME",
        donefile_name: str | None = None,
    ) -> None:
        """Record a model for serving in a file of its directory, one JSON object per line, unless a later one is there.

        Args:
            pass_id: of the model, in xbox_patch_done.txt; -1 for the base of a day, in xbox_base_done.txt.
            data_path: the data it was trained on.
            monitor_data: has no effect, as in Fluid.
            donefile_name: a different file name.
        """
        if self._fleet.worker_index() == 0:
            base = str(pass_id) == "-1"
            name = donefile_name or ("xbox_base_done.txt" if base else "xbox_patch_done.txt")
            client = _client_of(hadoop_fs_name, hadoop_fs_ugi, hadoop_home)
            lines = _read_lines(client, f"{output_path}/{name}")
            line = _xbox_line(
                output_path,
                base=base,
                day=str(day),
                model_path=f"{output_path.rstrip('/')}/{day}/{'base' if base else f'delta-{pass_id}'}/",
                key=int(xbox_base_key),
                data_path=",".join(data_path) if isinstance(data_path, list) else data_path,
                fs_name=hadoop_fs_name,
                workers=self._fleet.worker_num(),
            )
            known = bool(lines) and (int(day), int(pass_id)) <= _day_and_pass(lines[-1])
            self._note(client, output_path, name, lines, line, known)
        self._wait()

    def _note(self, client: Any, folder: str, name: str, lines: list[str], line: str, known: bool) -> None:
        if known:
            self.rank0_error(f"not write {name} because what it says already exists: {line}")
            return
        _write(client, folder, name, "".join(f"{one}\n" for one in [*lines, line]))
        self.rank0_error(f"write {name} succeed: {line}")

    def write_cache_donefile(
        self,
        output_path: str,
        day: Any,
        pass_id: Any,
        key_num: Any,
        hadoop_fs_name: str,
        hadoop_fs_ugi: str,
        hadoop_home: str = "$HADOOP_HOME",
        donefile_name: str = "sparse_cache.meta",
        **kwargs: Any,
    ) -> None:
        """Record, next to the cache of a model, its numbers of keys and files, unless already recorded.

        Args:
            key_num: number of keys.
            kwargs: ``file_num``, 16, and ``table_id``, 0.
        """
        if self._fleet.worker_index() == 0:
            of_pass = "base" if str(pass_id) == "-1" else f"delta-{pass_id}"
            folder = f"{output_path.rstrip('/')}/{day}/{of_pass}/{kwargs.get('table_id', 0):03d}_cache"
            client = _client_of(hadoop_fs_name, hadoop_fs_ugi, hadoop_home)
            if client.is_file(f"{folder}/{donefile_name}"):
                self.rank0_error(f"not write because {folder}/{donefile_name} already exists")
            else:
                text = f"file_prefix:part\npart_num:{kwargs.get('file_num', 16)}\nkey_num:{int(key_num)}\n"
                _write(client, folder, donefile_name, text)
        self._wait()

    def get_last_save_xbox_base(
        self, output_path: str, hadoop_fs_name: str, hadoop_fs_ugi: str, hadoop_home: str = "$HADOOP_HOME"
    ) -> list[Any]:
        """Day, path and key of the latest base model for serving; -1, -1 and the time if there is none."""
        client = _client_of(hadoop_fs_name, hadoop_fs_ugi, hadoop_home)
        lines = _read_lines(client, f"{output_path}/xbox_base_done.txt")
        if not lines:
            return [-1, -1, int(time.time())]
        day, _, path, key = _saved_at(lines[-1])
        return [day, path, key]

    def get_last_save_xbox(
        self, output_path: str, hadoop_fs_name: str, hadoop_fs_ugi: str, hadoop_home: str = "$HADOOP_HOME"
    ) -> list[Any]:
        """Day, pass, path and key of the latest model for serving; -1, -1, "" and the time if there is none."""
        client = _client_of(hadoop_fs_name, hadoop_fs_ugi, hadoop_home)
        lines = _read_lines(client, f"{output_path}/xbox_patch_done.txt")
        if not lines:
            return [-1, -1, "", int(time.time())]
        _, _, path, key = _saved_at(lines[-1])
        return [*_day_and_pass(lines[-1]), path, key]

    def get_last_save_model(
        self, output_path: str, hadoop_fs_name: str, hadoop_fs_ugi: str, hadoop_home: str = "$HADOOP_HOME"
    ) -> list[Any]:
        """Day, pass, path and key of the latest saved model; -1, -1, "" and the time if there is none."""
        client = _client_of(hadoop_fs_name, hadoop_fs_ugi, hadoop_home)
        lines = _read_lines(client, f"{output_path}/donefile.txt")
        if not lines:
            return [-1, -1, "", int(time.time())]
        day, key, path, of_pass, _ = lines[-1].split("\t")
        return [int(day), int(of_pass), path, int(key)]


def _day_and_pass(line: str) -> tuple[int, int]:
    """Day and pass of a line of an xbox file; a base has pass -1, so it is never later than another of its day."""
    day, of_pass, _, _ = _saved_at(line)
    return day, -1 if of_pass == "base" else int(of_pass.rpartition("-")[2])


def _xbox_line(
    folder: str, *, base: bool, day: str, model_path: str, key: int, data_path: str, fs_name: str, workers: int
) -> str:
    """A line of xbox_patch_done.txt, or of xbox_base_done.txt: a JSON object."""
    bare = model_path.split(":", 1)[1] if model_path.startswith(("hdfs:", "afs:")) else model_path
    facts = {
        "id": str(key if base else int(time.time())),
        "key": str(key),
        "input": f"{fs_name}{bare.rstrip('/')}/000",
        "record_count": "111111",
        "partition_type": "2",
        "job_name": "default_job_name",
        "ins_tag": "feasign",
        "ins_path": data_path,
        "job_id": _job(os.environ),
        "monitor_data": "",
        "monitor_path": f"{folder.rstrip('/')}/monitor/{day}.txt",
        "mpi_size": str(workers),
    }
    return json.dumps(facts)


def _job(environment: Mapping[str, str]) -> str:
    """The name of the job, with its host if the instance name contains both."""
    job, instance = environment.get("JOB_ID", "").strip(), environment.get("INSTANCE_ID", "").strip()
    start, end = instance.find(job), instance.find("--")
    return instance[start:end] if start != -1 and end != -1 else job


def _saved_at(line: str) -> tuple[int, str, str, int]:
    """Day, name of the pass's directory, path and key of a line written by ``xbox_line``."""
    facts = json.loads(line)
    path, _, _ = facts["input"].rpartition("/")
    day, of_pass = path.split("/")[-2:]
    return int(day), of_pass, path, int(facts["key"])


def _read_lines(client: HDFSClient, path: str) -> list[str]:
    """The lines of a file; empty if it does not exist."""
    return [line for line in client.cat(path).split("\n") if line]


def _write(client: HDFSClient, folder: str, name: str, text: str) -> None:
    """Write a file to a directory on HDFS, replacing an existing one."""
    with tempfile.TemporaryDirectory() as local:
        Path(local, name).write_text(text)
        client.delete(f"{folder}/{name}")
        client.upload(folder, os.path.join(local, name), multi_processes=1)


def _client_of(fs_name: str, fs_ugi: str, hadoop_home: Any) -> HDFSClient:
    """A client of a file system, for a user and password."""
    return HDFSClient(hadoop_home, {"fs.default.name": fs_name, "hadoop.job.ugi": fs_ugi})
