"""Running a promised step, all of which has come.

A signal's handler may run, and raise, at any call here, and go on with the net itself. Nothing of the step happens
before XLA is called, and what it gives is in a list as soon as it has returned. What follows can be done again, and
whoever looks next does so, until the step is *over*: that comes at once, with all that others see of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import starmap
from typing import Any

from fluidjax.eager.recorded.pending import LIMIT, Recorder, recorder
from fluidjax.eager.sequences.packs import Piece, taken
from fluidjax.eager.values import Value, array_of
from fluidjax.eager.whole.ahead import Ahead
from fluidjax.eager.whole.fed import Fed
from fluidjax.eager.whole.frames import Frame
from fluidjax.eager.whole.resumed import CALL, UPDATE
from fluidjax.eager.whole.stand_ins import Held
from lowering.engine.interrupts import uninterrupted


class Running:
    """The part of a promise that runs it.

    Attributes:
        step, together, variables, values, leaves, came, cleared, node, replay, given, taken: see ``Promise``.
        outputs: the variables that it computes, with the number of the output.
        ahead: what the block gave, if somebody has looked (see ``looks``).
        put: the arguments besides the state, if they were put where they stay just now; None if they were known.
        there: whether the state was there when it was given to the block, and all else: so the results are.
        found: one element, the block's results, once they are there.
        over: whether variables hold values, or what is recorded, in place of this.
    """

    step: Any = None
    together: Any = None
    variables: Sequence[Any] = ()
    values: Sequence[Value] = ()
    leaves: Any = ()
    came: int = CALL
    cleared: bool = False
    node: Any = None
    replay: Any = None
    given: Sequence[Any] = ()
    taken: Sequence[list[tuple[Any, Value]]] = ()
    outputs: Any = ()
    ahead: Ahead | None = None
    put: list[Any] | None = None
    there: bool = False
    found: Any = ()
    over: bool = False

    def _record(self) -> None:
        """Record what has come."""
        raise NotImplementedError

    def settle(self) -> None:
        """Run what has come, if it is all; record it otherwise, while an interrupt waits."""
        step, together, ahead = self.step, self.together, self.ahead  # first: a handler may settle it meanwhile
        if self.over:
            return
        if not self.found:
            if self.came != UPDATE or self.cleared < step.cleared:
                return uninterrupted(self._record)
            places = (step.frame if ahead is None else ahead.frame).places
            lacking = [code for reference, code in self.outputs if code not in places and reference() is not None]
            if lacking:  # the block does not return all that is still wanted
                step.wanted |= {*lacking}
                return uninterrupted(self._record)
        return self._run(step, together, step.frame if ahead is None else ahead.frame)

    def _run(self, step: Any, together: Any, frame: Frame) -> None:
        ahead, leaves, replay = self.ahead, self.leaves, self.replay
        if ahead is None:
            self._call(together, frame)
        else:
            self.found = [ahead.found]
        if self.over:
            return
        found, put = self.found[0], self.put
        if not self.there:
            Fed.wait(found)
        last = None if put is None else frame.noted(leaves, put)
        state = frame.state(found)
        gradients = None if self.cleared else [found[frame.places[code]] for code in step.found]
        self._give(found, frame)
        if self.over:
            return
        together.state, together.gradients, together.there = state, gradients, True
        if last is not None:
            frame.fed.last = last  # type: ignore[union-attr]
        replay.promises += 1
        if ahead is not None:
            step.ran_ahead += 1
        recorder.apart, recorder.limit = 0, LIMIT  # of another batch: nothing else of this one was recorded
        recorder.__class__, recorder.promised, self.over = Recorder, None, True
        self.forget()

    def _call(self, together: Any, frame: Frame) -> None:
        """Call the block, unless that has been done."""
        leaves = self.leaves
        if self.found or self.over:
            return
        direct = frame.direct
        last = None if direct is None else frame.fed.last  # type: ignore[union-attr]
        outer = None if last is None else last.filled(leaves)
        if last is not None and outer is not None:
            put, there = None, together.there and not last.moving
        else:
            outer = [*map(array_of, map(leaves.__getitem__, frame.outer))]
            if Piece in {*map(type, outer)}:
                outer = [*map(taken, outer)]
            direct = direct if frame.put(outer) else None
            put, there = outer, False
        self.put, self.there = put, there
        state = together.state
        if self.over:  # and the state another one
            return
        arguments = frame.arguments((*outer, *state))
        if direct is None:
            uninterrupted(partial(self._call_any, together, frame, arguments))
            return
        results = starmap(direct, (arguments,))  # runs it when it is asked for its only element, and no Python besides
        try:
            if not self.over and not self.found:
                self.found.extend(results)
        except Exception:
            uninterrupted(partial(self._fail, together, frame))
            raise

    def _call_any(self, together: Any, frame: Frame, arguments: tuple[Any, ...]) -> None:
        """The same where Python runs between XLA and the list."""
        if self.found or self.over:
            return
        try:
            self.found.append(frame.call(arguments))
        except BaseException:
            self._fail(together, frame)
            raise

    def _fail(self, together: Any, frame: Frame) -> None:
        """The block has taken the variables over, and given nothing: they and all outputs have no values any more."""
        if not self.found and not self.over:
            together.lose()
            self._give([None] * (1 + max(frame.places.values())), frame)
            self.leave()
            self.forget()

    def _give(self, results: Sequence[Any], frame: Frame) -> None:
        """Give the variables that are still there their values; None where the block failed."""
        places = frame.places
        for reference, code in self.outputs:
            var: Any = reference()
            held = None if var is None else var._held
            if held.__class__ is Held and held.promise is self:
                value = Value.pending(held.spec, -1, 0)
                value.array = results[places[code]]
                if var._held is held:
                    var._held = value

    def leave(self) -> None:
        """The recorder records again."""
        recorder.__class__, recorder.promised, self.over = Recorder, None, True

    def forget(self) -> None:
        """Refer to nothing any more: a variable that the user keeps shall keep no others, and the node refers to it."""
        self.__dict__ = {"over": True, "outputs": self.outputs}
