"""Loops and branches, and random numbers."""

from __future__ import annotations

from collections.abc import Sequence

from fluidjax.export.graph import Body, Node, Value
from fluidjax.export.python.functions import Function, Names, rule
from fluidjax.export.python.texts import ATOM, Expr, call, dtype_text


def _names(f: Function, values: Sequence[Value], word: str) -> list[str]:
    return [f.names.new(v.name or word) for v in values]


def _together(names: Sequence[str]) -> str:
    return f"{', '.join(names)}{',' * (len(names) == 1)}"


def _tuple(items: Sequence[str]) -> str:
    return f"({_together(items)})" if items else "()"


def _held(f: Function, values: Sequence[Value]) -> list[Expr]:
    """What a body reads from outside, by name or as a number."""
    return [f.loose(v) for v in values]


def _define(f: Function, name: str, arguments: Sequence[str], body: Body, given: Sequence[Expr], last: str) -> None:
    """Define a nested function; ``last`` is what it returns, with {} for the outputs."""
    inside = f.inner(body, given, Names(f.names.taken | set(arguments)))
    inside.write(body.nodes)
    outputs = [inside.tight(v, 0) for v in body.outputs]
    f.lines.append(f"def {name}({', '.join(arguments)}):")
    f.lines += [f"    {line}" for line in inside.lines]
    f.lines.append(f"    return {last.format(', '.join(outputs), _together(outputs))}")


def _unpack(f: Function, values: Sequence[Value], names: Sequence[str]) -> list[Expr]:
    return [Expr(name, ATOM, v.shape) for v, name in zip(values, names, strict=True)]


@rule("while")
def while_(f: Function, node: Node) -> list[Expr]:
    """lax.while_loop."""
    p = node.params
    a, b = p["cond_nconsts"], p["cond_nconsts"] + p["body_nconsts"]
    start, (test,), (step,) = node.ins[b:], node.bodies["cond_jaxpr"], node.bodies["body_jaxpr"]
    outs = _names(f, node.outs, "state")
    more, body = f.names.new("more"), f.names.new("body")
    for name, inner, held in ((more, test, node.ins[:a]), (body, step, node.ins[a:b])):
        carried = inner.inputs[len(held) :]
        local = Names(f.names.taken)
        given = local.new("carry")
        names = [local.new(out) for out in outs]
        inside = f.inner(inner, [*_held(f, held), *_unpack(f, carried, names)], local)
        inside.write(inner.nodes)
        f.lines += [f"def {name}({given}):", f"    {_together(names)} = {given}"]
        f.lines += [f"    {line}" for line in inside.lines]
        results = [inside.tight(v, 0) for v in inner.outputs]
        f.lines.append(f"    return {results[0] if name == more else _tuple(results)}")
    f.lines.append(f"{_together(outs)} = lax.while_loop({more}, {body}, {_tuple([f.tight(v, 0) for v in start])})")
    return _unpack(f, node.outs, outs)


@rule("scan")
def scan(f: Function, node: Node) -> list[Expr]:
    """lax.scan."""
    p, (step,) = node.params, node.bodies["jaxpr"]
    a, b = p["num_consts"], p["num_consts"] + p["num_carry"]
    outs, body = _names(f, node.outs, "state"), f.names.new("body")
    local = Names(f.names.taken)
    given, taken = local.new("carry"), local.new("rows")
    carry = [local.new(out) for out in outs[: b - a]]
    rows = [local.new(v.name or "row") for v in step.inputs[b:]]
    inside = f.inner(step, [*_held(f, node.ins[:a]), *_unpack(f, step.inputs[a:], [*carry, *rows])], local)
    inside.write(step.nodes)
    results = [inside.tight(v, 0) for v in step.outputs]
    f.lines.append(f"def {body}({given}, {taken}):")
    f.lines += [f"    {_together(names)} = {word}" for names, word in ((carry, given), (rows, taken)) if names]
    f.lines += [f"    {line}" for line in inside.lines]
    f.lines.append(f"    return {_tuple(results[: b - a])}, {_tuple(results[b - a :])}")
    words = [body, *(_tuple([f.tight(v, 0) for v in part]) for part in (node.ins[a:b], node.ins[b:]))]
    words += [f"length={f.size(p['length'])}"] + (["reverse=True"] if p["reverse"] else [])
    left, right = (_tuple(part) if part else "_" for part in (outs[: b - a], outs[b - a :]))
    f.lines.append(f"{left}, {right} = {call('lax.scan', words)}")
    return _unpack(f, node.outs, outs)


@rule("cond")
def cond(f: Function, node: Node) -> list[Expr]:
    """lax.switch between functions of no arguments."""
    which, *given = node.ins
    branches = node.bodies["branches"]
    names = [f.names.new(f"branch_{i}") for i in range(len(branches))]
    for name, body in zip(names, branches, strict=True):
        _define(f, name, [], body, _held(f, given), "({1})" if body.outputs else "()")
    outs = _names(f, node.outs, "chosen")
    f.lines.append(f"{_together(outs)} = {call('lax.switch', [f.tight(which, 0), _tuple(names)])}")
    return _unpack(f, node.outs, outs)


@rule("random_seed")
def random_seed(f: Function, node: Node) -> Expr:
    """The words of a threefry key."""
    text = f"jax.random.key_data(jax.random.key({f.tight(node.ins[0], 0)}, impl='{_impl(node)}'))"
    return Expr(text, ATOM, node.outs[0].shape)


def _impl(node: Node) -> str:
    return str(getattr(node.params.get("impl"), "name", "threefry2x32"))


def _key(f: Function, value: Value) -> str:
    return f"jax.random.wrap_key_data({f.tight(value, 0)}, impl='threefry2x32')"


@rule("random_bits")
def random_bits(f: Function, node: Node) -> Expr:
    """jax.random.bits."""
    words = [_key(f, node.ins[0]), f.mark("shape", tuple(node.params["shape"])), dtype_text(node.outs[0].dtype)]
    return Expr(call("jax.random.bits", words), ATOM, node.outs[0].shape)


@rule("random_split")
def random_split(f: Function, node: Node) -> Expr:
    """jax.random.split."""
    text = call("jax.random.split", [_key(f, node.ins[0]), f.mark("shape", tuple(node.params["shape"]))])
    return Expr(f"jax.random.key_data({text})", ATOM, node.outs[0].shape)


@rule("random_fold_in")
def random_fold_in(f: Function, node: Node) -> Expr:
    """jax.random.fold_in."""
    text = call("jax.random.fold_in", [_key(f, node.ins[0]), f.tight(node.ins[1], 0)])
    return Expr(f"jax.random.key_data({text})", ATOM, node.outs[0].shape)
