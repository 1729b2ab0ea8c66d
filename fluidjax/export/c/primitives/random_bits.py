"""Threefry, JAX's own generator: a key is two words, and element i takes its bits from counter i."""

from __future__ import annotations

import jax
import numpy as np

from fluidjax.export.c.affine import Affine, address, strides_of
from fluidjax.export.c.kernel import Kernel
from fluidjax.export.c.rules import kernel
from fluidjax.export.c.types import c_type
from fluidjax.export.graph import Node


def _threefry(node: Node) -> str:
    if "impl" in node.params and node.params["impl"].name != "threefry2x32":
        return f"of generator {node.params['impl'].name}"
    return ""


@kernel("random_seed", refuses=_threefry)
def random_seed(k: Kernel, node: Node) -> None:
    """The key of a seed: its high and low word."""
    seed, out = node.ins[0], k.target(node.outs[0])
    with k.nest(seed.shape) as index:
        at = address(index, strides_of(seed.shape)) * 2
        k.line(f"const uint64_t seed = (uint64_t){k.element(seed, index)};")
        high = "(uint32_t)(seed >> 32)" if seed.dtype.itemsize == 8 else "0"
        k.line(f"{out}[{at}] = {high}; {out}[{at + 1}] = (uint32_t)seed;")


@kernel("random_fold_in", refuses=_threefry)
def random_fold_in(k: Kernel, node: Node) -> None:
    """Derive a key from a key and a number."""
    keys, data = node.ins
    out = k.target(node.outs[0])
    with k.nest(data.shape) as index:
        at = address(index, strides_of(data.shape)) * 2
        key = [*index] if len(keys.shape) > 1 else []
        words = [k.element(keys, [*key, Affine.of(w)]) for w in (0, 1)]
        k.line(f"uint32_t x[2] = {{0, (uint32_t){k.element(data, index)}}};")
        k.line(f"threefry({words[0]}, {words[1]}, x);")
        k.line(f"{out}[{at}] = x[0]; {out}[{at + 1}] = x[1];")


def _partitionable(node: Node) -> str:
    if not getattr(jax.config, "jax_threefry_partitionable", True):
        return "by jax_threefry_partitionable = False"
    return _threefry(node) or ("" if len(node.ins[0].shape) == 1 else "of several keys")


@kernel("random_bits", refuses=_partitionable)
def random_bits(k: Kernel, node: Node) -> None:
    """The bits of each element, from its position."""
    key, out = node.ins[0], node.outs[0]
    to, dtype = k.target(out), out.dtype
    words = [k.element(key, [Affine.of(w)]) for w in (0, 1)]
    with k.block(f"for (long i = 0; i < {out.size}; ++i)"):
        k.line("uint32_t x[2] = {(uint32_t)((uint64_t)i >> 32), (uint32_t)i};")
        k.line(f"threefry({words[0]}, {words[1]}, x);")
        if dtype == np.uint64:
            k.line(f"{to}[i] = ((uint64_t)x[0] << 32) | x[1];")
        else:
            k.line(f"{to}[i] = ({c_type(dtype)})(x[0] ^ x[1]);")


@kernel("random_split", refuses=_partitionable)
def random_split(k: Kernel, node: Node) -> None:
    """Derive several keys from one."""
    key, out = node.ins[0], node.outs[0]
    to = k.target(out)
    words = [k.element(key, [Affine.of(w)]) for w in (0, 1)]
    with k.block(f"for (long i = 0; i < {out.size // 2}; ++i)"):
        k.line("uint32_t x[2] = {(uint32_t)((uint64_t)i >> 32), (uint32_t)i};")
        k.line(f"threefry({words[0]}, {words[1]}, x);")
        k.line(f"{to}[2 * i] = x[0]; {to}[2 * i + 1] = x[1];")


@kernel("threefry2x32", streams=(2, 3))
def threefry2x32(k: Kernel, node: Node) -> None:
    """The block cipher itself, on pairs of words."""
    first, second, high, low = node.ins
    outs = [k.target(value) for value in node.outs]
    shape = node.outs[0].shape
    with k.nest(shape) as index:
        at = address(index, strides_of(shape))
        a, b, x, y = (k.element(v, index if v.shape else []) for v in (first, second, high, low))
        k.line(f"uint32_t x[2] = {{{x}, {y}}};")
        k.line(f"threefry({a}, {b}, x);")
        k.line(f"{outs[0]}[{at}] = x[0]; {outs[1]}[{at}] = x[1];")
