"""An op that has to know some of its numbers, run again and again on its own with the same ones."""

import numpy as np

import fluidjax as fluid
from fluidjax.op import Operator
from lowering.engine.single import _REPEATED, CompiledOp
from lowering.values import concrete

X = np.arange(12.0)


def folded(values, key):
    """X as a matrix of N rows."""
    calls.append(values["N"])
    return {"Out": values["X"].reshape(int(concrete(values["N"], "N")[0]), -1) * 2}


calls: list[np.ndarray] = []


def runs(compiled, rows, times):
    return [compiled.knowing({"X": X, "N": np.int32([rows])}, None) for _ in range(times)]


def test_numbers_that_recur_become_constants():
    calls.clear()
    compiled = CompiledOp(folded)
    assert runs(compiled, 3, _REPEATED) == [None] * _REPEATED
    for found in runs(compiled, 3, 5):
        np.testing.assert_array_equal(found["Out"], X.reshape(3, 4) * 2)
    assert len(calls) == 1


def test_other_numbers_are_counted_by_themselves():
    compiled = CompiledOp(folded)
    runs(compiled, 3, _REPEATED + 1)
    assert runs(compiled, 4, 1) == [None]
    assert runs(compiled, 4, _REPEATED)[-1]["Out"].shape == (4, 3)
    assert runs(compiled, 3, 1)[0]["Out"].shape == (3, 4)


def test_numbers_that_are_never_the_same_are_forgotten():
    compiled = CompiledOp(folded)
    assert not any(runs(compiled, n, 1)[0] for n in range(1, 600))
    assert len(compiled._direct) <= 257


def test_a_rule_that_has_to_know_all_is_called_directly():
    def summed(values, key):
        return {"Out": np.zeros(int(concrete(values["X"], "X").sum()))}

    compiled = CompiledOp(summed)
    assert [compiled.knowing({"X": X}, None) for _ in range(_REPEATED + 3)] == [None] * (_REPEATED + 3)


def test_an_operator_gives_the_same_before_and_after():
    scope, place = fluid.Scope(), fluid.CPUPlace()
    image = np.random.default_rng(0).random((1, 2, 3, 4))
    scope.var("Out").get_tensor()
    op = Operator("bilinear_interp", X="X", OutSize="Size", Out="Out", out_h=1, out_w=1)

    def run(*size):
        for name, array in (("X", image), ("Size", np.int32(size))):
            scope.var(name).get_tensor().set(array, place)
        op.run(scope, place)
        return np.array(scope.find_var("Out").get_tensor())

    first = run(5, 6)
    for _ in range(_REPEATED + 4):
        np.testing.assert_allclose(run(5, 6), first, rtol=1e-14)
    assert first.shape == (1, 2, 5, 6)
    assert run(3, 2).shape == (1, 2, 3, 2)
    np.testing.assert_allclose(run(3, 4), image, rtol=1e-14)
