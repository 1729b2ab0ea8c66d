"""TracedLayer: the ops run by one call of a layer, as a static program."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fluidjax.base.mode import current_tracer, in_dygraph_mode
from fluidjax.dygraph.base import dygraph_only
from fluidjax.dygraph.dygraph_to_static.partial_program import PartialProgramLayer
from fluidjax.dygraph.dygraph_to_static.program_translator import save_program
from fluidjax.dygraph.layers import Layer
from fluidjax.eager.recording import Recording
from fluidjax.framework import Program, Variable

__all__ = ["TracedLayer"]


class TracedLayer:
    """A static program that shares its parameters with the layer it was traced from; made by ``trace``."""

    def __init__(
        self, program: Program, parameters: Iterable[Any], feed_names: list[str], fetch_names: list[str]
    ) -> None:
        named = parameters if isinstance(parameters, dict) else {p.name: p for p in parameters}
        self._program, self._state = program, named
        self._feed_names, self._fetch_names = feed_names, fetch_names
        block = self._program.global_block()
        feeds, fetches = [block.var(n) for n in feed_names], [block.var(n) for n in fetch_names]
        self._partial = PartialProgramLayer(self._program, feeds, fetches, self._state)
        self._called = False

    @property
    def program(self) -> Program:
        """The program."""
        return self._program

    @staticmethod
    @dygraph_only
    def trace(layer: Layer, inputs: Any) -> tuple[Any, TracedLayer]:
        """(the result of ``layer(*inputs)``, the program of the ops it ran).

        The program does not record Python control flow, and layers keep the mode they were traced in: call ``eval()``
        before tracing for inference.

        Args:
            inputs: a variable, or a list or tuple of them.
        """
        assert isinstance(layer, Layer), f"trace: expected a Layer, received {type(layer).__name__}. Pass a layer."
        given = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
        recording = Recording()
        with recording.of(current_tracer()):
            result = layer(*given)
        outputs = _variables(result)
        fed = {f"feed_{i}": v for i, v in enumerate(_variables(given))}
        fetched = {f"fetch_{i}": v for i, v in enumerate(outputs)}
        recorded = recording.program(fed, fetched, "t_")
        return result, TracedLayer(recorded.program, recorded.state, list(fed), list(fetched))

    def set_strategy(self, build_strategy: Any = None, exec_strategy: Any = None) -> None:
        """Options for CompiledProgram; XLA makes these choices itself. Raises AssertionError after the first call."""
        assert not self._called, "Cannot set strategy after run. Call set_strategy before the first call."

    def __call__(self, inputs: Sequence[Any]) -> list[np.ndarray]:
        """The values of the outputs for the inputs: variables inside a guard, arrays outside."""
        assert isinstance(inputs, (list, tuple)), "Inputs should be a list or tuple of variables. Pass [x]."
        assert len(inputs) == len(self._feed_names), (
            f"{len(inputs)} inputs are given; expected {len(self._feed_names)}. Give one for each traced input."
        )
        self._called = True
        return self._partial.fetch([x.numpy() for x in inputs] if in_dygraph_mode() else inputs)

    def save_inference_model(
        self, dirname: str, feed: Sequence[int] | None = None, fetch: Sequence[int] | None = None
    ) -> None:
        """Save the program for inference, with its parameters.

        Args:
            dirname: the directory.
            feed, fetch: indices of the inputs and outputs to keep; all by default.
        """
        feeds = self._feed_names if feed is None else [self._feed_names[i] for i in feed]
        names = self._fetch_names if fetch is None else [self._fetch_names[i] for i in fetch]
        targets = [self._program.global_block().var(n) for n in names]
        save_program(dirname, self._program, feeds, targets, self._state)


def _variables(value: Any) -> list[Any]:
    """The variables in nested lists and tuples."""
    if isinstance(value, (list, tuple)):
        return [v for item in value for v in _variables(item)]
    return [value] if isinstance(value, Variable) else []
