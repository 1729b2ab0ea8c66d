"""What host ops may know of the run around them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fluidjax.base.scope import Scope


@dataclass
class Outside:
    """The scope of a run, what is to be done when it has left its values there, and what host ops keep till then."""

    scope: Scope
    afterwards: list[Callable[[], None]] = field(default_factory=list)
    kept: dict[Any, Any] = field(default_factory=dict)

    def finish(self) -> None:
        """Do it."""
        for action in self.afterwards:
            action()
