"""A function as it would compute if float32 were float64: what two float32 results that differ are judged by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from fluidjax.export.graph import called_by
from lowering.engine.x64 import in_x64, with_x64
from lowering.extend import scan_counts


def in_double(function: Callable[..., Any], *examples: Any) -> Callable[..., Any]:
    """The function with every float32, those inside included, as float64.

    Random numbers are those of the float32 function: bits become floats of the size that they were drawn for.

    Args:
        function: of the examples' float32; what it returns for them is what is computed for other values.
        examples: arguments of the shapes and dtypes that it will be called with; float64 may stand for float32 then.
    """
    closed, shapes = with_x64(jax.make_jaxpr(function, return_shape=True), *examples)
    compiled = jax.jit(lambda leaves: _run(closed, leaves))

    @in_x64
    def doubled(*arguments: Any) -> Any:
        outputs = compiled([_wide(leaf) for leaf in jax.tree_util.tree_leaves(arguments)])
        return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(shapes), outputs)

    return doubled


def _wide(leaf: Any) -> Any:
    leaf = leaf if hasattr(leaf, "dtype") else np.asarray(leaf)
    return jnp.asarray(leaf, np.float64) if leaf.dtype == np.float32 else leaf


def _run(closed: Any, inputs: Sequence[Any]) -> list[Any]:
    jaxpr, consts = (closed.jaxpr, closed.consts) if isinstance(closed, core.ClosedJaxpr) else (closed, [])
    env = dict(zip(jaxpr.constvars, map(_wide, consts), strict=True))
    env.update(zip(jaxpr.invars, inputs, strict=True))

    def read(atom: Any) -> Any:
        if not isinstance(atom, core.Literal):
            return env[atom]
        aval: Any = atom.aval
        return _wide(np.asarray(atom.val, aval.dtype))

    for eqn in jaxpr.eqns:
        env.update(zip(eqn.outvars, _equation(eqn, [read(atom) for atom in eqn.invars]), strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _equation(eqn: Any, ins: list[Any]) -> Sequence[Any]:
    name, params = eqn.primitive.name, eqn.params
    if name in _LOOPS:
        return _LOOPS[name](params, ins)
    called = called_by(eqn)
    if called is not None:
        return _run(called, ins)
    if name == "reduce_precision":
        return ins
    if name == "bitcast_convert_type":  # of bits to floats of a size, and back
        ins = [x.astype(atom.aval.dtype) if hasattr(x, "dtype") else x for x, atom in zip(ins, eqn.invars, strict=True)]
        return [_wide(eqn.primitive.bind(*ins, **params))]
    outs = eqn.primitive.bind(*ins, **{key: _widened(value) for key, value in params.items()})
    return list(outs) if eqn.primitive.multiple_results else [outs]


def _widened(value: Any) -> Any:
    """A parameter that is float32, or that computes with it (how scatters add), as float64."""
    if isinstance(value, (core.Jaxpr, core.ClosedJaxpr)):
        jaxpr = value.jaxpr if isinstance(value, core.ClosedJaxpr) else value
        kinds = [jax.ShapeDtypeStruct(var.aval.shape, _widened(var.aval.dtype)) for var in jaxpr.invars]  # type: ignore
        closed = jax.make_jaxpr(lambda *given: _run(value, given))(*kinds)
        return closed if isinstance(value, core.ClosedJaxpr) else closed.jaxpr
    is_type = isinstance(value, (np.dtype, type))
    return np.dtype(np.float64) if is_type and value in (np.float32, np.dtype(np.float32)) else value


def _scan(params: Any, ins: list[Any]) -> Sequence[Any]:
    held, carried = scan_counts(params)
    kept = held + carried

    def body(carry: Any, row: Any) -> Any:
        outs = _run(params["jaxpr"], [*ins[:held], *carry, *row])
        return outs[: kept - held], outs[kept - held :]

    carry, rows = jax.lax.scan(
        body, ins[held:kept], ins[kept:], length=params["length"], reverse=params["reverse"], unroll=params["unroll"]
    )
    return [*carry, *rows]


def _while(params: Any, ins: list[Any]) -> Sequence[Any]:
    a, b = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
    return jax.lax.while_loop(
        lambda carry: _run(params["cond_jaxpr"], [*ins[:a], *carry])[0],
        lambda carry: _run(params["body_jaxpr"], [*ins[a:b], *carry]),
        ins[b:],
    )


def _cond(params: Any, ins: list[Any]) -> Sequence[Any]:
    branches = [lambda *given, branch=branch: _run(branch, given) for branch in params["branches"]]
    return jax.lax.switch(jnp.asarray(ins[0], np.int32), branches, *ins[1:])


_LOOPS: dict[str, Callable[[Any, list[Any]], Sequence[Any]]] = {"scan": _scan, "while": _while, "cond": _cond}
