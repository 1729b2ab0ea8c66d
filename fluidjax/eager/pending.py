"""Ops that are recorded and not yet run.

An op's outputs are known in shape and dtype at once; their numbers are computed when somebody looks at one (``numpy``,
``bool``, ``print`` ...), and only those that somebody still holds, or that these follow from. What was recorded
between two looks runs op by op, or, when it was seen before, as one compiled block (see ``blocks``).
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from fluidjax.base.errors import EnforceNotMet, explain
from fluidjax.base.flags import FLAGS
from fluidjax.eager.blocks import Blocks
from fluidjax.eager.demands import broken, demand_of, user_line
from fluidjax.eager.kernels import Kernel
from fluidjax.eager.order import Record
from fluidjax.eager.values import KEY, Spec, Value, spec_of
from fluidjax.execution.seeds import ENTROPY

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
        self._clear()

    def _clear(self) -> None:
        self.serial += 1
        self._records: list[Record] = []
        self._outputs: list[Any] = []  # a weak reference to each output, None for those nobody takes
        self._leaves: list[Value] = []
        self._limit = LIMIT

    def run(self, kernel: Kernel, ins: Sequence[Value], seed: int = 0) -> list[Value | None]:
        """The outputs of a kernel for its inputs, pending; at once where nothing is known before it ran.

        Args:
            seed: what random numbers are drawn from, 0 for ones that differ from process to process.
        """
        specs = tuple([v.spec for v in ins])
        try:
            found = kernel.known[specs]
        except KeyError:
            found = kernel.infer(specs)
        if found is None:
            return self._run_now(kernel, ins, seed)
        if kernel.definition.demands is not None and not kernel.backward and FLAGS["FLAGS_check_values"]:
            self._check(kernel, specs, ins)
        if found and found[0].__class__ is int:
            return [ins[k] for k in found]  # what passes through needs no op
        if len(self._records) >= self._limit:
            self.flush()
        serial = self.serial
        codes = [v.index if v.serial == serial else self._leaf(v) for v in ins]
        if kernel.takes_key:
            codes.insert(0, self._leaf(self._key(seed)))
        self._records.append((kernel, *codes))
        outputs = self._outputs
        results: list[Value | None] = []
        for spec in found:
            if spec is None:
                outputs.append(None)
                results.append(None)
                continue
            value = Value.__new__(Value)
            value.array, value.spec, value.serial, value.index = None, spec, serial, len(outputs)  # type: ignore
            outputs.append(weakref.ref(value))
            results.append(value)
        if not FLAGS["FLAGS_eager_blocks"]:
            self.flush()
        return results

    def _check(self, kernel: Kernel, specs: tuple[Spec, ...], ins: Sequence[Value]) -> None:
        check = demand_of(kernel, specs)
        if check is None:
            return
        if check.reads_host(ins):
            check.refuse(ins)
        else:
            self._faults.append((self.run(check, ins)[0], check, user_line()))

    def _report(self) -> None:
        """Raise the error of the first op, of those that ran, that got a number it cannot take."""
        faults, self._faults = self._faults, []
        for flag, check, line in faults:
            broken_, number = np.asarray(flag.array)
            if broken_:
                raise broken(check, int(number), "ids, labels or divisors within their range", line)

    def _leaf(self, value: Value) -> int:
        if value.array is None:
            raise lost()
        value.serial, value.index = self.serial, ~len(self._leaves)
        self._leaves.append(value)
        return value.index

    def _key(self, seed: int) -> Value:
        self._draws += 1
        return Value(np.array([(seed or ENTROPY) & 0xFFFFFFFF, self._draws & 0xFFFFFFFF], np.uint32), KEY)

    def _run_now(self, kernel: Kernel, ins: Sequence[Value], seed: int) -> list[Value | None]:
        arrays = [self.array_of(v) for v in ins]
        if kernel.takes_key:
            arrays.insert(0, self._key(seed).array)
        with jax.enable_x64(True):
            results = kernel.run(tuple(arrays))
        return [None if a is None else Value(a, spec_of(a)) for a in results]

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
        return value.array

    def flush(self) -> None:
        """Run what is pending, as far as somebody holds its results."""
        records, leaves = self._records, self._leaves
        held = [r and r() for r in self._outputs]
        self._clear()
        alive = tuple([i for i, value in enumerate(held) if value is not None])
        if not alive:
            return
        arrays, specs = [v.array for v in leaves], tuple([v.spec for v in leaves])
        leaves.clear()
        for i, array in zip(alive, self.blocks.run(records, arrays, specs, alive), strict=True):
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
