"""The networks among which to search."""

from __future__ import annotations

from typing import Any

__all__ = ["SearchSpace"]


class SearchSpace:
    """Base class: lists of whole numbers, tokens, that stand for networks."""

    def __init__(self, *args: Any, **kwargs: Any):
        pass

    def init_tokens(self) -> list[int]:
        """The tokens to begin with."""
        raise NotImplementedError("Abstract method.")

    def range_table(self) -> list[int]:
        """Token i lies in [0, range_table()[i])."""
        raise NotImplementedError("Abstract method.")

    def create_net(self, tokens: list[int]) -> tuple[Any, ...]:
        """The network of some tokens.

        Returns (startup program, training program with gradients and updates, evaluation program, metrics of training,
        metrics of evaluation, reader of training, reader of evaluation).
        """
        raise NotImplementedError("Abstract method.")

    def get_model_latency(self, program: Any) -> float:
        """The latency of a network for evaluation; needed if ``target_latency`` is given."""
        raise NotImplementedError("Abstract method.")
