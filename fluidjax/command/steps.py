"""The first training step of a script: commands run the script up to it, inspect it, and stop the script.

A training step is a run of a program with a backward pass, or ``backward()`` of an eager loss. A command may also
follow the eager steps of a script, and stop it later.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, NoReturn, TypeVar

from fluidjax.base.enums import OpRole
from fluidjax.base.scope import Scope, global_scope
from fluidjax.command import run
from fluidjax.command.terms import BadUse
from fluidjax.compiler import CompiledProgram
from fluidjax.eager.variables.varbase import VarBase
from fluidjax.execution.devices.shares import one_feed
from fluidjax.execution.feeding.fetch_list import fetch_names
from fluidjax.executor import Executor
from fluidjax.framework import Program, default_main_program
from fluidjax.framework.names import OP_ROLE
from fluidjax.readers.generator import next_feed

T = TypeVar("T")


@dataclass(frozen=True)
class Step:
    """A run of a program requested by a script.

    Attributes:
        executor: the executor called.
        given: the arguments of ``Executor.run``, by name.
        program: the program, without the CompiledProgram around it.
        scope: the scope that holds its state.
    """

    executor: Executor
    given: dict[str, Any]
    program: Program
    scope: Scope

    @cached_property
    def loss(self) -> str | None:
        """The loss of a program with a backward pass; None for others."""
        roles = [(op, int(op.attr(OP_ROLE)) if op.has_attr(OP_ROLE) else 0) for op in self.program.global_block().ops]
        if not any(role & OpRole.Backward for _, role in roles):
            return None
        losses = [op for op, role in roles if role & OpRole.Loss and not role & OpRole.Backward]
        return losses[-1].output_arg_names[0] if losses else None

    @property
    def fetches(self) -> tuple[str, ...]:
        """The names of the variables fetched by the script."""
        return fetch_names(self.given.get("fetch_list"))

    @cached_property
    def feed(self) -> dict[str, Any]:
        """The feed of one device, from the script and from the program's readers, which advance by one batch."""
        feed = self.given.get("feed")
        share = feed[0] if isinstance(feed, (list, tuple)) and feed else feed
        return next_feed(self.program, one_feed(share))


class _Done(BaseException):
    """Stops a script whose step has been reached."""


class _Watch(Generic[T]):
    """Intercepts program runs and backward passes up to the first training step; afterwards, each stops the script.

    If ``follow`` is given, a script with eager steps goes on for as long as it returns True.
    """

    def __init__(
        self, of_program: Callable[[Step], T], of_loss: Callable[[VarBase], T], follow: Callable[[], bool] | None
    ):
        self.found: list[T] = []
        self.error: Exception | None = None  # of what was to be found; the script must not handle it
        self.other: Step | None = None  # the first run that fetches something, of a program that does not train
        self._of_program, self._of_loss, self._follow = of_program, of_loss, follow
        self._follows = False  # the first training step was eager, and others are followed

    def run(self, *arguments: Any, **named: Any) -> list[Any]:
        """Replaces ``Executor.run``."""
        executor_run, _ = _USUAL
        step = _asked(inspect.signature(executor_run).bind(*arguments, **named).arguments)
        if step is not None and not self._follows and (self.reached or step.loss is not None):
            self._end(self._of_program, step)
        if step is not None and self.other is None and step.fetches:
            self.other = step
        return executor_run(*arguments, **named)

    def backward(self, loss: VarBase, *arguments: Any, **named: Any) -> None:
        """Replaces ``VarBase.backward``."""
        if self._follow is None:
            self._end(self._of_loss, loss)
        self._follows = True
        self._look(self._of_loss, loss)
        if self.error is not None or not self._follow():
            raise _Done
        _, backward = _USUAL
        backward(loss, *arguments, **named)

    @property
    def reached(self) -> bool:
        """Whether there was a training step."""
        return bool(self.found or self.error)

    def _end(self, work: Callable[[Any], T], at: Any) -> NoReturn:
        self._look(work, at)
        raise _Done

    def _look(self, work: Callable[[Any], T], at: Any) -> None:
        if self.reached:
            return
        try:
            with _instead(*_USUAL):  # the work runs programs of its own
                self.found.append(work(at))
        except Exception as error:  # noqa: BLE001 - raised again after the script's end
            self.error = error


_USUAL = Executor.run, VarBase.backward


@contextlib.contextmanager
def _instead(executor_run: Any, backward: Any) -> Iterator[None]:
    """Context manager: replace ``Executor.run`` and ``VarBase.backward`` by these functions."""
    before = Executor.run, VarBase.backward
    Executor.run, VarBase.backward = executor_run, backward  # type: ignore[method-assign]
    try:
        yield
    finally:
        Executor.run, VarBase.backward = before  # type: ignore[method-assign]


def _asked(given: dict[str, Any]) -> Step | None:
    """The run with these arguments; None unless it runs a program."""
    executor, program = given.pop("self"), given.get("program")
    inner = program._program if isinstance(program, CompiledProgram) else program or default_main_program()
    return Step(executor, given, inner, given.get("scope") or global_scope()) if isinstance(inner, Program) else None


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments that specify a model or script."""
    parser.add_argument("model", metavar="MODEL|SCRIPT", help="a model directory, a program file, or a Python script")
    parser.add_argument(
        "arguments", nargs="*", default=[], metavar="ARGUMENTS", help="the script's arguments; put -- before options"
    )


def is_script(path: str) -> bool:
    """Whether a command's argument is a script."""
    return path.endswith(".py")


def first_step(
    path: str,
    arguments: list[str],
    of_program: Callable[[Step], T],
    of_loss: Callable[[VarBase], T],
    *,
    trains: bool = True,
    follow: Callable[[], bool] | None = None,
) -> T:
    """Run a script up to its first training step; returns the result of one of the functions for it.

    Args:
        path, arguments: of the script.
        of_program: called for a program, within the script and its scopes and guards.
        of_loss: called for an eager loss, likewise.
        trains: require a training step; otherwise, after the script's end, use the first run that fetches something.
        follow: called before each backward pass of an eager loss; while it returns True, the script goes on.

    Raises:
        BadUse: there is no such step.
    """
    watch = _Watch(of_program, of_loss, follow)
    with _instead(
        lambda *given, **named: watch.run(*given, **named), lambda *given, **named: watch.backward(*given, **named)
    ):
        failed = _fails(path, arguments)
    if watch.error is not None:
        raise watch.error
    if watch.found:
        return watch.found[0]
    if not trains and watch.other is not None:
        return of_program(watch.other)
    trained = "a script that runs a program with a backward pass, or calls backward()"
    raise BadUse(
        f"no training step of {path!r} was reached",
        trained if trains else f"{trained}, or fetches something of a program",
        "one that ended with an error" if failed else "one that ended without a training step",
        "mend it" if failed else "name the script that trains, with the arguments that make it train",
    )


def _fails(path: str, arguments: list[str]) -> bool:
    """Run a script; returns whether it ends with an error."""
    try:
        return run.run(path, arguments) != 0
    except _Done:
        return False
    except SystemExit as end:
        return end.code not in (None, 0)
