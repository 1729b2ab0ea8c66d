"""Finds steps that can be promised (see ``promised``) among the batches that ran."""

from __future__ import annotations

import math
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from fluidjax.base.enums import to_numpy_dtype
from fluidjax.base.flags import FLAGS
from fluidjax.eager.recorded.pending import recorder
from fluidjax.eager.repeated.passes import Known
from fluidjax.eager.repeated.replay import Replay, Update
from fluidjax.eager.sequences.points import Point
from fluidjax.eager.values import Spec, Value, cleared, is_plain
from fluidjax.eager.variables.varbase import VarBase
from fluidjax.eager.whole.frames import Frame, frame_of
from fluidjax.eager.whole.later import Later, Other
from fluidjax.eager.whole.looks import Seen
from fluidjax.eager.whole.steps import MISSES, Repeated, Step
from fluidjax.eager.whole.together import Together


def learn(point: Point, parts: list[Any], looked: Mapping[int, int]) -> None:
    """A batch that led to a point ran, and consisted of these parts alone or among others.

    Args:
        looked: its outputs that were computed before it ended, and after how many ops (see ``looks``).
    """
    _seen.batch(parts)
    if not parts or not isinstance(parts[0], Repeated) or parts[0].misses == MISSES:
        return
    if FLAGS["FLAGS_cpu_deterministic"]:  # no block runs
        return
    try:
        if _is_learnt(point, parts, looked):
            parts[0].misses = 0
    except Other:
        parts[0].misses += 1


def _is_learnt(point: Point, parts: list[Any], looked: Mapping[int, int]) -> bool:
    """Whether the next batch may be promised. Raises Other."""
    if len(parts) != 3 or parts[1].__class__ is not Known or parts[2].__class__ is not tuple:
        if looked:  # the batch went on in vain
            raise Other
        return False
    call, passed, (replay, update, count) = parts
    if replay.formed >= _FORMED and replay.promises < _WORTH * replay.formed and not _is_news(call, looked):
        if looked:
            raise Other
        return False
    if recorder.blocks.whole(point, tuple(looked), keeps=bool(looked)) is None:
        return False
    step, making = call.step, _Making(point, call, passed, replay, update, count)
    fits = step is not None and step.parts == making.parts and step.shows(looked.keys())
    if step is None or not fits or not step.gives():
        made = making.step(looked) if step is None or not fits else making.anew(step, looked)
        if made is None:
            return False
        if _is_news(call, looked):
            replay.formed = replay.promises = 0
        step = call.step = made
    _form(step, replay)
    return True


def _is_news(call: Repeated, looked: Mapping[int, int]) -> bool:
    """Whether a step can be run ahead from now on: looking at it did not pay before."""
    return bool(looked) and (call.step is None or call.step.ahead is None)


def _form(step: Step, replay: Replay) -> None:
    """Let the variables of a step hold their values together."""
    if not all([_is_computed(var._value) and is_plain(var._spec) for var in step.updated]):
        raise Other
    if not step.cleared and not all([_is_computed(var._value) for var in step.gradients]):
        raise Other
    if step.cleared != _are_cleared(step.gradients) or not step.flows_alike():
        raise Other
    replay.let_go()
    replay.formed += 1
    replay.together = Together(step.frame.layout, step.updated, step.gradients, step.cleared)


def _is_computed(value: Value | None) -> bool:
    return value is not None and value.array is not None


def _are_cleared(gradients: list[Any]) -> bool:
    found = {var._value is cleared(var._spec) for var in gradients}
    if len(found) != 1:
        raise Other
    return found.pop()


class _Making:
    """Makes a step of a batch that ran. Raises Other.

    Attributes:
        parts: the pass, what the update records, and which inputs of the ops before gradients flow to.
    """

    def __init__(self, point: Point, call: Repeated, passed: Known, replay: Replay, update: Update, count: int) -> None:
        self._point, self._call, self._passed = point, call, passed
        self._replay, self._update, self._count = replay, update, count
        self._between = self._later()
        self.parts = passed, update, [op.flows for op in self._between]
        self._changed = [call.sources[k] for k, _ in call.body.changed]
        self._updated = [*replay.written, *self._changed]
        self._numbers = {id(var): n for n, var in enumerate(self._updated)}

    def step(self, looked: Mapping[int, int], wanted: frozenset[int] = frozenset()) -> Step | None:
        """The step; None while no block gives what is looked at or wanted. Raises Other."""
        call, passed, body = self._call, self._passed, self._call.body
        if len(self._numbers) < len(self._updated) or not all([r.__class__ is Spec for r in body.reads]):
            raise Other
        if int in map(type, self._changed):  # an argument, which may be another variable the next time
            raise Other
        later = Later(body, passed, self._between)
        numbers = [None if s.__class__ is int else self._numbers.get(id(s)) for s in call.sources]
        specs: list[Any] = [*body.reads]
        outer = [(k, s, specs[k]) for k, s in enumerate(call.sources) if numbers[k] is None]
        outer.sort(key=lambda each: each[1].__class__ is not int)
        ones, gradients = self._gradients(later)
        leaves, given = self._leaves(later.leaves)
        cleared = _are_cleared(list(gradients))
        own = self._own()
        alive = [code for _, code in own] + ([] if cleared else [*gradients.values()])
        alive += wanted.difference(alive)
        if wanted and recorder.blocks.whole(self._point, tuple(alive)) is None:
            return None
        frame, ahead = self._frame(own, alive), None
        if looked:
            if self._bytes() > _LARGE or {*looked.values()} != {self._call.body.stretch.ops + len(self._between)}:
                raise Other  # there are two copies then; nor is it run ahead before all ops have come
            alive = sorted({*looked, *alive})
            if recorder.blocks.whole(self._point, tuple(alive), keeps=True) is None:
                return None
            ahead = self._frame(own, alive, keeps=True)
            frame = frame if frame.layout is ahead.layout else ahead
        if not gradients:
            raise Other
        return Step(
            body=body, numbers=numbers, outer=outer, root=later.root, visit=later.visit, ones=ones, leaves=leaves,
            given=given, gradients=list(gradients), updated=self._updated, cleared=cleared,
            call=weakref.ref(call), replay=weakref.ref(self._replay), frame=frame, ahead=ahead, parts=self.parts,
            ops=later.ops, between=later.between, zeros=later.zeros(), wanted=wanted, looked=looked,
            found=[] if cleared else [*gradients.values()],
        )  # fmt: skip

    def anew(self, step: Step, looked: Mapping[int, int]) -> Step:
        """A known step with what is wanted of it; the step itself while no block gives that. Raises Other."""
        made = self.step({} if step.in_vain else {**step.looked, **looked}, step.wanted)
        if made is None:
            return step
        made.in_vain, made.ran_ahead, made.missed = step.in_vain, step.ran_ahead, step.missed
        return made

    def _frame(self, own: Sequence[tuple[int, int]], alive: Sequence[int], *, keeps: bool = False) -> Frame:
        block = recorder.blocks.whole(self._point, tuple(alive), keeps=keeps)
        frame = None if block is None else frame_of(block, own)
        if frame is None:
            raise Other
        return frame

    def _bytes(self) -> int:
        """Of the variables that the step replaces."""
        return sum([math.prod(var._spec.shape) * to_numpy_dtype(var._spec.dtype).itemsize for var in self._updated])

    def _later(self) -> list[Point]:
        """The ops between the call and the pass."""
        way, call, passed = self._point.way(), self._call.body.stretch, self._passed.stretch
        end = len(way) - self._update.stretch.ops
        begin = end - passed.ops
        if begin < call.ops or way[call.ops - 1] is not call.end or way[end - 1] is not passed.end:
            raise Other
        if self._update.stretch.end is not self._point:
            raise Other
        return way[call.ops : begin]

    def _own(self) -> list[tuple[int, int]]:
        """(leaf, output) of each variable that the update replaces, which must be all that it reads, or the call."""
        replay, codes = self._replay, self._update.stretch.codes[self._count :]
        leaves = {id(var): code for var, code in zip(replay.read, codes, strict=True)}
        if leaves.keys() != {*map(id, replay.written)}:
            raise Other
        found = []
        for var, (result, _) in zip(replay.written, self._update.results, strict=True):
            code = leaves[id(var)]
            if code is None or code >= 0:
                raise Other
            found.append((~code, result))
        body = self._call.body
        return found + [(body.leaves.index(k), body.results[result].code) for k, result in body.changed]

    def _gradients(self, later: Later) -> tuple[Value, dict[Any, int]]:
        """The gradient of the root; and the variable of each gradient with its output, as the update is given them."""
        by_code: dict[int, Any] = {}
        ones = None
        for gradient in self._passed.gradients:
            if gradient.visit < 0:
                ones = gradient.source
                continue
            if later.takes(gradient):
                continue
            source = self._call.sources[gradient.input]
            if id(source) not in self._numbers or source._grad.__class__ is not VarBase or gradient.source is not None:
                raise Other
            by_code[gradient.code] = source._grad
        codes = self._update.stretch.codes[: len(by_code)]
        if ones.__class__ is not Value or [*codes] != [code for code in codes if code in by_code]:
            raise Other
        count = len([g for g in self._passed.gradients if g.visit >= 0]) - len(later.between)
        if len({*codes}) != len(by_code) or len(by_code) != count:
            raise Other
        return ones, {by_code[code]: code for code in codes}  # type: ignore[index, misc]

    def _leaves(self, before: int) -> tuple[list[Any], list[tuple[int, int, Spec]]]:
        """Those of the pass and the update, and which of them are given (see ``Step``)."""
        leaves: list[Any] = []
        given = []
        for source, _ in self._passed.stretch.leaves:
            if source.__class__ is int:
                raise Other
            leaves.append(source)
        for source, spec in self._update.stretch.leaves:
            if source.__class__ is int and source < self._count:
                given.append((len(leaves), source, spec))
            leaves.append(None if source.__class__ is int else source)
        if before + len(leaves) != self._point.leaves:
            raise Other
        return leaves, given


_seen = Seen()
_LARGE = 1 << 28  # bytes: of larger variables there is one copy, and a look ends the batch
_FORMED, _WORTH = 8, 3  # after so many times, a step must have run so often for each
