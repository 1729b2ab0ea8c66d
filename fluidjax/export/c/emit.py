"""A graph as C: kernels, shared where they are identical, and the calls of them in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from fluidjax.export.c import primitives
from fluidjax.export.c.fuse import Fusion
from fluidjax.export.c.kernel import Kernel, fill
from fluidjax.export.c.memory import Lifetimes, Owners, Room, placed
from fluidjax.export.c.rules import CONTROL, KERNELS
from fluidjax.export.c.types import c_type, literal, short
from fluidjax.export.graph import Body, Node, Value

assert primitives.__all__


@dataclass
class Call:
    """A line of C with ``{}`` in place of each owner's address."""

    text: str
    owners: list[Value]
    depth: int


@dataclass
class Code:
    """The result of translating a graph.

    Attributes:
        kernels: the functions.
        lines: the statements of the step.
        arena: the bytes that the step needs in addition to the weights.
        constants: (name, array) of the constant arrays.
        address: value -> its address as a C expression.
    """

    kernels: list[str]
    lines: list[str]
    arena: int
    constants: list[tuple[str, np.ndarray]]
    addresses: dict[Value, str] = field(default_factory=dict)


class Emitter:
    """Translates one graph.

    Args:
        body: the graph.
        weights: inputs stored among the weights, with their offsets.
        replaced: input -> output, for weights that a step updates.
    """

    def __init__(self, body: Body, weights: dict[Value, int], replaced: list[tuple[Value, Value]]):
        self.body, self.weights, self.replaced = body, weights, replaced
        self.fusion = Fusion(body)
        self.lifetimes = Lifetimes(self.fusion)
        self.lifetimes.run(body)
        self.owners = Owners(self.fusion, self.lifetimes, {value for value, _ in replaced})
        self.owners.share(body)
        self.kernels: dict[str, str] = {}
        self.calls: list[Call] = []
        self.scratch: list[Room] = []
        self.fetched: dict[Value, Value] = {}  # fetched values that must be copied before the weights change
        self._depth = 1

    def code(self) -> Code:
        """The generated C code."""
        self._body(self.body)
        self._finish()
        addresses, arena, constants = self._addresses()
        lines = ["  " * c.depth + c.text.format(*(addresses[o] for o in c.owners)) for c in self.calls]
        named = {v: addresses[self._owner(self.fetched.get(v, v))] for v in self._ends() if not v.scalar}
        return Code(
            [text.replace("@name", name) for text, name in self.kernels.items()], lines, arena, constants, named
        )

    def _ends(self) -> Iterator[Value]:
        yield from self.body.inputs
        yield from self.body.outputs

    def _owner(self, value: Value) -> Value:
        return self.owners.of(self.fusion.root(value))

    # ---- statements ----

    def _line(self, text: str, *owners: Value) -> None:
        self.calls.append(Call(text, list(owners), self._depth))

    def _body(self, body: Body) -> None:
        for node in self.fusion.statements(body):
            if node.prim in CONTROL:
                getattr(self, f"_{node.prim}")(node)
            else:
                self._kernel(node)

    def _kernel(self, node: Node) -> None:
        kernel = Kernel(self.fusion, self.owners.of)
        if node.prim in KERNELS:
            KERNELS[node.prim].rule(kernel, node)
        else:
            for value in node.outs:
                if value not in self.fusion.inline and self.fusion.root(value) is value:
                    fill(kernel, node, value)
        if not kernel.pointers:
            return
        begin, end = self.lifetimes.time[node]
        self.scratch += [Room(value, begin, end, value.nbytes) for value in kernel.scratch]
        name = self.kernels.setdefault(kernel.function("@name"), f"k{len(self.kernels)}")
        self._line(f"{name}({', '.join(['{}'] * len(kernel.pointers))});", *kernel.pointers)

    def _copy(self, target: Value, source: Value, shift: str = "", into: str = "") -> None:
        """``target = source``, with ``shift`` bytes added to the source or ``into`` to the target."""
        to, small = self._owner(target), target if not into else source
        if source.scalar:
            kind, number = c_type(source.dtype), literal(source.constant.item(), source.dtype)  # type: ignore[union-attr]
            self._line(f"fill_{short(source.dtype)}(({kind} *)((char *){{}}{into}), {small.size}, {number});", to)
        elif into or shift or to is not self._owner(source):
            self._line(
                f"memcpy((char *){{}}{into}, (const char *){{}}{shift}, {small.nbytes});", to, self._owner(source)
            )

    def _copies(self, pairs: Sequence[tuple[Value, Value]]) -> None:
        """Assign all targets simultaneously, although some overlap what others read."""
        targets = [self._owner(target) for target, _ in pairs]
        staged = []
        for target, source in pairs:
            owner = None if source.scalar else self._owner(source)
            if owner is not None and owner is not self._owner(target) and owner in targets:
                spare = Value(source.shape, source.dtype)
                self.scratch.append(Room(spare, 0, self.lifetimes.now, spare.nbytes))
                self._copy(spare, source)
                staged.append((target, spare))
            else:
                staged.append((target, source))
        for target, source in staged:
            self._copy(target, source)

    # ---- loops and branches ----

    def _while(self, node: Node) -> None:
        (test,), (body,) = node.bodies["cond_jaxpr"], node.bodies["body_jaxpr"]
        skip = node.params["cond_nconsts"] + node.params["body_nconsts"]
        self._copies(list(zip(node.outs, node.ins[skip:], strict=True)))
        self._line("for (;;) {{")
        self._depth += 1
        self._body(test)
        (flag,) = test.outputs
        if flag.scalar:
            self._line(f"if (!{int(flag.constant.item())}) break;")  # type: ignore[union-attr]
        else:
            self._line("if (!*{}) break;", self._owner(flag))
        self._body(body)
        self._copies(list(zip(node.outs, body.outputs, strict=True)))
        self._depth -= 1
        self._line("}}")

    def _scan(self, node: Node) -> None:
        p, (body,) = node.params, node.bodies["jaxpr"]
        consts, carries, length = p["num_consts"], p["num_carry"], p["length"]
        outs, stacked = node.outs[:carries], node.outs[carries:]
        self._copies(list(zip(outs, node.ins[consts : consts + carries], strict=True)))
        t = f"t{self._depth}"
        order = f"long {t} = {length - 1}; {t} >= 0; --{t}" if p["reverse"] else f"long {t} = 0; {t} < {length}; ++{t}"
        self._line(f"for ({order}) {{{{")
        self._depth += 1
        for value, source in zip(body.inputs[consts + carries :], node.ins[consts + carries :], strict=True):
            if source.scalar:
                self._copy(value, source)
            elif value.size and value in self.lifetimes.end:
                self._copy(value, source, shift=f" + {t} * {value.nbytes}")
        self._body(body)
        for out, value in zip(stacked, body.outputs[carries:], strict=True):
            if value.size:
                self._copy(out, value, into=f" + {t} * {value.nbytes}")
        self._copies(list(zip(outs, body.outputs[:carries], strict=True)))
        self._depth -= 1
        self._line("}}")

    def _cond(self, node: Node) -> None:
        which, bodies = node.ins[0], node.bodies["branches"]
        for at, body in enumerate(bodies):
            if at == 0:
                self._line("if (*{} <= 0) {{", self._owner(which))
            elif at + 1 < len(bodies):
                self._line(f"}}}} else if (*{{}} == {at}) {{{{", self._owner(which))
            else:
                self._line("}} else {{")
            self._depth += 1
            self._body(body)
            self._copies(list(zip(node.outs, body.outputs, strict=True)))
            self._depth -= 1
        self._line("}}")

    # ---- the end of a step ----

    def _finish(self) -> None:
        """Move fetched values out of the way of the new weights, then the new weights into place."""
        changing = {self._owner(value) for value, _ in self.replaced}
        held = {new for _, new in self.replaced}
        for value in self.body.outputs:
            if value in held or value.scalar or value in self.fetched:
                continue
            if self._owner(value) in changing:
                copy = Value(value.shape, value.dtype)
                self.scratch.append(Room(copy, 0, self.lifetimes.now + 1, copy.nbytes))
                self._copy(copy, value)
                self.fetched[value] = copy
        self._copies([(value, new) for value, new in self.replaced])

    def _addresses(self) -> tuple[dict[Value, str], int, list[tuple[str, np.ndarray]]]:
        rooms: dict[Value, Room] = {}
        last = self.lifetimes.now + 1
        pinned = dict.fromkeys(self._owner(v) for v in self._ends() if not v.scalar)  # in the order of the ports
        for value, begin in self.lifetimes.begin.items():
            self._extend(rooms, value, begin, self.lifetimes.end.get(value, begin))
        for call in self.calls:
            for owner in call.owners:
                if owner not in rooms:
                    self._extend(rooms, owner, 0, last)
        for room in self.scratch:
            rooms[room.owner] = room
        for owner in pinned:
            rooms[owner] = Room(owner, 0, last, owner.nbytes)
        inside = [r for r in rooms.values() if r.owner not in self.weights and r.owner.constant is None]
        offsets, size = placed(inside)
        fixed = {o: None for call in self.calls for o in call.owners if o.constant is not None}
        fixed |= {o: None for o in pinned if o.constant is not None}
        constants = [(f"c{i}", o.constant) for i, o in enumerate(fixed)]
        found = {o: f"A({c_type(o.dtype)}, {at})" for o, at in offsets.items()}
        found |= {o: f"W({c_type(o.dtype)}, {at})" for o, at in self.weights.items()}
        found |= dict(zip(fixed, (name for name, _ in constants), strict=True))
        return found, size, constants  # type: ignore[return-value]

    def _extend(self, rooms: dict[Value, Room], value: Value, begin: int, end: int) -> None:
        owner = self._owner(value)
        known = rooms.get(owner)
        if known is None:
            rooms[owner] = Room(owner, begin, end, owner.nbytes)
        else:
            known.begin, known.end = min(known.begin, begin), max(known.end, end)
