"""Ops that are recorded and not yet run.

An op's outputs are known in shape and dtype at once; their numbers are computed when somebody looks at one (``numpy``,
``bool``, ``print`` ...), and only those that somebody still holds, or that these follow from. What was recorded
between two looks runs op by op, or, when it was seen before, as one compiled block (see ``blocks``).
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from fluidjax.base.errors import EnforceNotMet, explain
from fluidjax.base.flags import FLAGS
from fluidjax.eager.blocks import Blocks
from fluidjax.eager.demands import broken, demand_of, user_line
from fluidjax.eager.kernels import Kernel, forget
from fluidjax.eager.moving import moves
from fluidjax.eager.order import Record
from fluidjax.eager.packs import Piece, taken
from fluidjax.eager.points import Point, Tree
from fluidjax.eager.values import KEY, Spec, Value, spec_of
from fluidjax.execution.seeds import ENTROPY
from lowering.engine.interrupts import uninterrupted
from lowering.engine.x64 import with_x64

LIMIT = 20_000  # ops that may be pending; a program that never looks must not fill the memory


class Recorder:
    """The pending ops, and the compiled blocks that run them.

    A record is (kernel, code of each input): the number of a pending output, or ``~k`` for leaf ``k``, a value that was
    there before.

    Attributes:
        serial: the number of this batch of pending ops.
    """

    def __init__(self) -> None:
        self.blocks = Blocks()
        self._faults: list[Any] = []  # (flag, its kernel, the user's line) of checks that run with what is pending
        self.serial = 0
        self._draws = 0
        self._tree = Tree()
        self._clear()

    def _clear(self) -> None:
        root = self._tree.root()
        self.serial += 1
        self.point = root
        self._records: list[Record] = []
        self._outputs: list[Any] = []  # a weak reference to each output, None for those nobody takes
        self._leaves: list[Value] = []
        self._limit = LIMIT

    def run(self, kernel: Kernel, ins: Sequence[Value], seed: int = 0) -> list[Value | None]:
        """The outputs of a kernel for its inputs, pending; at once where nothing is known before it ran.

        Args:
            seed: what random numbers are drawn from, 0 for ones that differ from process to process.
        """
        point = self.point.expected
        if (
            point is None
            or point.kernel is not kernel
            or kernel.special
            or len(self._records) >= self._limit
            or not FLAGS["FLAGS_eager_blocks"]
        ):
            return self._run_other(kernel, ins, seed)
        serial, leaves = self.serial, self._leaves
        codes = [v.index if v.serial == serial else self.leaf(v) for v in ins]
        if codes != point.codes or len(leaves) != point.leaves:
            return self._run_other(kernel, ins, seed)
        if point.fresh and [v.spec for v in leaves[-len(point.fresh) :]] != point.fresh:
            return self._run_other(kernel, ins, seed)
        return self._record(point)

    def _run_other(self, kernel: Kernel, ins: Sequence[Value], seed: int) -> list[Value | None]:
        """See ``run``, for an op that is not the expected one."""
        specs = tuple([v.spec for v in ins])
        try:
            found = kernel.known[specs]
        except KeyError:
            found = kernel.infer(specs)
        if found is None:
            return self._run_now(kernel, ins, seed)
        if kernel.sources and kernel.movable and moves(kernel, self.point):
            forget(kernel)
            return self._run_now(kernel, ins, seed)
        if kernel.checked and FLAGS["FLAGS_check_values"]:
            self._check(kernel, specs, ins)
        if found and found[0].__class__ is int:
            return [ins[k] for k in found]  # what passes through needs no op
        if not FLAGS["FLAGS_eager_blocks"]:
            return self._run_directly(kernel, ins, seed, found)
        if len(self._records) >= self._limit:
            self.flush()
        serial, before = self.serial, self.point.leaves
        codes = [v.index if v.serial == serial else self.leaf(v) for v in ins]
        if kernel.takes_key:
            codes.insert(0, self.leaf(self._key(seed)))
        return self._record(self.point.after(kernel, codes, [v.spec for v in self._leaves[before:]], found))

    def _record(self, point: Point) -> list[Value | None]:
        """The outputs of the op that leads to a point."""
        serial, index = self.serial, len(self._outputs)
        held: list[Any] = []
        results: list[Value | None] = []
        for spec in point.outs:
            if spec is None:
                held.append(None)
                results.append(None)
            else:
                value = Value.__new__(Value)
                value.array, value.spec, value.serial, value.index = None, spec, serial, index
                held.append(weakref.ref(value))
                results.append(value)
            index += 1
        # Without a call: an interrupt, which arrives at calls, comes before all of this or after it.
        self._records += (point.record,)
        self._outputs += held
        self.point = point
        return results

    # What a pass that is done again needs (see ``passes``).

    def takes(self, count: int) -> bool:
        """Whether so many ops more can be pending, and no other leaves are there than the ops have."""
        fits = len(self._records) + count < self._limit and len(self._leaves) == self.point.leaves
        return fits and bool(FLAGS["FLAGS_eager_blocks"])

    def counts(self) -> tuple[int, int, int]:
        """The number of pending records, of their outputs, and of leaves."""
        return len(self._records), len(self._outputs), len(self._leaves)

    def since(self, counts: tuple[int, int, int]) -> tuple[list[Record], int, list[Value]]:
        """What came after ``counts``: the records, the number of their outputs, the leaves."""
        records, outputs, leaves = counts
        return self._records[records:], len(self._outputs) - outputs, self._leaves[leaves:]

    def extend(self, records: list[Record], outputs: int, end: Point) -> None:
        """Append records that lead to a point; nobody takes their outputs but by ``output``."""
        self._records += records
        self._outputs += [None] * outputs
        self.point = end

    def output(self, code: int, spec: Spec) -> Value:
        """A pending output, by its number."""
        value = Value.__new__(Value)
        value.array, value.spec, value.serial, value.index = None, spec, self.serial, code
        self._outputs[code] = weakref.ref(value)
        return value

    def _check(self, kernel: Kernel, specs: tuple[Spec, ...], ins: Sequence[Value]) -> None:
        check = demand_of(kernel, specs)
        if check is None:
            return
        if check.reads_host(ins):
            check.refuse(ins)
        else:
            self._faults.append((self.run(check, ins)[0], check, user_line()))
            if not FLAGS["FLAGS_eager_blocks"]:
                self._report()

    def _report(self) -> None:
        """Raise the error of the first op, of those that ran, that got a number it cannot take."""
        faults, self._faults = self._faults, []
        for flag, check, line in faults:
            broken_, number = np.asarray(taken(flag.array))
            if broken_:
                raise broken(check, int(number), "ids, labels or divisors within their range", line)

    def leaf(self, value: Value) -> int:
        """The code of a value that was there before; it becomes a leaf."""
        if value.array is None:
            raise lost()
        code = ~len(self._leaves)
        self._leaves.append(value)
        value.serial, value.index = self.serial, code
        return code

    def _key(self, seed: int) -> Value:
        self._draws += 1
        return Value(np.array([(seed or ENTROPY) & 0xFFFFFFFF, self._draws & 0xFFFFFFFF], np.uint32), KEY)

    def _run_now(self, kernel: Kernel, ins: Sequence[Value], seed: int) -> list[Value | None]:
        arrays = [self.array_of(v) for v in ins]
        if kernel.takes_key:
            arrays.insert(0, self._key(seed).array)
        results = with_x64(kernel.run, tuple(arrays))
        return [None if a is None else Value(a, spec_of(a)) for a in results]

    def _run_directly(self, kernel: Kernel, ins: Sequence[Value], seed: int, specs: Any) -> list[Value | None]:
        arrays = [self.array_of(v) for v in ins]
        if kernel.takes_key:
            arrays.insert(0, self._key(seed).array)
        results = with_x64(kernel.run, arrays)
        return [None if spec is None else Value(a, spec) for a, spec in zip(results, specs, strict=True)]

    def end_of_step(self) -> None:
        """Let the next op begin a new batch: a training step is over."""
        self._limit = 0

    def array_of(self, value: Value) -> Any:
        """The numbers of a value; what is pending runs first."""
        if value.array is None:
            self.flush()
            if value.array is None:
                raise lost()
            if self._faults:
                self._report()
        if value.array.__class__ is Piece:
            value.array = value.array.take()
        return value.array

    def flush(self) -> None:
        """Run what is pending, as far as somebody holds its results. An interrupt waits: nothing would run it again."""
        uninterrupted(self._run_pending)

    def _run_pending(self) -> None:
        records, leaves, point = self._records, self._leaves[: self.point.leaves], self.point
        held = [r and r() for r in self._outputs]
        self._clear()
        alive = tuple([i for i, value in enumerate(held) if value is not None])
        if not alive:
            return
        arrays, specs = [v.array for v in leaves], tuple([v.spec for v in leaves])
        del leaves
        for i, array in zip(alive, self.blocks.run(point, records, arrays, specs, alive), strict=True):
            held[i].array = array


recorder = Recorder()


def lost() -> EnforceNotMet:
    """The error for a value whose op failed."""
    return EnforceNotMet(
        explain(
            "a variable has no value: an op that it follows from failed when it ran",
            "values of ops that succeeded",
            "a value that was never computed",
            "mend the op that the earlier error names, and compute the variable again",
        )
    )
