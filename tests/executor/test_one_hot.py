"""The gradient of a softmax sums one product a row where a loss of one class a row left one."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.framework.view import program_view
from lowering.engine import one_hot
from lowering.engine.one_hot import OneHotRunner
from lowering.engine.runner import Runner
from lowering.engine.x64 import with_x64

ROWS, CLASSES = 6, 5
LABELS = np.array([[0], [4], [2], [-100], [2], [3]], np.int64)


def cross_entropy2(probability: Any, label: Any) -> Any:
    helper = fluid.layer_helper.LayerHelper("cross_entropy2")
    made = {slot: helper.create_variable_for_type_inference("float32") for slot in ("Y", "MatchX", "XShape")}
    helper.append_op(
        type="cross_entropy2",
        inputs={"X": [probability], "Label": [label]},
        outputs={slot: [variable] for slot, variable in made.items()},
    )
    return made["Y"]


def trained(loss: Any, *, label: Any = LABELS, **options: Any) -> tuple[Any, dict[str, np.ndarray], list[str]]:
    """A program with its gradients, what it is fed, and the names of its loss and of the gradient of x."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        x = fluid.data("x", [ROWS, CLASSES])
        x.stop_gradient = False
        given = fluid.data("label", label.shape, str(label.dtype))
        mean = fluid.layers.mean(loss(fluid.layers.softmax(x, **options), given))
        fluid.backward.append_backward(mean)
    x = 30 * np.random.default_rng(0).standard_normal((ROWS, CLASSES)).astype(np.float32)
    return program_view(main), {"x": x, "label": label}, [mean.name, "x@GRAD"]


def run(kind: type[Runner], view: Any, values: dict[str, np.ndarray], fetched: list[str]) -> Any:
    """The jaxpr of the program, and the values of ``fetched``."""

    def step(given: dict[str, Any]) -> list[Any]:
        env = kind(view, platform="cpu").run_block(0, dict(given))
        return [env[name] for name in fetched]

    found = with_x64(jax.jit(step), values)
    return str(with_x64(jax.make_jaxpr(step), values)), [np.asarray(value) for value in found]


def soft(probability: Any, label: Any) -> Any:
    return fluid.layers.cross_entropy(probability, label, soft_label=True)


def twice(probability: Any, label: Any) -> Any:
    return fluid.layers.cross_entropy(probability, label) + fluid.layers.square(
        fluid.layers.reduce_max(probability, -1)
    )


@pytest.mark.parametrize("loss", [fluid.layers.cross_entropy, cross_entropy2])
def test_gradients_have_the_bits_of_a_sum_over_all_classes(loss: Any) -> None:
    program = trained(loss)
    jaxpr, ours = run(OneHotRunner, *program)
    plain, expected = run(Runner, *program)
    for value, other in zip(ours, expected, strict=True):
        np.testing.assert_array_equal(value, other)
    assert not ours[1][3].any()  # the label that is ignored
    assert np.abs(ours[1]).max() > 1e-3
    assert jaxpr.count("reduce_sum") == plain.count("reduce_sum") - 1


@pytest.mark.parametrize("row", [0, 3])
def test_a_row_of_nan_stays_one(row: int) -> None:
    view, values, fetched = trained(fluid.layers.cross_entropy)
    values["x"][row, 1] = np.nan
    results = [run(kind, view, values, fetched)[1] for kind in (OneHotRunner, Runner)]
    np.testing.assert_array_equal(results[0][1], results[1][1])
    assert np.isnan(results[0][1][row]).all()


@pytest.mark.parametrize(
    ("loss", "options", "label"),
    [
        (soft, {}, np.full((ROWS, CLASSES), 0.2, np.float32)),
        (twice, {}, LABELS),
        (fluid.layers.cross_entropy, {"axis": 0}, LABELS),
    ],
    ids=["probabilities as labels", "another gradient added", "classes along another axis"],
)
def test_other_gradients_are_summed_over_all_classes(loss: Any, options: dict[str, int], label: np.ndarray) -> None:
    program = trained(loss, label=label, **options)
    jaxpr, ours = run(OneHotRunner, *program)
    plain, expected = run(Runner, *program)
    assert jaxpr.count("reduce_sum") == plain.count("reduce_sum") > 0
    for value, other in zip(ours, expected, strict=True):
        np.testing.assert_array_equal(value, other)


def test_ragged_rows_with_room_have_the_gradients_of_exact_ones(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        words, label = (fluid.data(n, [None, 1], "int64", lod_level=1) for n in ("words", "label"))
        embedded = fluid.layers.embedding(words, [9, CLASSES], param_attr="table")
        loss = fluid.layers.mean(fluid.layers.cross_entropy(fluid.layers.softmax(embedded), label))
        fluid.optimizer.SGD(1.0).minimize(loss)
    exe, taken = fluid.Executor(fluid.CPUPlace()), []
    monkeypatch.setattr(one_hot, "_at", lambda label, x, at=one_hot._at: taken.append(x.shape[0]) or at(label, x))
    exe.run(startup)
    table = np.array(fluid.global_scope().find_var("table").get_tensor())
    for lengths in ([3, 2], [1, 4, 6], [2]):
        count = sum(lengths)
        fed = {"words": rng.integers(0, 9, (count, 1)), "label": rng.integers(0, CLASSES, (count, 1))}
        exe.run(main, {n: fluid.create_lod_tensor(v, [lengths], fluid.CPUPlace()) for n, v in fed.items()}, [loss])
        rows = np.exp(table.astype(np.float64)[fed["words"][:, 0]])
        gradient = rows / rows.sum(1, keepdims=True) - np.eye(CLASSES)[fed["label"][:, 0]]
        np.add.at(table, fed["words"][:, 0], (-gradient / count).astype(np.float32))
        np.testing.assert_allclose(np.array(fluid.global_scope().find_var("table").get_tensor()), table, atol=1e-5)
    assert taken
