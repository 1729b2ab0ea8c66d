"""A program as a graph whose nodes know the op they come from."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.tree_util import keystr, tree_flatten, tree_flatten_with_path

from fluidjax.base.errors import explain
from fluidjax.export.c import primitives
from fluidjax.export.c.rules import ELEMENTS, KERNELS, REFUSES, known
from fluidjax.export.c.types import covered
from fluidjax.export.function import ExportError, JaxFunction
from fluidjax.export.graph import Body, Node, Value, graph_of, walk
from lowering.engine.runner import Runner
from lowering.engine.x64 import with_x64
from lowering.program import OpView
from lowering.values import LoDArray

assert primitives.__all__


@dataclass(frozen=True)
class Leaf:
    """One array among the inputs or outputs: its variable, and which part of it."""

    name: str
    path: str
    value: Value


@dataclass
class Traced:
    """A step as a graph.

    Attributes:
        body: its inputs are the leaves of parameters and feeds, then the key; its outputs those of the fetches and
            of the parameters it replaces.
        parameters, feeds, fetches: name -> leaves.
        replaced: (leaf of a parameter, its new value).
        key: the key's two words.
        arrays: the parameters' leaves, unchanged.
        longest: ragged feed -> the longest sequence that fits in the step, by level.
    """

    body: Body
    parameters: dict[str, list[Leaf]]
    feeds: dict[str, list[Leaf]]
    fetches: list[tuple[str, Any, list[Leaf]]]
    replaced: list[tuple[Leaf, Leaf]]
    key: Value
    arrays: dict[Value, np.ndarray]
    longest: dict[str, tuple[int, ...]]


def labelled(op: OpView) -> Any:
    """A context in whose equations ``op_of`` can find the op."""
    return jax.named_scope(f"fluid_{op.block_idx}_{op.index}")


class Labelled(Runner):
    """Labels everything an op becomes with the op."""

    def run_op(self, op: OpView, env: Any) -> dict[str, Any]:
        """Values by name of the variables that ``op`` writes."""
        with labelled(op):
            return super().run_op(op, env)


def trace(function: JaxFunction, parameters: Mapping[str, Any], feeds: Mapping[str, Any], train: bool) -> Traced:
    """The graph of a function for inputs of given shapes.

    Args:
        function, parameters: as ``to_jax`` returns them.
        feeds: name -> array or ragged value; only shapes and dtypes matter.
        train: whether the step replaces the parameters it writes.

    Raises ExportError listing everything that C does not support, with op and line.
    """
    function = function.with_runner(Labelled)
    written = [name for name in function.written if name in parameters] if train else []

    def step(weights: Any, inputs: Any, key: Any) -> Any:
        outputs, after = function.step(weights, inputs, key)
        return outputs, {name: after[name] for name in written}

    order = {name: feeds[name] for name in function.feeds}
    weights = {name: parameters[name] for name in sorted(parameters)}
    traced = jax.make_jaxpr(step, return_shape=True)
    closed, shapes = with_x64(traced, weights, order, np.zeros(2, np.uint32))
    body = graph_of(closed)
    _check(function, body)
    given = iter(body.inputs)
    held = {name: _leaves(name, value, given) for name, value in weights.items()}
    fed = {name: _leaves(name, value, given) for name, value in sorted(order.items())}
    key = next(given)
    made = iter(body.outputs)
    names = zip(function.fetches, shapes[0], strict=True)
    fetched = [(name, shape, _leaves(name, shape, made)) for name, shape in names]
    new = {name: _leaves(name, shapes[1][name], made) for name in sorted(written)}
    replaced = [pair for name in new for pair in _pairs(name, held[name], new[name])]
    leaves = zip((leaf for name in held for leaf in held[name]), tree_flatten(weights)[0], strict=True)
    arrays = {leaf.value: np.asarray(v) for leaf, v in leaves}
    longest = {name: value.longest for name, value in order.items() if isinstance(value, LoDArray)}
    return Traced(body, held, fed, fetched, replaced, key, arrays, longest)


def _leaves(name: str, tree: Any, values: Any) -> list[Leaf]:
    return [Leaf(name, keystr(path), next(values)) for path, _ in tree_flatten_with_path(tree)[0]]


def _pairs(name: str, old: list[Leaf], new: list[Leaf]) -> list[tuple[Leaf, Leaf]]:
    kinds = [[(leaf.path, leaf.value.shape, leaf.value.dtype) for leaf in leaves] for leaves in (old, new)]
    if kinds[0] != kinds[1]:
        raise ExportError(
            explain(
                f"the step changes the form of the parameter {name!r}",
                "the same shape and type after a step",
                f"{kinds[0]} before, {kinds[1]} after",
                "convert the program without --train, or keep the parameter's form",
            )
        )
    return list(zip(old, new, strict=True))


def _check(function: JaxFunction, body: Body) -> None:
    """Collect what is not supported, once per op."""
    found: dict[str, None] = {}
    for node in walk(body):
        reason = refusal(node)
        if reason:
            found[f"{_place(function, node)}: {node.prim} {reason}".rstrip()] = None
    strange = [v.dtype.name for v in body.inputs if not covered(v.dtype)]
    found.update(dict.fromkeys(f"an input or parameter of {name}" for name in strange))
    if found:
        raise ExportError(
            explain(
                "the program has what the C writer does not cover",
                f"the {len(ELEMENTS) + len(KERNELS)} primitives that it knows, of floats, integers and booleans",
                "".join(f"\n    {line}" for line in found),
                "fetch what does not depend on these ops, or convert to stablehlo",
            )
        )


def refusal(node: Node) -> str:
    """The unsupported part of a node; "" if there is none."""
    if not known(node.prim):
        return "(unknown)"
    strange = [str(v.dtype) for v in (*node.ins, *node.outs) if not covered(v.dtype)]
    if strange:
        return f"of {strange[0]}"
    if node.prim in KERNELS:
        return KERNELS[node.prim].refuses(node)
    return REFUSES[node.prim](node) if node.prim in REFUSES else ""


def _place(function: JaxFunction, node: Node) -> str:
    op = op_of(function, node)
    return op.place() if op is not None else "the program's inputs and outputs"


def op_of(function: JaxFunction, node: Node) -> OpView | None:
    """The op from which a node originates."""
    labels: Sequence[tuple[str, str]] = re.findall(r"fluid_(\d+)_(\d+)", node.label)
    for block, index in reversed(labels):
        for op in function.program.blocks[int(block)].ops if int(block) < len(function.program.blocks) else ():
            if op.index == int(index):
                return op
    return None
