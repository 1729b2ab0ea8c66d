"""What an op is said to read and write is what a run of it reads and writes, over random nested blocks.

Each op of a run is handed its environment in a dict that notes look-ups and changes. A look-up belongs to the op that
makes it; where it means a variable around the block that the op stands in, it belongs to the op that runs the block,
too, unless another value has been given to the name there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fluidjax as fluid
from fluidjax.framework.view import program_view
from fluidjax.testing.nests import KINDS, nests
from lowering.engine.dataflow import Use, definitions, kills, needs, sub_blocks, uses
from lowering.engine.plan import make_plan
from lowering.engine.runner import Runner, run_block
from lowering.program import GRAD, OpView, ProgramView
from lowering.registry import Blocks, Value, get_op, op, table
from lowering.values import TensorArray

pytestmark = pytest.mark.usefixtures("compiled_quickly")

layers = fluid.layers
RANDOM = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


class Noted(dict):
    """An environment that notes which of its values are looked up before they are changed, and which are changed."""

    def __init__(self, env: dict[str, Any]) -> None:
        super().__init__(env)
        self.asked: set[str] = set()  # whether there or not
        self.reads: set[str] = set()
        self.writes: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        self._look(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self._look(name)
        return super().get(name, default)

    def _look(self, name: str) -> None:
        self.asked.add(name)
        if name in self and name not in self.writes:
            self.reads.add(name)

    def __setitem__(self, name: str, value: Any) -> None:
        self.writes[name] = value
        super().__setitem__(name, value)

    def update(self, values: Any) -> None:  # type: ignore[override]
        for name, value in values.items():
            self[name] = value


@dataclass
class Seen:
    """What a run of one op did, and the ops of its blocks, to names of the block that it stands in.

    Attributes:
        reads: names looked up before they got another value.
        writes: names that got another value.
        touched: names that were looked up or changed, at any time.
        blocks: the blocks of which ops have run.
        left: names that have the value of before.
    """

    op: OpView
    reads: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)
    touched: set[str] = field(default_factory=set)
    blocks: set[int] = field(default_factory=set)
    left: set[str] = field(default_factory=set)

    def note(self, reads: Iterable[str], writes: Iterable[str]) -> None:
        """Take look-ups, then changes, into account."""
        self.touched.update(reads, writes)
        self.reads.update(n for n in reads if n not in self.writes)
        self.writes.update(writes)


class Tracker:
    """Follows the ops that runners run."""

    def __init__(self) -> None:
        self.running: list[Seen] = []
        self.done: list[tuple[ProgramView, Seen]] = []

    def run_op(self, runner: Runner, op: OpView, env: dict[str, Any]) -> dict[str, Any]:
        """Run ``op`` as the runner does."""
        seen, noted = Seen(op), Noted(env)
        self.running.append(seen)
        try:
            results = _run_op(runner, op, noted)
        finally:
            self.running.pop()
        env.update(noted.writes)
        seen.note(noted.reads, {*results, *noted.writes})
        seen.touched |= noted.asked
        seen.left = {n for n in noted if n not in seen.writes}
        self.done.append((runner.program, seen))
        if self.running:
            self._tell(runner.program, seen, self.running[-1])
        return results

    def _tell(self, program: ProgramView, seen: Seen, around: Seen) -> None:
        block = program.blocks[seen.op.block_idx]
        hidden = set(block.vars)
        if block.forward_idx >= 0:
            hidden |= {*program.blocks[block.forward_idx].vars, *(n for n in seen.touched if GRAD in n)}
        around.blocks |= {block.idx} | seen.blocks
        around.note(seen.reads - hidden, seen.writes - hidden)
        around.touched |= seen.touched - hidden


_run_op = Runner.run_op


@contextmanager
def tracked() -> Iterator[Tracker]:
    """What runs meanwhile is followed."""
    tracker = Tracker()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Runner, "run_op", lambda runner, op, env: tracker.run_op(runner, op, env))
        yield tracker


def check(program: ProgramView, seen: Seen) -> None:
    """Hold what is said of an op against what a run of it did."""
    op, said = seen.op, f"op {seen.op.type} (#{seen.op.index} of block {seen.op.block_idx})"
    used, wanted = uses(program, op), needs(program, op)
    defined, killed = set(definitions(program, op)), kills(program, op)
    assert seen.reads <= set(wanted), f"{said} reads {seen.reads - set(wanted)} besides {list(wanted)}"
    assert seen.writes <= defined, f"{said} writes {seen.writes - defined} besides {defined}"
    assert not killed & seen.left, f"{said} leaves {killed & seen.left} as they were"
    assert killed <= defined and set(used) <= set(wanted)
    if _all_ran(program, op, seen):
        sure = {n for n, use in used.items() if use is not Use.HINT} - (defined - killed)
        assert sure <= seen.touched, f"{said} never looks at {sure - seen.touched}"
        known = defined - {n for slot in get_op(op.type).continues for n in op.outputs.get(slot) or ()}
        lost = (known & seen.left) - seen.touched
        assert not lost, f"{said} never touches {lost}"


def _all_ran(program: ProgramView, op: OpView, seen: Seen) -> bool:
    """Whether every block inside the op has run."""
    inside, pending = set(), sub_blocks(op)
    while pending:
        inside.add(idx := pending.pop())
        pending += [i for o in program.blocks[idx].ops for i in sub_blocks(o)]
    return inside <= seen.blocks


def check_all(tracker: Tracker) -> None:
    assert tracker.done
    for program, seen in tracker.done:
        check(program, seen)


def test_what_the_ops_of_nests_do_is_what_is_said_of_them() -> None:
    ran: set[str] = set()

    @settings(RANDOM, max_examples=60)
    @given(nests(KINDS, depth=3))
    def holds(nest: Any) -> None:
        point = [np.full(3 if v.lod_level else 1, 0.3 + 0.1 * k) for k, v in enumerate(nest.inputs)]
        fetch = [nest.loss, *(g for g in nest.gradients if g is not None)]
        with tracked() as tracker, fluid.scope_guard(fluid.Scope()), fluid.interpret_mode():
            executor = fluid.Executor(fluid.CPUPlace())
            executor.run(nest.program, feed=nest.feed(point), fetch_list=fetch, return_numpy=False)
        check_all(tracker)
        ran.update(seen.op.type for _, seen in tracker.done if sub_blocks(seen.op))

    holds()
    assert ran == {"while", "while_grad", "conditional_block", "conditional_block_grad", "recurrent", "recurrent_grad"}


# --- ops that no layer writes: of several blocks, and that change what they read ----------------------------------

NAMES = ["a", "b", "c"]
ARRAY, INDEX = "array", ["zero", "one"]


def _run_both(x: list[Value] = (), *, blocks: Blocks, ctx) -> None:
    for idx in blocks:
        own, inner = ctx.runner.program.blocks[idx].vars, dict(ctx.env)
        before = dict(inner)
        ctx.run_block(idx, inner)
        ctx.env.update({n: v for n, v in inner.items() if n not in own and v is not before.get(n)})


def _doubled(x):
    return x + 1.0, 2.0 * x


@pytest.fixture(scope="module")
def odd_ops() -> Iterator[None]:
    """``run_both`` runs the blocks of a BLOCKS attribute; ``doubled``: Out = X + 1, and X becomes 2 X."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "_REGISTRY", {name: table.get_op(name) for name in table.registered_ops()})
        op("run_both", out="Out*", kind="block")(_run_both)
        op("doubled")(_doubled).updates = ("X",)
        yield


_name = st.sampled_from(NAMES)
_simple = st.one_of(
    st.tuples(st.just("scale"), _name, _name),
    st.tuples(st.just("increment"), _name),
    st.tuples(st.just("sum"), _name, _name, _name),
    st.tuples(st.just("write"), _name, st.sampled_from(INDEX)),
    st.tuples(st.just("read"), st.sampled_from(INDEX), _name),
    st.tuples(st.just("declare"), _name),
)
_statement = st.recursive(
    _simple,
    lambda inner: st.one_of(
        st.tuples(st.just("both"), st.lists(inner, max_size=3), st.lists(inner, max_size=3)),
        st.tuples(st.just("maybe"), st.sampled_from(["yes", "no"]), st.lists(inner, min_size=1, max_size=3)),
    ),
    max_leaves=8,
)


class Writer:
    """Writes statements into blocks, as descriptions that no layer has looked at."""

    def __init__(self, program: fluid.Program) -> None:
        self.program = program

    def write(self, block: Any, statement: tuple[Any, ...]) -> None:
        """Append what ``statement`` says to ``block``."""
        kind, *names = statement
        if kind == "declare":
            if block.idx and not block.has_var(names[0]):  # from here on the block has a variable of its own
                block.create_var(name=names[0], shape=[1], dtype="float32")
                attrs = {"shape": [1], "value": 7.0, "dtype": 5}
                block._append_op_desc("fill_constant", {}, {"Out": [names[0]]}, attrs, index=0)
        elif kind in ("both", "maybe"):
            self._blocks(block, kind, names)
        elif kind == "write":
            block._append_op_desc("write_to_array", {"X": [names[0]], "I": [names[1]]}, {"Out": [ARRAY]})
        elif kind == "read":
            block._append_op_desc("read_from_array", {"X": [ARRAY], "I": [names[0]]}, {"Out": [names[1]]})
        elif kind == "increment":
            block._append_op_desc("increment", {"X": names}, {"Out": names}, {"step": 1.0})
        else:
            block._append_op_desc(kind, {"X": names[:-1]}, {"Out": names[-1:]})

    def _blocks(self, block: Any, kind: str, parts: list[Any]) -> None:
        inside = [self._inside(block, part) for part in parts if isinstance(part, list)]
        if kind == "both":
            block._append_op_desc("run_both", {"X": []}, {"Out": []}, {"blocks": inside})
            return
        slots = {"Cond": [parts[0]], "Input": []}
        attrs = {"sub_block": inside[0], "is_scalar_condition": True}
        block._append_op_desc("conditional_block", slots, {"Out": [], "Scope": []}, attrs)

    def _inside(self, block: Any, statements: list[tuple[Any, ...]]) -> Any:
        inner = self.program._create_block(block.idx)
        for statement in statements:
            self.write(inner, statement)
        self.program._rollback()
        return inner


def program_of(statements: list[tuple[Any, ...]]) -> fluid.Program:
    """A program of float variables, an array of two elements, and conditions that are true and false."""
    program = fluid.Program()
    block = program.global_block()
    for name in [*NAMES, "d"]:
        block.create_var(name=name, shape=[1], dtype="float32")
        block._append_op_desc("fill_constant", {}, {"Out": [name]}, {"shape": [1], "value": 0.5, "dtype": 5})
    for number, name in enumerate(INDEX):
        block.create_var(name=name, shape=[1], dtype="int64")
        block._append_op_desc("fill_constant", {}, {"Out": [name]}, {"shape": [1], "value": float(number), "dtype": 3})
    for name in ("yes", "no"):
        block.create_var(name=name, shape=[1], dtype="bool")
        value = {"shape": [1], "value": float(name == "yes"), "dtype": 0}
        block._append_op_desc("fill_constant", {}, {"Out": [name]}, value)
    block.create_var(name=ARRAY, type=13, dtype="float32", shape=[1])
    for name in INDEX:
        block._append_op_desc("write_to_array", {"X": ["a"], "I": [name]}, {"Out": [ARRAY]})
    writer = Writer(program)
    for statement in statements:
        writer.write(block, statement)
    block._append_op_desc("doubled", {"X": ["b"]}, {"Out": ["d"]})
    return program


@RANDOM
@given(st.lists(_statement, min_size=1, max_size=6))
def test_what_ops_of_several_blocks_do_is_what_is_said_of_them(odd_ops: None, statements: list[Any]) -> None:
    """Blocks that declare the names of others, that may not run, and ops that change what they read."""
    view = program_view(program_of(statements))
    with tracked() as tracker:
        run_block(view, 0, {}, interpret=True)
    check_all(tracker)


@RANDOM
@given(st.lists(_statement, min_size=1, max_size=6), st.sampled_from([*NAMES, "d", ARRAY]))
def test_what_needs_a_target_is_enough_to_compute_it(odd_ops: None, statements: list[Any], target: str) -> None:
    """A pruned program gives the target the value that the whole one does; so does a run in two segments."""
    program = program_of(statements)
    whole = run_block(program_view(program), 0, {}, interpret=True)[target]
    small = run_block(program_view(program._prune([target])), 0, {}, interpret=True)[target]
    np.testing.assert_array_equal(_numbers(whole), _numbers(small))
    ops = len(program.global_block().ops)
    plan = make_plan(program_view(program), [target], outside=[ops // 2])
    env: dict[str, Any] = {}
    for segment in plan.segments:
        inside = {n: env[n] for n in segment.reads if n in env}
        with jax.enable_x64(True):
            Runner(program_view(program), interpret=True).run_ops(segment.ops, inside)
        env.update({n: inside[n] for n in segment.writes if n in inside})
    np.testing.assert_array_equal(_numbers(whole), _numbers(env[target]))


def _numbers(value: Any) -> list[float]:
    return [float(np.asarray(v).item()) for v in (value.items if isinstance(value, TensorArray) else [value])]
