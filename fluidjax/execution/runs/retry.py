"""What an attempt at a run may lack, and what is done about it before the next attempt.

A program is compiled for the most convenient conditions: ragged rows are padded to a bucket, their LoD and longest
length are traced, loops' buffers have the sizes that were found at first, and all ops are one jitted step. An attempt
that fails under these conditions is repeated under costlier ones, from which later runs start:

=============================================  =================================================================
an attempt lacks                               the next one
=============================================  =================================================================
true sizes of wide dims (``NeedsSizes``)       has these dims exactly, so that every size is compiled
equal padding (``NeedsExact``)                 feeds sequences of one length as they are: see ``even``; if any were,
                                               gives room for more to all
room for rows as in ``dense`` (``NeedsExact``)  feeds dense values as they are
exact rows (``NeedsExact``, or an op that      feeds rows unpadded, so that every LoD is compiled; if they were,
failed on rows that may have been padded)      the op runs outside of the jitted step, on rows as they come; if it
                                               did, gives no dims room, either
a longest length (``NeedsConcrete.longest``)   is compiled for every longest length
a fed size (``NeedsConcrete``)                 takes the number for a count of rows: see ``dense``
a value on the host (``NeedsConcrete``)        runs the op outside of the jitted step
room in a loop's buffer (an overflow flag)     has as much as the flag says, or twice as much
=============================================  =================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fluidjax.base.scope import Scope
from fluidjax.execution.feeding.feed import Feeder
from fluidjax.execution.rooms.buckets import enlarged, least_rows, operations_of_row
from fluidjax.execution.rooms.families import Sizes
from fluidjax.execution.rooms.sized import read_for
from fluidjax.execution.rooms.tiers import Visit
from fluidjax.execution.runs.compilations import Compilations, Job
from fluidjax.execution.scopes.state import gather_values
from fluidjax.execution.steps.compiled import CompiledOps
from fluidjax.execution.steps.mesh import Unspreadable
from lowering.engine.plan import Plan, make_plan
from lowering.errors import InvalidArgumentError, LoweringError, Need, NeedsConcrete, NeedsExact, NeedsSizes
from lowering.sizes.labels import Carried
from lowering.values import LoDArray

# A loop that overflows this many doublings is not going to end.
_MAX_DOUBLINGS = 30

Attempt = Callable[[Scope, list[Any], Any], list[Any] | None]


class Attempts:
    """The conditions under which a job is attempted.

    Attributes:
        plan: which ops are jitted together, and what they read and keep.
        exact: whether rows are never padded.
    """

    def __init__(self, job: Job, compilations: Compilations):
        self._job = job
        self._compilations = compilations
        self._outside: set[int] = set()
        self.exact = False
        self.plan = self._make_plan(())
        ranks = self.plan.ranks or bool(compilations.spare.widened) or compilations.spare.wide
        rows = least_rows(job.program)
        even = job.spread is None and not any(op.type == "while" for op in job.program.blocks[0].ops)
        self._feeder = Feeder(
            job.program.blocks[0].vars,
            ranks,
            compilations.tiers,
            rows,
            operations_of_row(job.program),
            padding=not job.alike,
            ahead=job.beside,
            closer=job.beside and len(self.plan.segments) == 1,
            even=even,
            owners=job.owners,
        )

    def feeds(self, feed: Mapping[str, Any]) -> list[Any]:
        """The feeds, as the next attempt takes them."""
        return self._feeder.values(self._job.feeds, feed, exact=self.exact, dims=True)

    def feeds_in(self, room: Sizes) -> list[Any]:
        """This thread's last feeds, in a room other than the one they were given."""
        return self._feeder.values_in(room)

    def exact_feeds(self, feed: Mapping[str, Any]) -> list[Any]:
        """The feeds, rows and dims as they are."""
        return self._feeder.values(self._job.feeds, feed, exact=True)

    @property
    def visit(self) -> Visit | None:
        """Which room this thread's last feeds were given; None where they needed none."""
        return self._feeder.visit

    def plan_anew(self, held: Sequence[str]) -> None:
        """Plan again, with undeclared variables that the scope holds and the ops known to run outside."""
        plan = self._make_plan(held)
        if (plan.reads, plan.keeps) != (self.plan.reads, self.plan.keeps):
            self._compilations.forget_state()
        self.plan = plan

    def _make_plan(self, held: Sequence[str]) -> Plan:
        return make_plan(self._job.program, self._job.fetches, held=held, outside=self._outside)

    def run(self, attempt: Attempt, scope: Scope, feed: Mapping[str, Any], seed: Any) -> list[Any]:
        """Call ``attempt(scope, feeds, seed)`` until it succeeds.

        An attempt that returns None lacked something that it has already provided.

        Raises LoweringError where nothing can be done, or where attempts would never end.
        """
        for _ in range(_MAX_DOUBLINGS):
            try:
                results = self._once(attempt, scope, feed, seed)
            except NeedsExact as needed:
                self._drop_padding(needed)
                continue
            except NeedsSizes as needed:
                self._give_sizes(needed)
                continue
            except NeedsConcrete as needed:
                self._provide(needed, feed)
                continue
            if results is not None:
                return results
        raise LoweringError(
            f"a loop still overflows its buffers after {_MAX_DOUBLINGS} doublings ({self._compilations.capacities}):"
            " expected it to end; check the loop's condition"
        )

    def _once(self, attempt: Attempt, scope: Scope, feed: Mapping[str, Any], seed: Any) -> list[Any] | None:
        feeds = self.feeds(feed)
        try:
            return attempt(scope, feeds, seed)
        except Need as needed:
            if self._job.alike:
                raise Unspreadable(str(needed)) from needed
            raise
        except InvalidArgumentError:
            raise
        except LoweringError:
            # Rows that do not fit may be due to padding alone; without padding the error is the program's own.
            if self.exact:
                raise
            failed = NeedsExact("an op failed on padded rows")
            if self._holds_rows(scope):
                raise failed from None
            if not _any_rows(feeds):
                raise
        return self._on_exact_rows(attempt, scope, feed, seed, failed)

    def _on_exact_rows(
        self, attempt: Attempt, scope: Scope, feed: Mapping[str, Any], seed: Any, failed: NeedsExact
    ) -> list[Any] | None:
        """Make rows exact from now on if that was what was lacking; a batch that fails either way changes nothing."""
        try:
            results = attempt(scope, self.exact_feeds(feed), seed)
        except Need:
            raise failed from None
        if results is not None:
            self._stay_exact(failed)
        return results

    def _holds_rows(self, scope: Scope) -> bool:
        """Whether a value read from the scope has rows that may have been padded."""
        names = [n for n in self.plan.reads if n not in self._job.feeds]
        return _any_rows(gather_values(scope, names, exact=False).values())

    def _drop_padding(self, needed: NeedsExact) -> None:
        """Make the next attempt give exact rows to the op that refused padded ones.

        Rows are exact throughout then, while dims of dense feeds may have room if nothing fed has rows; where their
        number depends on data, the op runs outside jit.
        """
        if self.exact and needed.op_index in self._outside and self._feeder.refuse_dims():
            self._compilations.clear()  # it was no rows that had room
        elif self.exact:
            self._cut_at(needed)
        elif self._feeder.accept_even() or self._feeder.refuse_even() or self._feeder.refuse_rows():
            self._compilations.clear()
        else:
            self._stay_exact(needed)
            self._compilations.clear()

    def _stay_exact(self, needed: NeedsExact) -> None:
        self._compilations.causes.blame(needed, "rows are exact, and every LoD is compiled")
        self.exact = True
        if self._outside:  # ops that needed a value on the host may have it now
            self._outside.clear()
            self.plan_anew(())
            self._compilations.clear()

    def _give_sizes(self, needed: NeedsSizes) -> None:
        """Make the next attempt use the exact sizes of the dims in which an op refused room."""
        if any(isinstance(label, Carried) for label in needed.labels):
            self._compilations.causes.blame(needed, "what a loop makes longer is compiled for every length")
            self._compilations.spare = self._compilations.spare._replace(growing=False)
        elif self._feeder.refuse(needed.labels):
            self._compilations.causes.blame(needed, "every size of what it reads is compiled")
        if any(not isinstance(label, int | Carried) for label in needed.labels):
            self._compilations.spare = self._compilations.spare._replace(wide=False)
        self._compilations.clear()

    def _provide(self, needed: NeedsConcrete, feed: Mapping[str, Any]) -> None:
        """Provide the next attempt with what this one lacked."""
        if needed.longest and not self._feeder.tight:
            self._compilations.causes.blame(needed, "every longest length is compiled")
            self._feeder.tight = True
            self._compilations.clear()
        elif self._feeder.count_rows(read_for(self._job.program, needed), feed):
            self._compilations.clear()
        else:
            self._cut_at(needed)

    def _cut_at(self, needed: Need) -> None:
        if needed.op_index < 0 or needed.op_index in self._outside:
            raise needed.refusal() from needed
        effect = "it runs outside of what is compiled, which takes its results as they come"
        self._compilations.causes.blame(needed, effect)
        self._outside.add(needed.op_index)
        self.plan_anew(())
        self._compilations.keep(self.plan.segments)

    def grew(self, compiled: CompiledOps, overflows: Mapping[str, Any]) -> bool:
        """Enlarge the buffers that overflowed; returns whether any did."""
        full = [name for name, flag in overflows.items() if bool(flag)]
        for name in full:
            if name in compiled.uneven:
                raise compiled.uneven[name]
            self._compilations.causes.grew(name)
            self._compilations.capacities[name] = enlarged(compiled.used[name], overflows[name])
        if full:
            self._compilations.clear()
        return bool(full)


def _any_rows(values: Iterable[Any]) -> bool:
    return any(isinstance(value, LoDArray) for value in values)
