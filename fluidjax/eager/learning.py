"""Finds steps that can be promised (see ``promised``) among the batches that ran."""

from __future__ import annotations

from typing import Any

from fluidjax.eager.frames import frame_of
from fluidjax.eager.passes import Known
from fluidjax.eager.pending import recorder
from fluidjax.eager.points import Point
from fluidjax.eager.replay import Replay, Update
from fluidjax.eager.steps import Repeated, Step
from fluidjax.eager.together import Together
from fluidjax.eager.values import Spec, Value, is_plain, zeros
from fluidjax.eager.varbase import VarBase


class _Other(Exception):
    """The batch is no step of the kind that can be promised."""


def learn(point: Point, parts: list[Any]) -> None:
    """A batch that led to a point ran, and consisted of these parts alone or among others."""
    if len(parts) != 3 or not isinstance(parts[0], Repeated) or parts[0].misses == _MISSES:
        return
    call, passed, (replay, update, count) = parts[0], parts[1], parts[2] if parts[2].__class__ is tuple else _NONE
    if passed.__class__ is not Known or replay is None or recorder.blocks.whole(point, ()) is None:
        return
    if replay.formed >= _FORMED and replay.promises < _WORTH * replay.formed:
        return
    try:
        step = call.step
        if step is None or step.parts != (passed, update):
            step = call.step = _Making(point, call, passed, replay, update, count).step()
        _form(step, replay)
        call.misses = 0
    except _Other:
        call.misses += 1


def _form(step: Step, replay: Replay) -> None:
    """Let the variables of a step hold their values together."""
    values = [var._value for var in [*step.updated, *step.gradients]]
    if any(value is None or value.array is None or not is_plain(value.spec) for value in values):
        raise _Other
    if step.cleared != _are_cleared(step.gradients) or not step.flows_alike():
        raise _Other
    replay.let_go()
    replay.formed += 1
    replay.together = Together(step.frame.layout, step.updated, step.gradients, step.cleared)


def _are_cleared(gradients: list[Any]) -> bool:
    found = {var._value is zeros(var._spec) for var in gradients}
    if len(found) != 1:
        raise _Other
    return found.pop()


class _Making:
    """Makes a step of a batch that ran."""

    def __init__(self, point: Point, call: Repeated, passed: Known, replay: Replay, update: Update, count: int) -> None:
        self._point, self._call, self._passed = point, call, passed
        self._replay, self._update, self._count = replay, update, count
        self._numbers = {id(var): n for n, var in enumerate(replay.written)}

    def step(self) -> Step:
        """The step. Raises _Other."""
        call, passed, update, body = self._call, self._passed, self._update, self._call.body
        ops = body.stretch.ops + passed.stretch.ops + update.stretch.ops
        alone = len(passed.visits) == 1 and passed.visits[0].here
        if ops != self._point.depth or not alone or body.changed or not all([r.__class__ is Spec for r in body.reads]):
            raise _Other
        numbers = [None if s.__class__ is int else self._numbers.get(id(s)) for s in call.sources]
        outer = [(k, s, body.reads[k]) for k, s in enumerate(call.sources) if numbers[k] is None]
        outer.sort(key=lambda each: each[1].__class__ is not int)
        ones, gradients = self._gradients()
        leaves, given = self._leaves()
        cleared = _are_cleared(list(gradients))
        own = self._own()
        shown = [body.results[k].code for k in body.fresh]
        alive = [code for _, code in own] + ([] if cleared else [*gradients.values()])
        block = recorder.blocks.whole(self._point, tuple(alive))
        frame = None if block is None else frame_of(block, own)
        if frame is None or not gradients:
            raise _Other
        return Step(
            body=body, numbers=numbers, outer=outer, root=passed.k, visit=passed.visits[0], ones=ones, leaves=leaves,
            given=given, gradients=list(gradients), updated=self._replay.written, cleared=cleared,
            replay=self._replay, frame=frame, parts=(passed, update),
            shown=[frame.places.get(code, -1) for code in shown],
            found=[] if cleared else [frame.places[code] for code in gradients.values()],
        )  # fmt: skip

    def _own(self) -> list[tuple[int, int]]:
        """(leaf, output) of each variable that the update replaces, which must be all that it reads."""
        replay, codes = self._replay, self._update.stretch.codes[self._count :]
        leaves = {id(var): code for var, code in zip(replay.read, codes, strict=True)}
        if leaves.keys() != self._numbers.keys():
            raise _Other
        found = []
        for var, (result, _) in zip(replay.written, self._update.results, strict=True):
            code = leaves[id(var)]
            if code is None or code >= 0:
                raise _Other
            found.append((~code, result))
        return found

    def _gradients(self) -> tuple[Value, dict[Any, int]]:
        """The gradient of the root; and the variable of each gradient with its output, as the update is given them."""
        by_code: dict[int, Any] = {}
        ones = None
        for gradient in self._passed.gradients:
            if gradient.visit < 0:
                ones = gradient.source
                continue
            source = self._call.sources[gradient.input]
            if id(source) not in self._numbers or source._grad.__class__ is not VarBase or gradient.source is not None:
                raise _Other
            by_code[gradient.code] = source._grad
        codes = self._update.stretch.codes[: len(by_code)]
        if ones.__class__ is not Value or [*codes] != [code for code in codes if code in by_code]:
            raise _Other
        if len({*codes}) != len(by_code) or len(by_code) != len([g for g in self._passed.gradients if g.visit >= 0]):
            raise _Other
        return ones, {by_code[code]: code for code in codes}  # type: ignore[index, return-value]

    def _leaves(self) -> tuple[list[Any], list[tuple[int, int, Spec]]]:
        """Those of the pass and the update, and which of them are given (see ``Step``)."""
        leaves: list[Any] = []
        given = []
        for source, _ in self._passed.stretch.leaves:
            if source.__class__ is int:
                raise _Other
            leaves.append(source)
        for source, spec in self._update.stretch.leaves:
            if source.__class__ is int and source < self._count:  # type: ignore[operator]
                given.append((len(leaves), source, spec))
            leaves.append(None if source.__class__ is int else source)
        if len(self._call.body.leaves) + len(leaves) != self._point.leaves:
            raise _Other
        return leaves, given  # type: ignore[return-value]


_NONE = None, None, 0
_MISSES = 16  # batches that begin with a call and are no such step
_FORMED, _WORTH = 8, 3  # after so many times, a step must have run so often for each
