"""Matrix products and convolutions: one blocked matrix product whose operands are addressed through tables."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from fluidjax.export.c.affine import Affine, strides_of
from fluidjax.export.c.kernel import Kernel
from fluidjax.export.c.rules import kernel
from fluidjax.export.c.types import short
from fluidjax.export.graph import Node


def table(k: Kernel, sizes: Sequence[int], strides: Sequence[int]) -> str:
    """An array of the offsets of all indices, in order."""
    pairs = [(n, s) for n, s in zip(sizes, strides, strict=True) if n != 1] or [(1, 0)]
    merged = [pairs[0]]
    for n, s in pairs[1:]:
        if merged[-1][1] == n * s:
            merged[-1] = (merged[-1][0] * n, s)
        else:
            merged.append((n, s))
    count = prod(n for n, _ in merged)
    name = k.temporary("int64", count)
    steps = strides_of([n for n, _ in merged])
    with k.nest([n for n, _ in merged]) as index:
        at = sum((i * s for i, s in zip(index, steps, strict=True)), Affine())
        offset = sum((i * s for i, (_, s) in zip(index, merged, strict=True)), Affine())
        k.line(f"{name}[{at}] = {offset};")
    return name


def _number_type(node: Node) -> str:
    same = all(v.dtype == node.outs[0].dtype for v in node.ins)
    covered = node.outs[0].dtype.name in ("float32", "float64", "int32", "int64")
    return "" if same and covered else f"of {' and '.join(str(v.dtype) for v in node.ins)}"


@kernel("dot_general", strided=(0, 1), refuses=_number_type)
def dot_general(k: Kernel, node: Node) -> None:
    """Sums over contracted dims, for each index of the batch dims."""
    (lc, rc), (lb, rb) = node.params["dimension_numbers"]
    left, right, out = *node.ins, node.outs[0]
    a, a_start, a_strides = k.strided(left)
    b, b_start, b_strides = k.strided(right)
    c = k.target(out)
    lf = [d for d in range(len(left.shape)) if d not in (*lc, *lb)]
    rf = [d for d in range(len(right.shape)) if d not in (*rc, *rb)]
    c_strides = strides_of(out.shape)
    nb, nl = len(lb), len(lf)
    m, n, c_len = [left.shape[d] for d in lf], [right.shape[d] for d in rf], [left.shape[d] for d in lc]
    if not out.size:
        return
    tables = (
        table(k, m, [a_strides[d] for d in lf]),
        table(k, c_len, [a_strides[d] for d in lc]),
        table(k, c_len, [b_strides[d] for d in rc]),
        table(k, n, [b_strides[d] for d in rf]),
        table(k, m, c_strides[nb : nb + nl]),
        table(k, n, c_strides[nb + nl :]),
    )
    am, ak, bk, bn, cm, cn = tables
    work = k.temporary(out.dtype.name, 0 if out.dtype.kind != "f" else work_size(prod(m), prod(n), prod(c_len)))
    with k.nest([left.shape[d] for d in lb]) as batch:
        at = a_start + sum((i * a_strides[d] for i, d in zip(batch, lb, strict=True)), Affine())
        bt = b_start + sum((i * b_strides[d] for i, d in zip(batch, rb, strict=True)), Affine())
        ct = sum((i * s for i, s in zip(batch, c_strides, strict=False)), Affine())
        k.line(
            f"matmul_{short(out.dtype)}({prod(m)}, {prod(n)}, {prod(c_len)}, {a} + {at}, {am}, {ak}, "
            f"{b} + {bt}, {bk}, {bn}, {c} + {ct}, {cm}, {cn}, {work});"
        )


# Block sizes of the product, as in runtime/matmul.h: rows, columns, depth, and the widest micro tile.
BLOCK_M, BLOCK_N, BLOCK_K, TILE = 128, 512, 256, 32


def work_size(m: int, n: int, depth: int) -> int:
    """The number of elements in packed blocks."""

    def up(size: int, block: int) -> int:
        return min(size, block) + TILE  # the last tile of a block may extend beyond its end

    return min(depth, BLOCK_K) * (up(m, BLOCK_M) + up(n, BLOCK_N)) + 16


def _plain_convolution(node: Node) -> str:
    if len(node.outs[0].shape) > 5:
        return "over more than three dims"
    return "" if node.outs[0].dtype.kind == "f" and not _number_type(node) else f"of {node.ins[0].dtype}"


@kernel("conv_general_dilated", strided=(0, 1), refuses=_plain_convolution)
def conv_general_dilated(k: Kernel, node: Node) -> None:
    """The product of the filters with patches of the input, which are looked up during packing."""
    p, (lhs, rhs), out = node.params, node.ins, node.outs[0]
    numbers = p["dimension_numbers"]
    x, x_start, x_strides = k.strided(lhs)
    w, w_start, w_strides = k.strided(rhs)
    y, y_strides = k.target(out), strides_of(out.shape)
    if not out.size:
        return
    ls, rs, os = numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec
    fg, bg = p["feature_group_count"], p["batch_group_count"]
    spatial = len(ls) - 2
    n, cin, cout = out.shape[os[0]], rhs.shape[rs[1]], out.shape[os[1]]
    groups = max(fg, bg)
    m = cout // groups
    window = [rhs.shape[d] for d in rs[2:]]
    size = [out.shape[d] for d in os[2:]]
    depth, count = cin * prod(window), n * prod(size)
    wm = table(k, [m], [w_strides[rs[0]]])
    wk = table(k, [cin, *window], [w_strides[d] for d in rs[1:]])
    ym = table(k, [m], [y_strides[os[1]]])
    yn = table(k, [n, *size], [y_strides[os[0]], *(y_strides[d] for d in os[2:])])
    xk = table(k, [cin, *window], [x_strides[ls[1]], *[0] * spatial])
    xn = table(k, [n, *size], [x_strides[ls[0]], *[0] * spatial])
    places = []
    for d in range(spatial):
        only = [0] * (spatial + 1)
        only[d + 1] = p["rhs_dilation"][d]
        inside = table(k, [cin, *window], only)
        only[d + 1] = p["window_strides"][d]
        places.append((inside, table(k, [n, *size], only)))
    geometry = k.name("g")
    fields = [
        f"{{{a}, {b}, {-p['padding'][d][0]}, {p['lhs_dilation'][d]}, {lhs.shape[ls[2 + d]]}, {x_strides[ls[2 + d]]}}}"
        for d, (a, b) in enumerate(places)
    ]
    k.line(f"const struct patches {geometry} = {{{spatial}, {xk}, {xn}, {{{', '.join(fields) or '{0}'}}}}};")
    work = k.temporary(out.dtype.name, work_size(m, count, depth))
    x_group = x_strides[ls[0]] * (lhs.shape[ls[0]] // bg) if bg > 1 else x_strides[ls[1]] * cin
    with k.loop(groups) as group:
        k.line(
            f"convolve_{short(out.dtype)}({m}, {count}, {depth}, "
            f"{w} + {w_start + group * (m * w_strides[rs[0]])}, {wm}, {wk}, "
            f"{x} + {x_start + group * x_group}, &{geometry}, "
            f"{y} + {group * (m * y_strides[os[1]])}, {ym}, {yn}, {work});"
        )
