"""What host ops may know of the run around them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fluidjax.base.scope import Scope


@dataclass
class Outside:
    """The scope of a run, and what is to be done when the run has left its values there."""

    scope: Scope
    afterwards: list[Callable[[], None]] = field(default_factory=list)

    def finish(self) -> None:
        """Do it."""
        for action in self.afterwards:
            action()
