"""The executor below ``fluid.Executor``: runs a program's desc in a scope that the caller prepares and inspects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fluidjax.base.enums import VarType
from fluidjax.base.errors import EnforceNotMet
from fluidjax.base.places import Place
from fluidjax.base.scope import Scope
from fluidjax.execution.scopes.writer import make, write_column
from fluidjax.framework import Program
from fluidjax.framework.descs import ProgramDescView
from fluidjax.proto import framework_pb2 as pb

if TYPE_CHECKING:
    from fluidjax.execution.trainer import TrainerBase
    from fluidjax.readers.multi_slot_dataset import Dataset

_HOLDERS = (VarType.FEED_MINIBATCH, VarType.FETCH_LIST)


@dataclass
class ExecutorPrepareContext:
    """A program made ready for runs; `kept` is the same with all its variables persistable."""

    program: Program
    kept: Program


class NativeExecutor:
    """Runs descs at a place. Feeds and fetches go through variables of the scope.

    Args:
        place: where to compute.
        run, close: those of the ``fluid.Executor`` there.
    """

    def __init__(self, place: Place, run: Callable[..., Any], close: Callable[[], None]):
        self.place = place
        self.close = close
        self._run = run
        self._prepared: dict[bytes, ExecutorPrepareContext] = {}

    def create_variables(self, program_desc: ProgramDescView, scope: Scope, block_id: int) -> None:
        """Make a block's variables: persistable ones in the outermost scope, the others in `scope`."""
        outermost = scope
        while (around := outermost.parent()) is not None:
            outermost = around
        variables = program_desc.block(block_id).all_vars()
        make(outermost, [var.name() for var in variables if var.persistable()])
        make(scope, [var.name() for var in variables if not var.persistable()])

    def run(
        self,
        program_desc: ProgramDescView,
        scope: Scope,
        block_id: int,
        create_local_scope: bool,
        create_vars: bool,
        skip_ref_cnt_vars: list[str],
        force_disable_gc: bool = False,
        keep_kid_scopes: bool = False,
    ) -> None:
        """Run a program; its ``feed`` ops read what ``core.set_feed_variable`` put there, ``fetch`` ops leave results.

        Args:
            program_desc: the program.
            scope: has its variables.
            block_id: 0; ValueError for another.
            create_local_scope: whether variables that do not persist are dropped afterwards; they stay otherwise.
            create_vars, skip_ref_cnt_vars, force_disable_gc, keep_kid_scopes: accepted as in Fluid.
        """
        context = self.prepare(program_desc, block_id, skip_ref_cnt_vars, force_disable_gc)
        self.run_prepared_ctx(context, scope, create_local_scope, create_vars, keep_kid_scopes)

    def prepare(
        self,
        program_desc: ProgramDescView,
        block_id: int,
        skip_ref_cnt_vars: list[str] | None = None,
        force_disable_gc: bool = False,
    ) -> ExecutorPrepareContext:
        """Make a program ready; arguments as for ``run``."""
        if block_id:
            raise ValueError(f"core.Executor: block {block_id} is a part of block 0; expected 0. Run the whole program")
        content = program_desc.serialize_to_string()
        if content not in self._prepared:
            self._prepared[content] = ExecutorPrepareContext(_program(content), _program(content, kept=True))
        return self._prepared[content]

    def run_prepared_ctx(
        self,
        ctx: ExecutorPrepareContext,
        scope: Scope,
        create_local_scope: bool = True,
        create_vars: bool = True,
        keep_kids: bool = False,
    ) -> None:
        """Run what ``prepare`` made ready; arguments as for ``run``."""
        program = ctx.program if create_local_scope else ctx.kept
        feed = {name: _fed(scope, holder, col) for name, holder, col in _columns(program, "feed", "Out", "X")}
        fetches = _columns(program, "fetch", "X", "Out")
        results = self._run(
            program, feed=feed, fetch_list=[name for name, _, _ in fetches], scope=scope, return_numpy=False
        )
        for (_, holder, col), result in zip(fetches, results, strict=True):
            write_column(scope, holder, col, result)

    def init_for_dataset(
        self, main_program: ProgramDescView, trainer_desc_str: bytes | str, scope: Scope, dataset: Dataset
    ) -> TrainerBase:
        """A trainer that runs a program once for each batch of a data set.

        Args:
            main_program: the program.
            trainer_desc_str: a serialized TrainerDesc; what it says to fetch is printed.
            scope: has the parameters.
            dataset: with its files and description set, and loaded if it is of the in-memory kind.
        """
        from fluidjax.execution.trainer import TrainerBase

        return TrainerBase(self.prepare(main_program, 0), trainer_desc_str, scope, dataset)

    def run_from_dataset(self, trainer: TrainerBase) -> None:
        """One pass over the trainer's data set."""
        program, scope = trainer.context.kept, trainer.get_worker_scope(0)
        for batch, feed in enumerate(trainer.feeds(), 1):
            self._run(program, feed=feed, scope=scope)
            trainer.show(batch)

    def release_trainer(self, trainer: TrainerBase) -> None:
        """Drop the scopes that the trainer made."""
        trainer.finalize()


def _program(content: bytes, *, kept: bool = False) -> Program:
    message = pb.ProgramDesc.FromString(content)
    for var in message.blocks[0].vars if kept else ():
        var.persistable = var.persistable or var.type.type not in _HOLDERS
    return Program._construct_from_desc(message)


def _columns(program: Program, type: str, slot: str, holder: str) -> list[tuple[str, str, int]]:
    """(variable, holder, column) of each op of a type; a fetch's variable is its input, a feed's its output."""
    ops = [op for op in program.global_block().ops if op.type == type]
    bound = [{**op.desc.inputs(), **op.desc.outputs()} for op in ops]
    return [(slots[slot][0], slots[holder][0], op.attr("col")) for op, slots in zip(ops, bound, strict=True)]


def _fed(scope: Scope, holder: str, col: int) -> Any:
    var = scope.find_var(holder)
    column = [] if var is None else var.get_fetch_list()
    if col >= len(column):
        raise EnforceNotMet(
            f"the feed variable {holder!r} has {len(column)} columns; expected one for column {col}. Put a tensor there"
            f" with core.set_feed_variable(scope, tensor, {holder!r}, {col})"
        )
    return column[col]
