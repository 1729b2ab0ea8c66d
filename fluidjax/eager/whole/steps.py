"""What is known of training steps that are promised (see ``promised``), and whether another one is beginning."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from operator import attrgetter, is_
from typing import Any, NamedTuple

import numpy as np

from fluidjax.eager.kernels import Kernel
from fluidjax.eager.recorded.demands import is_below
from fluidjax.eager.recorded.pending import recorder
from fluidjax.eager.repeated.bodies import Body
from fluidjax.eager.repeated.passes import Visit
from fluidjax.eager.repeated.replay import Replay
from fluidjax.eager.values import Spec, Value, to_device
from fluidjax.eager.whole.frames import Frame
from fluidjax.eager.whole.together import Together

HELD = attrgetter("_held")
MISSES = 16  # batches that begin with a call and are no step that can be promised


class Repeated:
    """A call of a layer that can be repeated.

    Attributes:
        body: what it records.
        sources: for each variable that it reads, the number of the argument, or the variable.
        step: the step that begins with it; None for none.
        misses: how often no step could be made of what followed it.
        looks: how often the rest of a step followed in another batch (see ``looks``).
    """

    body: Body
    sources: list[Any]
    step: Step | None = None
    misses = looks = 0


class Op(NamedTuple):
    """An op after the call.

    Attributes:
        refs: for each input the number of the output that it is, ``~k`` for leaf k, or the spec of a new leaf.
        flows: for each input, whether gradients flow to it.
        outs: the numbers of its outputs, and their specs.
        graded: whether it has a place on the tape.
        stop_gradient: of its outputs, if they have not said so.
        limits: the (input, high) for numbers that must be in [0, high).
    """

    kernel: Kernel
    refs: tuple[int | Spec, ...]
    flows: tuple[bool, ...]
    outs: tuple[tuple[int, Spec], ...]
    graded: bool
    stop_gradient: bool | None
    limits: tuple[tuple[int, int], ...]


@dataclass(eq=False)
class Step:
    """What is known of a step.

    Attributes:
        body: of the call.
        numbers: for each variable that the call reads, its number among those of the update; None for others.
        outer: for each other variable, arguments first, its number in the call, its source and spec.
        fixed, held: those of them that are no arguments, and what they held when the step began.
        read: the arguments among them that the pass reads.
        ops: those after the call.
        root, visit: the output that the backward pass starts from, and what the pass finds at the call.
        between: for the variables that were computed before, by their numbers: outputs that are their gradients, specs.
        zeros: the numbers of those of which the pass reads a gradient of zero if there is none.
        ones: the gradient of the root.
        leaves: those of the pass and the update; None where the variable of the update with that number is one.
        given: the numbers of the given variables of the update that are leaves, and their specs.
        gradients: the variables of gradients, with which the update is given.
        cleared_last: of the parameters whose gradients were cleared last, these, and whether they were trained.
        updated: the variables that are replaced: by the update, and after these by the call.
        cleared: whether the gradients are zero when the block runs.
        call, replay: weak references to the call and the update.
        found: the outputs that are the gradients, if they are not cleared.
        ahead: the frame of a block that keeps its arguments, if it is run ahead (see ``looks``); None if not.
        ran_ahead, missed: how often that was of use, and how often it was not.
        in_vain: whether it was not so often that it is not done again.
        parts: the pass, what the update records, and which inputs of the ops before gradients flow to.
        wanted: the outputs that were still held when all had come.
        looked: those that had been looked at when it was made, and after how many ops (see ``looks``).
    """

    body: Body
    numbers: list[int | None]
    outer: list[tuple[int, Any, Spec]]
    root: int
    visit: Visit
    ones: Value
    ops: list[Op]
    between: list[tuple[int, int, Spec]]
    zeros: frozenset[int]
    leaves: list[Any]
    given: list[tuple[int, int, Spec]]
    gradients: list[Any]
    updated: list[Any]
    cleared: bool
    call: weakref.ref[Repeated]
    replay: weakref.ref[Replay]
    frame: Frame
    ahead: Frame | None
    found: list[int]
    parts: tuple[Any, Any, list[int]]
    wanted: frozenset[int]
    looked: Mapping[int, int]
    ran_ahead: int = 0
    missed: int = 0
    in_vain: bool = False
    cleared_last: tuple[list[Any], list[Any]] = field(default_factory=lambda: ([], []))

    def __post_init__(self) -> None:
        self.held: list[Any] = []
        self._among: set[Value] = set()  # the values that are held
        self._mark: Any = None  # of the variables kept together that were found to be its own
        self._given = [source for _, source, _ in self.outer if source.__class__ is int]
        outside = [each for each in self.outer if each[1].__class__ is not int]
        self.fixed = [source for _, source, _ in outside]
        self._specs = [spec for _, _, spec in outside]
        self._flows = [self.body.flows[k] for k, _, _ in outside]
        place: dict[int | None, int] = {k: n for n, (k, _, _) in enumerate(self.outer)}
        self._begin_call(place)

    def _begin_call(self, place: Mapping[int | None, int]) -> None:
        """What the call takes and gives, by the places of its variables among the outer ones."""
        body = self.body
        self._limits = [(place[k], high) for k, high in body.limits]
        self.pulled = [place.get(k, -1) for k in body.leaves]
        self.drawn = [n for n, k in enumerate(body.leaves) if k is None]
        reads = [k for which, k in self.visit.reads if which == "i" and k in place]
        self.read = [place[k] for k in reads if place[k] < len(self._given)]
        results = [body.results[k] for k in body.fresh]
        placed = [place is not None for _, place in body.outputs[: len(results)]]
        self.fresh = [(r.code, r.spec, p, r.stop_gradient, r.naming) for r, p in zip(results, placed, strict=True)]

    def flows_alike(self) -> bool:
        """Whether gradients flow to the updated variables as they did: none has been stopped since."""
        flows = [self.updated[n]._stop_gradient is False for n in self.numbers if n is not None]
        known = [flow for n, flow in zip(self.numbers, self.body.flows, strict=True) if n is not None]
        return flows == known and all([var._stop_gradient is False for var in self.gradients])

    def shows(self, looked: Set[int]) -> bool:
        """Whether these outputs are computed when it is run ahead."""
        return not looked or (self.ahead is not None and self.ahead.places.keys() >= looked)

    def gives(self) -> bool:
        """Whether its blocks compute what is wanted."""
        frames = [self.frame] if self.ahead is None else [self.frame, self.ahead]
        return all([frame.places.keys() >= self.wanted for frame in frames])

    def expects(self) -> list[Any] | None:
        """The leaves of the pass and the update, with the rate that is foreseen; None if it takes more than that."""
        replay = self.replay()
        rate = None if replay is None else replay.next_rate()
        leaves = [*self.leaves]
        for at, k, spec in self.given:
            if k != len(self.gradients) or rate is None or rate.spec is not spec or rate.array is None:
                return None
            leaves[at] = rate
        return leaves

    def ready(self, given: Sequence[Any], current: Sequence[Value]) -> tuple[Together, list[Any], list[Value]] | None:
        """What the step replaces, the variables that it reads and their values; None if these are not as they were.

        Args:
            given, current: the variables among the arguments of the call, and their values. They are of the kinds that
                it was made for.
        """
        replay = self.replay()
        together = None if replay is None else replay.together
        if together is None or not together.intact or together.layout is not self.frame.layout:
            return None
        if recorder.point.depth or recorder.leaves:
            return None
        if together.mark is not self._mark and not self._takes(together):
            return None
        if self.fixed and not self._stand():
            return None
        values = [*map(current.__getitem__, self._given)]
        for value in current:
            if value.array is None:
                return None
        if len({*values}) != len(values) or not self._among.isdisjoint(values):
            return None
        variables = [*map(given.__getitem__, self._given), *self.fixed]
        values += self.held
        for k, high in self._limits:
            array = values[k].array
            if array.__class__ is not np.ndarray or not is_below(array, high):
                return None
        return together, variables, values

    def _stand(self) -> bool:
        """Whether the variables that are no arguments can be read, and gradients flow to them as they did."""
        fixed = self.fixed
        if not (self.held and all(map(is_, map(HELD, fixed), self.held))) and not self._look():
            return False
        return [var._stop_gradient is False for var in fixed] == self._flows

    def _takes(self, together: Any) -> bool:
        """Whether the variables kept together are those of this step, and gradients flow to them as they did here.

        The update may be that of other steps too: of the same net before a parameter was stopped, or of another net.
        """
        variables = [*self.updated, *self.gradients]
        if not together.holds_all(variables) or not self.flows_alike():
            return False
        self._mark = together.mark
        return True

    def _look(self) -> bool:
        """Look at the variables that are no arguments; returns whether they hold values of their own."""
        held: list[Any] = [var._value for var in self.fixed]
        if not all(held) or held != [var._held for var in self.fixed] or True in [v.array is None for v in held]:
            return False
        if [value.spec for value in held] != self._specs or len({*held}) != len(held):
            return False
        for value in held:
            recorder.array_of(value)
        to_device([value for value in held if value.array.__class__ is np.ndarray])
        self.held, self._among = held, {*held}
        return True
