"""Repeating ops: what an optimizer traces in one step runs in the next without its Python.

If the ops are recorded after the same ones as before, they are a known stretch (see ``stretches``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from fluidjax.eager.kernels import Kernel
from fluidjax.eager.recorded.groups import Group, Member
from fluidjax.eager.recorded.pending import recorder
from fluidjax.eager.recorded.stretches import Mark, Source, Stretch
from fluidjax.eager.values import Spec, Value
from fluidjax.eager.variables.varbase import VarBase

Call = tuple[Kernel, Sequence[Any], Sequence[Any]]  # a kernel, its input and output variables


class Around(NamedTuple):
    """A replay after one point, without what it does to the variables of the group (see ``groups``).

    Attributes:
        stretch: what it records, without leaves.
        runs: what becomes a leaf, in order: which variables of the group do, and the others that follow them.
        results: for each other variable that it writes, the number of the output and its spec.
        codes: the numbers of the outputs that the variables of the group become.
    """

    stretch: Stretch
    runs: list[tuple[slice, list[tuple[Source, Spec]]]]
    results: list[tuple[int, Spec]]
    codes: tuple[int, ...]

    def run(self, group: Group, reads: Sequence[Any], variables: Sequence[Any]) -> bool:
        """See ``Update.run``."""
        stretch = self.stretch
        if group.serial == recorder.serial or not recorder.takes(stretch.ops):
            return False
        for these, sources in self.runs:
            recorder.leaves += group.values[these]
            if not recorder.become_leaves(sources, reads):
                return False
        if not stretch.register(recorder, reads):
            return False
        group.enter(self.codes, stretch.end)
        _assign(variables, self.results)
        return True


class Update(NamedTuple):
    """A replay after one point.

    Attributes:
        stretch: what it records.
        results: for each variable that it writes, the number of the output and its spec.
        around: the same without the variables that can form a group; None if there are too few of them.
    """

    stretch: Stretch
    results: list[tuple[int, Spec]]
    around: Around | None

    def run(self, reads: Sequence[Any], variables: Sequence[Any]) -> bool:
        """Repeat it; returns False, without effect, if anything differs."""
        stretch = self.stretch
        if not recorder.takes(stretch.ops) or not stretch.register(recorder, reads):
            return False
        recorder.extend(stretch.end)
        _assign(variables, self.results)
        return True


def _assign(variables: Sequence[Any], results: Sequence[tuple[int, Spec]]) -> None:
    """Variables become outputs of the batch."""
    for var, value in zip(variables, recorder.outputs_of(results), strict=True):
        if var._held.__class__ is Value:
            var._held = value
        else:
            var._value = value  # into the array that it shares memory with
        var._place = None


class Replay:
    """Ops on persistable variables, whose values they replace, and on given ones, which change each time.

    Args:
        calls: the traced ops.
        given: the variables that change each time.

    Attributes:
        read, written: the variables that they read before they write them, and those that they write.
        together: what the variables hold between steps that are known as a whole (see ``together``); None for none.
        formed, promises: how often that was formed, and how often a block ran on it.
        rate: the last of the given values, which is no gradient but the learning rate.
        settings: of the optimizer, as they were looked at last: the identities of all that it holds, the settings, and
            what it holds.
        foresees: refers to a function that gives the next one as a variable, or None; None if there is none.
    """

    def __init__(self, calls: Sequence[Call], given: Sequence[Any]) -> None:
        numbers = {id(var): k for k, var in enumerate(given)}
        self._steps: list[tuple[Kernel, list[Any], list[Any]]] = []
        read: dict[int, Any] = {}
        written: dict[int, Any] = {}
        for kernel, ins, outs in calls:
            reads = [numbers.get(id(var), var) for var in ins]
            read.update({id(x): x for x in reads if x.__class__ is not int and id(x) not in written})
            for var in outs:
                if not var.persistable:
                    numbers.setdefault(id(var), len(numbers))
            writes = [numbers.get(id(var), var) for var in outs]
            written.update({id(x): x for x in writes if x.__class__ is not int})
            self._steps.append((kernel, reads, writes))
        self._temporaries = len(numbers) - len(given)
        self.read, self.written = list(read.values()), list(written.values())
        self.together: Any = None
        self.formed = self.promises = 0
        self.rate: Any = None
        self.foresees: Any = None
        self.settings: tuple[list[int], list[Any], list[Any]] | None = None
        # Its own alone, as far as can be seen: nothing else reads or writes an optimizer's variables in a step.
        own = {key for key, var in written.items() if key in read and var.__class__ is VarBase}
        self._own = [var for var in self.read if id(var) in own]
        self._read_beside = [var for var in self.read if id(var) not in own]
        self._written_beside = [var for var in self.written if id(var) not in own]
        self._group: Group | None = None
        self._groups = 0  # that have been formed

    def let_go(self) -> None:
        """Release the values of the group."""
        self._group = None

    def next_rate(self) -> Any:
        """The value that ``rate`` will probably have in the next update; None if that is not known."""
        foresees = None if self.foresees is None else self.foresees()
        found = None if foresees is None else foresees()
        return self.rate if found is None else found._value

    def run(self, tracer: Any, given: Sequence[Any]) -> None:
        """Run the ops with other given variables."""
        self.rate = given[-1]._value
        promised = recorder.promised
        if promised is not None and promised.update(self, given):
            return None
        values = _values(given)
        point = recorder.point
        if point.updates is None:
            point.updates = WeakKeyDictionary()  # a step that recurs will recur again
            return self._run(tracer, values)
        updates = point.updates.setdefault(self, [])
        group = self._group
        if group is not None and group.intact:
            reads = values + _values(self._read_beside)
            for update in updates:
                if update.around is not None and update.around.run(group, reads, self._written_beside):
                    recorder.parts.append((self, update, len(given)))
                    return None
        reads = values + _values(self.read)
        for update in updates:
            if update.run(reads, self.written):
                recorder.parts.append((self, update, len(given)))
                if update.around is not None:
                    self._form()
                return None
        mark = Mark(recorder)
        self._run(tracer, values)
        if len(updates) < _UPDATES:
            updates += self._known(mark, reads)
        return None

    def _run(self, tracer: Any, given: list[Any]) -> None:
        values: list[Any] = [*given, *[None] * self._temporaries]
        for kernel, reads, writes in self._steps:
            ins = [values[x] if x.__class__ is int else x._value for x in reads]
            for x, result in zip(writes, tracer.run(kernel, ins), strict=False):
                if x.__class__ is int:
                    values[x] = result
                else:
                    x._value, x._place = result, None

    def _known(self, mark: Mark, reads: list[Any]) -> list[Update]:
        """What has been recorded since; nothing if it cannot be repeated."""
        stretch = mark.stretch(reads)
        results: list[Value] = [var._value for var in self.written]
        if stretch is None or not all(map(mark.made, results)) or len(set(map(id, results))) < len(results):
            return []
        made = {id(var): (value.index, value.spec) for var, value in zip(self.written, results, strict=True)}
        return [Update(stretch, [*made.values()], self._around(stretch, len(reads) - len(self.read), made))]

    def _around(self, stretch: Stretch, given: int, made: dict[int, tuple[int, Spec]]) -> Around | None:
        """See Update; the variables of the group must be leaves of it, in the order in which they are read."""
        numbers = {id(var): given + k for k, var in enumerate(self.read)}
        own = [(numbers[id(var)], made[id(var)][1]) for var in self._own]
        if len(own) < _LEAST or [leaf for leaf in stretch.leaves if leaf in own] != own:
            return None
        beside = [*range(given), *[numbers[id(var)] for var in self._read_beside]]
        renumbered = {k: n for n, k in enumerate(beside)}
        runs: list[tuple[slice, list[tuple[Source, Spec]]]] = [(slice(0, 0), [])]
        count = 0
        for source, spec in stretch.leaves:
            if (source, spec) not in own:
                runs[-1][1].append((renumbered[source] if source.__class__ is int else source, spec))
                continue
            if runs[-1][1]:
                runs.append((slice(count, count), []))
            count += 1
            runs[-1] = slice(runs[-1][0].start, count), []
        part = Stretch([stretch.codes[k] for k in beside], [], stretch.ops, stretch.end)
        codes = tuple([made[id(var)][0] for var in self._own])
        return Around(part, runs, [made[id(var)] for var in self._written_beside], codes)

    def _form(self) -> None:
        """Form a group of the variables that the update has just replaced, unless that has been of no use."""
        if self._groups == _GROUPS:
            return
        self._groups += 1
        self._group = Group([var._value for var in self._own])
        for k, var in enumerate(self._own):
            var._held = Member(self._group, k, var._held.spec)


def _values(variables: Sequence[Any]) -> list[Any]:
    held = [var._held for var in variables]
    return [h if h.__class__ is Value else var._value for h, var in zip(held, variables, strict=True)]


_UPDATES = 8  # known updates of a replay for one point
_LEAST = 4  # variables of a group
_GROUPS = 32  # of them that are formed; a script that looks at its optimizer's variables in each step parts them all
