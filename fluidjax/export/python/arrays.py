"""Arrays: shapes, slices, sums, products, convolutions, gathers; and what lax has under the primitive's own name."""

from __future__ import annotations

import inspect
import string
from collections.abc import Sequence

from jax import lax

from fluidjax.export.graph import Node
from fluidjax.export.python.functions import Function, rule
from fluidjax.export.python.texts import ATOM, PRODUCT, Expr, call, dtype_text, is_size


@rule("broadcast_in_dim")
def broadcast_in_dim(f: Function, node: Node) -> Expr:
    """x[:, None]; dims may be missing, or of size 1, where broadcasting supplies them."""
    value, dims = f.loose(node.ins[0]), node.params["broadcast_dimensions"]
    if not value.typed:
        return value
    rank = len(node.outs[0].shape)
    held = tuple(dims)[len(dims) - len(value.shape) :]
    if not held:
        return value
    missing = set(range(held[0], rank)) - set(held)
    if not missing:
        return value
    places = [":" if d in held else "None" for d in range(held[0], rank)]
    sizes = dict(zip(held, value.shape, strict=True))
    return Expr(_indexed(value, places), ATOM, tuple(sizes.get(d, 1) for d in range(held[0], rank)))


def _indexed(value: Expr, places: Sequence[str]) -> str:
    words = list(places)
    while words and words[-1] == ":":
        words.pop()
    return f"{value.at(ATOM)}[{', '.join(words)}]" if words else value.at(ATOM)


@rule("reshape")
def reshape(f: Function, node: Node) -> Expr:
    """x.reshape(sizes), with -1 for a symbolic size; x[None] to add leading dims of size 1."""
    value, old, new = f.loose(node.ins[0]), node.ins[0].shape, node.outs[0].shape
    if not value.typed:
        return value
    ahead = len(new) - len(old)
    if ahead > 0 and new == (1,) * ahead + old:
        return value
    symbols = [n for n in new if not is_size(n)]
    if len(symbols) == 1 and 0 not in new:
        new = tuple(n if is_size(n) else -1 for n in new)
    text = f.mark("shape", new if len(new) != 1 else new[0])
    return Expr(f"{f.tight(node.ins[0])}.reshape({_bare(text)})", ATOM, node.outs[0].shape)


def _bare(text: str) -> str:
    """The items of a tuple, without its parentheses."""
    return text[1:-1].rstrip(",") if text.startswith("(") and text.endswith(")") else text


@rule("squeeze")
def squeeze(f: Function, node: Node) -> Expr:
    """x.squeeze(axes)."""
    dims = node.params["dimensions"]
    axes = f.mark("axis", dims[0] if len(dims) == 1 else tuple(dims))
    return Expr(f"{f.tight(node.ins[0])}.squeeze({axes})", ATOM, node.outs[0].shape)


@rule("expand_dims")
def expand_dims(f: Function, node: Node) -> Expr:
    """jnp.expand_dims."""
    axes = f.mark("axis", tuple(node.params["dimensions"]))
    return Expr(f"jnp.expand_dims({f.tight(node.ins[0], 0)}, {axes})", ATOM, node.outs[0].shape)


@rule("transpose")
def transpose(f: Function, node: Node) -> Expr:
    """x.T, or x.transpose(order)."""
    order = tuple(node.params["permutation"])
    text = ".T" if order == (1, 0) else f".transpose({_bare(f.mark('axes', order))})"
    return Expr(f.tight(node.ins[0]) + text, ATOM, node.outs[0].shape)


@rule("slice")
def slice_(f: Function, node: Node) -> Expr:
    """x[a:b]."""
    p, shape = node.params, node.ins[0].shape
    steps = p["strides"] or (1,) * len(shape)
    places = []
    for start, stop, step, size in zip(p["start_indices"], p["limit_indices"], steps, shape, strict=True):
        first = "" if is_size(start) and start == 0 else f.size(start)
        last = "" if stop == size else f.size(stop)
        places.append(f"{first}:{last}" + (f":{step}" if step != 1 else ""))
    value = Expr(f.tight(node.ins[0]), ATOM, shape)
    return Expr(_indexed(value, places), ATOM, node.outs[0].shape)


@rule("concatenate")
def concatenate(f: Function, node: Node) -> Expr:
    """jnp.concatenate."""
    parts = ", ".join(f.tight(v, 0) for v in node.ins)
    axis = f.mark("axis", node.params["dimension"])
    return Expr(f"jnp.concatenate([{parts}], axis={axis})", ATOM, node.outs[0].shape)


@rule("tile")
def tile(f: Function, node: Node) -> Expr:
    """jnp.tile."""
    reps = f.mark("reps", tuple(node.params["reps"]))
    return Expr(f"jnp.tile({f.tight(node.ins[0], 0)}, {reps})", ATOM, node.outs[0].shape)


@rule("stack")
def stack(f: Function, node: Node) -> Expr:
    """jnp.stack."""
    parts = ", ".join(f.tight(v, 0) for v in node.ins)
    axis = f.mark("axis", node.params.get("axis", node.params.get("dimension")))
    return Expr(f"jnp.stack([{parts}], axis={axis})", ATOM, node.outs[0].shape)


@rule("iota")
def iota(f: Function, node: Node) -> Expr:
    """jnp.arange along a dim."""
    out, dim = node.outs[0], node.params["dimension"]
    value = Expr(f"jnp.arange({f.size(out.shape[dim])}, dtype={dtype_text(out.dtype)})", ATOM, (out.shape[dim],))
    behind = len(out.shape) - dim - 1
    if not behind:
        return value
    return Expr(_indexed(value, [":", *["None"] * behind]), ATOM, (*value.shape, *(1,) * behind))


@rule("dim_as_value")
def dim_as_value(f: Function, node: Node) -> Expr:
    """A size as a number."""
    return Expr(f"{dtype_text(node.outs[0].dtype)}({f.size(node.params['dim'])})", ATOM, ())


_REDUCTIONS = {
    "reduce_sum": "sum", "reduce_prod": "prod", "reduce_max": "max", "reduce_min": "min", "reduce_and": "all",
    "reduce_or": "any",
}  # fmt: skip


@rule(*_REDUCTIONS)
def reduction(f: Function, node: Node) -> Expr:
    """x.sum(axis=...)."""
    word, x, axes = _REDUCTIONS[node.prim], node.ins[0], node.params["axes"]
    words = []
    if len(axes) != len(x.shape):
        words.append(f"axis={f.mark('axis', axes[0] if len(axes) == 1 else tuple(axes))}")
    if word in ("sum", "prod") and x.dtype.kind != "f":
        words.append(f"dtype={dtype_text(x.dtype)}")
    return Expr(call(f"{f.tight(x)}.{word}", words), ATOM, node.outs[0].shape)


@rule("reduce_window_max", "reduce_window_min", "reduce_window_sum")
def windows(f: Function, node: Node) -> Expr:
    """lax.reduce_window."""
    p, dtype = node.params, node.ins[0].dtype
    limits = f"{'jnp.finfo' if dtype.kind == 'f' else 'jnp.iinfo'}({dtype_text(dtype)})"
    edges = ("-jnp.inf", "jnp.inf") if dtype.kind == "f" else (f"{limits}.min", f"{limits}.max")
    start, function = {
        "reduce_window_max": (edges[0], "lax.max"),
        "reduce_window_min": (edges[1], "lax.min"),
        "reduce_window_sum": ("0.0" if dtype.kind == "f" else "0", "lax.add"),
    }[node.prim]
    words = [f.tight(node.ins[0], 0), start, function]
    for name in ("window_dimensions", "window_strides", "padding"):
        words.append(f"{name}={f.mark(name, tuple(p[name]))}")
    for name in ("base_dilation", "window_dilation"):
        if set(p[name]) != {1}:
            words.append(f"{name}={f.mark(name, tuple(p[name]))}")
    return Expr(call("lax.reduce_window", words), ATOM, node.outs[0].shape)


@rule("dot_general")
def product(f: Function, node: Node) -> Expr:
    """x @ y where possible, otherwise jnp.einsum."""
    p, (left, right) = node.params, node.ins
    (lc, rc), (lb, rb) = p["dimension_numbers"]
    wide = p.get("preferred_element_type")
    extra = [] if p.get("precision") is None else [f"precision={f.mark('precision', p['precision'])}"]
    if wide is not None and wide != left.dtype:
        extra.append(f"preferred_element_type={dtype_text(wide)}")
    plain = not lb and tuple(lc) == (len(left.shape) - 1,) and tuple(rc) == (0,) and len(right.shape) == 2
    n = len(lb)
    stacked = tuple(lb) == tuple(rb) == tuple(range(n)) and len(left.shape) == len(right.shape) == n + 2
    if not extra and len(left.shape) > 1 and (plain or (stacked and (tuple(lc), tuple(rc)) == ((n + 1,), (n,)))):
        text = f"{f.tight(left, PRODUCT)} @ {f.tight(right, PRODUCT + 1)}"
        return Expr(text, PRODUCT, node.outs[0].shape)
    letters = iter(string.ascii_letters)
    a = [next(letters) for _ in left.shape]
    b = [next(letters) for _ in right.shape]
    for i, j in zip((*lc, *lb), (*rc, *rb), strict=True):
        b[j] = a[i]
    shared = {a[i] for i in lc}
    out = [a[i] for i in lb] + [c for c in a if c not in shared and c not in {a[i] for i in lb}]
    out += [c for c in b if c not in a]
    spec = f"{''.join(a)},{''.join(b)}->{''.join(out)}"
    text = call("jnp.einsum", [repr(spec), f.tight(left, 0), f.tight(right, 0), *extra])
    return Expr(text, ATOM, node.outs[0].shape)


@rule("conv_general_dilated")
def convolution(f: Function, node: Node) -> Expr:
    """lax.conv_general_dilated, without arguments that have their default values."""
    p, rank = node.params, len(node.ins[0].shape) - 2
    words = [f.tight(v, 0) for v in node.ins]
    words += [f"{name}={f.mark(name, tuple(p[name]))}" for name in ("window_strides", "padding")]
    words += [
        f"{name}={f.mark(name, tuple(p[name]))}" for name in ("lhs_dilation", "rhs_dilation") if set(p[name]) - {1}
    ]
    words.append(f"dimension_numbers={f.mark('dimension_numbers', p['dimension_numbers'])}")
    for name in ("feature_group_count", "batch_group_count"):
        if not is_size(p[name]) or p[name] != 1:
            words.append(f"{name}={f.mark(name, p[name])}")
    if p.get("precision") is not None:
        words.append(f"precision={f.mark('precision', p['precision'])}")
    return Expr(call("lax.conv_general_dilated", words), ATOM, node.outs[0].shape) if rank else _lax(f, node)


@rule("gather")
def gather(f: Function, node: Node) -> Expr:
    """table.at[ids].get() where whole rows are taken, otherwise lax.gather."""
    p, (table, ids) = node.params, node.ins
    d = p["dimension_numbers"]
    rows = (0,)
    taken = (
        d.collapsed_slice_dims == d.start_index_map == rows
        and tuple(p["slice_sizes"]) == (1, *table.shape[1:])
        and tuple(d.offset_dims) == tuple(range(len(ids.shape) - 1, len(node.outs[0].shape)))
        and not d.operand_batching_dims
        and ids.shape[-1:] == (1,)
    )
    if not taken:
        return _lax(f, node)
    made = ids.node
    if made and made.prim == "broadcast_in_dim" and made.ins[0].shape == ids.shape[:-1] and made.ins[0] in f.known:
        text = f.tight(made.ins[0], 0)
    else:
        text = f"{f.tight(ids)}[..., 0]"
    mode = {"FILL_OR_DROP": "fill", "CLIP": "clip"}.get(p["mode"].name, "promise_in_bounds")
    words = f'mode="{mode}", wrap_negative_indices=False'
    if p["fill_value"] is not None and mode == "fill" and p["fill_value"] == p["fill_value"]:  # NaN is the default
        words += f", fill_value={f.mark('fill_value', p['fill_value'])}"
    return Expr(f"{f.tight(table)}.at[{text}].get({words})", ATOM, node.outs[0].shape)


@rule("dynamic_slice")
def dynamic_slice(f: Function, node: Node) -> Expr:
    """lax.dynamic_slice."""
    x, *starts = node.ins
    words = [f.tight(x, 0), f"({', '.join(f.tight(v, 0) for v in starts)},)"]
    return Expr(
        call("lax.dynamic_slice", [*words, f.mark("slice_sizes", tuple(node.params["slice_sizes"]))]),
        ATOM,
        node.outs[0].shape,
    )


@rule("dynamic_update_slice")
def dynamic_update_slice(f: Function, node: Node) -> Expr:
    """lax.dynamic_update_slice."""
    x, update, *starts = node.ins
    words = [f.tight(x, 0), f.tight(update, 0), f"({', '.join(f.tight(v, 0) for v in starts)},)"]
    return Expr(call("lax.dynamic_update_slice", words), ATOM, node.outs[0].shape)


@rule("split")
def split(f: Function, node: Node) -> list[Expr]:
    """lax.split into several names."""
    names = [f.names.new(v.name or "part") for v in node.outs]
    words = [f.tight(node.ins[0], 0), f.mark("sizes", tuple(node.params["sizes"])), f.mark("axis", node.params["axis"])]
    f.lines.append(f"{', '.join(names)}{',' * (len(names) == 1)} = {call('lax.split', words)}")
    return [Expr(name, ATOM, v.shape) for name, v in zip(names, node.outs, strict=True)]


@rule("sort", "top_k")
def ordered(f: Function, node: Node) -> list[Expr] | Expr:
    """lax.sort of several arrays by the first ones; lax.top_k."""
    p = node.params
    if node.prim == "top_k":
        axis = [f"axis={p['axis']}"] if p.get("axis", -1) not in (-1, len(node.ins[0].shape) - 1) else []
        text = call("lax.top_k", [f.tight(node.ins[0], 0), f.mark("k", p["k"]), *axis])
    else:
        words = [f"{name}={p[name]}" for name in ("dimension", "is_stable", "num_keys")]
        text = f"lax.sort(({', '.join(f.tight(v, 0) for v in node.ins)},), {', '.join(words)})"
    names = [f.names.new(v.name or "sorted") for v in node.outs]
    f.lines.append(f"{', '.join(names)}{',' * (len(names) == 1)} = {text}")
    return [Expr(name, ATOM, v.shape) for name, v in zip(names, node.outs, strict=True)]


def _lax(f: Function, node: Node) -> Expr:
    """The lax function named like the primitive, with its parameters."""
    function = getattr(lax, node.prim.replace("-", "_"))
    words = [f.tight(v, 0) for v in node.ins]
    for name, parameter in inspect.signature(function).parameters.items():
        if name in node.params and node.params[name] != parameter.default:
            words.append(f"{name}={f.mark(name, node.params[name])}")
    return Expr(call(f"lax.{function.__name__}", words), ATOM, node.outs[0].shape)


@rule("argmax", "argmin")
def argmax(f: Function, node: Node) -> Expr:
    """lax.argmax."""
    axis, dtype = f.mark("axis", node.params["axes"][0]), dtype_text(node.outs[0].dtype)
    return Expr(call(f"lax.{node.prim}", [f.tight(node.ins[0], 0), axis, dtype]), ATOM, node.outs[0].shape)


rule(
    "cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp", "pad", "rev", "scatter", "scatter-add",
    "scatter-mul", "scatter-max", "scatter-min", "scatter_add", "scatter_mul", "scatter_max", "scatter_min",
)(_lax)  # fmt: skip
