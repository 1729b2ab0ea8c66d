"""Calls of layers that are repeated without their Python.

A call that recurs where it occurred before, with arguments of the same kinds, is observed once (see ``watch``). If all
that it does is recording ops, and everything that it read is as it was, it is repeated as one entry (see
``eager.repeated.bodies``). Anything else runs as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fluidjax import unique_name
from fluidjax.base import mode
from fluidjax.base.flags import FLAGS
from fluidjax.dygraph._known.making import Making, Start, Unrepeatable
from fluidjax.dygraph._known.reads import PLAIN
from fluidjax.dygraph._known.watch import Watch
from fluidjax.eager.recorded.pending import recorder
from fluidjax.eager.repeated.bodies import Body
from fluidjax.eager.tracer import Tracer
from fluidjax.eager.values import Spec, Value
from fluidjax.eager.variables.varbase import ParamBase, VarBase
from fluidjax.eager.whole.learning import learn
from fluidjax.eager.whole.looks import look
from fluidjax.eager.whole.promised import Promise
from fluidjax.eager.whole.steps import Repeated
from fluidjax.framework import default_main_program

TABLE = "_known_calls"  # the attribute of a layer that holds its calls
_LEAST = 4  # ops that are worth it
_AFTER = 3  # a call that came so often is observed
_MOST = 64  # kinds of calls of one layer
_TRIES = 4  # how often one kind is observed


class Known(Repeated):
    """A call that can be repeated.

    Attributes:
        holds: whether what it read outside its arguments is as it was, given the layer's attributes.
        form: what it returns: numbers of outputs, within tuples and lists.
        named: how many names the tracer gives.
        counts: how many ``unique_name`` gives, by key.
        around: the part of what it is found by that is not about its arguments (see ``_around``).
        kinds: the spec of each argument, and whether gradients flow to it; None if these are not all such variables.
    """

    around: Any = None
    kinds: list[tuple[Any, bool]] | None = None

    def __init__(
        self,
        holds: Callable[[dict[str, Any]], bool],
        sources: Sequence[Any],
        body: Body,
        form: Any,
        named: int,
        counts: Sequence[tuple[str, int]],
    ) -> None:
        self.holds, self.sources, self.body, self.form = holds, list(sources), body, form
        self.named, self.counts = named, tuple(counts)

    def found_by(self, key: tuple[Any, ...]) -> None:
        """Keep what it is found by (see ``_key``), so that it can be tried without looking for it."""
        self.around, arguments = key[:_AROUND], key[_AROUND:]
        classes, specs, flows = (arguments[k::3] for k in range(3))
        plain = {*classes} <= {VarBase} and {*map(type, specs)} <= {Spec} and len(classes) == len(flows)
        self.kinds = list(zip(specs, flows, strict=True)) if plain else None

    def start(self, layer: Any, tracer: Any, inputs: tuple[Any, ...]) -> list[Any] | None:
        """``run`` if a known step begins with it, and with these arguments it is what is called."""
        kinds = self.kinds
        if self.step is None or kinds is None or len(kinds) != len(inputs):
            return None
        point, kind, train_mode, deterministic, seed = self.around
        if recorder.point is not point or layer.__class__ is not kind or tracer._train_mode is not train_mode:
            return None
        if FLAGS["FLAGS_cpu_deterministic"] != deterministic or default_main_program().random_seed != seed:
            return None
        current: list[Value] = []
        serial = recorder.serial
        for var, (spec, flows) in zip(inputs, kinds):  # noqa: B905 (of one length; saying so takes a microsecond)
            if var.__class__ is not VarBase or (var._stop_gradient is False) is not flows:
                return None
            held: Any = var._held
            value = held if held.__class__ is Value else None if held is None else held.now()
            if value is None or value.spec is not spec or value.serial == serial:
                return None
            current.append(value)
        return self.run(tracer, inputs, current) if self.holds(layer.__dict__) else None

    def run(self, tracer: Any, given: Sequence[Any], current: Sequence[Value]) -> list[Any] | None:
        """[what the call returns], given the variables among its arguments, and their values.

        None, without effect, if values are of other kinds.
        """
        step, ids, own = self.step, unique_name.generator.ids, tracer.ids
        bases = own["tmp"], ids["tmp"]
        ready = None if step is None else step.ready(given, current)
        if ready is not None:
            outputs: list[VarBase] | None = Promise(step, tracer, *ready, bases).begin()  # type: ignore[arg-type]
        else:
            outputs = self._recorded(given, current, bases)
        if outputs is None:
            return None
        own["tmp"] += self.named
        for key, count in self.counts:
            ids[key] += count
        form = self.form
        return [outputs[form] if form.__class__ is int else _built(form, outputs)]

    def _recorded(self, given: Sequence[Any], current: Sequence[Value], bases: tuple[int, int]) -> list[VarBase] | None:
        """The outputs, recorded; None, without effect, if values are of other kinds."""
        variables, values = [], []
        for source in self.sources:
            if source.__class__ is int:
                variables.append(given[source])
                values.append(current[source])
            else:
                variables.append(source)
                held = source._held
                values.append(held if held.__class__ is Value else source._value)
        if not all(values) or not self.body.fits(recorder, variables, values):
            return None
        outputs = self.body.run(recorder, variables, values, bases)
        if outputs is not None:
            recorder.parts.append(self)
        return outputs


class Entry:
    """What is known of one kind of call.

    Attributes:
        seen: how often it came before it was observed.
        tries: how often it was observed.
        known: the call, once it can be repeated.
    """

    __slots__ = ("known", "seen", "tries")

    def __init__(self) -> None:
        self.seen = self.tries = 0
        self.known: Known | None = None


_watching = False
recorder.learn, recorder.look = learn, look


def again(layer: Any, inputs: tuple[Any, ...], named: dict[str, Any]) -> list[Any] | None:
    """[what a call of a layer without hooks returns] if it is repeated or observed; None if it has yet to run."""
    table = layer.__dict__.get(TABLE)
    if table is False or _watching:
        return None
    tracer = mode.tracer
    if tracer.__class__ is not Tracer or tracer.traced is not None or tracer.recording is not None:
        return None
    if not FLAGS["FLAGS_eager_layers"] or not FLAGS["FLAGS_eager_blocks"]:
        return None
    point = recorder.point
    if point.depth > recorder.limit:  # the step before has ended, and what follows begins another batch
        recorder.flush()
        point = recorder.point
    if point.expected is None:
        return None
    latest = table.get(None) if table and not named else None  # the call that a step began with when one was promised
    if latest is not None and (found := latest.start(layer, tracer, inputs)) is not None:
        return found
    given: list[Any] = []
    current: list[Value] = []
    key = _key(layer, tracer, inputs, named, given, current)
    if key is None:
        return None
    if table is None:
        table = layer.__dict__[TABLE] = {}
    entry = table.get(key)
    if entry is None:
        if len(table) >= _MOST:
            table.clear()
        table[key] = Entry()
        return None
    known = entry.known
    if known is not None and known.holds(layer.__dict__):
        found = known.run(tracer, given, current)
        if found is not None:
            if known.step is not None and latest is not known:
                known.found_by(key)
                table[None] = known
            return found
    entry.seen += 1
    if entry.seen <= _AFTER or entry.tries >= _TRIES or not recorder.takes(0):
        return None
    entry.seen, entry.known = 0, None
    entry.tries += 1
    return [_observed(layer, tracer, entry, inputs, named, given)]


def _observed(
    layer: Any, tracer: Any, entry: Entry, inputs: tuple[Any, ...], named: dict[str, Any], given: list[Any]
) -> Any:
    watch = Watch(layer, (*inputs, *named.values()))
    try:
        return _run_observed(watch, layer, tracer, entry, (inputs, named), given)
    finally:
        watch.end()


def _run_observed(
    watch: Watch, layer: Any, tracer: Any, entry: Entry, arguments: tuple[Any, Any], given: list[Any]
) -> Any:
    global _watching
    start = Start(tracer)
    before = [var._held for var in given]
    _watching = True
    try:
        results = watch.run(layer, *arguments)
    except BaseException:
        entry.tries = _TRIES
        raise
    finally:
        _watching = False
    if watch.loose or any(var._held is not held for var, held in zip(given, before, strict=True)):
        layer.__dict__[TABLE] = False
    elif recorder.point.depth - start.point.depth < _LEAST and recorder.serial == start.serial:
        layer.__dict__[TABLE] = False
    else:
        try:
            entry.known = _known(watch, start, given, results)
        except Unrepeatable:
            entry.tries = _TRIES
    return results


def _known(watch: Watch, start: Start, given: list[Any], results: Any) -> Known | None:
    outputs: list[Any] = []
    form = _form(results, outputs)
    numbers = {id(var): k for k, var in enumerate(given)}
    variables = list({id(var): var for var in [*given, *watch.variables.values()]}.values())
    if not outputs or len(numbers) < len(given) or not watch.found.isdisjoint(numbers):
        raise Unrepeatable
    making = Making(start, variables, outputs, watch.before, default_main_program().random_seed)
    if making.ambiguous(outputs):
        return None  # the counts will have parted when it is observed again
    read = {id(var) for var in making.read}
    for var in watch.variables.values():
        if id(var) not in read and id(var) not in numbers:
            watch.guards.variable(var)
    sources = [numbers.get(id(var), var) for var in making.read]
    return Known(watch.guards.done(), sources, making.body, form, *start.counted())


# The arguments and results.


def _key(
    layer: Any, tracer: Any, inputs: tuple[Any, ...], named: dict[str, Any], given: list[Any], current: list[Value]
) -> Any:
    """What calls are found by: where they begin, and the kinds of their arguments; None if these are not known.

    The variables among the arguments are appended to ``given``, their values to ``current``.
    """
    found: list[Any] = [*_around(layer, tracer)]
    for each in inputs:
        if not _add(each, found, given, current):
            return None
    for name, each in named.items():
        found.append(name)
        if not _add(each, found, given, current):
            return None
    return tuple(found)


def _around(layer: Any, tracer: Any) -> tuple[Any, ...]:
    """What calls are found by besides their arguments."""
    seed = default_main_program().random_seed
    return recorder.point, layer.__class__, tracer._train_mode, FLAGS["FLAGS_cpu_deterministic"], seed


_AROUND = 5  # how many these are


def _add(value: Any, found: list[Any], given: list[Any], current: list[Value]) -> bool:
    kind = value.__class__
    if kind is VarBase or kind is ParamBase:
        held = value._held
        if held.__class__ is not Value:
            held = value._value
            if held is None:
                return False
        given.append(value)
        current.append(held)
        found += (kind, held.index if held.serial == recorder.serial else held.spec, value._stop_gradient is False)
        return True
    if kind is tuple or kind is list:
        found += (kind, len(value))
        return all([_add(each, found, given, current) for each in value])
    if kind in PLAIN:
        found += (kind, value.hex() if kind is float else value)  # 0.0 and -0.0 are equal
        return True
    return False


def _form(value: Any, outputs: list[Any]) -> Any:
    if value.__class__ is VarBase:
        for k, known in enumerate(outputs):
            if known is value:
                return k
        outputs.append(value)
        return len(outputs) - 1
    if value.__class__ is tuple or value.__class__ is list:
        return value.__class__, [_form(each, outputs) for each in value]
    raise Unrepeatable


def _built(form: Any, outputs: list[Any]) -> Any:
    if form.__class__ is int:
        return outputs[form]
    kind, parts = form
    return kind([_built(part, outputs) for part in parts])
