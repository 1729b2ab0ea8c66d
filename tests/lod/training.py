"""Training a ragged program with exact rows and at several row capacities: padding must change nothing.

Each training has its own Scope and Program. Capacities are forced on the executor, so that the rows that are fed can be
below, at, or one short of a capacity; that they are at most ``rows`` keeps it to one compilation for each capacity.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np

from fluidjax.execution.feeding import ragged
from fluidjax.execution.rooms import buckets
from fluidjax.execution.rooms.buckets import bucket
from fluidjax.execution.runs import retry
from fluidjax.execution.runs.prepared import Prepared
from fluidjax.execution.scopes import exchange
from fluidjax.proto.framework_pb2 import ProgramDesc, VarType
from lowering.program import GRAD
from tests.golden.session import Session
from tests.golden.values import Rows, Tensor, TensorList, Value

RTOL = 1e-5
NOISE = 30  # how much further than a change of the parameters by a millionth moves it a value may be
FLOOR = 1e-3
_PLUMBING = (VarType.FEED_MINIBATCH, VarType.FETCH_LIST)


@dataclass(frozen=True)
class Step:
    """One run: a serialized ProgramDesc, what is fed and what is fetched."""

    program: bytes
    feed: Mapping[str, Value]
    fetch: Sequence[str]


@dataclass
class Outcome:
    """What a training gave: values by name of each step, the state after the last, and whether rows stayed padded."""

    values: dict[str, Value | None] = field(default_factory=dict)
    padded: bool = True


@contextlib.contextmanager
def prepared_programs(change: Callable[[Prepared], None] = lambda _: None) -> Iterator[list[Prepared]]:
    """The list of the programs that executors prepare from now on; ``change`` is called with each new one."""
    made: list[Prepared] = []
    init = Prepared.__init__

    def recording(self: Prepared, *args: Any, **options: Any) -> None:
        init(self, *args, **options)
        change(self)
        made.append(self)

    with mock.patch.object(Prepared, "__init__", recording):
        yield made


@contextlib.contextmanager
def capacity(rows: int | None) -> Iterator[list[Prepared]]:
    """Feeds padded to ``rows`` rows and inner sequences; None: not padded at all."""

    def exactly(program: Prepared) -> None:
        program._attempts.exact = True

    def forced(n: int) -> int:
        return max(n, rows or 0)

    with contextlib.ExitStack() as stack:
        if rows is not None:
            for module in (buckets, exchange, ragged):
                stack.enter_context(mock.patch.object(module, "bucket", forced))
            stack.enter_context(mock.patch.object(retry, "least_rows", lambda program: 0))
            yield stack.enter_context(prepared_programs())
        else:
            yield stack.enter_context(prepared_programs(exactly))


def capacities(steps: Sequence[Step]) -> dict[str, int]:
    """Three capacities: the most rows of a feed, one more, and the bucket that has room for one more still."""
    most = max(len(v.array) for s in steps for v in s.feed.values() if isinstance(v, Tensor) and v.lod)
    return {"at": most, "one more": most + 1, "bucket": bucket(most + 2)}


def train(initial: Mapping[str, Value], steps: Sequence[Step], rows: int | None) -> Outcome:
    """Run the steps in order on ``initial``: fetches, gradients and, at the end, the persistable variables."""
    session, outcome = Session(), Outcome()
    session.set(initial)
    with capacity(rows) as made:
        for i, step in enumerate(steps):
            wanted = [*dict.fromkeys((*step.fetch, *gradients(step)))]
            got = session.run(step.program, dict(step.feed), wanted)
            outcome.values |= {f"step {i} {name}": value for name, value in got.items()}
    outcome.padded = not any(p._attempts.exact for p in made)
    states = sorted({name for step in steps for name in persistable(step.program)})
    held = {name: session.get(name) for name in states}
    outcome.values |= {f"final {name}": Tensor(array) for name, array in held.items() if array is not None}
    return outcome


def persistable(program: bytes) -> list[str]:
    """The persistable tensors of a program."""
    block = ProgramDesc.FromString(program).blocks[0]
    return [v.name for v in block.vars if v.persistable and v.type.type == VarType.LOD_TENSOR]


def gradients(step: Step) -> list[str]:
    """The gradients of parameters and of what is fed that the program computes."""
    ops = ProgramDesc.FromString(step.program).blocks[0].ops
    written = {name for op in ops for slot in op.outputs for name in slot.arguments}
    return [name + GRAD for name in (*persistable(step.program), *step.feed) if name + GRAD in written]


def moved(initial: Mapping[str, Value]) -> dict[str, Value]:
    """The initial values with every float changed by about a millionth."""
    rng = np.random.default_rng(0)
    changed: dict[str, Value] = {}
    for name, value in initial.items():
        array = value.array if isinstance(value, Tensor) else None
        if array is not None and array.dtype.kind == "f":
            changed[name] = Tensor((array * (1 + 1e-6 * rng.standard_normal(array.shape))).astype(array.dtype))
        else:
            changed[name] = value
    return changed


def leaves(value: Value | None) -> list[np.ndarray]:
    """The arrays that a value consists of, its LoD among them."""
    if isinstance(value, TensorList):
        return [leaf for item in value.items for leaf in leaves(item)]
    if isinstance(value, Rows):
        return [np.asarray(value.rows), np.asarray(value.height), value.array]
    if isinstance(value, Tensor) and value.array is not None:
        return [value.array, *(np.asarray(level) for level in value.lod)]
    return []


def differences(exact: Outcome, other: Outcome, shadow: Outcome) -> list[str]:
    """What differs between a training with exact rows and a padded one.

    ``shadow`` is the exact training from slightly moved parameters: the measure of what is rounding.
    """
    found = []
    for name, want in exact.values.items():
        parts = leaves(want), leaves(other.values.get(name)), leaves(shadow.values.get(name))
        if len(parts[0]) != len(parts[1]):
            found.append(f"{name}: {len(parts[1])} arrays, with exact rows {len(parts[0])}")
            continue
        found += [f"{name}: {p}" for w, g, s in zip(*parts, strict=True) if (p := _difference(w, g, s))]
    return found


def _difference(want: np.ndarray, got: np.ndarray, shadow: np.ndarray) -> str:
    if (want.dtype, want.shape) != (got.dtype, got.shape):
        return f"{got.dtype}{list(got.shape)}, with exact rows {want.dtype}{list(want.shape)}"
    if want.dtype.kind != "f":
        wrong = int(np.sum(want != got))
        return f"{wrong} of {want.size} elements differ" if wrong else ""
    if not np.isfinite(want).all() or not np.isfinite(got).all():
        return f"not finite: {np.sum(~np.isfinite(got))} elements, with exact rows {np.sum(~np.isfinite(want))}"
    w, g = want.astype(np.float64), got.astype(np.float64)
    rounding = float(np.abs(w - shadow).max(initial=0.0)) if shadow.shape == want.shape else 0.0
    allowed = max(RTOL * max(float(np.abs(w).max(initial=0.0)), FLOOR), NOISE * rounding)
    worst = float(np.abs(w - g).max(initial=0.0))
    return f"differs by {worst:.2e}, allowed {allowed:.2e}" if worst > allowed else ""


@dataclass
class Comparison:
    """What was found of a program: problems, values compared at each capacity, capacities at which rows were exact."""

    problems: list[str] = field(default_factory=list)
    checks: int = 0
    unpadded: list[str] = field(default_factory=list)


def compare_paddings(initial: Mapping[str, Value], steps: Sequence[Step]) -> Comparison:
    """Train with exact rows and at three capacities, and compare."""
    comparison = Comparison()
    exact, shadow = train(initial, steps, None), train(moved(initial), steps, None)
    for label, rows in capacities(steps).items():
        padded = train(initial, steps, rows)
        comparison.checks += len(padded.values)
        comparison.problems += [f"capacity {rows} ({label}): {p}" for p in differences(exact, padded, shadow)]
        if not padded.padded:
            comparison.unpadded.append(label)
    return comparison
