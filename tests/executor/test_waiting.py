"""What a terminal shows while a program is compiled."""

from __future__ import annotations

import io
import re
import time

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.execution.executables import waiting
from fluidjax.execution.steps.compiled import CompiledOps


class Terminal(io.StringIO):
    """Standard error of a person at a screen, or of a log."""

    def __init__(self, *, screen: bool):
        super().__init__()
        self._screen = screen

    def isatty(self) -> bool:
        return self._screen


@pytest.mark.parametrize(("screen", "slow"), [(True, True), (True, False), (False, True)])
def test_a_long_compilation_is_announced_on_a_screen(screen: bool, slow: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    error, compiled = Terminal(screen=screen), CompiledOps._compiled

    def take_long(self: CompiledOps, *arguments: object) -> object:
        begun = time.monotonic()
        while slow and screen and not error.getvalue() and time.monotonic() < begun + 240:
            time.sleep(0.001)
        return compiled(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(CompiledOps, "_compiled", take_long)
    monkeypatch.setattr(waiting, "_PATIENCE", 0.0 if slow else 60.0)
    monkeypatch.setattr("sys.stderr", error)
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        x = fluid.data("x", [None, 3])
        y = fluid.layers.scale(x, 2.0)
        executor = fluid.Executor(fluid.CPUPlace())
        for _ in range(2):
            executor.run(feed={"x": np.ones((2, 3), "float32")}, fetch_list=[y])
    said = error.getvalue()
    if screen and slow:
        assert said.startswith("Compiling program (1 ops) ... ") and said.endswith(" s\n") and said.count("\n") == 1
    else:
        assert said == ""


def until_said(terminal: Terminal, text: str) -> None:
    """Wait for the thread that says it."""
    deadline = time.monotonic() + 120
    while text not in terminal.getvalue() and time.monotonic() < deadline:
        time.sleep(0.001)


def test_what_goes_on_inside_of_what_is_said_is_not_said_too(monkeypatch):
    monkeypatch.setattr(waiting, "_PATIENCE", 0.0)
    terminal = Terminal(screen=True)
    monkeypatch.setattr("sys.stderr", terminal)
    with waiting.waiting("Converting"):
        with waiting.compiling(3):
            until_said(terminal, "Converting ...")
    with waiting.compiling(3):
        until_said(terminal, "Compiling program (3 ops) ...")
    assert re.fullmatch(
        r"Converting \.\.\. \d\.\d s\nCompiling program \(3 ops\) \.\.\. \d\.\d s\n", terminal.getvalue()
    )
