"""What all ops of a run share: the program, its random numbers, the room of buffers, and what is told the executor."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any

import jax

from lowering.draws.host_bits import is_host_key
from lowering.draws.random_bits import fold_in, seed_key
from lowering.engine.array_facts import ArrayFacts
from lowering.engine.checks import Watch, merged
from lowering.engine.expected import UNEVEN, FedRows
from lowering.engine.traces import Traces
from lowering.errors import Need, NeedsExact, OpError
from lowering.program import OpView, ProgramView
from lowering.registry import get_op
from lowering.sizes.labels import Labels
from lowering.wide.call import Noted
from lowering.wide.followed import Followed
from lowering.wide.spare import NO_ROOM, SpareRoom

Env = MutableMapping[str, Any]


def number_of(name: str) -> int:
    """A number derived from a name."""
    return zlib.crc32(name.encode())


class Run(ABC):
    """The run of blocks of one program, inside a trace or op by op; how its ops are run is said by ``Runner``.

    Args:
        program: the program's view.
        key: PRNG key of this run, or a host key (see ``host_bits``); None when the program draws nothing.
        interpret: run each op through a jit of its own (cached by op content) instead of one surrounding trace.
        platform: 'cpu', 'gpu' or 'tpu', for rules that choose by platform.
        capacities: loop bounds and buffer capacities determined by the executor, by name.
        spare: what may have more room than it needs.
        after_op: called with (op, values by name) after each op, for debugging and NaN checks (interpret mode).
        watch: records what ops demand of their numbers; None: out-of-range ids are clamped, wrapped or dropped.
        outside: what the front end knows of the run, passed by host ops to its services.
        ample: buffers get all the room that can be needed where shapes say how much that is: for what cannot rerun.
    """

    def __init__(
        self,
        program: ProgramView,
        *,
        key: Any = None,
        interpret: bool = False,
        platform: str = "cpu",
        capacities: Mapping[str, int] | None = None,
        spare: SpareRoom = NO_ROOM,
        after_op: Any = None,
        watch: Watch | None = None,
        outside: Any = None,
        ample: bool = False,
    ):
        self.program = program
        self.key = key
        self.interpret = interpret
        self.platform = platform
        self.capacities = dict(capacities or {})
        self.ample = ample
        self.used: dict[str, int] = {}
        self.overflows: dict[str, Any] = {}
        self.uneven: dict[str, Need] = {}  # what to raise if an overflow means that rows or sizes do not match
        self.spare = spare
        self.labels = Labels() if spare.wide else None
        self.widest = False  # whether any op had wide inputs
        self.scattered: set[Any] = set()  # labels of sizes for which selected rows have meaningless entries
        self.packs: dict[str, Noted] = {}  # what was packed for an op (see ``wide.meet``), by names of its results
        self.followed = Followed()
        self.fed = FedRows()  # a caller may say what the row counts of its inputs are
        self.after_op = after_op
        self.watch = watch
        self.outside = outside
        self.unsettled = False  # whether any value has two forms
        self.inside = False  # whether a loop step or a branch is being traced
        self.bounds: dict[str, int] = {}  # upper bounds of integer variables whose values are known only at run time
        self.array_capacity = 16  # capacity of a tensor array whose indices are unknown during tracing
        self.arrays = ArrayFacts()  # of the loop being traced
        self.turn: Any = None  # the step of the loop being traced, for random ops inside it
        self.strange: set[str] | None = None  # values with data types other than declared (see ``kinds``)
        self.draws: dict[str, int] = {}  # number of draws so far in the current block, by the name drawn into
        self.traces: Traces | None = None  # of one step's trace
        self.number: Callable[[str], Any] = number_of  # distinguishes draws into a name from all others

    @abstractmethod
    def run_op(self, op: OpView, env: Env) -> dict[str, Any]:
        """Values by name of the variables that ``op`` writes."""

    @abstractmethod
    def run_ops(self, ops: Iterable[OpView], env: Env) -> Env:
        """Run ``ops`` over ``env``, which is changed in place and returned; recomputed segments are kept apart."""

    def run_block(self, block_idx: int, env: Env) -> Env:
        """Run all ops of a block over ``env``, which is changed in place and returned."""
        return self.run_ops(self.program.blocks[block_idx].ops, env)

    def capacity(self, name: str, default: int, most: int | None = None) -> int:
        """The static capacity of a buffer whose actual need, ``most`` at most, is traced; see ``overflow``."""
        room = default if most is None or not self.ample else most
        self.used[name] = self.capacities.get(name, room)
        return self.used[name]

    def overflow(self, name: str, flag: Any) -> None:
        """Tell the executor whether the buffer ``name`` was too small, in which case it reruns with a larger one.

        The flag is a bool, and the larger one twice as large; or (see ``needing``) it says how much room is needed.
        To be called while tracing the outermost block: a step's flag is a tracer of that step, so a loop first carries
        the flags of its body out.
        """
        known = self.overflows.get(name)
        self.overflows[name] = flag if known is None else merged(known, flag)

    def expect_equal_rows(self, op: OpView, agree: Any) -> None:
        """Tell the executor whether the ragged inputs of ``op`` have equally many rows; if not, it needs exact ones."""
        name = f"rows of op {op.index} of block {op.block_idx}"
        self.uneven[name] = NeedsExact(UNEVEN).asked_by(op)
        self.overflow(name, ~agree)

    def draw_key(self, op: OpView) -> Any:
        """A PRNG key for one random op: the run's key folded with the name of what the op writes.

        Unlike the op's index, the name survives pruning and cloning; further draws into the same name are numbered.
        """
        name = op.drawn_into
        count = self.draws.get(name, 0)
        self.draws[name] = count + 1
        seed = get_op(op.type).own_seed(op.attrs)
        if seed:
            return self._in_turn(fold_in(seed_key(seed, host=is_host_key(self.key)), count))
        if self.key is None:
            raise OpError(f"op {op.type} (#{op.number}) draws random numbers, but the run was given no key; pass key=")
        return self._in_turn(fold_in(self.key, (self.number(name) + count) & 0x7FFFFFFF))

    @contextmanager
    def step(self, turn: Any = None) -> Iterator[None]:
        """Context manager around the ops of step ``turn`` of a loop, or of a branch (None).

        Draws fold in the step's number, and their count starts in each step where it stood outside the loop: the same
        step draws the same numbers, whether traced once or several times, alone or in sequence.
        """
        if turn is None:
            yield
            return
        outside = self.turn, self.draws
        self.draws = dict(self.draws)
        self.turn = turn if self.turn is None else self.turn * 65_537 + turn
        try:
            yield
        finally:
            self.turn, self.draws = outside

    def _in_turn(self, key: Any) -> Any:
        return key if self.turn is None else jax.random.fold_in(key, self.turn)
