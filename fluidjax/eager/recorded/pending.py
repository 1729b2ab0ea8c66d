"""Ops that are recorded and not yet run.

An op's outputs have known shapes and dtypes at once; their numbers are computed when one is read (``numpy``,
``bool``, ``print`` ...), and only those that are still referenced, or that these depend on. What was recorded
between two reads runs op by op or, if it occurred before, as one compiled block (see ``blocks``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fluidjax.base.enums import VarType
from fluidjax.base.flags import FLAGS
from fluidjax.eager.backward.tape import UNWANTED
from fluidjax.eager.kernels import Kernel, replaced
from fluidjax.eager.recorded.alive import referenced
from fluidjax.eager.recorded.demands import DemandKernel, Faults, demand_of, within
from fluidjax.eager.recorded.moving import moves
from fluidjax.eager.recorded.sizes import Bound, bound, known
from fluidjax.eager.sequences.blocks import Blocks
from fluidjax.eager.sequences.packs import Piece
from fluidjax.eager.sequences.points import Point, Tree
from fluidjax.eager.values import KEY, Spec, Value, array_of, lost, spec_of, to_device
from fluidjax.execution.steps import seeds
from lowering.engine.interrupts import uninterrupted
from lowering.engine.x64 import with_x64

_ARRAY, _FLOAT = np.ndarray, VarType.FP32  # looking them up takes as long as the rest of their processing
LIMIT = 20_000  # ops that may be pending; a program that never reads a value must not fill the memory


class Recorder:
    """The pending ops, and the compiled blocks that run them.

    A record is (kernel, code of each input): the number of a pending output, or ``~k`` for leaf ``k``, a value that was
    already present.

    Attributes:
        serial: the number of this batch of pending ops.
        point: the records of the batch (see ``points``).
        outputs: the stand-ins for outputs, by number; references other than the dict's count as uses.
        limit: how many ops may be pending.
        apart: how many constants of the batch were not recorded, because they change.
        parts: what has been repeated in the batch: calls of layers, backward passes and updates.
        promised: the step that stands for the batch, of which nothing is recorded (see ``promised``); None for none.
        learn: is told of the parts of each batch that ran, and which of its outputs were looked at before.
        look: computes what is looked at without ending the batch, where that is of use (see ``looks``).
        looked: the outputs that were computed so, and after how many ops.
    """

    promised: Any = None
    learn: Any = None
    look: Any = None

    def __init__(self) -> None:
        self.blocks = Blocks()
        self._faults = Faults()
        self.serial = 0
        self._draws = 0
        self._tree = Tree()
        self.clear()

    def clear(self) -> None:
        """Begin another batch."""
        root = self._tree.root()
        self.serial += 1
        self.point, self.apart = root, 0
        self.outputs: dict[int, Value] = {}
        self.leaves: list[Value] = []
        self.groups: list[Any] = []  # of leaves whose arrays nothing needs after the batch (see ``groups``)
        self._returning: list[Value] = []  # on the host, and leaves of another batch before: these come again
        self.calls: list[Any] = []  # weak references to calls whose inner values are made when they are asked for
        self.parts: list[Any] = []
        self.looked: dict[int, int] = {}
        self.limit = LIMIT

    def follow(self, point: Point, variables: Sequence[Any]) -> tuple[list[Any], int] | None:
        """The places on the tape of the inputs of the op that leads to the expected point.

        None if the op is a different one after all, or if more is needed than recording it. Besides the places, a
        number with a bit for each input, 1 if a gradient flows to it.
        """
        if (point.special and point.limits is None) or point.depth > self.limit or not FLAGS["FLAGS_eager_blocks"]:
            return None
        serial, codes = self.serial, point.codes
        parents: list[Any] = []
        k = flows = 0
        try:
            for var in variables:
                value = var._held
                if value.__class__ is not Value:
                    value = value.now()  # it shares memory with an array
                if (value.index if value.serial == serial else self.leaf(value)) != codes[k]:
                    return None
                k += 1
                if var._stop_gradient is False:
                    parents.append(var._place)
                    flows += flows + 1
                else:
                    parents.append(UNWANTED)
                    flows += flows
        except AttributeError:  # not an eager variable, or one without a value
            return None
        leaves = self.leaves
        if len(leaves) != point.leaves:
            return None
        if point.fresh and tuple([v.spec for v in leaves[-len(point.fresh) :]]) != point.fresh:
            return None
        if point.special and not within(point.limits, variables):
            return None
        return parents, flows

    def run(self, kernel: Kernel, ins: Sequence[Value], seed: int | Value = 0) -> list[Value | None]:
        """The outputs of a kernel for its inputs, pending; computed at once if nothing is known before the run.

        Args:
            seed: the seed of random numbers, 0 for numbers that differ between processes (see also ``key``).
        """
        point = self.point.expected
        if (
            point is None
            or point.kernel is not kernel
            or point.special
            or self.point.depth >= self.limit
            or not FLAGS["FLAGS_eager_blocks"]
        ):
            return self._run_other(kernel, ins, seed)
        serial, leaves = self.serial, self.leaves
        codes = tuple([v.index if v.serial == serial else self.leaf(v) for v in ins])
        if codes != point.codes or len(leaves) != point.leaves:
            return self._run_other(kernel, ins, seed)
        if point.fresh and tuple([v.spec for v in leaves[-len(point.fresh) :]]) != point.fresh:
            return self._run_other(kernel, ins, seed)
        return self.record(point)

    def _run_other(self, kernel: Kernel, ins: Sequence[Value], seed: int | Value) -> list[Value | None]:
        """See ``run``, for an op that is not the expected one."""
        specs = tuple([v.spec for v in ins])
        try:
            found = kernel.known[specs]
        except KeyError:
            found = kernel.infer(specs)
        if found is None:
            instead = bound(kernel, ins, self.point, self.serial)
            return self._run_now(kernel, ins, seed) if instead is None else self._run_other(instead, ins, seed)
        if kernel.sources and kernel.movable and moves(kernel, self.point, self.apart):
            self.apart += 1
            replaced(kernel)
            return self._run_now(kernel, ins, seed)
        check = demand_of(kernel, specs) if kernel.checked else None
        limits = None
        if check is not None and FLAGS["FLAGS_check_values"]:
            limits = self._check(check, ins)
        if found and found[0].__class__ is int:
            return [ins[k] for k in found]  # inputs passed through need no op
        if not FLAGS["FLAGS_eager_blocks"]:
            return self._run_now(kernel, ins, seed, found)
        if self.point.depth >= self.limit:
            self.flush()
        serial, before = self.serial, self.point.leaves
        codes = [v.index if v.serial == serial else self.leaf(v) for v in ins]
        if kernel.takes_key:
            codes.insert(0, self.leaf(self.key(seed)))
        fresh = tuple([v.spec for v in self.leaves[before:]])
        special = check is not None or kernel.takes_key or kernel.__class__ is Bound
        after = self.point.after(kernel, tuple(codes), fresh, found, special)
        after.limits = None if kernel.takes_key else limits
        return self.record(after)

    def record(self, point: Point) -> list[Value | None]:
        """The outputs of the op that leads to a point."""
        serial, index, outputs = self.serial, point.first, self.outputs
        results: list[Value | None] = []
        for spec in point.outs:
            value = None
            if spec is not None:
                value = Value.__new__(Value)
                value.array, value.spec, value.serial, value.index = None, spec, serial, index
                outputs[index] = value
            results.append(value)
            index += 1
        self.point = point  # after an interrupt before this, there are stand-ins that nobody holds
        return results

    # What repeating a pass needs (see ``passes``).

    def takes(self, count: int) -> bool:
        """Whether this many more ops can be pending, and their leaves are the only new ones."""
        fits = self.point.depth + count < self.limit and len(self.leaves) == self.point.leaves
        return fits and bool(FLAGS["FLAGS_eager_blocks"])

    def leaves_since(self, point: Point) -> list[Value]:
        """The leaves added after a point of this batch."""
        return self.leaves[point.leaves :]

    def extend(self, end: Point) -> None:
        """Continue to a point that this one leads to; outputs in between can only be obtained by ``output``."""
        self.point = end

    def outputs_of(self, results: Sequence[tuple[int, Spec]]) -> list[Value]:
        """``output`` for many."""
        serial, outputs, new = self.serial, self.outputs, Value.__new__
        found: list[Value] = []
        for code, spec in results:
            value = outputs[code] = new(Value)
            value.array = None  # one by one: assigning a tuple makes one, and there are hundreds of outputs
            value.spec = spec
            value.serial = serial
            value.index = code
            found.append(value)
        return found

    def output(self, code: int, spec: Spec) -> Value:
        """A pending output, by its number."""
        value = self.outputs[code] = Value.pending(spec, self.serial, code)
        return value

    def _check(self, check: DemandKernel, ins: Sequence[Value]) -> Any:
        if check.reads_host(ins):
            return check.refuse(ins)
        self._faults.add(self.run(check, ins)[0], check)
        if not FLAGS["FLAGS_eager_blocks"]:
            self._faults.report()
        return None

    def leaf(self, value: Value) -> int:
        """The code of an existing value, which becomes a leaf."""
        if value.array is None:
            raise lost()
        if value.index < 0 and value.array.__class__ is _ARRAY and value.spec.dtype is _FLOAT and value.serial >= 0:
            self._returning.append(value)
        code = ~len(self.leaves)
        self.leaves.append(value)
        value.serial, value.index = self.serial, code
        return code

    def add_leaves(self, values: Sequence[Value]) -> None:
        """``leaf`` for many values, of which it is known that they are not pending."""
        serial, leaves = self.serial, self.leaves
        code = ~len(leaves)
        leaves += values  # first: after an interrupt, a value that says it is a leaf is one
        for value in values:
            if value.index < 0 and value.array.__class__ is _ARRAY and value.spec.dtype is _FLOAT and value.serial >= 0:
                self._returning.append(value)
            value.serial, value.index = serial, code
            code -= 1

    def become_leaves(self, sources: Sequence[tuple[Any, Spec]], values: Sequence[Value]) -> bool:
        """``leaf`` for many; False at one that is pending, a leaf already, or not what is expected of it.

        Args:
            sources: for each a value or its number among ``values``, and the spec expected of it.
        """
        serial, leaves = self.serial, self.leaves
        code = ~len(leaves)
        for source, spec in sources:
            value = values[source] if source.__class__ is int else source
            array = value.array
            if array is None or value.serial == serial or value.spec is not spec:
                return False
            if value.index < 0 and array.__class__ is _ARRAY and spec.dtype is _FLOAT and value.serial >= 0:
                self._returning.append(value)
            leaves.append(value)
            value.serial, value.index = serial, code
            code -= 1
        return True

    def key(self, seed: int | Value) -> Value:
        """The key of a draw: a new leaf. In place of a seed, a key that was drawn before."""
        if isinstance(seed, Value):
            return seed
        self._draws += 1
        return Value(np.array([(seed or seeds.entropy) & 0xFFFFFFFF, self._draws & 0xFFFFFFFF], np.uint32), KEY)

    def _run_now(self, kernel: Kernel, ins: Sequence[Value], seed: Any, specs: Any = None) -> list[Value | None]:
        arrays = [self.array_of(v) for v in ins]
        if kernel.takes_key:
            arrays.insert(0, self.key(seed).array)
        results = with_x64(kernel.run, tuple(arrays))
        if specs is None:
            specs = [None if a is None else spec_of(a) for a in results]
        return [None if spec is None else Value(a, spec) for a, spec in zip(results, specs, strict=True)]

    def end_of_step(self) -> None:
        """Start a new batch with the next op, because a training step has ended."""
        self.limit = 0

    def array_of(self, value: Value) -> Any:
        """The numbers of a value; pending ops run first."""
        if self.computed(value).__class__ is Piece:
            value.array = value.array.take()
        return value.array

    def computed(self, value: Value) -> Any:
        """The same, where a vector in a buffer (see ``packs``) may stay there."""
        if value.array is None and value.serial == self.serial:
            value.array = known(self.point, value)
        if value.array is None and self.parts and not self._faults.flags and self.look is not None:
            self.look(value)
        if value.array is None:
            self.flush()
            if value.array is None:
                raise lost()
            self._faults.report()
        return value.array

    def flush(self) -> None:
        """Run pending ops whose results are referenced. An interrupt waits: nothing would run them again."""
        uninterrupted(self._run_pending)

    def _run_pending(self) -> None:
        point, parts, looked = self.point, self.parts, self.looked
        self._run_batch()
        if parts and self.learn is not None:
            self.learn(point, parts, looked)

    def _run_batch(self) -> None:
        for reference in self.calls:
            if (call := reference()) is not None:
                call.hold()
        call = None
        point, leaves, outputs = self.point, self.leaves[: self.point.leaves], self.outputs
        returning, groups, looked = self._returning, self.groups, self.looked
        self.clear()
        alive = referenced(outputs, point.end)
        if looked:
            alive = tuple(sorted({*looked, *alive}))
        if not alive:
            return
        to_device(returning)
        arrays = [*map(array_of, leaves)]
        for group in groups:
            for value in group.left:
                value.array = None
        del leaves, returning
        try:
            results = self.blocks.run(point, arrays, alive, keeps=bool(looked))
        except BaseException:
            for group in groups:
                group.intact = False
            raise
        for code, array in zip(alive, results, strict=True):
            if code not in looked:  # whoever looked has these numbers
                outputs[code].array = array


recorder = Recorder()
