"""Gradient rules derived from a function by ``jax.vjp``."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowering.dtypes import is_float
from lowering.errors import RegistryError
from lowering.program import GRAD
from lowering.registry.definition import OpDef, Slot
from lowering.registry.gradients import grad_lod_map, gradient_outputs, inherited_attrs
from lowering.values import LoDArray, data_of


def vjp_definition(forward: OpDef, *, reads: str | None, type: str | None) -> OpDef:
    """The grad op of ``forward`` that applies ``jax.vjp`` to its function.

    Args:
        reads: parameters of forward inputs and outputs that the grad op reads (all output gradients are added unless
            some ``d_<output>`` is listed); default all inputs, all outputs and all output gradients.
    """
    inputs = _vjp_inputs(forward, reads)
    definition = OpDef(
        type or forward.type + "_grad",
        lambda *args, **attrs: None,
        inputs,
        gradient_outputs(forward, forward.diff),
        inherited_attrs(forward),
        forward.special,
        "plain",
        forward.rows,
        forward=forward,
    )
    definition.fn = _vjp_rule(forward, inputs)
    definition.lod = grad_lod_map(definition)
    return definition


def _vjp_inputs(forward: OpDef, reads: str | None) -> list[Slot]:
    if reads is None:
        listed = [s.param for s in [*forward.inputs, *forward.outputs]]
    else:
        listed = reads.split()
    found = [s for s in [*forward.inputs, *forward.outputs] if s.param in listed]
    missing = [s.param for s in forward.inputs if s not in found and not s.dispensable]
    if missing:
        raise RegistryError(
            f"op {forward.type}: its gradient cannot be derived by vjp, because the grad op does not read {missing},"
            " which the function needs; write the rule with .grad"
        )
    explicit = [w[2:] for w in listed if w.startswith("d_")] if reads is not None else []
    outs = [s for s in forward.outputs if not explicit or s.param in explicit]
    grads = [Slot(s.name + GRAD, "d_" + s.param, s.duplicable, True, newer=s.newer) for s in outs]
    # The rule recomputes the outputs, and does not read the values of those that Fluid's op is given.
    kept = [s._replace(wants="meta", dispensable=True) if s in forward.outputs else s for s in found]
    return kept + grads


def _vjp_rule(forward: OpDef, inputs: list[Slot]) -> Any:
    """The function of the derived grad op: positional values in the order of ``inputs``."""
    order = [s.name for s in inputs]

    def rule(*values: Any, **attrs: Any) -> Any:
        given = dict(zip(order, values, strict=True))
        args = {s.param: given.get(s.name) for s in forward.inputs}
        primal = {p: args[p] for p in forward.diff if has_gradient(args[p])}

        def run(wrt: dict[str, Any]) -> list[Any]:
            full = {p: rebuild(args[p], wrt[p]) if p in wrt else args[p] for p in args}
            return [bare_arrays(v) for v in _as_tuple(forward.fn(*full.values(), **attrs), forward)]

        outs, pull = jax.vjp(run, {p: bare_arrays(v) for p, v in primal.items()})
        cotangents = [cotangent(o, given.get(s.name + GRAD)) for o, s in zip(outs, forward.outputs, strict=True)]
        (grads,) = pull(cotangents)
        results = [rebuild(args[p], grads[p]) if p in grads else None for p in forward.diff]
        return results[0] if len(results) == 1 else tuple(results)

    rule.__doc__ = f"Gradient of {forward.type}, derived by jax.vjp."
    rule.__module__ = forward.fn.__module__
    return rule


def _as_tuple(result: Any, forward: OpDef) -> tuple[Any, ...]:
    return tuple(result) if len(forward.outputs) > 1 else (result,)


def bare_arrays(value: Any) -> Any:
    """The bare arrays of a value or of a list of values, without LoD and row counts."""
    if isinstance(value, (list, tuple)):
        return [data_of(v) for v in value]
    return data_of(value)


def has_gradient(value: Any) -> bool:
    """Whether jax can differentiate with respect to it: a float value, or a list of only such values."""
    leaves = value if isinstance(value, (list, tuple)) else [value]
    return bool(leaves) and all(v is not None and is_float(v.dtype) for v in leaves)


def rebuild(original: Any, data: Any) -> Any:
    """``data`` with the LoD and row count of ``original``, element by element in lists."""
    if isinstance(original, (list, tuple)):
        return [rebuild(o, d) for o, d in zip(original, data, strict=True)]
    return original.with_data(data) if isinstance(original, LoDArray) else data


def cotangent(primal_out: Any, grad: Any) -> Any:
    """The cotangent that ``jax.vjp`` expects for an output: ``grad`` in its dtype and shape,
    zeros if there is none, and float0 for integers.
    """
    if isinstance(primal_out, list):
        grads = grad if grad else [None] * len(primal_out)
        return [cotangent(o, g) for o, g in zip(primal_out, grads, strict=True)]
    if primal_out is None:
        return None
    if not is_float(primal_out.dtype):
        return np.zeros(primal_out.shape, jax.dtypes.float0)
    if grad is None:
        return jnp.zeros(primal_out.shape, primal_out.dtype)
    return jnp.asarray(data_of(grad), primal_out.dtype).reshape(primal_out.shape)
