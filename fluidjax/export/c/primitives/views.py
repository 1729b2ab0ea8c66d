"""For each view, which element of its input an element is."""

from __future__ import annotations

from fluidjax.export.c.affine import Affine, Index
from fluidjax.export.c.kernel import Kernel
from fluidjax.export.c.rules import view
from fluidjax.export.c.types import c_type
from fluidjax.export.graph import Node, Value

Seen = tuple[Value, Index]


@view("broadcast_in_dim")
def broadcast_in_dim(kernel: Kernel, node: Node, out: int, index: Index) -> Seen:
    """Dims of size 1 are read at 0, whatever the output's index."""
    source, dims = node.ins[0], node.params["broadcast_dimensions"]
    return source, [index[d] if n != 1 else Affine() for d, n in zip(dims, source.shape, strict=True)]


@view("transpose")
def transpose(kernel: Kernel, node: Node, out: int, index: Index) -> Seen:
    """Dim ``permutation[i]`` of the input is dim i of the output."""
    found = [Affine()] * len(index)
    for at, source in enumerate(node.params["permutation"]):
        found[source] = index[at]
    return node.ins[0], found


@view("squeeze", "expand_dims", "reshape")
def reshape(kernel: Kernel, node: Node, out: int, index: Index) -> Seen:
    """Add and remove dims of size 1 (other reshapes are aliases of stored values)."""
    moved = iter([at for at, n in zip(index, node.outs[0].shape, strict=True) if n != 1])
    return node.ins[0], [next(moved) if n != 1 else Affine() for n in node.ins[0].shape]


@view("rev")
def rev(kernel: Kernel, node: Node, out: int, index: Index) -> Seen:
    """Reverse some dims."""
    shape, dims = node.ins[0].shape, node.params["dimensions"]
    return node.ins[0], [at * -1 + (shape[d] - 1) if d in dims else at for d, at in enumerate(index)]


@view("slice")
def slice_(kernel: Kernel, node: Node, out: int, index: Index) -> Seen:
    """From a start, with strides."""
    starts = node.params["start_indices"]
    steps = node.params["strides"] or [1] * len(starts)
    return node.ins[0], [at * step + start for at, step, start in zip(index, steps, starts, strict=True)]


@view("split")
def split(kernel: Kernel, node: Node, out: int, index: Index) -> Seen:
    """Parts of a dim, one after the other."""
    axis = node.params["axis"]
    before = sum(node.params["sizes"][:out])
    return node.ins[0], [at + before if d == axis else at for d, at in enumerate(index)]


@view("unstack")
def unstack(kernel: Kernel, node: Node, out: int, index: Index) -> Seen:
    """One element of a dim."""
    axis = node.params["axis"]
    return node.ins[0], [*index[:axis], Affine({}, out), *index[axis:]]


@view("tile")
def tile(kernel: Kernel, node: Node, out: int, index: Index) -> Seen:
    """Copies side by side."""
    source = node.ins[0]
    index = list(index)[len(index) - len(source.shape) :]
    wrapped = [
        Affine.of(f"(({at}) % {n})") if n != full else at
        for at, n, full in zip(
            index, source.shape, node.outs[0].shape[len(node.outs[0].shape) - len(index) :], strict=True
        )
    ]
    return source, [Affine() if n == 1 else at for at, n in zip(wrapped, source.shape, strict=True)]


@view("iota")
def iota(kernel: Kernel, node: Node, out: int, index: Index) -> str:
    """The index along a dim."""
    at = index[node.params["dimension"]]
    kernel.accesses.append(Affine({f"iota({at})": 1}))  # the index itself is read, so no loop over it may be merged
    return f"(({c_type(node.outs[0].dtype)})({at}))"


@view("dynamic_slice")
def dynamic_slice(kernel: Kernel, node: Node, out: int, index: Index) -> Seen:
    """From a start known at run time, clamped so that the slice fits."""
    source, *starts = node.ins
    begins = clamped_starts(kernel, starts, source.shape, node.outs[0].shape)
    return source, [at + begin for at, begin in zip(index, begins, strict=True)]


def clamped_starts(kernel: Kernel, starts: list[Value], shape: tuple[int, ...], sizes: tuple[int, ...]) -> list[Affine]:
    """Where a slice of ``sizes`` starts."""
    found = []
    for start, whole, size in zip(starts, shape, sizes, strict=True):
        word = f"clamp_long({kernel.number(start)}, {whole - size})"
        found.append(Affine() if whole == size else Affine.of(word))
    return found
