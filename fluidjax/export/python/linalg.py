"""Factors of matrices, triangular systems, Fourier transforms, complex numbers, and the total order of floats."""

from __future__ import annotations

import inspect

import numpy as np
from jax import lax

from fluidjax.export.graph import Node
from fluidjax.export.python.functions import Function, rule
from fluidjax.export.python.texts import ATOM, COMPARE, Expr, call

# Functions that may make a matrix symmetric first, as their primitives do not.
_PLAIN = {"cholesky": ["symmetrize_input=False"], "eigh": ["symmetrize_input=False"]}


@rule("svd", "eigh", "eig", "qr", "lu", "cholesky", "triangular_solve", "householder_product")
def factors(f: Function, node: Node) -> list[Expr]:
    """lax.linalg.svd and others, into several names; a primitive has the singular values before the vectors."""
    words = [*(f.tight(v, 0) for v in node.ins), *_PLAIN.get(node.prim, [])]
    for name, parameter in inspect.signature(getattr(lax.linalg, node.prim)).parameters.items():
        if name in node.params and node.params[name] != parameter.default:
            words.append(f"{name}={f.mark(name, node.params[name])}")
    names = [f.names.new(v.name or "factor") for v in node.outs]
    order = [names[1], names[0], *names[2:]] if node.prim == "svd" and len(names) == 3 else names
    starred = "" if len(names) > 1 or node.prim not in ("eigh", "eig") else ","
    f.lines.append(f"{', '.join(order)}{starred} = {call(f'lax.linalg.{node.prim}', words)}")
    return [Expr(name, ATOM, v.shape) for name, v in zip(names, node.outs, strict=True)]


@rule("fft")
def fft(f: Function, node: Node) -> Expr:
    """lax.fft of the last dims."""
    kind = lax.FftType(node.params["fft_type"]).name
    lengths = f.mark("fft_lengths", tuple(node.params["fft_lengths"]))
    return Expr(call("lax.fft", [f.tight(node.ins[0], 0), repr(kind), lengths]), ATOM, node.outs[0].shape)


@rule("real", "imag", "complex", "conj")
def parts(f: Function, node: Node) -> Expr:
    """lax.real and others."""
    return Expr(call(f"lax.{node.prim}", [f.tight(v, 0) for v in node.ins]), ATOM, node.outs[0].shape)


@rule("lt_to", "le_to")
def in_total_order(f: Function, node: Node) -> Expr:
    """x < y, or x <= y, of floats: in the order of their bits, those of negative numbers turned round."""
    operator = " < " if node.prim == "lt_to" else " <= "
    if node.ins[0].dtype.kind != "f":
        texts = [f.tight(v, COMPARE + 1) for v in node.ins]
        return Expr(operator.join(texts), COMPARE, node.outs[0].shape)
    integer = np.dtype(f"int{8 * node.ins[0].dtype.itemsize}")
    ranks = []
    for value in node.ins:
        bits = f.names.new("bits")
        f.lines.append(f"{bits} = lax.bitcast_convert_type({f.tight(value, 0)}, jnp.{integer.name})")
        ranks.append(f"jnp.where({bits} < 0, {bits} ^ {np.iinfo(integer).max}, {bits})")
    return Expr(operator.join(ranks), COMPARE, node.outs[0].shape)
