"""Passes that remove ops: those that are not needed, that change nothing, or that duplicate another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fluidjax.framework.prune import for_inference, pruned
from fluidjax.ir.rewriter import Rewriter, first, setting


def dead_code(r: Rewriter) -> int:
    """Remove ops and variables that no fetch depends on."""
    before = len(r.ops)
    # Not by the feeds: a loop may go on from a fed value and write it anew.
    r.program = pruned(r.program, [], list(r.fetches))
    r.refresh()
    return before - len(r.ops)


def testing(r: Rewriter) -> int:
    """Set ``is_test`` on every op that has it."""
    before = [op.attrs.get("is_test") for op in r.views]
    r.program = for_inference(r.program, False)
    r.refresh()
    return sum(old != new.attrs.get("is_test") for old, new in zip(before, r.views, strict=True))


def identities(r: Rewriter) -> int:
    """Remove ops that return their input: a scale by 1, an assignment, dropout in a test, a cast to the same type."""
    found = 0
    while (step := next(_same(r), None)) is not None:
        at, source, name = step
        r.replace(name, source)
        r.remove(at)
        found += 1
    return found


def _same(r: Rewriter) -> Iterator[tuple[int, str, str]]:
    for at, op in enumerate(r.ops):
        if op.type in _IDENTICAL and _IDENTICAL[op.type](op, r):
            sources, names = op.input("X"), op.output("Out")
            if len(sources) != 1 or len(names) != 1:  # a damaged model's, which the run refuses in words
                continue
            source, name = sources[0], names[0]
            if source != name and r.inner(name) and r.steady(source):
                yield at, source, name


def _is_dropout(op: Any, r: Rewriter) -> bool:
    masks = op.output("Mask")
    kept = setting(op, "is_test") and setting(op, "dropout_implementation") == "upscale_in_train"
    return bool(kept) and not any(mask in r.readers or mask in r.fetches for mask in masks)


def _is_scale(op: Any, r: Rewriter) -> bool:
    return setting(op, "scale") == 1.0 and setting(op, "bias") == 0.0 and not _listed(op, "ScaleTensor")


def _listed(op: Any, slot: str) -> bool:
    return slot in op.input_names and bool(op.input(slot))


def _is_cast(op: Any, r: Rewriter) -> bool:
    var = r.block._find_var_recursive(first(op.input("X")))
    return var is not None and bool(setting(op, "in_dtype") == setting(op, "out_dtype") == int(var.dtype))


_IDENTICAL = {"assign": lambda op, r: True, "scale": _is_scale, "dropout": _is_dropout, "cast": _is_cast}


def common(r: Rewriter) -> int:
    """Remove ops that compute the same as another op from the same inputs."""
    found = 0
    seen: dict[Any, Any] = {}
    at = 0
    while at < len(r.ops):
        key = _key(r, at)
        own = r.views[at].outputs
        first = own if key is None else seen.setdefault(key, own)
        if first is own:
            at += 1
            continue
        for slot, names in own.items():
            for name, by in zip(names, first[slot], strict=True):
                r.replace(name, by)
        r.remove(at)
        found += 1
    return found


def _key(r: Rewriter, at: int) -> Any:
    """A key for what an op computes; None if another op's outputs cannot replace its own."""
    op = r.views[at]
    steady = all(r.steady(name) for names in op.inputs.values() for name in names)
    alone = all(r.inner(name) or name not in r.readers and name not in r.fetches for name in r.writes[at])
    if not (steady and alone and r.pure(at) and op.inputs):
        return None
    attrs = {k: v for k, v in op.attrs.items() if not k.startswith("op_")}
    outputs = tuple((slot, len(names)) for slot, names in op.outputs.items())
    inputs = tuple((slot, tuple(names)) for slot, names in op.inputs.items())
    return op.type, inputs, outputs, repr(sorted(attrs.items()))
