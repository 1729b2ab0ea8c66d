"""Each rule for wide dims against exact shapes: equal results and gradients, and unused positions that stay finite."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import jax
import numpy as np
import pytest

import lowering
from fluidjax.testing.case import Case as Bindable
from fluidjax.testing.run import Bound, bind, no_grad, read_gradients
from lowering.dtypes import is_float
from lowering.engine.expected import FedRows
from lowering.engine.runner import Runner
from lowering.errors import NeedsSizes
from lowering.program import GRAD, OpView
from lowering.sizes.labels import count_of
from lowering.values import Axis, LoDArray, Wide, exact
from lowering.wide.rules import RULES
from tests.stream.wide_cases import CASES
from tests.stream.wide_inputs import Case, Input, reals

pytestmark = pytest.mark.usefixtures("compiled_quickly")

Env = dict[str, Any]
CALLS = [(op_type, i) for op_type in sorted(CASES) for i in range(len(CASES[op_type]))]


def letters_of(case: Case) -> list[str]:
    """The letters of a case, sorted."""
    inputs = [v for value in case.inputs.values() for v in (value if isinstance(value, list) else [value])]
    return sorted({letter for v in inputs if isinstance(v, Input) for letter in v.dims if letter.isalpha()})


def shape_of(dims: str, sizes: Mapping[str, int]) -> list[int]:
    """The shape for these sizes."""
    return [prod(sizes.get(part) or int(part) for part in dim.split("*")) for dim in dims.split()]


def axes_of(dims: str, sizes: Mapping[str, int], rooms: Mapping[str, int]) -> tuple[Axis, ...]:
    """The wide axes of an input where the letters of ``rooms`` are wide."""
    found, widths = [], {**sizes, **rooms}
    for at, dim in enumerate(dims.split()):
        parts = dim.split("*")
        for i, part in enumerate(parts):
            if part in rooms:
                inner = prod(widths.get(later) or int(later) for later in parts[i + 1 :])
                found.append(Axis(at, rooms[part], ord(part), inner))
    return tuple(found)


def roomy(value: np.ndarray, axes: tuple[Axis, ...], sizes: Mapping[str, int], rng: np.random.Generator) -> Any:
    """The inverse of ``taken``: unused positions are copies of used ones."""
    data, shape = np.asarray(value), list(value.shape)
    by_label = {ord(letter): np.int32(size) for letter, size in sizes.items()}
    counts = [count_of(axis.label, by_label) for axis in axes]
    for axis, count in reversed(list(zip(axes, counts, strict=True))):
        outer, apart = shape[axis.dim] // (count * axis.inner), axis.inner * prod(shape[axis.dim + 1 :])
        at = [*range(count), *rng.integers(0, count, axis.room - count)]
        data = data.reshape(prod(shape[: axis.dim]), outer, count, apart)[:, :, at]
        shape[axis.dim] = outer * axis.room * axis.inner
        data = data.reshape(shape)
    return Wide(data, tuple(counts), axes) if axes else data


class Call:
    """An op with inputs of these sizes, and what it and its gradient op give for them as they are."""

    def __init__(self, op_type: str, case: Case, sizes: Mapping[str, int], seed: int):
        self.case, self.sizes, self.seed = case, sizes, seed
        rng = np.random.default_rng(seed)
        self.inputs = {slot: self._drawn(value, rng) for slot, value in case.inputs.items()}
        made = Bindable(op_type, self.inputs, case.attrs, counts=case.counts)
        self.bound: Bound = bind(made, rng)
        results = jax.eval_shape(self._forward, self.bound.values)
        # What is drawn in float32 is held to its bits, which the quicker way of fusing takes less care of.
        drawn = any(v.dtype == np.float32 for v in results.values())
        self.options = {"xla_cpu_use_fusion_emitters": True} if drawn and jax.__version_info__ < (0, 11) else {}
        read = read_gradients(self.bound) if self.bound.wrt() and case.backward else ()
        self.cotangents = {
            n: rng.standard_normal(v.shape).astype(v.dtype)
            for n, v in results.items()
            if n in read and is_float(v.dtype) and not isinstance(v, LoDArray)
        }
        self.expected = self._both(self.bound.values, self.cotangents)

    def _drawn(self, value: Any, rng: np.random.Generator) -> Any:
        if isinstance(value, list):
            return [self._drawn(v, rng) for v in value]
        if isinstance(value, Input):
            drawn = value.draw(rng, tuple(shape_of(value.dims, self.sizes)))
            return (drawn * shape_of(value.of, self.sizes)).astype(np.int64) if value.of else drawn
        return value(rng, self.sizes) if callable(value) else value

    def _forward(self, values: Env) -> Env:
        return self._run(self.bound.op, values)

    def _run(self, op: OpView, env: Env) -> Env:
        runner = Runner(self.bound.program, key=jax.random.key(0))
        runner.fed = FedRows(list(env.values()))
        return runner.run_op(op, dict(env))

    def _both(self, values: Env, cotangents: Env) -> Env:
        """Results, and gradients for these of the results."""

        def traced(values: Env, cotangents: Env) -> Env:
            results = self._forward(values)
            env = {**values, **results, **{n + GRAD: v for n, v in cotangents.items()}}
            for spec in lowering.grad_ops(self.bound.op, no_grad(self.bound))[0] if cotangents else ():
                env |= self._run(OpView(spec.type, spec.inputs, spec.outputs, {**spec.attrs, "op_role": 1}), env)
            return {**results, **{n + GRAD: env.get(n + GRAD) for n in self.bound.wrt()}}

        return jax.jit(traced, compiler_options=self.options)(values, cotangents)

    def widened(self, rooms: Mapping[str, int]) -> tuple[Env, Env]:
        """Inputs in which these letters have this much room, and what the results are then like.

        Raises NeedsSizes if the op refuses them.
        """
        values, rng = dict(self.bound.values), np.random.default_rng(self.seed)
        for slot, value in self.case.inputs.items():
            for name, v in zip(self.bound.op.inputs[slot], value if isinstance(value, list) else [value], strict=True):
                if isinstance(v, Input):
                    values[name] = roomy(values[name], axes_of(v.dims, self.sizes, rooms), self.sizes, rng)
        return values, jax.eval_shape(self._forward, values)

    def wide(self, values: Env, results: Env) -> Env:
        """Results and gradients for what ``widened`` returned."""
        rng = np.random.default_rng(self.seed)
        axes = {n: getattr(results[n], "axes", ()) for n in self.cotangents}
        return self._both(values, {n: roomy(v, axes[n], self.sizes, rng) for n, v in self.cotangents.items()})


def chosen(case: Case) -> list[str]:
    """Which letters are wide together: all that the op has to take, each alone, and all."""
    letters = letters_of(case)
    return list(dict.fromkeys([*filter(None, [case.takes]), *letters, "".join(letters)]))


def hold(what: str, found: Env, expected: Env) -> None:
    """The used parts are equal, and the others are finite where all that is used is."""
    assert found.keys() == expected.keys(), what
    for name, value in expected.items():
        if value is None:
            assert found[name] is None
            continue
        got, want = (exact(v) for v in (found[name], value))
        data, wanted = (np.asarray(v.data if isinstance(v, LoDArray) else v) for v in (got, want))
        assert data.shape == wanted.shape, f"{what} {name}"
        assert data.dtype == wanted.dtype, f"{what} {name}"
        np.testing.assert_allclose(data, wanted, rtol=1e-9, atol=1e-12, err_msg=f"{what} {name}")
        if isinstance(found[name], Wide) and np.isfinite(wanted).all():
            assert np.isfinite(np.asarray(found[name].data)).all(), f"{what} {name}: unused positions"


def test_each_rule_has_a_case() -> None:
    assert CASES.keys() == RULES.keys()


@pytest.mark.parametrize(("op_type", "index"), CALLS)
def test_room_changes_nothing(op_type: str, index: int, rng: np.random.Generator) -> None:
    case = CASES[op_type][index]
    sizes = {letter: int(rng.integers(case.least, case.least + 4)) for letter in letters_of(case)}
    rooms = {letter: size + int(rng.integers(1, 4)) for letter, size in sizes.items()}
    with jax.enable_x64(True):
        call, accepted = Call(op_type, case, sizes, int(rng.integers(2**31))), {}
        for letters in chosen(case):
            try:
                accepted[letters] = call.widened({letter: rooms[letter] for letter in letters})
            except NeedsSizes as refusal:
                assert not set(letters) <= set(case.takes), f"{letters} are refused: {refusal}"
        for letters in accepted:
            if len(letters) < len(case.takes) and set(letters) <= set(case.takes):
                continue  # all of them together are the harder case
            hold(f"{op_type}, {letters} of {sizes} in {rooms},", call.wide(*accepted[letters]), call.expected)


@pytest.mark.parametrize("index", range(len(CASES["softmax"])))
def test_unused_probabilities_are_copies(index: int) -> None:
    """An entropy takes their logarithms: none is smaller than all that are used."""
    case = CASES["softmax"][index]
    sizes = dict.fromkeys(letters_of(case), 3)
    call = Call("softmax", case, sizes, 7)
    values, results = call.widened(dict.fromkeys(sizes, 5))
    (name,) = call.bound.op.outputs["Out"]
    found = call.wide(values, results)[name]
    assert isinstance(found, Wide)
    assert np.asarray(found.data).min() == np.asarray(call.expected[name]).min()


@pytest.mark.parametrize("op_type", ["matmul", "matmul_v2", "bmm"])
@pytest.mark.parametrize("slot", ["X", "Y"])
def test_batches_with_room_on_one_side_are_cut_to_the_other(op_type: str, slot: str) -> None:
    """The matrices of a batch are paired: as many are used as the other side has, if there is room for them."""
    case = Case({"X": reals("b 2 3"), "Y": reals("b 3 2")}, "b")
    call = Call(op_type, case, {"b": 2}, 7)
    wide, _ = call.widened({"b": 4})
    (name,) = call.bound.op.inputs[slot]
    values = {**call.bound.values, name: wide[name]}
    hold(op_type, call._both(values, call.cotangents), call.expected)
    (other,) = call.bound.op.inputs["Y" if slot == "X" else "X"]
    with pytest.raises(NeedsSizes):
        jax.eval_shape(call._forward, {**values, other: np.concatenate([values[other]] * 3)})
