"""Every public writer of files, and how what it wrote is read; run as a program, it kills each at each call.

    python -m tests.crash.writers FOLDER

The process imports and builds once and forks for each kill, before XLA runs. FOLDER/<writer>/<step> is what is left.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

import fluidjax as fluid
from fluidjax.files import host_ops
from tests.files.conftest import VALUES, build

CALLS = ("mkdir", "rename", "replace", "fsync", "rmdir", "unlink")
PROGRAM, EXE, PLACE = build(), fluid.Executor(), fluid.CPUPlace()


class Writer(NamedTuple):
    write: Callable[[str], object]
    read: Callable[[str], object]  # what it wrote, or puts it into the global scope


def _combined(folder: str) -> list[np.ndarray]:
    return host_ops.load(f"{folder}/all", [False] * 4, False, -1, ())


def _save(folder: str, names: list[str], file: str) -> None:
    values = [np.array(fluid.global_scope().find_var(name).get_tensor()) for name in names]
    host_ops.save(values, f"{folder}/{file}", True, False)


WRITERS = {
    "save_vars": Writer(
        lambda d: fluid.io.save_vars(EXE, d, PROGRAM, vars=["w", "b"]),
        lambda d: fluid.io.load_vars(EXE, d, PROGRAM, vars=["w", "b"]),
    ),
    "save_params": Writer(
        lambda d: fluid.io.save_params(EXE, d, PROGRAM), lambda d: fluid.io.load_params(EXE, d, PROGRAM)
    ),
    "save_persistables": Writer(
        lambda d: fluid.io.save_persistables(EXE, d, PROGRAM), lambda d: fluid.io.load_persistables(EXE, d, PROGRAM)
    ),
    "combined": Writer(
        lambda d: fluid.io.save_persistables(EXE, d, PROGRAM, "all"),
        lambda d: fluid.io.load_persistables(EXE, d, PROGRAM, "all"),
    ),
    "save_inference_model": Writer(
        lambda d: fluid.io.save_inference_model(d, ["x"], [PROGRAM.global_block().var("out")], EXE, PROGRAM),
        lambda d: fluid.io.load_inference_model(d, EXE) and None,
    ),
    "save": Writer(lambda d: fluid.save(PROGRAM, f"{d}/m"), lambda d: fluid.io.load_program_state(f"{d}/m")),
    "the op save": Writer(lambda d: _save(d, ["w"], "w"), lambda d: host_ops.load(f"{d}/w", [False], False, -1, ())),
    "the op save_combine": Writer(lambda d: _save(d, list(VALUES), "all"), _combined),
}


def set_all(version: int) -> None:
    """All values of the scope are ``version``."""
    for name, value in VALUES.items():
        fluid.global_scope().var(name).get_tensor().set(np.full_like(value, version), PLACE)


def killed_at(step: int, write: Callable[[str], object], folder: str) -> bool:
    """Write the new version in a fork that dies at a call that changes the disk; whether it got to the end."""
    child = os.fork()
    if not child:
        _deadly(step)
        try:
            set_all(2)
            write(folder)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return False
    assert status == 0, f"{folder}: status {status}"
    return True


def _deadly(left: int) -> None:
    def wrap(function: Callable) -> Callable:
        def called(*args: object, **kwargs: object) -> object:
            nonlocal left
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1
            return function(*args, **kwargs)

        return called

    for name in CALLS:
        setattr(os, name, wrap(getattr(os, name)))


def main(root: Path) -> None:
    """Kill every writer at every call; print how many steps each has."""
    steps = {}
    for name, writer in WRITERS.items():
        for step in range(200):
            folder = root / name / str(step)
            folder.mkdir(parents=True)
            set_all(1)
            writer.write(str(folder))
            if killed_at(step, writer.write, str(folder)):
                break
        steps[name] = step
    print(json.dumps(steps))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
