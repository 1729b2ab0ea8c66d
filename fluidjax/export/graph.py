"""A jaxpr as nodes over values: calls inlined, aliases resolved, unused values omitted."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import jax
import numpy as np
from jax.extend import core

from lowering.engine.expansion import expansion
from lowering.extend import scan_counts

_ids = itertools.count()


@dataclass(eq=False)
class Value:
    """An array that some node computes, or that is given; a constant where ``constant`` is set."""

    shape: tuple[int, ...]
    dtype: np.dtype
    node: Node | None = None
    constant: np.ndarray | None = None
    name: str = ""  # the variable that it is, where the tracing said so (jax.ad_checkpoint.checkpoint_name)
    id: int = field(default_factory=lambda: next(_ids))

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The number of bytes."""
        return self.size * self.dtype.itemsize

    @property
    def scalar(self) -> bool:
        """Whether it is a constant number."""
        return self.constant is not None and self.size == 1


@dataclass(eq=False)
class Node:
    """One primitive on values; ``bodies`` are the blocks of loops and branches."""

    prim: str
    ins: list[Value]
    outs: list[Value]
    params: dict[str, Any]
    label: str = ""
    bodies: dict[str, list[Body]] = field(default_factory=dict)


@dataclass(eq=False)
class Body:
    """A sequence of nodes."""

    inputs: list[Value]
    nodes: list[Node]
    outputs: list[Value]


def graph_of(closed: core.ClosedJaxpr, platform: str = "cpu") -> Body:
    """The graph of a jaxpr, with what is for one platform where formulations differ; "" is the general one."""
    inputs = [_value(var.aval) for var in closed.jaxpr.invars]
    nodes: list[Node] = []
    outputs = _Inliner(nodes, platform).run(closed.jaxpr, _constants(closed), inputs, "")
    body = Body(inputs, nodes, outputs)
    prune(body)
    return body


def prune(body: Body) -> None:
    """Drop what leads to no output."""
    live = set(body.outputs)
    kept = []
    for node in reversed(body.nodes):
        if live.isdisjoint(node.outs):
            continue
        live.update(node.ins)
        kept.append(node)
    body.nodes[:] = reversed(kept)


def walk(body: Body) -> Iterator[Node]:
    """All nodes, those of loops and branches after the node they belong to."""
    for node in body.nodes:
        yield node
        for bodies in node.bodies.values():
            for inner in bodies:
                yield from walk(inner)


def constant(number: Any, dtype: Any, shape: Sequence[int] = ()) -> Value:
    """A constant value."""
    array = np.asarray(number, np.dtype(dtype)).reshape(tuple(shape))
    return Value(array.shape, array.dtype, constant=array)


# Nodes that hand on their inputs.
_SAME = frozenset({"copy", "copy_p", "stop_gradient", "optimization_barrier", "random_wrap", "random_unwrap"})


# Calls of a function: their jaxpr is under one of these names.
_CALLS = ("jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "remat2", "checkpoint")
_CALLED = ("jaxpr", "call_jaxpr", "fun_jaxpr")


def called_by(equation: Any) -> Any:
    """The jaxpr, closed or not, of which an equation is a call, or of which its primitive is made; None if of none."""
    if equation.primitive.name in _CALLS:
        return next(equation.params[key] for key in _CALLED if key in equation.params)
    return expansion(equation)


class _Inliner:
    def __init__(self, nodes: list[Node], platform: str):
        self.nodes, self.platform = nodes, platform

    def run(self, jaxpr: Any, constants: Sequence[Value], inputs: Sequence[Value], label: str) -> list[Value]:
        env: dict[Any, Value] = dict(zip(jaxpr.constvars, constants, strict=True))
        env.update(zip(jaxpr.invars, inputs, strict=True))

        def read(atom: Any) -> Value:
            if not isinstance(atom, core.Literal):
                return env[atom]
            aval: Any = atom.aval
            return constant(atom.val, aval.dtype)

        for eqn in jaxpr.eqns:
            outs = self._equation(eqn, [read(atom) for atom in eqn.invars], label)
            env.update(zip(eqn.outvars, outs, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def _equation(self, eqn: Any, ins: list[Value], label: str) -> list[Value]:
        stack = str(eqn.source_info.name_stack)  # of the jaxpr that the equation is in: within the caller's
        name, label = eqn.primitive.name, f"{label}/{stack}" if label and stack else stack or label
        called = called_by(eqn)
        if called is not None:
            closed = isinstance(called, core.ClosedJaxpr)
            return self.run(called.jaxpr if closed else called, _constants(called) if closed else [], ins, label)
        if name == "custom_linear_solve":  # of its four functions, the one that solves
            solve, counts = eqn.params["jaxprs"].solve, eqn.params["const_lengths"]
            before, after = counts.matvec + counts.vecmat, sum(counts)
            given = [*ins[before : before + counts.solve], *ins[after:]]
            return self.run(solve.jaxpr, _constants(solve), given, label)
        if name in _SAME:
            return ins
        if name == "name":
            ins[0].name = ins[0].name or eqn.params["name"]
            return ins
        known = _known(name, eqn, ins, self.platform)
        if known is not None:
            return known
        if name == "cond" and ins[0].scalar:
            branches = eqn.params["branches"]
            at = min(max(int(ins[0].constant.item()), 0), len(branches) - 1)  # type: ignore[union-attr]
            return self.run(branches[at].jaxpr, _constants(branches[at]), ins[1:], label)
        if name == "reshape" and eqn.params.get("dimensions"):
            order = tuple(eqn.params["dimensions"])
            turned = Node("transpose", ins, [], {"permutation": order}, label)
            turned.outs = [Value(tuple(ins[0].shape[d] for d in order), ins[0].dtype, turned)]
            self.nodes.append(turned)
            ins = turned.outs
        node = Node(name, ins, [], dict(eqn.params), label)
        if name == "scan":
            node.params["num_consts"], node.params["num_carry"] = scan_counts(eqn.params)
        if any(_is_key(atom.aval) for atom in eqn.invars) and not name.startswith("random_"):
            _with_words(node)
        node.bodies = {key: found for key, p in eqn.params.items() if (found := self._bodies(name, key, p, label))}
        node.outs = [_value(var.aval, node) for var in eqn.outvars]
        self.nodes.append(node)
        return node.outs

    def _bodies(self, name: str, key: str, param: Any, label: str) -> list[Body]:
        if name not in ("while", "cond", "scan"):
            return []
        found = []
        for closed in param if isinstance(param, (tuple, list)) else [param]:
            if isinstance(closed, core.ClosedJaxpr):
                inputs = [_value(var.aval) for var in closed.jaxpr.invars]
                nodes: list[Node] = []
                outputs = _Inliner(nodes, self.platform).run(closed.jaxpr, _constants(closed), inputs, label)
                body = Body(inputs, nodes, outputs)
                prune(body)
                found.append(body)
        return found


# What may be done to arrays of keys, whose words are a last dim that the primitive does not know.
_OF_KEYS = frozenset({"squeeze", "reshape", "expand_dims", "while", "cond", "scan", "select_n"})


def _with_words(node: Node) -> None:
    """Let a primitive on keys work on their words."""
    rank = len(node.ins[0].shape) - 1
    p = node.params
    if node.prim == "slice":
        p["start_indices"], p["limit_indices"] = (*p["start_indices"], 0), (*p["limit_indices"], 2)
        p["strides"] = p["strides"] and (*p["strides"], 1)
    elif node.prim == "dynamic_slice":
        node.ins.append(constant(0, np.int32))
    elif node.prim == "broadcast_in_dim":
        p["broadcast_dimensions"] = (*p["broadcast_dimensions"], len(p["shape"]))
    elif node.prim == "transpose":
        p["permutation"] = (*p["permutation"], rank)
    elif node.prim not in _OF_KEYS or (node.prim == "select_n" and node.ins[0].shape):
        node.prim += " of keys"


def _known(name: str, eqn: Any, ins: list[Value], platform: str) -> list[Value] | None:
    """What a node gives where that is known here: a platform's formulation, numbers of numbers, no change."""
    if name == "platform_index":
        platforms = eqn.params["platforms"]
        at = next((i for i, names in enumerate(platforms) if names is None or platform in names), len(platforms) - 1)
        return [constant(at, np.int32)]
    if name == "convert_element_type":
        dtype = np.dtype(eqn.params["new_dtype"])
        if dtype == ins[0].dtype:
            return ins
        if ins[0].scalar and dtype.kind in "iub" and ins[0].dtype.kind in "iub":
            return [constant(ins[0].constant.astype(dtype), dtype, ins[0].shape)]  # type: ignore[union-attr]
    if name == "clamp" and all(v.scalar for v in ins):
        low, number, high = (v.constant for v in ins)
        return [constant(np.minimum(np.maximum(number, low), high), ins[1].dtype, ins[1].shape)]  # type: ignore
    if name == "reduce_precision" and _precise(ins[0].dtype, eqn.params):
        return ins
    return None


def _precise(dtype: np.dtype, params: Any) -> bool:
    usual = {"float32": (8, 23), "float64": (11, 52)}
    return usual.get(dtype.name) == (params["exponent_bits"], params["mantissa_bits"])


def _constants(closed: Any) -> list[Value]:
    return [Value(np.shape(c), _raw(c).dtype, constant=_raw(c)) for c in closed.consts]


def _raw(leaf: Any) -> np.ndarray:
    if hasattr(leaf, "dtype") and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf)


def _is_key(aval: Any) -> bool:
    return bool(jax.dtypes.issubdtype(aval.dtype, jax.dtypes.prng_key))


def _value(aval: Any, node: Node | None = None) -> Value:
    if _is_key(aval):
        return Value((*aval.shape, 2), np.dtype(np.uint32), node)  # a key is its two words
    return Value(tuple(aval.shape), np.dtype(aval.dtype), node)
