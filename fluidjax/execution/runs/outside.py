"""What host ops may know of the run around them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fluidjax.base.scope import Scope


@dataclass
class Outside:
    """A run's scope, what to do once the run has left its values there, and what host ops keep until then."""

    scope: Scope
    afterwards: list[Callable[[], None]] = field(default_factory=list)
    kept: dict[Any, Any] = field(default_factory=dict)

    def finish(self) -> None:
        """Do what was left for the end of the run."""
        for action in self.afterwards:
            action()
