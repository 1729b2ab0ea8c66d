"""Simulated annealing over lists of small whole numbers."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fluidjax.log_helper import get_logger

__all__ = ["EvolutionaryController", "SAController"]

_logger = get_logger(__name__, logging.INFO, fmt="%(asctime)s-%(levelname)s: %(message)s")


class EvolutionaryController:
    """Base class of controllers."""

    def __init__(self, *args: Any, **kwargs: Any):
        pass

    def update(self, tokens: list[int], reward: float) -> None:
        """Take note of the reward of a solution."""
        raise NotImplementedError("Abstract method.")

    def reset(self, range_table: Sequence[int], constrain_func: Callable[[list[int]], bool] | None = None) -> None:
        """Begin a search of tokens in [0, range_table[i]) for which ``constrain_func`` is true."""
        raise NotImplementedError("Abstract method.")

    def next_tokens(self) -> list[int]:
        """The next solution to try."""
        raise NotImplementedError("Abstract method.")


class SAController(EvolutionaryController):
    """Simulated annealing: changes one token at a time, and goes on from a worse solution with the probability
    exp((reward - last reward) / (init_temperature * reduce_rate^step)). Draws from ``numpy.random``.

    Args:
        range_table: token i lies in [0, range_table[i]); see ``reset``.
        reduce_rate, init_temperature: see above.
        max_iter_number: how many changes to try until one meets the constraint.
    """

    def __init__(
        self,
        range_table: Sequence[int] | None = None,
        reduce_rate: float = 0.85,
        init_temperature: float = 1024,
        max_iter_number: int = 300,
    ):
        super().__init__()
        self._range_table: Sequence[int] = range_table or []
        self._reduce_rate = reduce_rate
        self._init_temperature = init_temperature
        self._max_iter_number = max_iter_number
        self._constrain_func: Callable[[list[int]], bool] | None = None
        self._reward: float = -1
        self._tokens: list[int] = []
        self._max_reward: float = -1
        self._best_tokens: list[int] = []
        self._iter = 0

    def __getstate__(self) -> dict[str, Any]:
        """Without the constraint, which is a function of the running compression."""
        return {name: value for name, value in vars(self).items() if name != "_constrain_func"}

    def reset(  # type: ignore[override]
        self,
        range_table: Sequence[int],
        init_tokens: list[int],
        constrain_func: Callable[[list[int]], bool] | None = None,
    ) -> None:
        """Begin a search.

        Args:
            range_table: token i lies in [0, range_table[i]).
            init_tokens: the solution to begin with.
            constrain_func: whether a solution is allowed; None: all are.
        """
        self._range_table = range_table
        self._constrain_func = constrain_func
        self._tokens = init_tokens
        self._best_tokens = self._best_tokens or init_tokens
        self._iter = 0

    def update(self, tokens: list[int], reward: float) -> None:
        """Take note of the reward of a solution: whether to go on from it, and whether it is the best."""
        self._iter += 1
        temperature = self._init_temperature * self._reduce_rate**self._iter
        if reward > self._reward or np.random.random() <= math.exp((reward - self._reward) / temperature):
            self._reward, self._tokens = reward, tokens
        if reward > self._max_reward:
            self._max_reward, self._best_tokens = reward, tokens
        _logger.info(f"iter: {self._iter}; max_reward: {self._max_reward}; best_tokens: {self._best_tokens}")
        _logger.info(f"current_reward: {self._reward}; current tokens: {self._tokens}")

    @property
    def best_tokens(self) -> list[int]:
        """The solution with the highest reward so far."""
        return self._best_tokens

    @property
    def steps(self) -> int:
        """How many rewards it was told since ``reset``."""
        return self._iter

    def next_tokens(self, control_token: list[int] | None = None) -> list[int]:
        """The solution to go on from, or ``control_token``, with one token changed.

        The last one tried is taken if ``max_iter_number`` changes do not meet the constraint.
        """
        base = list(control_token or self._tokens)
        tokens = list(base)
        at = self._position()
        size = int(self._range_table[at])
        step = int(np.random.randint(size - 1)) + 1 if size > 1 else 0  # never to itself, if there is another
        tokens[at] = (base[at] + step) % max(size, 1)
        for _ in range(self._max_iter_number):
            if self._constrain_func is None or self._constrain_func(tokens):
                break
            at, tokens = self._position(), list(base)
            tokens[at] = int(np.random.randint(max(int(self._range_table[at]), 1)))
        return tokens

    def _position(self) -> int:
        return int(len(self._range_table) * np.random.random())
