"""A test class for one op, in the style of Paddle's OpTest: say the inputs and what NumPy makes of them.

A test derives from ``OpTest`` and sets ``op_type``, ``inputs``, ``outputs`` and ``attrs``. A slot's value is an array,
``(array, lengths)`` for rows of sequences, or a list of ``(name, value)`` for a slot of several variables. An output of
None is not compared. ``check_output`` runs the op as a program, compiled in place, and in eager mode; ``check_grad``
holds ``append_backward`` and eager ``backward()`` against differences of the op run alone (``fluid.op.Operator``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import fluidjax as fluid
from fluidjax import core
from fluidjax.backward import append_backward
from fluidjax.framework import OpProtoHolder, Program
from fluidjax.op import Operator

Value = Any  # an array, or (array, lengths of the sequences)


class OpTest:
    """What all tests of one op share.

    Attributes:
        op_type: the op.
        inputs, outputs: slot -> value, or list of (name, value).
        attrs: the attributes that are not defaults.
        delta: how far an element is moved for a difference; elements are float64 for this to be exact enough.
    """

    op_type: str
    inputs: dict[str, Any]
    outputs: dict[str, Any]
    attrs: dict[str, Any] = {}
    delta = 1e-5
    place = fluid.CPUPlace()

    def check_output(self, atol: float = 1e-6, eager: bool = True) -> None:
        """The outputs, and their lengths of sequences, are what the test says."""
        for enable_inplace in (None, False, True):
            self._compare("program", self._run_program(enable_inplace), atol)
        if eager:
            with fluid.dygraph.guard(self.place):
                _, made = self._run_eager()
                self._compare("eager", {name: var.value().get_tensor() for name, var in made.items()}, atol)

    def check_grad(self, wrt: Sequence[str], of: Sequence[str], rtol: float = 1e-6, eager: bool = True) -> None:
        """The gradients of the mean of ``of`` with respect to ``wrt``, both names of variables, are its derivatives."""
        expected = {name: self._differences(name, of) for name in wrt}
        self._compare_gradients("program", self._program_gradients(wrt, of), expected, rtol)
        if eager:
            self._compare_gradients("eager", self._eager_gradients(wrt, of), expected, rtol)

    # What is compared.

    def _compare(self, where: str, got: dict[str, Any], atol: float) -> None:
        for name, value in _named(self.outputs):
            if value is None:
                continue
            array, lengths = _parts(value)
            np.testing.assert_allclose(
                np.array(got[name]), array, rtol=1e-5, atol=atol, err_msg=f"{self.op_type}, {where}: {name}"
            )
            if lengths is not None:
                assert got[name].recursive_sequence_lengths() == lengths, (where, name)

    def _compare_gradients(self, where: str, got: dict[str, Any], expected: dict[str, Any], rtol: float) -> None:
        for name, want in expected.items():
            scale = max(np.abs(want).max(), 1e-3)
            np.testing.assert_allclose(
                got[name] / scale, want / scale, rtol=0, atol=rtol, err_msg=f"{self.op_type}, {where}: {name}@GRAD"
            )

    # As a program.

    def _append(self, block: Any) -> Any:
        def variables(given: dict[str, Any], fed: bool) -> dict[str, list[Any]]:
            slots: dict[str, list[Any]] = {}
            for slot, value in given.items():
                for name, one in _named({slot: value}):
                    array, lengths = _parts(one)
                    settings = {"shape": array.shape, "lod_level": len(lengths or ())} if fed else {}
                    dtype = "float32" if array is None else array.dtype
                    var = block.create_var(name=name, dtype=dtype, stop_gradient=False, **settings)
                    slots.setdefault(slot, []).append(var)
            return slots

        op = block.append_op(
            type=self.op_type,
            inputs=variables(self.inputs, fed=True),
            outputs=variables(self.outputs, fed=False),
            attrs=self.attrs,
        )
        op.desc.infer_var_type(block.desc)
        op.desc.infer_shape(block.desc)
        return op

    def _feeds(self) -> dict[str, Any]:
        return {name: self._tensor(value) for name, value in _named(self.inputs)}

    def _tensor(self, value: Value) -> Any:
        array, lengths = _parts(value)
        tensor = core.LoDTensor()
        tensor.set(array, self.place)
        if lengths is not None:
            tensor.set_recursive_sequence_lengths(lengths)
        return tensor

    def _run_program(self, enable_inplace: bool | None) -> dict[str, Any]:
        program: Any = Program()
        self._append(program.global_block())
        names = [name for name, value in _named(self.outputs) if value is not None]
        if enable_inplace is not None:
            strategy = fluid.BuildStrategy()
            strategy.enable_inplace = enable_inplace
            program = fluid.CompiledProgram(program).with_data_parallel(build_strategy=strategy, places=self.place)
        run = fluid.Executor(self.place).run
        return dict(zip(names, run(program, self._feeds(), names, return_numpy=False), strict=True))

    def _program_gradients(self, wrt: Sequence[str], of: Sequence[str]) -> dict[str, Any]:
        program = Program()
        block = program.global_block()
        self._append(block)
        with fluid.program_guard(program):
            means = [fluid.layers.mean(block.var(name)) for name in of]
            loss = fluid.layers.scale(fluid.layers.sums(means), 1.0 / len(means))
            pairs = append_backward(loss, parameter_list=list(wrt))
        run = fluid.Executor(self.place).run
        values = run(program, self._feeds(), [grad for _, grad in pairs], return_numpy=False)
        return {var.name: np.array(value) for (var, _), value in zip(pairs, values, strict=True)}

    # In eager mode.

    def _run_eager(self) -> tuple[dict[str, Any], dict[str, Any]]:
        block = fluid.default_main_program().global_block()
        given, made = {}, {}
        for name, value in _named(self.inputs):
            array, lengths = _parts(value)
            given[name] = fluid.dygraph.to_variable(array)
            given[name].stop_gradient = False
            if lengths is not None:
                given[name].value().get_tensor().set_recursive_sequence_lengths(lengths)
        for name, value in _named(self.outputs):
            dtype = "float32" if value is None else _parts(value)[0].dtype
            made[name] = block.create_var(name=name, dtype=dtype, persistable=False, stop_gradient=False)
        block.append_op(
            type=self.op_type,
            inputs={slot: [given[name] for name, _ in _named({slot: v})] for slot, v in self.inputs.items()},
            outputs={slot: [made[name] for name, _ in _named({slot: v})] for slot, v in self.outputs.items()},
            attrs=self.attrs,
        )
        return given, made

    def _eager_gradients(self, wrt: Sequence[str], of: Sequence[str]) -> dict[str, Any]:
        with fluid.dygraph.guard(self.place):
            given, made = self._run_eager()
            means = [fluid.layers.mean(made[name]) for name in of]
            fluid.layers.scale(fluid.layers.sums(means), 1.0 / len(means)).backward()
            return {name: given[name].gradient() for name in wrt}

    # By differences.

    def _differences(self, wrt: str, of: Sequence[str]) -> np.ndarray:
        scope = core.Scope()
        op = self._alone(scope)
        for name, value in _named(self.inputs):
            array, lengths = _parts(value)
            tensor = scope.var(name).get_tensor()
            tensor.set(array, self.place)
            if lengths is not None:
                tensor.set_recursive_sequence_lengths(lengths)
        tensor = scope.find_var(wrt).get_tensor()
        array = np.array(tensor)
        assert array.dtype == np.float64, f"{wrt} is {array.dtype}: differences want float64"

        def mean_at(index: int, value: float) -> float:
            tensor._set_double_element(index, value)
            op.run(scope, self.place)
            return float(np.mean([np.array(scope.find_var(name).get_tensor()).mean() for name in of]))

        slopes = np.zeros(array.size)
        for index, value in enumerate(array.ravel()):
            rise = mean_at(index, value + self.delta) - mean_at(index, value - self.delta)
            slopes[index] = rise / (2 * self.delta)
            tensor._set_double_element(index, value)
        return slopes.reshape(array.shape)

    def _alone(self, scope: Any) -> Any:
        proto = OpProtoHolder.instance().get_op_proto(self.op_type)
        bound: dict[str, Any] = {}
        for slot in [*proto.inputs, *proto.outputs]:
            given = {**self.inputs, **self.outputs}.get(slot.name)
            if slot.name in self.inputs or slot.name in self.outputs:
                bound[slot.name] = [name for name, _ in _named({slot.name: given})]
                for name in bound[slot.name]:
                    scope.var(name).get_tensor()
        return Operator(self.op_type, **bound, **self.attrs)


def _named(slots: dict[str, Any]) -> Iterator[tuple[str, Value]]:
    """Name and value of each variable; a slot of one variable names it."""
    for slot, value in slots.items():
        yield from value if isinstance(value, list) else [(slot, value)]


def _parts(value: Value) -> tuple[Any, Any]:
    return value if isinstance(value, tuple) else (value, None)
