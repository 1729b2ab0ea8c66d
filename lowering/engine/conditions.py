"""What ops on wide values need of sizes."""

from __future__ import annotations

from collections.abc import Hashable

from lowering.engine.expected import axes_of
from lowering.engine.run import Run
from lowering.errors import NeedsSizes
from lowering.program import OpView
from lowering.sizes.counts import SlotValues, flat
from lowering.sizes.labels import Sized, form_of, roots
from lowering.values import Array


class Conditions:
    """What an op on wide values needs their sizes to be: checked by the host where it knows them, else by the run."""

    def __init__(self, op: OpView, run: Run):
        self._op, self._run = op, run
        self.packs = run.packs

    def some(self, label: Hashable, count: Array) -> None:
        """Axes with this label, of which so many positions are used, have at least one."""
        needed = self._needed("cuts all there is of a dim", label)
        if self._run.fed.knows(label):
            self._run.fed.expect_some(label, needed)
        else:
            self._flag(count < 1, needed)

    def same(self, one: Sized, other: Sized) -> None:
        """Axes with two labels use equally many positions; without a label, the number is known."""
        labels = [label for label, _ in (one, other) if label is not None]
        needed = self._needed("pairs dims whose sizes differ", *labels)
        if all(map(self._run.fed.knows, labels)):
            self._run.fed.expect_same(one, other, needed)
        else:
            self._flag(one[1] != other[1], needed)

    def sized(self, results: SlotValues) -> None:
        """No dim is made of a number that is less than the size of another, and nothing."""
        for value in flat(results):
            for axis, count in zip(axes_of(value), value.counts if axes_of(value) else (), strict=True):
                form = form_of(axis.label)
                if 1 + form.by < form.stride:
                    self.some(axis.label, count)

    def _needed(self, why: str, *labels: Hashable) -> NeedsSizes:
        needed = NeedsSizes(f"op {self._op.type} {why}")
        needed.labels = roots(labels)
        needed.asked_by(self._op)
        return needed

    def _flag(self, flag: Array, needed: NeedsSizes) -> None:
        """Let the run raise ``needed`` where ``flag`` is set."""
        name = f"{needed} of op {self._op.index} of block {self._op.block_idx}: {sorted(map(str, needed.labels))}"
        self._run.uneven[name] = needed
        self._run.overflow(name, flag)
