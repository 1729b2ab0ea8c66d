"""Checkpoints of a collective fleet: directories with increasing numbers, in Fluid's format."""

from __future__ import annotations

import json
import os
from typing import Any

from fluidjax import io
from fluidjax.paddle.distributed.fs_wrapper import LocalFS

PREFIX, PARAMETERS, STATUS = "__paddle_fleet_checkpoint__", "_paddle_fleet_param__", "fleet_train_status"


class TrainStatus:
    """The progress of a training.

    Args:
        epoch_no: the last epoch completed; -1 for none.
    """

    def __init__(self, epoch_no: int = -1) -> None:
        self._epoch_no = epoch_no

    def next(self) -> int:
        """The next epoch."""
        return self._epoch_no + 1

    @property
    def done(self) -> int:
        """The last epoch completed."""
        return self._epoch_no

    def __eq__(self, t: object) -> bool:
        return isinstance(t, TrainStatus) and self.done == t.done

    def __ne__(self, t: object) -> bool:
        return not self == t

    def __hash__(self) -> int:
        return hash(self.done)


def numbers(path: str, fs: Any) -> list[int]:
    """The numbers of the checkpoints in a directory, increasing."""
    found = (name.rsplit(".", 1) for name in fs.list_dirs(path))
    return sorted(int(parts[1]) for parts in found if parts[0] == PREFIX and len(parts) == 2 and parts[1].isdecimal())


def folder(path: str, number: int) -> str:
    """The directory of a checkpoint."""
    return os.path.join(path, f"{PREFIX}.{number}")


def save(executor: Any, path: str, status: TrainStatus, program: Any, fs: Any, cache: str) -> str:
    """Save the next checkpoint, renamed into place once complete. Returns its directory.

    Where files have to be uploaded, they are first written under the directory ``cache`` of this machine.
    """
    fs.mkdir(path)
    number = max(numbers(path, fs), default=-1) + 1
    partial = folder(path, number) + ".tmp"
    fs.delete(partial)
    if not fs.need_upload_download():
        _write(executor, partial, status, program)
    else:
        kept = folder(cache, number) + ".saved_cache"
        _write(executor, kept, status, program)
        fs.upload(kept, partial)
    fs.mv(partial, folder(path, number))
    return folder(path, number)


def _write(executor: Any, place: str, status: TrainStatus, program: Any) -> None:
    os.makedirs(place, exist_ok=True)
    io.save_persistables(executor, place, program, filename=PARAMETERS)
    save_status(place, status)


def save_status(place: str, status: TrainStatus) -> None:
    """Write the progress of a training to a directory of this machine."""
    with open(os.path.join(place, STATUS), "w") as file:
        json.dump({"epoch_no": status.done}, file)


def load_status(place: str, name: str) -> TrainStatus:
    """The progress of the checkpoint ``name``, in a directory of this machine. Raises ValueError if it is none."""
    with open(os.path.join(place, STATUS)) as file:
        said = json.load(file)
    epoch = said.get("epoch_no") if isinstance(said, dict) else None
    if not isinstance(epoch, int) or epoch < 0:
        raise ValueError(
            f"{name}/{STATUS}: expected the number of an epoch as epoch_no, found {said!r}; remove this"
            " checkpoint to go on from the one before"
        )
    return TrainStatus(epoch)


def load(executor: Any, path: str, program: Any, fs: Any, cache: str, trainer_id: int) -> TrainStatus | None:
    """Load the latest checkpoint; None if there is none. Raises ValueError if it lacks the number of an epoch.

    Where files have to be downloaded, each trainer has a copy of its own under the directory ``cache``.
    """
    last = max(numbers(path, fs), default=None)
    if last is None:
        return None
    place = folder(path, last)
    if fs.need_upload_download():
        place = f"{folder(cache, last)}.load_cache.{trainer_id}"
        LocalFS().delete(place)
        os.makedirs(cache, exist_ok=True)
        fs.download(folder(path, last), place)
    status = load_status(place, folder(path, last))
    io.load_persistables(executor, place, program, filename=PARAMETERS)
    return status
