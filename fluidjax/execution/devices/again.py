"""A stage of several devices like an earlier one: what that one compiled is called on the values it has now."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from fluidjax.execution.feeding.feed import Handed
from fluidjax.execution.runs.prepared import Prepared
from fluidjax.execution.steps.compiled_form import Compiled
from fluidjax.execution.steps.form import form
from lowering.engine.parallel.staged import Sum
from lowering.errors import Need

Values = dict[str, Any]  # what a device knows in a run: fed values, and ``Handed`` ones


class Call(NamedTuple):
    """What a device called in a stage.

    Attributes:
        prepared: the stage's program; None: there was nothing to compute.
        compiled: what it was compiled to.
        reads, writes: names.
        fed: which of what it reads the user fed.
        form: the form of that.
    """

    prepared: Prepared | None
    compiled: Compiled | None
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    fed: tuple[int, ...]
    form: Hashable

    @staticmethod
    def of(prepared: Prepared, feed: Mapping[str, Any], writes: Sequence[str]) -> Call | None:
        """What a run on this feed just called; None where it was not one step that reads nothing else."""
        feeds = prepared.feeds(feed)
        compiled = prepared.ready(feeds)
        if compiled is None:
            return None
        fed = tuple(i for i, value in enumerate(feed.values()) if type(value) is not Handed)
        return Call(prepared, compiled, tuple(feed), tuple(writes), fed, form([feeds[i] for i in fed]))

    def begin(self, known: Values, seed: Any) -> Any:
        """What the call leaves; None where the user fed something of another form, or too little of it."""
        if self.prepared is None or self.compiled is None:
            return ()
        if self.fed:
            values = self.prepared.feeds({name: known[name] for name in self.reads})
            if form([values[i] for i in self.fed]) != self.form:
                return None
        else:
            values = [known[name].value for name in self.reads]
        try:
            self.compiled.before(values)
        except Need:
            return None
        return self.compiled.executable.call((), self.compiled.given(values), seed if self.prepared.random else None)

    def end(self, known: Values, left: Any) -> bool:
        """Add to what is known; False where a buffer was too small."""
        if self.compiled is None:
            return True
        if any(map(bool, left[1])):
            return False
        failure = self.compiled.after(left)
        if failure is not None:
            raise failure
        known.update(zip(self.writes, map(Handed, self.compiled.results(left[0])), strict=True))
        return True


NOTHING = Call(None, None, (), (), (), None)


class Again(NamedTuple):
    """A stage of each device.

    Attributes:
        sum: adds up what the stage needs; returns the sums that devices make in their programs.
        apart: those.
        calls: what each device called.
    """

    sum: Callable[[Sequence[Values]], tuple[Sum, ...]]
    apart: tuple[Sum, ...]
    calls: Sequence[Call | None]

    @property
    def possible(self) -> bool:
        """Whether it can be repeated."""
        return all(call is not None for call in self.calls)

    def run(self, values: Sequence[Values], seed: Any) -> bool:
        """Let all devices compute, then add to what they know; False where something differs."""
        if self.sum(values) != self.apart:
            return False
        calls = [call for call in self.calls if call is not None]
        left = [call.begin(known, seed) for call, known in zip(calls, values, strict=True)]
        if any(each is None for each in left):
            return False
        return all(call.end(known, each) for call, known, each in zip(calls, values, left, strict=True))
