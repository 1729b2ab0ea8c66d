"""Waiting for all trainers."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from fluidjax.incubate.fleet.parameter_server.distribute_transpiler import fleet
from fluidjax.incubate.fleet.utils.hdfs import HDFSClient

_SECONDS_BETWEEN_LOOKS = 10


def check_all_trainers_ready(ready_path: str, epoch: int) -> None:
    """Create a file ready.EPOCH.TRAINER.done in a directory on HDFS and wait for those of all trainers of the fleet.

    The directory must contain nothing else: trainers are ready when the number of its files is a multiple of theirs.
    The environment variables HADOOP_HOME, FS_NAME and FS_UGI specify the file system and how to access it.

    Raises:
        KeyError: one of these is not set.
        RuntimeError: the file cannot be written.
    """
    properties = {"fs.default.name": os.environ["FS_NAME"], "hadoop.job.ugi": os.environ["FS_UGI"]}
    client = HDFSClient(os.environ["HADOOP_HOME"], properties)
    with tempfile.TemporaryDirectory() as folder:
        sign = Path(folder, f"ready.{epoch}.{fleet.worker_index()}.done")
        sign.touch()
        client.delete(f"{ready_path}/{sign.name}")
        client.upload(ready_path, str(sign), multi_processes=1, retry_times=0)
    while len(client.ls(ready_path)) % fleet.worker_num():
        time.sleep(_SECONDS_BETWEEN_LOOKS)
