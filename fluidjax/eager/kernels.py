"""Kernels: one op with its attributes and the layout of its slots, as one compiled function of flat inputs.

A kernel is kept for the lifetime of the process, keyed by content; jax.jit keeps one executable per signature
of shapes and dtypes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import lowering
from fluidjax.base.enums import VarType, is_floating
from fluidjax.base.errors import EnforceNotMet, explain
from fluidjax.eager.first.runs import FirstRuns, plain_arrays, signature_of
from fluidjax.eager.laws import MOST, Law
from fluidjax.eager.slots import Layout, by_slot, count_of
from fluidjax.eager.values import Spec, spec_of
from fluidjax.execution.executables.executable import default_device
from lowering import EMPTY, LoDArray, NeedsConcrete, NeedsExact, OpView, Runner, TensorArray, VarView
from lowering.draws.random_bits import fold_in, seed_key
from lowering.engine.call import call
from lowering.engine.context import Context, special
from lowering.engine.interrupts import uninterrupted
from lowering.engine.precision import in_full_precision
from lowering.engine.shapes.infer import insist
from lowering.engine.x64 import with_x64
from lowering.program import BOOKKEEPING
from lowering.values import exact


def freeze(value: Any) -> Any:
    """A hashable substitute for an attribute's value."""
    if isinstance(value, (list, tuple)):
        return tuple(freeze(v) for v in value)
    if isinstance(value, np.ndarray):
        return freeze(value.tolist())
    return value


# Ops with numbers that may become operands (see ``numbers``).
MOVABLE = frozenset(
    "scale slice pow clip dropout fill_constant uniform_random gaussian_random truncated_gaussian_random".split()
)

# What is known of the outputs of an op before it runs: their specs, None for unused ones.
Outcome = tuple[Spec | None, ...] | tuple[int, ...] | None


class _Variables:
    """Just enough of a program for rules that query the declared types of their outputs."""

    gradients: frozenset[str] = frozenset()
    version, newer, has_scalars = 0, False, False  # eager ops are Fluid's

    def __init__(self, variables: Mapping[str, VarView]) -> None:
        self._variables = variables

    def find_var(self, block_idx: int, name: str) -> VarView | None:
        return self._variables.get(name)


class Kernel:
    """One op as a function of the values of its input slots, in sequence.

    Attributes:
        definition: the op.
        attrs: all its attributes.
        declared: the declared types of the outputs, if the op needs them.
        given: the attributes given by a caller, if slots, attributes and `declared` identify the kernel;
            `given_fresh`: if they alone identify it for outputs that are fresh variables.
        movable: whether it has numbers that may become operands (see ``numbers``); `opened`: the resulting kernel.
        view: the op with stand-in names: ``i0``, ``i1`` ... for its inputs, ``o0`` ... for its outputs; an output that
            that is the variable of an input it updates has the input's name.
        aliases: for each output the number of the input whose variable it is, -1 for none; () if there are none.
        plans: the gradient, by the inputs that need one (see ``tape``).
        first: which runs are on NumPy (see ``first``).
        laws: what it is known to make of sizes (see ``laws``).
        known: the specs of outputs by those of inputs; None if known only to a run; if all outputs are unchanged
            inputs, for each output the number of the input.
        takes_key: whether it draws random numbers from a key passed as its first input.
        on_host: whether its only draws are of a kind done without compiling (see ``lowering.draws.host_bits``).
        width: the number of outputs, and of inputs that the op updates.
        checked: whether its inputs' numbers are checked.
        simple: whether its outputs are all that it writes, and all its inputs have values.
        direct: whether its compiled function is called directly.
        plain: whether it is a function of arrays; otherwise it runs immediately, on its variables' values.
        recorded: whether sequences of ops contain it, which another object of the same content would not continue.
        sources: whether it has no inputs: its outputs are constants, or drawn.
    """

    recorded = False

    def __init__(
        self,
        type: str,
        attrs: Mapping[str, Any],
        ins: Layout,
        outs: Layout,
        wanted: tuple[bool, ...],
        aliases: tuple[int, ...] = (),
        declared: tuple[VarType, ...] = (),
        backward: bool = False,
    ) -> None:
        self.type, self.ins, self.outs, self.aliases, self.declared = type, ins, outs, aliases, declared
        self.definition = lowering.get_op(type)
        self.attrs = lowering.check_attrs(type, attrs)
        inputs = by_slot(ins, [f"i{k}" for k in range(count_of(ins))])
        names = [f"o{k}" if w else EMPTY for k, w in enumerate(wanted)]
        for k, source in enumerate(aliases):
            if source >= 0:
                names[k] = f"i{source}"
        self.view = OpView(type, inputs, by_slot(outs, names), {**self.attrs, "op_role": int(backward)})
        self._check_slots(inputs, self.view.outputs)
        self._wanted = wanted
        self.variables = {n: VarView(n, 7, int(d)) for n, d in zip(names, declared, strict=False)}
        self.plans: dict[Any, Any] = {}
        self._forget()
        seeded = bool(int(self.attrs.get("seed", 0) or 0))
        draws = "key" in self.definition.special
        # As in a program (see ``Runner.draw_key``): an eager net and the static one begin with the same weights.
        self.own_key = fold_in(seed_key(int(self.attrs["seed"]), host=True), 0) if draws and seeded else None
        self.takes_key = draws and not seeded
        self.on_host = draws and not inputs
        self.plain = self.definition.kind == "plain"
        self.direct = self.plain and not self.on_host and bool(inputs)
        self._refuse_effects()
        self.differentiable = self.definition.differentiable
        self.sources = not inputs
        self.given: Mapping[str, Any] | None = None
        self.given_fresh: Mapping[str, Any] | None = None
        self.movable = type in MOVABLE and not backward
        self.opened: dict[Spec, Any] = {}
        self.key: Any = None
        self.demands: Any = None  # the kernel that checks the inputs (see ``demands``)
        self.backward = backward
        self.checked = self.definition.demands is not None and not backward
        self.simple = not self.definition.updates and not self.definition.absent
        self.width = len(wanted) + len(self.definition.updates)

    def _forget(self) -> None:
        """Know nothing of any inputs."""
        self.known: dict[tuple[Spec, ...], Outcome] = {}
        self._untraceable: set[Any] = set()  # signatures of inputs with which tracing fails: the rule needs numbers
        self.first, self.laws = FirstRuns(), list[Law]()

    def _begin_as(self, kernel: Kernel) -> None:
        """In place of ``Kernel.__init__``, for what computes something else of its op: nothing is known of that."""
        self.__dict__.update(kernel.__dict__)
        self.__dict__.pop("jitted", None)
        self._forget()

    @cached_property
    def _runner(self) -> Runner:
        return Runner(_Variables(self.variables))  # type: ignore[arg-type]

    def _check_slots(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        for kind, given, slots in (
            ("input", inputs, self.definition.inputs),
            ("output", outputs, self.definition.outputs),
        ):
            known = [slot.name for slot in slots]
            unknown = [name for name in given if name not in known]
            if unknown:
                raise ValueError(
                    f"op {self.type}: {kind} slot {', '.join(unknown)} is not one of the op's: "
                    f"{', '.join(sorted(known)) or 'none'}. Rename the slot or leave it out."
                )
            if kind == "input":
                needed = [s for s in slots if not s.dispensable and s.param not in self.definition.absent]
                absent = [s.name for s in needed if s.name not in given and not s.duplicable]
                if absent and self.definition.forward is None:
                    raise ValueError(f"op {self.type}: Input {', '.join(absent)} not found. Give it.")

    def _refuse_effects(self) -> None:
        blocks = any(spec.type in ("BLOCK", "BLOCKS") for spec in self.definition.attrs.values())
        if self.type in _EFFECTS or (not self.plain and blocks):
            raise EnforceNotMet(
                explain(
                    f"op {self.type} works in programs alone, and this is eager mode",
                    "an op that computes values from values",
                    self.type,
                    "use Python itself (print, if, while, NumPy), or build a Program outside the guard",
                )
            )

    def attributes(self, inputs: Sequence[Any]) -> Mapping[str, Any]:
        """The attributes of the op on these variables."""
        return self.view.attrs

    def _run_raw(self, flat: Sequence[Any]) -> tuple[Any, ...]:
        """The outputs of an op that takes host values or raw values."""
        key, flat = (wrapped_key(flat[0]), flat[1:]) if self.takes_key else (None, flat)
        names = [name for names in self.view.inputs.values() for name in names]
        env = dict(zip(names, jax.tree_util.tree_map(_host, list(flat)), strict=True))
        runner = Runner(self._runner.program, key=key, interpret=True, platform=default_device().platform)
        results = runner.run_op(self.view, env)
        return tuple([exact(results.get(name)) for names in self.view.outputs.values() for name in names])

    def _values(self, flat: Sequence[Any]) -> dict[str, Any]:
        found_in = by_slot(self.ins, flat)
        values: dict[str, Any] = {}
        for slot in self.definition.inputs:
            found = found_in.get(slot.name, [])
            values[slot.name] = found if slot.duplicable else (found[0] if found else None)
        return values

    def _rule(self, flat: Sequence[Any], key: Any = None) -> tuple[Any, ...]:
        runner = self._runner
        runner.platform = default_device().platform  # asked for so late because it starts XLA (see ``may_accelerate``)
        given = special(self.definition, self.view, key, Context(self.view, runner, {}))
        run = call if runner.platform == "cpu" else partial(in_full_precision, call)
        return self._flat_results(run(self.definition, self._values(flat), self.attrs, given))

    def _with_key(self, flat: Sequence[Any]) -> tuple[Any, ...]:
        """The rule on input values, preceded by the key for a kernel that takes one."""
        words, flat = (flat[0], flat[1:]) if self.takes_key else (self.own_key, flat)
        return self._rule(flat, None if words is None else wrapped_key(words))

    def _flat_results(self, results: Mapping[str, Any]) -> tuple[Any, ...]:
        flat: list[Any] = []
        for slot in self.view.outputs:
            names = self.view.outputs[slot]
            value = results.get(slot)
            duplicable = isinstance(value, (list, tuple))
            each = list(value) if duplicable else [value]  # type: ignore[arg-type]
            flat += [each[i] if i < len(each) else None for i in range(len(names))]
        flat = [v if w else None for v, w in zip(flat, self._wanted, strict=True)]
        flat += [results[slot] for slot in self.definition.updates]
        return tuple(flat)

    @cached_property
    def jitted(self) -> Any:
        """The compiled function of the input values; those of a kernel that takes a key begin with the key's words."""

        def run(*flat: Any) -> tuple[Any, ...]:
            return self._with_key(flat)

        run.__name__ = self.type
        return jax.jit(run)

    def infer(self, specs: tuple[Spec, ...]) -> Outcome:
        """The specs of the outputs for inputs with these specs (see ``known``). Errors are raised by the rule."""
        found: Outcome = None
        known = all(spec.plain for spec in specs)
        if known:
            self._check_fits(specs)
        if self.plain and not self.on_host and known:
            found = self._by_law(specs)
        if found is not None:
            self.first.put_off(self._avals(specs), partial(with_x64, self._traced, specs))
        elif self.plain and not self.on_host and known:
            found = uninterrupted(partial(with_x64, self._traced, specs))
        self.known[specs] = found
        return found

    def learn(self, law: Law | None) -> None:
        """Note what the op makes of sizes."""
        if law is not None and law not in self.laws:
            self.laws = [law, *self.laws[: MOST - 1]]

    def _by_law(self, specs: tuple[Spec, ...]) -> tuple[Spec | None, ...] | None:
        return next((found for law in self.laws if (found := law.outputs(specs)) is not None), None)

    def _avals(self, specs: tuple[Spec, ...]) -> list[Any]:
        key = [jax.ShapeDtypeStruct((2,), np.uint32)] if self.takes_key else []
        return [*key, *[spec.aval for spec in specs]]

    def _traced(self, specs: tuple[Spec, ...]) -> Outcome:
        avals = self._avals(specs)
        try:
            traced = self.jitted.trace(*avals)
        except (NeedsExact, NeedsConcrete):
            return None
        outs = traced.out_info
        if any(isinstance(out, (TensorArray, LoDArray)) for out in outs):
            return None
        inner = traced.jaxpr.jaxpr
        if len(inner.invars) == len(avals) and len(inner.outvars) == len(outs):
            places = {id(var): k - self.takes_key for k, var in enumerate(inner.invars)}
            taken = [places.get(id(var), -1) for var in inner.outvars]
            if taken and min(taken) >= 0:
                return tuple(taken)
        self.first.add(avals, traced)
        return tuple(None if out is None else spec_of(out) for out in outs)

    def _check_fits(self, specs: tuple[Spec, ...]) -> None:
        """What programs insist on when the op is written, eager mode does before it runs."""
        self._check_dtypes(specs)
        if self.definition.insists is not None:
            names = [name for names in self.view.inputs.values() for name in names]  # operands (see ``numbers``) follow
            declared = [VarView(n, int(s.kind), int(s.dtype), s.shape) for n, s in zip(names, specs, strict=False)]
            insist(self.definition.insists, self.view, dict(zip(names, declared, strict=True)).get)

    def _check_dtypes(self, specs: tuple[Spec, ...]) -> None:
        """Fluid promotes nothing: both sides of a binary op must have the same element type."""
        if self.type in _BINARY and len(specs) == 2 and specs[0].dtype != specs[1].dtype:
            raise TypeError(f"its inputs are of different element types, {specs[0].dtype} and {specs[1].dtype}")
        if self.type == "elementwise_floordiv" and is_floating(specs[0].dtype):
            raise TypeError(f"it divides integers, and its inputs are {specs[0].dtype}")
        if self.type in ("lookup_table", "lookup_table_v2") and VarType.INT64 not in (s.dtype for s in specs):
            raise TypeError(f"its ids are int64, and the inputs are {specs}")

    def run(self, flat: Sequence[Any]) -> tuple[Any, ...]:
        """The outputs for input values (first a key's words, for a kernel that takes one), with 64-bit types on."""
        if not self.direct:
            return self._run_otherwise(flat)
        if self.first and (found := self.first.run(flat)) is not None:
            return found
        if self._untraceable and plain_arrays(flat) and signature_of(flat) in self._untraceable:
            return self._with_numbers(flat)
        try:
            results = self.jitted(*flat)
            return results if _RAGGED.isdisjoint(map(type, results)) else tuple(map(_settled, results))
        except NeedsExact:
            return tuple(map(_settled, self.jitted(*map(exact, flat))))
        except NeedsConcrete:
            if plain_arrays(flat):
                self._untraceable.add(signature_of(flat))
            return self._with_numbers(flat)

    def in_room(self, flat: Sequence[Any]) -> tuple[Any, ...] | None:
        """The outputs for inputs with spare room, inside jit; None where a runner gives them."""
        return None

    def _with_numbers(self, flat: Sequence[Any]) -> tuple[Any, ...]:
        """The rule on host values (such as a shape), every one of which is known here."""
        return self._with_key(jax.tree_util.tree_map(_host, list(flat)))

    def _run_otherwise(self, flat: Sequence[Any]) -> tuple[Any, ...]:
        if not self.plain:
            return self._run_raw(flat)
        if self.on_host:
            return self._rule((), flat[0] if flat else self.own_key)
        return self._constant

    @cached_property
    def _constant(self) -> tuple[Any, ...]:
        found = self.first.run(())
        return self._rule(()) if found is None else found


# Ops with side effects, and feed and fetch.
_EFFECTS = frozenset(
    "print py_func feed fetch read load load_combine save save_combine create_py_reader "
    "create_double_buffer_reader".split()
)
_BINARY = frozenset(
    f"elementwise_{name}" for name in ("add", "sub", "mul", "div", "max", "min", "pow", "mod", "floordiv")
) | {"mul", "matmul"}


def wrapped_key(words: Any) -> Any:
    """The key of these two words."""
    return jax.random.wrap_key_data(jnp.asarray(words), impl="threefry2x32")


_RAGGED = frozenset([LoDArray])


def _settled(value: Any) -> Any:
    """A result whose number of rows is known only after the run (``sequence_erase``), without its padding."""
    if type(value) is not LoDArray or not value.padded or isinstance(value.data, jax.core.Tracer):
        return value
    return exact(value)


def _host(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, jax.Array) and value.size <= 4096 else value


_kernels: dict[Any, Kernel] = {}


def kernel_of(
    type: str,
    attrs: Mapping[str, Any],
    ins: Layout,
    outs: Layout,
    *,
    wanted: tuple[bool, ...] | None = None,
    aliases: tuple[int, ...] = (),
    declared: tuple[VarType, ...] = (),
    backward: bool = False,
) -> Kernel:
    """The kernel of an op, shared by equal contents.

    Args:
        attrs: attributes; missing ones take their defaults.
        ins, outs: the layouts of its slots (see ``flatten``).
        wanted: which outputs are used; None for all.
        aliases: for each output the index of the input whose variable it is, -1 for none.
        declared: the declared element types of its outputs.
        backward: whether it computes gradients.
    """
    key: Any = (type, tuple(attrs.items()), ins, outs, wanted, aliases, declared, backward)
    try:
        found = _kernels.get(key)
    except TypeError:
        frozen = tuple((name, freeze(value)) for name, value in attrs.items())
        key = (type, frozen, ins, outs, wanted, aliases, declared, backward)
        found = _kernels.get(key)
    if found is None:
        taken = (True,) * count_of(outs) if wanted is None else wanted
        plain = {k: v for k, v in attrs.items() if v is not None and k not in BOOKKEEPING}
        found = _kernels[key] = Kernel(type, plain, ins, outs, taken, aliases, declared, backward)
        found.key = key
    return found


_replaced: OrderedDict[Any, Kernel] = OrderedDict()
_SPARE = 64  # replaced kernels that are kept: numbers also return


def replaced(kernel: Kernel) -> None:
    """Note that another kernel took the place of this one, which is dropped in time unless sequences contain it."""
    _replaced[kernel.key] = kernel
    _replaced.move_to_end(kernel.key)
    if len(_replaced) > _SPARE:
        key, oldest = _replaced.popitem(last=False)
        if not oldest.recorded:
            _kernels.pop(key, None)
