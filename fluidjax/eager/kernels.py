"""Kernels: one op with its attributes and the layout of its slots, as one compiled function of flat inputs.

A kernel is kept for as long as the process runs, keyed by content; below it jax.jit keeps one executable for each
signature of shapes and dtypes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import jax
import numpy as np

import lowering
from fluidjax.base.enums import VarType
from lowering import EMPTY, NeedsConcrete, NeedsExact, OpView, Runner, VarView
from lowering.engine.call import call
from lowering.engine.host_bits import is_host_key
from lowering.engine.random_bits import seed_key
from lowering.engine.runner import Context, special
from lowering.values import exact

Layout = tuple[Any, ...]  # per slot its name, for one variable, or (name, number of variables)


def flatten(slots: Mapping[str, Any]) -> tuple[list[Any], Layout]:
    """(the variables of all slots one after the other, how they belong to slots)."""
    flat: list[Any] = []
    layout: list[Any] = []
    for slot, argument in slots.items():
        if argument is None:
            continue
        if argument.__class__ is list or argument.__class__ is tuple:
            flat += argument
            layout.append((slot, len(argument)))
        else:
            flat.append(argument)
            layout.append(slot)
    return flat, tuple(layout)


def _named(layout: Layout, names: Sequence[str]) -> dict[str, list[str]]:
    """Names by slot, taken one after the other."""
    named, begin = {}, 0
    for entry in layout:
        slot, count = (entry, 1) if isinstance(entry, str) else entry
        named[slot] = list(names[begin : begin + count])
        begin += count
    return named


def freeze(value: Any) -> Any:
    """A hashable stand-in for an attribute's value."""
    if isinstance(value, (list, tuple)):
        return tuple(freeze(v) for v in value)
    if isinstance(value, np.ndarray):
        return freeze(value.tolist())
    return value


class _Variables:
    """Just enough of a program for rules that ask what their outputs were declared as."""

    gradients: frozenset[str] = frozenset()

    def __init__(self, variables: Mapping[str, VarView]) -> None:
        self._variables = variables

    def find_var(self, block_idx: int, name: str) -> VarView | None:
        return self._variables.get(name)


class Kernel:
    """One op as a function of the values of its input slots, one after the other.

    Attributes:
        definition: the op.
        attrs: all its attributes.
        view: the op with stand-in names: ``i0``, ``i1`` ... for its inputs, ``o0`` ... for its outputs; an output that
            is the variable of an input it updates has the input's name.
        plans: what the gradient takes, by the inputs that want one (see ``tape``).
    """

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
        self.type, self.ins, self.outs = type, ins, outs
        self.definition = lowering.get_op(type)
        self.attrs = lowering.check_attrs(type, attrs)
        inputs = _named(ins, [f"i{k}" for k in range(_count(ins))])
        names = [f"o{k}" if w else EMPTY for k, w in enumerate(wanted)]
        for k, source in enumerate(aliases):
            if source >= 0:
                names[k] = f"i{source}"
        self.view = OpView(type, inputs, _named(outs, names), {**self.attrs, "op_role": int(backward)})
        self._check_slots(inputs, self.view.outputs)
        self._wanted = wanted
        variables = {n: VarView(n, 7, int(d)) for n, d in zip(names, declared, strict=False)}
        self._runner = Runner(_Variables(variables))  # type: ignore[arg-type]
        self.draws = "key" in self.definition.special
        self.differentiable = self.definition.differentiable
        self.plans: dict[Any, Any] = {}
        self.sources = not inputs

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
                absent = [s.name for s in slots if not s.dispensable and s.name not in given and not s.duplicable]
                if absent and self.definition.forward is None:
                    raise ValueError(f"op {self.type}: Input {', '.join(absent)} not found. Give it.")

    def _values(self, flat: Sequence[Any]) -> dict[str, Any]:
        by_slot = _named(self.ins, flat)  # type: ignore[arg-type]  # values instead of names
        values: dict[str, Any] = {}
        for slot in self.definition.inputs:
            found = by_slot.get(slot.name, [])
            values[slot.name] = found if slot.duplicable else (found[0] if found else None)
        return values

    def _rule(self, key: Any, *flat: Any) -> tuple[Any, ...]:
        definition = self.definition
        context = Context(self.view, self._runner, {})
        if key is not None and not is_host_key(key) and not isinstance(key, jax.Array):
            raise TypeError("a key is an array")
        given = special(definition, self.view, key, context)
        results = call(definition, self._values(flat), self.attrs, given)
        return self._flat_results(results)

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
        """The compiled function: (key data or None, *inputs) -> outputs, with those of updated inputs at the end."""

        def run(key: Any, *flat: Any) -> tuple[Any, ...]:
            if key is not None:
                key = jax.random.wrap_key_data(key, impl="threefry2x32")
            return self._rule(key, *flat)

        run.__name__ = self.type
        return jax.jit(run)

    def run(self, flat: Sequence[Any], key: np.ndarray | None = None) -> tuple[Any, ...]:
        """The outputs for input values; to be called with 64-bit types on."""
        if self.sources:
            return self._rule(key)
        try:
            return self.jitted(key, *flat)
        except NeedsExact:
            return self.jitted(key, *map(exact, flat))
        except NeedsConcrete:
            # The rule needs host values (a shape, say): here every value is known.
            wrapped = None if key is None else jax.random.wrap_key_data(key, impl="threefry2x32")
            return self._rule(wrapped, *jax.tree_util.tree_map(_host, list(flat)))

    def own_key(self) -> np.ndarray | None:
        """The key of the op's own seed; None where it has none."""
        seed = int(self.attrs.get("seed", 0) or 0)
        return seed_key(seed, host=True) if seed else None


def _host(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, jax.Array) and value.size <= 4096 else value


def _count(layout: Layout) -> int:
    return sum(1 if isinstance(entry, str) else entry[1] for entry in layout)


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
    """The kernel of an op; the same one for equal content.

    Args:
        attrs: attributes, those left out taking their defaults.
        ins, outs: the layouts of its slots (see ``flatten``).
        wanted: which outputs are taken, None: all.
        aliases: for each output the index of the input whose variable it is, -1 for none.
        declared: the element types that its outputs were declared with.
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
        taken = (True,) * _count(outs) if wanted is None else wanted
        plain = {k: v for k, v in attrs.items() if v is not None and k not in _BOOKKEEPING}
        found = _kernels[key] = Kernel(type, plain, ins, outs, taken, aliases, declared, backward)
    return found


_BOOKKEEPING = frozenset({"op_role", "op_role_var", "op_namescope", "op_callstack", "op_device"})
