"""Gradients of gradient ops, to any order, by ``jax.vjp`` of the gradient rule.

A gradient rule reads results of its forward op if that saves work: tanh_grad reads Out, layer_norm_grad the
statistics. These are functions of the forward op's inputs, and a second derivative that held them constant would be
wrong. So the derived op reads the forward op's inputs as well, and the saved results vary with them: their values are
the saved ones, their derivatives those of the forward function.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lowering.engine.call import call
from lowering.engine.gradients.grad_maker import GradMaker
from lowering.errors import LoweringError, NeedsExact
from lowering.program import EMPTY, GRAD, OpSpec
from lowering.registry import MASKED, OpDef, Slot, register
from lowering.registry.definition import SPECIAL
from lowering.registry.derived import bare_arrays, cotangent, has_gradient, rebuild
from lowering.registry.gradients import grad_lod_map
from lowering.registry.table import DERIVE
from lowering.values import LoDArray, SelectedRows


class _Parts(NamedTuple):
    """What the gradient of gradient op ``base`` reads and computes.

    Attributes:
        saved: slots of ``base`` that hold results of its forward op.
        inherited: the input slots of ``base``.
        recalled: input slots of the forward op that ``base`` lacks and its saved results depend on.
        varied: names of the slots, among those two, that get gradients.
        seconds: output slot of ``base`` -> the slot of its gradient.
    """

    base: OpDef
    saved: tuple[str, ...]
    inherited: list[Slot]
    recalled: list[Slot]
    varied: tuple[str, ...]
    seconds: dict[str, Slot]

    @property
    def inputs(self) -> list[Slot]:
        return [*self.inherited, *self.recalled, *self.seconds.values()]


def differentiate(base: OpDef) -> None:
    """Give gradient op ``base`` a gradient op, which reads what ``base`` reads and the gradients of its outputs."""
    parts = _parts(base)
    forward = base.forward
    assert forward is not None
    read = [s for s in parts.inputs if s.name in parts.varied]  # in the order of ``varied``
    attrs = {**forward.attrs, **base.attrs}
    definition = OpDef(
        base.type + "_grad",
        _rule(parts),
        parts.inputs,
        [Slot(s.name + GRAD, s.name + GRAD, s.duplicable, True) for s in read],
        {name: spec._replace(param=name, required=False) for name, spec in attrs.items()},
        base.special | (forward.special - {"key"} if parts.saved else frozenset()),
        rows=MASKED,  # the rule itself refuses padding that the gradient op does not take
        forward=base,
        diff=tuple(s.param for s in [*read, *parts.seconds.values()]),
    )
    definition.lod = grad_lod_map(definition)
    if base.loops:
        definition.once = "it loops in forward mode, which jax does not differentiate backwards"
    base.gradient = register(definition)
    base.make_grad = _maker(parts, definition)


def saved_slots(base: OpDef) -> tuple[str, ...]:
    """The input slots of a gradient op that hold results of its forward op; none if its gradient is written by hand."""
    forward = base.forward
    if forward is None or forward.forward is not None or base.has_written_gradient:
        return ()
    return tuple(s.name for s in base.inputs if s.wants != "meta" and forward.output(s.name) and _own(s, forward))


def _own(slot: Slot, forward: OpDef) -> bool:
    return forward.input(slot.name) is None


def _parts(base: OpDef) -> _Parts:
    saved = saved_slots(base)
    forward = base.forward
    assert forward is not None
    inherited = [s._replace(param=s.name, wants="raw") for s in base.inputs]
    missing = [s for s in forward.inputs if base.input(s.name) is None] if saved else []
    recalled = [s._replace(param=s.name, wants="raw") for s in missing]
    taken = {s.name for s in [*inherited, *recalled]}
    seconds: dict[str, Slot] = {}
    for slot in base.outputs:
        name = _free(slot.name, taken)
        taken.add(name)
        seconds[slot.name] = Slot(name, name, slot.duplicable, True, "raw")
    varied = tuple(s.name for s in base.inputs if _varies(s, base, saved))
    varied += tuple(s.name for s in missing if s.param in forward.diff)
    return _Parts(base, saved, inherited, recalled, varied, seconds)


def _varies(slot: Slot, base: OpDef, saved: Iterable[str]) -> bool:
    """Whether an input of a gradient op gets a gradient: inputs differentiated before, and gradients it reads."""
    forward = base.forward
    assert forward is not None
    if slot.name in saved or (slot.wants == "meta" and not saved):
        return False
    if forward.forward is not None:  # of second and higher order: ``diff`` tells, if that was derived
        return not base.diff or slot.param in base.diff
    own = forward.input(slot.name)
    return own is None or own.param in forward.diff


def _free(name: str, taken: set[str]) -> str:
    """The slot of the gradient of ``name``, unless the name already denotes one of a lower order."""
    free, order = name + GRAD, 2
    while free in taken:
        free, order = f"{name}@{order}{GRAD}", order + 1
    return free


def _rule(parts: _Parts) -> Any:
    order = [s.name for s in parts.inputs]
    targets = parts.varied

    def rule(*values: Any, **keywords: Any) -> Any:
        given = dict(zip(order, values, strict=True))
        _refuse_padding(parts, given)
        attrs = {n: v for n, v in keywords.items() if n not in SPECIAL and v is not None}
        seconds = {out: given[slot.name] for out, slot in parts.seconds.items()}
        special: dict[str, Any] = {
            "key": keywords.get("key"),
            "ctx": _Inner(keywords.get("ctx"), seconds),
            "in_place": frozenset(),
            "checked": False,
        }
        point = {n: given[n] for n in targets if _varying(given[n])}

        def run(moved: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
            env = given | {n: rebuild(point[n], v) for n, v in moved.items()}
            again = _forward_again(parts, env, attrs, special)
            held = _held(parts, env).items()
            env |= {n: rebuild(v, _with_tangent(bare_arrays(v), bare_arrays(again[n]))) for n, v in held}
            result = call(parts.base, {s.name: env[s.name] for s in parts.inherited}, attrs, special)
            return [_dense(result.get(out)) for out in seconds], {n: bare_arrays(v) for n, v in again.items()}

        start = {n: bare_arrays(v) for n, v in point.items()}
        if parts.base.loops:
            grads = _forwards(run, start, seconds)
        else:
            outs, pull, _ = jax.vjp(run, start, has_aux=True)
            (grads,) = pull([cotangent(o, _dense(seconds[out])) for o, out in zip(outs, seconds, strict=True)])
        results = [rebuild(given[n], grads[n]) if grads.get(n) is not None else None for n in targets]
        return results[0] if len(results) == 1 else tuple(results)

    rule.__doc__ = f"Gradient of {parts.base.type}, derived by jax.vjp."
    rule.__module__ = parts.base.fn.__module__
    return rule


def _forwards(run: Any, start: dict[str, Any], seconds: Mapping[str, Any]) -> dict[str, Any]:
    """The gradients in forward mode, for rules with loops: jax differentiates loops of unknown length forwards only.

    The gradient op computes the derivative by x of s(x) = <d_out, f(x)>, and second derivatives are symmetric: what v,
    the gradients of its results, pull back to x is the derivative of its results along v, and to d_out of f along v.
    """
    moves = {
        n: jnp.zeros_like(v) if seconds.get(n + GRAD) is None else _dense(seconds[n + GRAD]) for n, v in start.items()
    }
    _, (results, outs) = jax.jvp(run, (start,), (moves,))
    given = dict(zip(seconds, results, strict=True))
    return {n: given[n + GRAD] if n + GRAD in given else outs[n[: -len(GRAD)]] for n in start}


def _held(parts: _Parts, env: Mapping[str, Any]) -> dict[str, Any]:
    return {n: env[n] for n in parts.saved if _varying(env[n])}


def _forward_again(parts: _Parts, env: Mapping[str, Any], attrs: Mapping[str, Any], special: Any) -> dict[str, Any]:
    """The forward op's results as functions of its inputs, if the gradient op reads some that have derivatives."""
    held = _held(parts, env)
    forward = parts.base.forward
    if not held or forward is None:
        return {}
    if "key" in forward.special:
        forward = forward.recall
    if forward is None:
        raise LoweringError(
            f"the gradient of op {parts.base.type} needs {sorted(held)} as functions of its forward op's inputs:"
            " expected an op that computes the same again; this one draws random numbers. Declare with redo what"
            " follows from its draws, or the gradient with once= and the reason"
        )
    return call(forward, {s.name: env[s.name] for s in forward.inputs}, attrs, special)


def _with_tangent(value: Any, function: Any) -> Any:
    return jax.tree_util.tree_map(lambda v, f: v + (f - jax.lax.stop_gradient(f)).reshape(v.shape), value, function)


def _varying(value: Any) -> bool:
    return not isinstance(value, SelectedRows) and has_gradient(value)


def _dense(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_dense(v) for v in value]
    return value.to_dense() if isinstance(value, SelectedRows) else bare_arrays(value)


def _refuse_padding(parts: _Parts, given: Mapping[str, Any]) -> None:
    """Padding rows are supported for declared rules; what a forward op saved may have spare rows of its own."""
    values = [v for name, v in given.items() if name not in parts.saved]
    leaves = [leaf for value in values for leaf in (value if isinstance(value, list) else [value])]
    if any(isinstance(v, LoDArray) and v.padded for v in leaves):
        raise NeedsExact(f"op {parts.base.type}_grad is not declared for padded rows")


class _Inner:
    """The ``ctx`` of a gradient rule inside its own gradient: its outputs are bound like their gradients."""

    def __init__(self, outer: Any, seconds: Mapping[str, Any]):
        self._outer = outer
        self._seconds = seconds

    @property
    def platform(self) -> str:
        return str(self._outer.platform)

    @property
    def release(self) -> int:
        return int(self._outer.release)

    @property
    def is_backward(self) -> bool:
        return True

    def arity(self, slot: str) -> int:
        value = self._seconds.get(slot)
        return len(value) if isinstance(value, list) else int(value is not None)

    def wants(self, slot: str) -> bool:
        return self._seconds.get(slot) is not None


def _maker(parts: _Parts, definition: OpDef) -> Any:
    def make(maker: GradMaker) -> list[OpSpec]:
        inputs = {s.name: maker.input(s.name) or _recalled(parts, maker, s.name) for s in parts.inherited}
        inputs |= {s.name: _recalled(parts, maker, s.name) for s in parts.recalled}
        inputs |= {slot.name: maker.output_grad(out) for out, slot in parts.seconds.items()}
        outputs = {
            s.name: maker.wanted(inputs[s.name[: -len(GRAD)]], drop_empty=not s.duplicable) for s in definition.outputs
        }
        return [OpSpec(definition.type, inputs, outputs, maker.attrs)]

    return make


def _recalled(parts: _Parts, maker: GradMaker, slot: str) -> list[str]:
    """The forward op's variables in an input slot that its gradient op does not bind."""
    forward = parts.base.forward
    assert forward is not None
    if not parts.saved or forward.input(slot) is None:
        return []
    if maker.forward is None:
        names = [n for s in parts.saved for n in maker.input(s) if n != EMPTY]
        raise LoweringError(
            f"the gradient of op {parts.base.type} (#{maker.op.number}) needs input {slot} of the {forward.type} that"
            f" computed {names}: expected such an op before it in the block, found none. Differentiate the program"
            " that holds the forward ops"
        )
    return list(maker.forward.inputs.get(slot) or ())


DERIVE.append(differentiate)
