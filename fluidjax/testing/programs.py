"""Hypothesis strategies for whole random programs, to be fed to ``fluid.check_grad``.

    from hypothesis import given
    from fluidjax.testing.programs import programs

    @given(programs())
    def test_gradients(sample):
        sample.check_grad()

All values are [BATCH, WIDTH] matrices, so that runs share compiled ops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

import fluidjax as fluid
from fluidjax.gradcheck import GradientReport, check_grad

BATCH, WIDTH = 3, 4
_LENGTHS = ([2, 0, 1], [1, 1, 1], [0, 3, 0])

Draw = Callable[[st.SearchStrategy], Any]
_UNARY = ("tanh", "sigmoid", "square", "softplus", "sin", "softsign")
_BINARY = ("elementwise_add", "elementwise_sub", "elementwise_mul")


class Sample:
    """A random program with everything a run needs.

    Attributes:
        program: forward ops only.
        loss: its scalar result, of shape [1].
        feed: values of its data variables.
        scope: values of its parameters.
        parameters: their names.
    """

    def __init__(self, program: Any, loss: Any, feed: dict[str, Any], scope: Any, parameters: list[str]):
        self.program = program
        self.loss = loss
        self.feed = feed
        self.scope = scope
        self.parameters = parameters

    def check_grad(self, **options: Any) -> GradientReport:
        """``fluid.check_grad`` of this program."""
        return check_grad(self.loss, self.feed, scope=self.scope, parameter_list=self.parameters, **options)

    def __repr__(self) -> str:
        ops = [f"{op.type}({', '.join(op.input_arg_names)})" for op in self.program.global_block().ops]
        return f"Sample({'; '.join(ops)})"


class _Builder:
    """Grows a program over a pool of variables, drawing each step."""

    def __init__(self, draw: Draw, ragged: bool):
        self.draw = draw
        self.rng = np.random.default_rng(draw(st.integers(0, 2**16)))
        self.scope = fluid.Scope()
        self.parameters: list[str] = []
        self.feed: dict[str, Any] = {}
        self.pool = [self._data(ragged)]

    def _data(self, ragged: bool) -> Any:
        rows = self.rng.uniform(-1, 1, (BATCH, WIDTH)).astype(np.float32)
        if not ragged:
            self.feed["x"] = rows
            return fluid.data("x", [-1, WIDTH], "float32")
        self.feed["x"] = fluid.create_lod_tensor(rows, [self.draw(st.sampled_from(_LENGTHS))], fluid.CPUPlace())
        return fluid.data("x", [-1, WIDTH], "float32", lod_level=1)

    def parameter(self, shape: list[int]) -> Any:
        name = f"p{len(self.parameters)}"
        block = fluid.default_main_program().global_block()
        made = block.create_parameter(name=name, shape=shape, dtype="float32")
        value = self.rng.uniform(-1, 1, shape).astype(np.float32)
        self.scope.var(name).get_tensor().set(value, fluid.CPUPlace())
        self.parameters.append(name)
        return made

    def pick(self) -> Any:
        return self.pool[self.draw(st.integers(0, len(self.pool) - 1))]

    def step(self, kinds: tuple[str, ...]) -> None:
        made = getattr(self, "_" + self.draw(st.sampled_from(kinds)))()
        self.pool.append(made)

    def _unary(self) -> Any:
        return getattr(fluid.layers, self.draw(st.sampled_from(_UNARY)))(self.pick())

    def _binary(self) -> Any:
        return getattr(fluid.layers, self.draw(st.sampled_from(_BINARY)))(self.pick(), self.pick())

    def _weight(self) -> Any:
        return fluid.layers.mul(self.pick(), self.parameter([WIDTH, WIDTH]))

    def _bias(self) -> Any:
        return fluid.layers.elementwise_add(self.pick(), self.parameter([WIDTH]), axis=1)

    def _shared(self) -> Any:
        """One parameter used twice: its gradients are summed."""
        weight, x = self.parameter([WIDTH, WIDTH]), self.pick()
        return fluid.layers.mul(fluid.layers.tanh(fluid.layers.mul(x, weight)), weight)

    def _stopped(self) -> Any:
        """A branch that gradients do not enter."""
        branch = fluid.layers.scale(self.pick(), scale=0.5)
        branch.stop_gradient = True
        return fluid.layers.elementwise_mul(self.pick(), branch)

    def _halves(self) -> Any:
        left, right = fluid.layers.split(self.pick(), 2, dim=1)
        return fluid.layers.concat([fluid.layers.tanh(right), left], axis=1)

    def _softmax(self) -> Any:
        return fluid.layers.softmax(self.pick())

    def _cond(self) -> Any:
        """Two branches, one of which is taken by the value of a sum."""
        x, weight = self.pick(), self.parameter([WIDTH, WIDTH])
        positive = fluid.layers.less_than(fluid.layers.fill_constant([1], "float32", 0.0), fluid.layers.reduce_sum(x))
        return fluid.layers.cond(
            positive, lambda: fluid.layers.tanh(fluid.layers.mul(x, weight)), lambda: fluid.layers.scale(x, scale=2.0)
        )

    def _loop(self) -> Any:
        """A while loop over a tensor array: h_{i+1} = tanh(h_i W), i below 0 to 3."""
        layers = fluid.layers
        weight = self.parameter([WIDTH, WIDTH])
        i = layers.fill_constant([1], "int64", 0)
        i.stop_gradient = True
        trips = layers.fill_constant([1], "int64", self.draw(st.integers(0, 3)))
        states = layers.array_write(self.pick(), i)
        more = layers.less_than(i, trips)
        loop = layers.While(cond=more)
        with loop.block():
            state = layers.array_read(states, i)
            new = layers.tanh(layers.mul(state, weight))
            layers.increment(i, in_place=True)
            layers.array_write(new, i, array=states)
            layers.less_than(i, trips, cond=more)
        return layers.array_read(states, i)

    def loss(self) -> Any:
        """The mean of the squares of every value that nothing else used, and of the last one."""
        ops = fluid.default_main_program().global_block().ops
        used = {n for op in ops for n in op.input_arg_names}
        ends = [v for v in self.pool if v.name not in used] or [self.pool[-1]]
        total = fluid.layers.sums([fluid.layers.square(v) for v in ends]) if len(ends) > 1 else ends[0]
        return fluid.layers.mean(fluid.layers.square(total))


_PLAIN = ("unary", "binary", "weight", "bias", "shared", "stopped", "halves", "softmax")


@st.composite
def programs(draw: Draw, max_ops: int = 6, ragged: bool = False, control_flow: bool = False) -> Sample:
    """A random program of at most ``max_ops`` steps behind one data variable.

    Args:
        max_ops: upper bound of the number of random steps (a step is one to five ops).
        ragged: feed sequences (LoD), empty ones among them.
        control_flow: draw ``cond`` and ``While`` with arrays too.
    """
    kinds = _PLAIN + (("cond", "loop") if control_flow else ())
    program, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(program, startup), fluid.unique_name.guard():
        builder = _Builder(draw, ragged)
        builder.pool.append(builder._weight())
        for _ in range(draw(st.integers(1, max_ops))):
            builder.step(kinds)
        loss = builder.loss()
    return Sample(program, loss, builder.feed, builder.scope, builder.parameters)
