"""Checkpoints as Fluid 0.13 to 1.0 kept them: a numbered folder each, of which the newest stay.

``checkpoint_7/__model__`` holds the variables, ``checkpoint_7/trainer_0`` what a trainer notes; a file ``_SUCCESS`` in
a folder says that it is whole. ``fluidjax.recovery`` keeps more, and is the way to write new scripts.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from typing import Any

from fluidjax import io
from fluidjax.base.enums import VarType
from fluidjax.base.errors import explain
from fluidjax.framework import Program, Variable, default_main_program

_SUCCESS, _MODEL = "_SUCCESS", "__model__"
_FOLDER = re.compile(r"checkpoint_(\d+)")
_NO_VALUE = (VarType.FEED_MINIBATCH, VarType.FETCH_LIST, VarType.RAW)


def save_checkpoint(
    executor: Any,
    checkpoint_dir: str,
    trainer_id: int = 0,
    trainer_args: dict[str, Any] | Program | None = None,
    main_program: Program | dict[str, Any] | None = None,
    max_num_checkpoints: int = 3,
) -> None:
    """Save what persists of a program, but gradients and servers' parts, as the next checkpoint; delete old ones.

    Args:
        executor: runs the saving.
        checkpoint_dir: the folder of all checkpoints; it is made.
        trainer_id: the variables are saved by trainer 0, the notes by each.
        trainer_args: notes, text by name, as ``{"epoch_id": 3, "step_id": 20}``.
        main_program: None for the default one. (Fluid 0.15 had it before ``trainer_args``; that works too.)
        max_num_checkpoints: how many stay.

    Raises ValueError without a folder.
    """
    _require(checkpoint_dir)
    program, notes = _apart(trainer_args, main_program)
    folder = _folder(checkpoint_dir, get_latest_checkpoint_serial(checkpoint_dir) + 1)
    _write_notes(os.path.join(folder, f"trainer_{trainer_id}"), notes)
    if trainer_id == 0:
        save_persist_vars_without_grad(executor, folder, program)
    _delete_all_but(checkpoint_dir, max_num_checkpoints)


def load_checkpoint(
    executor: Any,
    checkpoint_dir: str,
    serial: int | Program | None = None,
    main_program: Program | None = None,
    role_id: int = 0,
    is_trainer: bool = True,
    load_trainer_args: list[str] | None = None,
) -> list[str] | None:
    """Load the variables of a checkpoint, or with ``load_trainer_args`` give a trainer's notes of these names instead.

    Args:
        executor, checkpoint_dir: as for ``save_checkpoint``.
        serial: which checkpoint; None for the newest that is whole. (Fluid 0.15 had ``main_program`` here.)
        main_program: the program whose variables are loaded; None for the default one.
        role_id: whose notes; is_trainer: kept for Fluid's sake.

    Returns None if there is no checkpoint. Raises ValueError without a folder or for a serial below 0.
    """
    _require(checkpoint_dir)
    program, number = (serial, None) if isinstance(serial, Program) else (main_program, serial)
    number = get_latest_checkpoint_serial(checkpoint_dir) if number is None else number
    if serial is not None and number < 0 and not isinstance(serial, Program):
        raise ValueError(
            explain(
                "load_checkpoint: there is no such serial", "0 or more", repr(serial), "leave it out for the newest"
            )
        )
    if number < 0:
        return None
    if load_trainer_args:
        return load_trainer_args_of(checkpoint_dir, number, role_id, load_trainer_args)
    load_persist_vars_without_grad(executor, _folder(checkpoint_dir, number), program, has_model_dir=True)
    return None


def clean_checkpoint(checkpoint_dir: str, delete_dir: bool = False) -> None:
    """Delete all checkpoints of a folder; with ``delete_dir`` the folder too, where nothing else is in it."""
    _require(checkpoint_dir)
    _delete_all_but(checkpoint_dir, 0)
    if delete_dir and not os.listdir(checkpoint_dir):
        os.rmdir(checkpoint_dir)


def get_latest_checkpoint_serial(checkpoint_dir: str) -> int:
    """The highest number of a whole checkpoint in a folder; -1 if there is none."""
    whole = [n for n in _serials(checkpoint_dir) if os.path.isfile(_model_file(checkpoint_dir, n, _SUCCESS))]
    return max(whole, default=-1)


def load_trainer_args_of(checkpoint_dir: str, serial: int, trainer_id: int, trainer_args: list[str]) -> list[str]:
    """A trainer's notes in a checkpoint, by name."""
    folder = os.path.join(_folder(checkpoint_dir, serial), f"trainer_{trainer_id}")
    found = []
    for name in trainer_args:
        with open(os.path.join(folder, _file_name(name)), encoding="utf-8") as file:
            found.append(file.read().strip())
    return found


def save_persist_vars_without_grad(executor: Any, dirname: str, program: Program | None = None) -> None:
    """Save what persists of a program, but gradients and servers' parts, to ``dirname/__model__``."""
    folder = os.path.join(dirname, _MODEL)
    os.makedirs(folder, exist_ok=True)
    io.save_vars(executor, folder, program or default_main_program(), predicate=_counts)
    _mark(folder)


def load_persist_vars_without_grad(
    executor: Any, dirname: str, program: Program | None = None, has_model_dir: bool = False
) -> None:
    """Load what ``save_persist_vars_without_grad`` saved, from ``dirname/__model__`` if ``has_model_dir``."""
    folder = os.path.join(dirname, _MODEL) if has_model_dir else dirname
    io.load_vars(executor, folder, program or default_main_program(), predicate=_counts)


def _counts(var: Variable) -> bool:
    apart = ("@GRAD", ".trainer_", ".block")
    return bool(var.persistable) and var.type not in _NO_VALUE and not any(part in var.name for part in apart)


def _apart(first: Any, second: Any) -> tuple[Program | None, dict[str, Any]]:
    """(program, notes) of two arguments whose order changed."""
    given = [value for value in (first, second) if value is not None]
    if any(not isinstance(value, (Program, dict)) for value in given):
        raise TypeError(
            explain(
                "save_checkpoint: trainer_args and main_program are a dict and a Program",
                "{'epoch_id': 3}, fluid.default_main_program()",
                ", ".join(type(value).__name__ for value in given),
                "pass them by name",
            )
        )
    program = next((value for value in given if isinstance(value, Program)), None)
    return program, next((value for value in given if isinstance(value, dict)), {})


def _require(folder: Any) -> None:
    if folder is None:
        raise ValueError("'checkpoint_dir' should not be None: give the folder of the checkpoints.")


def _folder(checkpoint_dir: str, serial: int) -> str:
    return os.path.join(checkpoint_dir, f"checkpoint_{serial}")


def _model_file(checkpoint_dir: str, serial: int, name: str) -> str:
    return os.path.join(_folder(checkpoint_dir, serial), _MODEL, name)


def _serials(checkpoint_dir: str) -> list[int]:
    names = os.listdir(checkpoint_dir) if checkpoint_dir and os.path.isdir(checkpoint_dir) else []
    return [int(found[1]) for name in names if (found := _FOLDER.fullmatch(name))]


def _delete_all_but(checkpoint_dir: str, newest: int) -> None:
    for serial in sorted(_serials(checkpoint_dir), reverse=True)[newest:]:
        shutil.rmtree(_folder(checkpoint_dir, serial))


def _file_name(name: str) -> str:
    if os.path.basename(name) != name or name in ("", ".", "..", _SUCCESS):
        raise ValueError(
            explain("a trainer's note has no name of a file", "a name as 'epoch_id'", repr(name), "give it another one")
        )
    return name


def _write_notes(folder: str, notes: dict[str, Any]) -> None:
    os.makedirs(folder, exist_ok=True)
    for name, value in notes.items():
        with open(os.path.join(folder, _file_name(name)), "w", encoding="utf-8") as file:
            file.write(str(value))
    _mark(folder)


def _mark(folder: str) -> None:
    with open(os.path.join(folder, _SUCCESS), "w", encoding="utf-8") as file:
        file.write(time.ctime())
