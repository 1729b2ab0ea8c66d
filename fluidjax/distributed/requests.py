"""What the server's door hands to its loop."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field

from fluidjax.distributed.wire import Message


class RefusedError(ValueError):
    """A request asks for what the server's program does not offer."""


@dataclass
class Request:
    """A method of the service, what it was called with, and where its answer goes.

    The methods ``Attend`` and ``Gone`` say that a trainer came, and that the connection to it broke.
    """

    method: str
    message: Message
    answer: Future[Message] = field(default_factory=Future)

    @property
    def trainer(self) -> int:
        """The number of the trainer that asks."""
        return self.message.trainer

    def reply(self, message: Message | None = None) -> None:
        """Answer, unless nobody waits any more."""
        if self.answer.set_running_or_notify_cancel():
            self.answer.set_result(message or Message())

    def refuse(self, error: BaseException) -> None:
        """Answer that it cannot be."""
        if self.answer.set_running_or_notify_cancel():
            self.answer.set_exception(error)
