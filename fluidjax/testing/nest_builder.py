"""Writes the program of a nest, as it is drawn: see ``nests``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

import fluidjax as fluid

SLOTS, ELEMENTS = 3, 3

Draw = Callable[[st.SearchStrategy], Any]
layers = fluid.layers


def _named(slots: Sequence[int]) -> str:
    return ", ".join(f"v{k}" for k in slots)


def _one(results: Any) -> Any:
    """What an RNN of one output returns."""
    return results


@dataclass
class Level:
    """What the ops of one block may use.

    Attributes:
        slots: the variables by number; a block inside starts with a copy of the list.
        counters: integers below ELEMENTS of the loops around.
        fixed: variables that are read only: the float counters of the loops around.
        writes: whether elements of the array may be written: a step of a StaticRNN writes nothing around it.
    """

    slots: list[Any]
    counters: list[Any] = field(default_factory=list)
    fixed: list[Any] = field(default_factory=list)
    writes: bool = True

    def inside(self) -> Level:
        """For a block inside: what it binds is not bound here."""
        return Level(list(self.slots), list(self.counters), list(self.fixed), self.writes)


class Builder:
    """Writes a nest into the default main program, of what ``draw`` chooses; ``lines`` tell what was drawn."""

    def __init__(self, draw: Draw, kinds: Sequence[str], depth: int, direct: bool):
        self.draw, self.kinds, self.depth = draw, kinds, depth
        self.lines: list[str] = []
        self.indent = 0
        names = [f"x{k}" for k in range(SLOTS)]
        self.inputs = [fluid.data(name, [1], "float64") for name in names]
        self.sequence = fluid.data("rows", [None, 1], "float64", lod_level=1) if "DynamicRNN" in kinds else None
        if self.sequence is not None:
            self.inputs.append(self.sequence)
        for x in self.inputs:
            x.stop_gradient = False
        self.indices = [layers.fill_constant([1], "int64", k) for k in range(ELEMENTS)]
        values = self.inputs[:SLOTS] if direct else [layers.scale(x, 1.0) for x in self.inputs[:SLOTS]]
        self.array = layers.array_write(layers.scale(values[0], 0.5), self.indices[0])
        for k in range(1, ELEMENTS):
            layers.array_write(layers.scale(values[k % SLOTS], 0.5), self.indices[k], self.array)
        self.top = Level(values)

    def say(self, text: str) -> None:
        """Note a line of the program."""
        self.lines.append("  " * self.indent + text)

    def choose(self, *options: Any) -> Any:
        """Draw one of ``options``."""
        return self.draw(st.sampled_from(options))

    def slot(self) -> int:
        """Draw the number of a variable."""
        return self.draw(st.integers(0, SLOTS - 1))

    def read(self, level: Level) -> tuple[Any, str]:
        """Draw a variable to read, with how it is called."""
        k = self.draw(st.integers(0, SLOTS + len(level.fixed) - 1))
        return (level.slots[k], f"v{k}") if k < SLOTS else (level.fixed[k - SLOTS], f"c{k - SLOTS}")

    def value(self, level: Level) -> tuple[Any, str]:
        """A new variable computed from those there are."""
        kind = self.choose("tanh", "mul", "add", "scale", "element", "constant", "copy", "next")
        if kind == "constant":
            held = layers.fill_constant([1], "float64", 0.3)
            held.stop_gradient = False  # a variable that stops gradients stops those of later values too
            return held, "0.3"
        if kind == "element":
            index, name = self.index(level)
            return layers.array_read(self.array, index), f"array[{name}]"
        a, one = self.read(level)
        if kind in ("mul", "add"):
            b, two = self.read(level)
            if kind == "mul":
                return layers.elementwise_mul(a, b), f"{one} * {two}"
            return layers.scale(layers.elementwise_add(a, b), 0.6), f"0.6 * ({one} + {two})"
        if kind == "copy":
            return layers.assign(a), f"copy {one}"
        if kind == "next":
            return layers.increment(a, 0.25, in_place=False), f"{one} + 0.25"
        return (layers.tanh(a), f"tanh({one})") if kind == "tanh" else (layers.scale(a, 0.7), f"0.7 {one}")

    def constant(self) -> tuple[Any, str]:
        """A value that no gradient passes, so that Fluid writes no grad op for where it goes."""
        return layers.fill_constant([1], "float64", 0.4), "constant"

    def end(self, target: Any, name: str) -> None:
        """Overwrite ``target`` with what depends on no variable, from outside or in place."""
        if self.choose(True, False):
            self.say(f"{name} := constant")
            layers.assign(self.constant()[0], target)
            return
        self.say(f"{name} filled in place")
        attrs = {"value": 0.4, "dtype": -1}
        target.block.program.current_block().append_op(
            type="fill_any_like", inputs={"X": [target]}, outputs={"Out": [target]}, attrs=attrs
        )

    def index(self, level: Level) -> tuple[Any, str]:
        """Draw an index of the array, with how it is called."""
        k = self.draw(st.integers(0, ELEMENTS + len(level.counters) - 1))
        return (self.indices[k], str(k)) if k < ELEMENTS else (level.counters[k - ELEMENTS], f"i{k - ELEMENTS}")

    def statements(self, level: Level, depth: int) -> None:
        """Draw one to three statements, with blocks of at most ``depth`` inside each other."""
        self.indent += 1
        for _ in range(self.draw(st.integers(1, 3))):
            self.statement(level, depth)
        self.indent -= 1

    def statement(self, level: Level, depth: int) -> None:
        """Draw a statement."""
        kinds = ["bind", "overwrite", "advance", "end", *(["write"] if level.writes else [])]
        if depth:
            kinds += ["block"] * 3
        kind = self.draw(st.sampled_from(kinds))
        if kind == "block":
            getattr(self, "_" + self.draw(st.sampled_from(self.kinds)))(level, depth - 1)
            return
        k = self.slot()
        if kind == "advance":
            self.say(f"v{k} += 0.25 in place")
            layers.increment(level.slots[k], 0.25)
            return
        if kind == "write":
            value, text = (level.slots[k], f"v{k}") if self.choose(True, True, False) else self.constant()
            index, name = self.index(level)
            self.say(f"array[{name}] = {text}")
            layers.array_write(value, index, self.array)
            return
        if kind == "end":
            self.end(level.slots[k], f"v{k}")
            return
        value, text = self.value(level)
        if kind == "bind":
            self.say(f"v{k} = {text}")
            level.slots[k] = value
        else:
            self.say(f"v{k} := {text}")
            layers.assign(value, level.slots[k])

    # --- blocks ---

    def _while_loop(self, level: Level, depth: int) -> None:
        """Loop variables may be handed through, swapped, or bound to something new."""
        trips = self.draw(st.integers(0, 2))
        slots = self.draw(st.lists(st.integers(0, SLOTS - 1), min_size=1, unique=True))
        slots = [k for n, k in enumerate(slots) if all(level.slots[k] is not level.slots[j] for j in slots[:n])]
        i = layers.fill_constant([1], "int64", 0)
        bound = layers.fill_constant([1], "int64", trips)
        self.say(f"while_loop {trips} times over {_named(slots)}:")

        def body(i: Any, *values: Any) -> list[Any]:
            inner = level.inside()
            for k, v in zip(slots, values, strict=True):
                inner.slots[k] = v
            inner.counters.append(i)
            self.statements(inner, depth)
            back = [self.slot() if self.choose(False, False, True) else k for k in slots]
            self.say(f"  return {_named(back)}")
            return [layers.increment(i), *(inner.slots[k] for k in back)]

        done = layers.while_loop(lambda i, *_: layers.less_than(i, bound), body, [i, *(level.slots[k] for k in slots)])
        for k, v in zip(slots, done[1:], strict=True):
            level.slots[k] = v

    def _float_loop(self, level: Level, depth: int) -> None:
        """The loop's counter is a number that the gradient passes, advanced before or after its uses."""
        k, early = self.slot(), self.draw(st.booleans())
        start, name = self.read(level)
        counter = layers.scale(start, 0.5) if self.choose(True, False) else layers.scale(start, -0.5)
        limit = layers.fill_constant([1], "float64", self.choose(0.9, 1.9))
        self.say(f"float_loop c from +-0.5 {name} over v{k}, advanced {'before' if early else 'after'}:")

        def body(c: Any, v: Any) -> list[Any]:
            inner = level.inside()
            inner.slots[k] = v
            inner.fixed.append(c)
            if early:
                c = layers.increment(c)
            self.statements(inner, depth)
            if not early:
                c = layers.increment(c)
            return [c, inner.slots[k]]

        done = layers.while_loop(lambda c, v: layers.less_than(c, limit), body, [counter, level.slots[k]])
        level.slots[k] = done[1]
        self.say(f"  v{(k + 1) % SLOTS} = c")
        level.slots[(k + 1) % SLOTS] = done[0]

    def _While(self, level: Level, depth: int) -> None:
        """What the block binds is gone after it, what it overwrites stays."""
        i = layers.fill_constant([1], "int64", 0)
        trips = self.draw(st.integers(0, 2))
        bound = layers.fill_constant([1], "int64", trips)
        more = layers.less_than(i, bound)
        self.say(f"While {trips} times:")
        with layers.While(more).block():
            inner = level.inside()
            inner.counters.append(i)
            self.statements(inner, depth)
            k = self.slot()
            self.say(f"  v{k} := v{k}")
            if inner.slots[k] is not level.slots[k]:
                layers.assign(inner.slots[k], level.slots[k])
            layers.increment(i)
            layers.less_than(i, bound, cond=more)

    def _branch(self, level: Level, depth: int, name: str) -> Callable[[], Any]:
        def run() -> Any:
            self.say(f"{name}:")
            inner = level.inside()
            self.statements(inner, depth)
            a, b = self.slot(), self.slot()
            self.say(f"  return v{a}, v{b}")
            return inner.slots[a], inner.slots[b]

        return run

    def _predicate(self, level: Level) -> Any:
        a, name = self.read(level)
        limit = self.choose(-9.0, 0.3, 0.6, 9.0)
        self.say(f"if {name} > {limit}")
        return layers.greater_than(a, layers.fill_constant([1], "float64", limit))

    def _bind_two(self, level: Level, results: Sequence[Any]) -> None:
        k = self.slot()
        self.say(f"v{k}, v{(k + 1) % SLOTS} = results")
        level.slots[k], level.slots[(k + 1) % SLOTS] = results

    def _cond(self, level: Level, depth: int) -> None:
        test = self._predicate(level)
        yes, no = self._branch(level, depth, "then"), self._branch(level, depth, "else")
        self._bind_two(level, layers.cond(test, yes, no))

    def _case(self, level: Level, depth: int) -> None:
        pairs = [(self._predicate(level), self._branch(level, depth, "case")) for _ in range(2)]
        self._bind_two(level, layers.case(pairs, self._branch(level, depth, "default")))

    def _switch_case(self, level: Level, depth: int) -> None:
        if level.counters and self.draw(st.booleans()):
            index = layers.cast(level.counters[-1], "int32")
        else:
            index = layers.cast(self._predicate(level), "int32")
        branches = {k: self._branch(level, depth, f"case {k}") for k in range(2)}
        self._bind_two(level, layers.switch_case(index, branches, self._branch(level, depth, "default")))

    def _StaticRNN(self, level: Level, depth: int) -> None:
        steps = layers.stack([self.read(level)[0], self.read(level)[0]], axis=0)
        init, name = self.read(level)
        boot = layers.scale(init, 1.0)
        k = self.slot()
        self.say(f"StaticRNN of two steps, v{k} the input, memory from {name}:")
        rnn = layers.StaticRNN()
        with rnn.step():
            inner = level.inside()
            inner.slots, inner.writes = [layers.scale(v, 1.0) for v in inner.slots], False
            inner.slots[k] = layers.scale(rnn.step_input(steps), 1.0)
            memory = rnn.memory(init=boot)
            inner.fixed.append(memory)
            self.statements(inner, depth)
            out = layers.tanh(layers.elementwise_add(memory, inner.slots[k]))
            rnn.update_memory(memory, out)
            rnn.step_output(out)
        k = self.slot()
        self.say(f"  v{k} = sum of tanh(memory + v)")
        level.slots[k] = layers.reduce_sum(_one(rnn()), dim=0)

    def _DynamicRNN(self, level: Level, depth: int) -> None:
        assert self.sequence is not None
        k = self.slot()
        self.say(f"DynamicRNN, v{k} from its rows:")
        rnn = layers.DynamicRNN()
        with rnn.block():
            inner = level.inside()
            row = rnn.step_input(self.sequence)
            memory = rnn.memory(shape=[1], dtype="float64", value=0.1)
            inner.slots[k] = layers.reduce_sum(layers.tanh(row))
            self.statements(inner, depth)
            out = layers.tanh(layers.elementwise_add(layers.elementwise_add(memory, row), inner.slots[k], axis=1))
            rnn.update_memory(memory, out)
            rnn.output(out)
        k = self.slot()
        self.say(f"  v{k} = sum of tanh(memory + row + v)")
        level.slots[k] = layers.reduce_sum(layers.sequence_pool(_one(rnn()), "sum"))

    def loss(self) -> Any:
        """A number that depends on every variable and element."""
        parts = [layers.scale(v, 1.0 + 0.3 * k) for k, v in enumerate(self.top.slots)]
        parts += [layers.scale(layers.array_read(self.array, i), 0.7 - 0.2 * k) for k, i in enumerate(self.indices)]
        return layers.reduce_sum(layers.tanh(layers.scale(layers.sums(parts), 0.2)))
