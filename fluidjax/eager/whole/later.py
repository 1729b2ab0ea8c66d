"""The ops between the call of a layer and the backward pass of a step (see ``learning``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidjax.eager.backward.tape import UNWANTED
from fluidjax.eager.repeated.bodies import Body
from fluidjax.eager.repeated.passes import Gradient, Known, Visit
from fluidjax.eager.sequences.points import Point
from fluidjax.eager.values import Spec
from fluidjax.eager.whole.steps import Op


class Other(Exception):
    """A batch is no step of the kind that can be promised."""


_CALL = -1  # in place of the number of an op


class Later:
    """The ops, and what the pass finds at them. Raises Other.

    Args:
        body: of the call.
        passed: the pass.
        points: of the ops.

    Attributes:
        ops: the ops.
        leaves: how many there are before the pass.
        root: the output that the pass starts from.
        visit: what it finds at the call.
        between: see ``Step``.
    """

    def __init__(self, body: Body, passed: Known, points: Sequence[Point]) -> None:
        self._body, self._passed = body, passed
        self.leaves = len(body.leaves)
        fresh = [body.results[k] for k in body.fresh]
        self._shown = {n for n, k in enumerate(body.leaves) if k is not None}
        self._maker = {result.code: _CALL for result in fresh}  # output -> the op that computes it
        self._numbers = {result.code: n for n, result in enumerate(fresh)}
        if len(self._maker) < len(fresh):
            raise Other
        self.ops: list[Op] = []
        for point in points:
            self._add(point)
        root = passed.stretch.codes[0]
        if root not in self._maker:
            raise Other
        self.root: int = root
        self._visited = self._walk()
        if self._visited.count(_CALL) != 1:
            raise Other
        self.visit: Visit = passed.visits[self._visited.index(_CALL)]
        if self.visit.plan is not body or not self.visit.here or self._leaves_a_way():
            raise Other
        self.between: list[tuple[int, int, Spec]] = []

    def _add(self, point: Point) -> None:
        kernel = point.kernel
        if not kernel.simple or kernel.definition.inplace or None in point.outs:
            raise Other
        if point.special and point.limits is None and not kernel.takes_key:
            raise Other
        refs: list[int | Spec] = []
        specs = iter(point.fresh)
        for code in point.codes[kernel.takes_key :]:
            if code >= 0 and code in self._maker:
                refs.append(code)
            elif code < 0 and ~code == self.leaves:
                refs.append(next(specs))
                self._shown.add(self.leaves)
                self.leaves += 1
            elif code < 0 and ~code in self._shown:
                refs.append(code)
            else:
                raise Other
        if kernel.takes_key:  # the key of the draw is the last leaf
            self.leaves += 1
        flows = tuple([bool(point.flows >> k & 1) for k in reversed(range(len(refs)))])
        limits = tuple(point.limits or ()) if point.special else ()
        if any(refs[k] in self._maker for k, _ in limits):
            raise Other
        outs = tuple([(point.first + j, spec) for j, spec in enumerate(point.outs)])
        flow = any(flows)
        self.ops.append(
            Op(kernel, tuple(refs), flows, outs, flow and kernel.differentiable, False if flow else None, limits)
        )
        for code, _ in outs:
            self._maker[code] = len(self.ops) - 1
            self._numbers[code] = len(self._numbers)

    def _walk(self) -> list[int]:
        """The op of each visit."""
        found: list[Any] = [None] * len(self._passed.visits)
        found[0] = self._maker[self.root]
        for n, visit in enumerate(self._passed.visits):
            op = found[n]
            if op is None:
                raise Other
            if op != _CALL and {k for k, _, _ in visit.edges} != {k for k, f in enumerate(self.ops[op].flows) if f}:
                raise Other
            for k, at, _ in visit.edges:
                if at < 0:
                    continue
                code = None if op == _CALL else self.ops[op].refs[k]
                if code not in self._maker or found[at] not in (None, self._maker[code]):
                    raise Other
                found[at] = self._maker[code]
        return found

    def _leaves_a_way(self) -> bool:
        """Whether ops of the call that the pass does not visit lead from an output to something that is not freed."""
        body, visited = self._body, self.visit.inner
        ahead = [place[0] for _, place in body.outputs if place is not None]
        seen = {*visited}
        while ahead:
            n = ahead.pop()
            if n in seen:
                continue
            seen.add(n)
            inner = body.nodes[n]
            for ref, parent in zip(inner.inputs, inner.parents, strict=True):
                if parent is not UNWANTED and (parent.__class__ is not tuple or ref in body.output_of):
                    return True
                if parent.__class__ is tuple:
                    ahead.append(parent[0])
        return False

    def takes(self, gradient: Gradient) -> bool:
        """Whether a gradient is of a variable that an op reads; it is noted then."""
        op, at = self._visited[gradient.visit], gradient.input
        if op == _CALL and at >= 0:
            return False
        code = self._body.results[self._body.fresh[~at]].code if op == _CALL else self.ops[op].refs[at]
        if code not in self._maker or gradient.source is not None:
            raise Other
        self.between.append((self._numbers[code], gradient.code, gradient.spec))
        return True

    def zeros(self) -> frozenset[int]:
        """See ``Step``."""
        found = set()
        for op, visit in zip(self._visited, self._passed.visits, strict=True):
            if op != _CALL:
                found |= {self._numbers[code] for j, (code, _) in enumerate(self.ops[op].outs) if j in visit.plan.takes}
                continue
            for n, (_, place) in enumerate(self._body.outputs):
                if place is not None and place[0] in visit.inner and place[1] in self._body.nodes[place[0]].plan.takes:
                    found.add(n)
                    if n >= len(self._body.fresh):  # of a variable that was there before, which would have it now
                        raise Other
        return frozenset(found)
