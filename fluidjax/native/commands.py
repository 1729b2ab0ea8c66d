"""What ``fluid.core`` runs in a shell, and how it compares versions."""

from __future__ import annotations

import re
import subprocess
import time


def run_cmd(cmd: str, time_out: int = -1, sleep_inter: int = -1) -> str:
    """The output of a shell command.

    Args:
        cmd: the command.
        time_out: milliseconds after which a command that fails is not tried again; -1: it is tried once.
        sleep_inter: milliseconds between two tries.
    """
    end = time.monotonic() + time_out / 1000
    while True:
        done = subprocess.run(cmd, shell=True, stdout=subprocess.PIPE, text=True, check=False)
        if not done.returncode or time.monotonic() >= end or time_out < 0:
            return done.stdout
        time.sleep(max(sleep_inter, 0) / 1000)


def run_shell_command(cmd: str) -> str | None:
    """What a shell command says, without spaces around it; None where it says something on its error output."""
    done = subprocess.run(cmd, shell=True, capture_output=True, text=True, check=False)
    return None if done.stderr else done.stdout.strip()


def less_than_ver(a: str, b: str) -> bool:
    """Whether a version is older than another; ``1.0`` and ``1`` are the same one."""
    return _numbers(a) < _numbers(b)


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.sub(r"(\.0+)+$", "", version).split(".")]
