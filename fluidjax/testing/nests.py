"""Hypothesis strategies for loops and branches inside each other, and the check of their gradients.

    from hypothesis import given
    from fluidjax.testing.nests import nests

    @given(nests(("while_loop", "cond"), depth=3))
    def test_gradients(nest):
        nest.check()

A nest works on few variables of one number each. In its blocks they are read, passed through, swapped, rebound,
overwritten (``assign``), with constants too, and advanced in place (``increment``) before and after use, and so are the
elements of an array. ``check`` holds the gradients against finite differences of the forward program: what is right is
what the program computes, whatever the names of its variables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

import fluidjax as fluid
from fluidjax.testing.nest_builder import Builder, Draw

KINDS = ("while_loop", "float_loop", "While", "cond", "case", "switch_case", "StaticRNN", "DynamicRNN")
LENGTHS = [2, 1]
STEP = 1e-5

layers = fluid.layers


class WrongGradient(AssertionError):
    """A gradient differs from finite differences of the program."""


@dataclass(repr=False)
class Nest:
    """A random program of nested blocks.

    Attributes:
        program: forward ops, then those of ``fluid.gradients`` of the loss by the inputs.
        forward: the program without the gradient.
        loss: its result, of shape [1].
        inputs: the fed variables, ``float64``.
        gradients: their gradients; None where none reaches.
        text: what was drawn, as nested lines.
    """

    program: Any
    forward: Any
    loss: Any
    inputs: list[Any]
    gradients: list[Any]
    text: str

    def feed(self, values: Sequence[np.ndarray]) -> dict[str, Any]:
        """``values``, one per input, as a feed; the rows of the sequence are those that follow."""
        return {v.name: _fed(v, values[k]) for k, v in enumerate(self.inputs)}

    def check(self, seed: int = 0, interpret: bool = True) -> None:
        """Hold the gradients against central differences along one random direction.

        Args:
            interpret: run op by op; else compiled.

        Raises:
            WrongGradient: they differ by more than 1e-5 of their size.
        """
        rng = np.random.default_rng(seed)
        point = [rng.uniform(0.2, 0.9, _size(v)) for v in self.inputs]
        along = [rng.uniform(-1, 1, _size(v)) for v in self.inputs]
        wanted = [g for g in self.gradients if g is not None]
        found = _run(self.program, self.feed(point), [self.loss, *wanted], interpret)
        parts = iter(found[1:])
        ours = sum(
            float(np.sum(next(parts).reshape(-1) * d))
            for g, d in zip(self.gradients, along, strict=True)
            if g is not None
        )
        moved = [[p + s * STEP * d for p, d in zip(point, along, strict=True)] for s in (1, -1)]
        ends = [_run(self.forward, self.feed(m), [self.loss], True)[0] for m in moved]
        slope = float((ends[0] - ends[1]).item()) / (2 * STEP)
        if not abs(ours - slope) <= 1e-5 * max(1.0, abs(slope)):
            raise WrongGradient(
                f"the gradient along a direction is {ours:.9g}; finite differences: {slope:.9g}\n{self.text}"
            )

    def __repr__(self) -> str:
        return f"Nest(\n{self.text}\n)"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """How Hypothesis shows an example; it would spell out the programs otherwise."""
        printer.text(repr(self))


def _size(variable: Any) -> int:
    return sum(LENGTHS) if variable.lod_level else 1


def _fed(variable: Any, values: np.ndarray) -> Any:
    if variable.lod_level:
        return fluid.create_lod_tensor(values.reshape(-1, 1), [LENGTHS], fluid.CPUPlace())
    return values


def _run(program: Any, feed: dict[str, Any], fetch: list[Any], interpret: bool) -> list[np.ndarray]:
    executor = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        if not interpret:
            return [np.asarray(v) for v in executor.run(program, feed=feed, fetch_list=fetch, return_numpy=False)]
        with fluid.interpret_mode():
            return [np.asarray(v) for v in executor.run(program, feed=feed, fetch_list=fetch, return_numpy=False)]


@st.composite
def nests(draw: Draw, kinds: Sequence[str] = ("while_loop",), depth: int = 3, direct: bool = False) -> Nest:
    """A random program of at most ``depth`` blocks inside each other.

    Args:
        kinds: which blocks, of ``KINDS``: ``float_loop`` is a while_loop whose counter is a float advanced by
            ``increment``, ``While`` the class, the others the layers of these names.
        depth: levels of nesting.
        direct: work on the fed variables themselves, not on copies.
    """
    program, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(program, startup), fluid.unique_name.guard():
        builder = Builder(draw, tuple(kinds), depth, direct)
        builder.statements(builder.top, depth)
        getattr(builder, "_" + draw(st.sampled_from(tuple(kinds))))(builder.top, depth - 1)
        builder.statements(builder.top, 0)
        loss = builder.loss()
        forward = program.clone()
        gradients = fluid.gradients([loss], builder.inputs)
    return Nest(program, forward, loss, builder.inputs, gradients, "\n".join(builder.lines))
