"""What optimizers take for a learning rate that changes."""

from __future__ import annotations

from typing import Any


class Schedule:
    """A learning rate that changes: called, it gives the rate of this step as a variable, and moves on."""

    counts_steps = True  # whether its state is a number of steps; else it moves by epochs, when it is told to

    def __call__(self) -> Any:
        """The rate of this step, a variable of shape [1]."""
        raise NotImplementedError(f"{type(self).__name__} gives no rate: expected __call__. Define it.")

    def first_rate(self) -> Any:
        """The rate before any step was taken, a number or a variable."""
        return self.step()  # type: ignore[attr-defined]  # what steps, subclasses say

    def state_dict(self) -> dict[str, Any]:
        """What has to be saved."""
        raise NotImplementedError(f"{type(self).__name__} has no state: expected state_dict. Define it.")

    def set_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from saved state."""
        raise NotImplementedError(f"{type(self).__name__} has no state: expected set_dict. Define it.")
