"""A body (see ``eager.repeated.bodies``) from a call that was observed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fluidjax import unique_name
from fluidjax.eager.backward.tape import UNWANTED, OpNode
from fluidjax.eager.numbers import Affine
from fluidjax.eager.recorded.pending import recorder
from fluidjax.eager.recorded.stretches import Stretch, source_of
from fluidjax.eager.repeated.bodies import Body
from fluidjax.eager.repeated.inner import OUTSIDE, Inner, Result
from fluidjax.eager.values import KEY, Value
from fluidjax.eager.variables.varbase import VarBase


class Unrepeatable(Exception):
    """A call that recorded something which cannot be recorded at once."""


class Start:
    """The state before an observed call."""

    def __init__(self, tracer: Any) -> None:
        self.tracer, self.generator = tracer, unique_name.generator
        self.serial, self.point, self.first = recorder.serial, recorder.point, recorder.point.end
        self.base, self.counts = tracer.ids["tmp"], dict(unique_name.generator.ids)
        self.order = OpNode((), (), (), None, (), None).order  # type: ignore[arg-type]

    def counted(self) -> tuple[int, list[tuple[str, int]]]:
        """How many names were given since, by the tracer, and by ``unique_name`` for each key."""
        before, now = self.counts, self.generator.ids
        counts = [(key, number - before.get(key, 0)) for key, number in now.items()]
        return self.tracer.ids["tmp"] - self.base, [(key, count) for key, count in counts if count]


class Making:
    """Makes the body of a call.

    Args:
        start: the state before it.
        variables: what it may have read: each once.
        outputs: the variables that it returned and computed, each once.
        before: the values of variables when it read them first, if it may have changed them.
        seed: of the numbers that it draws.

    Attributes:
        read: the variables that it did read.
        body: the result. Raises Unrepeatable.
    """

    def __init__(
        self,
        start: Start,
        variables: Sequence[Any],
        outputs: Sequence[Any],
        before: Mapping[int, Any],
        seed: int,
    ) -> None:
        self._start, self._before = start, before
        if recorder.serial != start.serial or unique_name.generator is not start.generator:
            raise Unrepeatable
        self._ops = recorder.point.way(start.point.depth)
        numbers = self._numbers_read()
        self.read = self._only_read([*variables, *numbers])
        changed = [var for var in variables if self._value(var) is not var._value]
        self._number_of = {id(var): k for k, var in enumerate(self.read)}
        self._operand_of = {id(var._held): self._number_of[id(var)] for var in numbers}
        self._results: dict[Any, int] = {}  # variable or code -> result
        self._made: list[Any] = []
        self._tmp, counts = start.counted()
        self._helped = dict(counts).get("tmp", 0)
        nodes = self._nodes([*outputs, *changed])
        self._numbers = {id(node): n for n, node in enumerate(nodes)}
        inner = [self._inner(node) for node in nodes]
        shown = [(self._result(var), self._spot(var._place)) for var in outputs]
        shown += [(self._changed(var), self._spot(var._place)) for var in changed]
        consumed = {ref for each in inner for ref in each.inputs if ref >= 0}
        if consumed & {k for k, _ in shown[len(outputs) :]}:
            raise Unrepeatable  # whatever sets the statistics later would change what the tape holds
        reads = [v.index if self._was_there(v) else v.spec for v in self._values]
        flows = [var._stop_gradient is False for var in self.read]
        results = [self._described(result) for result in self._made]
        numbers_changed = [self._number_of[id(var)] for var in changed]
        drawn = self._leaves(), seed
        self.body = Body(self._stretch(), drawn, reads, flows, self._limits(), results, inner, shown, numbers_changed)

    def _numbers_read(self) -> list[Any]:
        """The operands that hold numbers of ops (see ``eager.numbers``): the call wrote these numbers."""
        leaves = recorder.leaves_since(self._start.point)
        codes = {point.codes[1] for point in self._ops if isinstance(point.kernel, Affine)}
        return [VarBase._of("numbers", value, True) for value in leaves if value.index in codes]

    def _only_read(self, variables: Sequence[Any]) -> list[Any]:
        """Those whose values the ops read; nothing else may be."""
        drawn = {value.index for value in recorder.leaves_since(self._start.point) if value.spec is KEY}
        codes = {code for point in self._ops for code in point.codes if code < 0 or code < self._start.first} - drawn
        serial = self._start.serial
        values = [(var, self._value(var)) for var in variables]
        found = [(var, v) for var, v in values if v is not None and v.serial == serial and v.index in codes]
        self._values = [v for _, v in found]
        if len({v.index for v in self._values}) != len(found) or {v.index for v in self._values} != codes:
            raise Unrepeatable
        return [var for var, _ in found]

    def _value(self, var: Any) -> Any:
        """What a variable held when the call read it first."""
        return self._before.get(id(var), var._value)

    def _was_there(self, value: Value) -> bool:
        """Whether the batch knew a value before the call."""
        return value.index >= 0 or ~value.index < self._start.point.leaves

    def _stretch(self) -> Stretch:
        codes: list[int | None] = [v.index for v in self._values]
        return Stretch(codes, [], len(self._ops), recorder.point)

    def _leaves(self) -> list[int | None]:
        """For each new leaf the number of the variable; None for the key of a draw."""
        found: list[int | None] = []
        for value in recorder.leaves_since(self._start.point):
            source = None if value.spec is KEY else source_of(value, self._values)
            if source.__class__ is Value:
                raise Unrepeatable
            if source is None and value.spec is not KEY:
                raise Unrepeatable
            found.append(source)  # type: ignore[arg-type]
        return found

    def _limits(self) -> list[tuple[int, int]]:
        by_code = {v.index: k for k, v in enumerate(self._values)}
        found = []
        for point in self._ops:
            if not point.special or point.kernel.takes_key:
                continue
            for k, high in point.limits or [(None, 0)]:
                at = None if k is None else by_code.get(point.codes[k])
                if at is None or self._values[at].index >= 0:
                    raise Unrepeatable
                found.append((at, high))
        return found

    def _nodes(self, outputs: Sequence[Any]) -> list[Any]:
        """The nodes of the tape that the outputs depend on and that the call made, in order."""
        found: dict[int, Any] = {}
        ahead = [var._place for var in outputs]
        while ahead:
            place = ahead.pop()
            if place is None or place is UNWANTED or id(place[0]) in found or place[0].order < self._start.order:
                continue
            node = place[0]
            if node.__class__ is not OpNode or node.forward is not None or node.freed:
                raise Unrepeatable
            found[id(node)] = node
            ahead += node.parents
        return sorted(found.values(), key=lambda node: node.order)

    def _inner(self, node: Any) -> Inner:
        inputs, parents = [], []
        for var, place in zip(node.inputs, node.parents, strict=True):
            outside = self._number_of.get(id(var), self._operand_of.get(id(var._held)))
            inputs.append(self._result(var) if outside is None else ~outside)
            if place is UNWANTED:
                parents.append(UNWANTED)
            elif outside is not None:
                if var._place is not place and var._place != place:
                    raise Unrepeatable
                parents.append(OUTSIDE)
            else:
                parents.append(self._spot(place))
        saved = [(k, self._saved(*held)) for k, held in (node.saved or {}).items()]
        return Inner(node.kernel, tuple(inputs), tuple(parents), node.specs, node.plan, tuple(saved))

    def _spot(self, place: Any) -> Any:
        if place is None:
            return None
        if id(place[0]) not in self._numbers:
            raise Unrepeatable
        return self._numbers[id(place[0])], place[1]

    def _result(self, var: Any) -> int:
        """The number of a variable that the call computed."""
        if var.__class__ is not VarBase or var.persistable:
            raise Unrepeatable
        return self._numbered(id(var), var, var._held)

    def _changed(self, var: Any) -> int:
        """The number of what the call left in a variable that was there before: statistics, which take no gradient."""
        if not var.persistable or var._stop_gradient is not True or id(var) not in self._number_of:
            raise Unrepeatable
        return self._numbered(id(var), var, var._held)

    def _saved(self, reference: Any, value: Any) -> int:
        """The number of an output that a gradient reads."""
        var = reference()
        if var is None:
            return self._numbered(value.index, value, value)
        return self._changed(var) if id(var) in self._number_of and var._held is value else self._result(var)

    def _numbered(self, key: Any, made: Any, value: Any) -> int:
        if value.__class__ is not Value or value.serial != self._start.serial or value.index < self._start.first:
            raise Unrepeatable
        if key not in self._results:
            self._results[key] = len(self._made)
            self._made.append(made)
        return self._results[key]

    def _described(self, made: Any) -> Result:
        if made.__class__ is Value:
            return Result(made.index, made.spec, 0, True, None)
        name = made._name
        direct, number = self._name(name)
        generated = name.__class__ is int and name < 0
        return Result(made._held.index, made._held.spec, number, direct, made._stop_gradient, generated)

    def _name(self, name: Any) -> tuple[bool, int]:
        """Whose number a name is, and where it stands among those given by the call."""
        if name.__class__ is str:
            return True, 0
        name = max(name, ~name)
        by_tracer, by_helper = name - self._start.base, name - self._start.counts.get("tmp", 0)
        return (True, by_tracer) if 0 <= by_tracer < self._tmp else (False, by_helper)

    def ambiguous(self, outputs: Sequence[Any]) -> bool:
        """Whether it cannot be told who numbered an output."""
        for var in outputs:
            if var._name.__class__ is not int:
                raise Unrepeatable
            name = max(var._name, ~var._name)
            direct = 0 <= name - self._start.base < self._tmp
            helped = 0 <= name - self._start.counts.get("tmp", 0) < self._helped
            if not direct and not helped:
                raise Unrepeatable
            if direct and helped:
                return True
        return False
