"""Requests that the server's front end has served."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field

from fluidjax.distributed.wire import Message


class RefusedError(ValueError):
    """A request for something that the server's program does not offer."""


@dataclass
class Request:
    """A call of a service method, with its message and the destination of the answer.

    The methods ``Attend`` and ``Gone`` report that a trainer has connected and that its connection is lost.
    """

    method: str
    message: Message
    answer: Future[Message] = field(default_factory=Future)

    @property
    def trainer(self) -> int:
        """The index of the requesting trainer."""
        return self.message.trainer

    def reply(self, message: Message | None = None) -> None:
        """Send the answer, unless the caller has given up."""
        if self.answer.set_running_or_notify_cancel():
            self.answer.set_result(message or Message())

    def refuse(self, error: BaseException) -> None:
        """Answer with an error, unless there was an answer already."""
        if not self.answer.done() and self.answer.set_running_or_notify_cancel():
            self.answer.set_exception(error)
