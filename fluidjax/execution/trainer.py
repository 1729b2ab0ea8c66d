"""The trainer of ``core.Executor``: a program, the batches of a ``core.Dataset``, and a scope for its thread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fluidjax.base.errors import EnforceNotMet
from fluidjax.base.scope import Scope, held
from fluidjax.execution.scopes.writer import make
from fluidjax.proto.trainer_desc_pb2 import TrainerDesc

if TYPE_CHECKING:
    from fluidjax.readers.multi_slot_dataset import Dataset


class TrainerBase:
    """The result of ``core.Executor.init_for_dataset``; one thread runs all batches, whatever the description says.

    Args:
        context: the program, made ready.
        desc: a serialized TrainerDesc message.
        scope: has the parameters.
        dataset: has the batches.
    """

    def __init__(self, context: Any, desc: bytes | str, scope: Scope, dataset: Dataset) -> None:
        self.context, self.scope, self.dataset = context, scope, dataset
        content = desc.encode("latin-1") if isinstance(desc, str) else desc
        self._fetches = TrainerDesc.FromString(content).fetch_config
        self._worker = scope.new_scope()
        make(self._worker, [var.name for var in context.program.list_vars() if not var.persistable])

    def get_worker_scope(self, thread_id: int) -> Scope:
        """The scope inside the trainer's own, with the variables that do not persist as the last batch left them.

        Args:
            thread_id: 0. EnforceNotMet for another: there is one thread.
        """
        if thread_id:
            raise EnforceNotMet(f"get_worker_scope: there is no thread {thread_id}. Expected 0, the one that there is")
        return self._worker

    def finalize(self) -> None:
        """Drop the scopes inside the trainer's."""
        self.scope.drop_kids()

    def feeds(self) -> Iterator[dict[str, Any]]:
        """The feeds of one pass; slots without a variable in the program are left out."""
        return self.dataset.feeds(self.context.program.global_block().vars)

    def show(self, batch: int) -> None:
        """Print the fetched variables after every ``print_period`` batches."""
        if batch % max(self._fetches.print_period, 1):
            return
        for name, text in zip(self._fetches.fetch_var_names, self._fetches.fetch_var_str_format, strict=False):
            print(f"{text}\t{name}\t{held(self._worker, name)}")
