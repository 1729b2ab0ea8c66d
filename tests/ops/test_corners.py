"""Single ops at the corners of their attributes: what Paddle 1.8.5 gives there, worked out by hand or in NumPy."""

from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
import lowering
from fluidjax.base.errors import EnforceNotMet
from lowering import OpError

NAN, INF = float("nan"), float("inf")


def run(
    op: str,
    inputs: dict[str, Any],
    attrs: dict[str, Any],
    outputs: dict[str, int],
    weights: dict[str, Any] | None = None,
) -> list[np.ndarray]:
    """The outputs of one op, by slot; with ``weights`` the gradients of its float inputs, outputs weighed so.

    ``weights``: slot -> the gradient of its first variable.
    """
    main, scope, feed = fluid.Program(), fluid.Scope(), {}
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        block = main.global_block()

        def bound(slot: str, k: int, value: Any) -> Any:
            value = np.asarray(value)
            feed[f"{slot}{k}"] = value
            stop = value.dtype.kind != "f"
            return block.create_var(name=f"{slot}{k}", shape=value.shape, dtype=value.dtype.name, stop_gradient=stop)

        lists = {slot: v if isinstance(v, list) else [v] for slot, v in inputs.items()}
        ins = {slot: [bound(slot, k, v) for k, v in enumerate(vs)] for slot, vs in lists.items()}
        outs = {s: [block.create_var(name=f"{s}_{k}") for k in range(n)] for s, n in outputs.items()}
        block.append_op(type=op, inputs=ins, outputs=outs, attrs=attrs)
        fetch = [v for vs in outs.values() for v in vs]
        if weights is not None:
            targets = [outs[slot][0] for slot in weights]
            given = [block.create_var(name=t.name + "w", shape=t.shape, dtype=t.dtype) for t in targets]
            feed |= {w.name: value for w, value in zip(given, weights.values(), strict=True)}
            wanted = [v for vs in ins.values() for v in vs if not v.stop_gradient]
            fetch = fluid.gradients(targets, wanted, given)
        return fluid.Executor(fluid.CPUPlace()).run(main, feed=feed, fetch_list=fetch, scope=scope)


@pytest.mark.parametrize(
    ("text", "dtype", "want"),
    [
        ("-1e3", "int64", -1),  # an int64 is read as far as the text looks like one
        ("-1e3", "int32", -1000),  # all else by way of a double
        ("1.7", "int64", 1),
        ("9007199254740993", "int64", 9007199254740993),
        ("4294967296", "int32", -(2**31)),
        ("-1e3", "float32", -1000.0),
    ],
)
def test_constants_written_as_text(text: str, dtype: str, want: float) -> None:
    number = {"int32": 2, "int64": 3, "float32": 5}[dtype]
    (out,) = run("fill_constant", {}, {"shape": [2], "dtype": number, "value": 3.0, "str_value": text}, {"Out": 1})
    assert out.dtype == dtype and out.tolist() == [want, want]


def test_infinity_and_nan_as_text() -> None:
    """A listed deviation: Paddle gives 0 for both, and for words."""
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        values = [fluid.layers.fill_constant([1], "float32", v) for v in (float("-inf"), NAN)]
        out = fluid.Executor(fluid.CPUPlace()).run(fluid.default_main_program(), fetch_list=values)
    assert out[0][0] == -np.inf and np.isnan(out[1][0])
    with pytest.raises(OpError, match="fill_constant"):
        run("fill_constant", {}, {"shape": [1], "dtype": 5, "str_value": "many"}, {"Out": 1})


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_infinities_are_filled_in_like_others(value: float) -> None:
    """Masks of attention that Paddle 2 exports."""
    filled = lowering.get_op("fill_any_like")(np.zeros((2, 3), np.float32), value=value)
    np.testing.assert_array_equal(filled, np.full((2, 3), value, np.float32))


@pytest.mark.parametrize("op", ["hard_shrink", "softshrink", "thresholded_relu"])
def test_what_cuts_off_keeps_nan(op: str) -> None:
    (out,) = run(op, {"X": np.array([NAN, 0.1, 3.0], np.float32)}, {}, {"Out": 1})
    assert np.isnan(out[0]) and out[1] == 0 and out[2] > 0


def test_nan_in_a_clipped_gradient_shows_everywhere() -> None:
    (out,) = run("clip_by_norm", {"X": np.array([1.0, NAN, 0.5], np.float32)}, {"max_norm": 1.0}, {"Out": 1})
    assert np.isnan(out).all()


@pytest.mark.parametrize("size", [0.0, 1e-30])
def test_a_gradient_without_norm_is_not_clipped(size: float) -> None:
    """A listed deviation: where the squares add up to zero, Paddle divides by it and its gradient is NaN."""
    x = np.full([3, 2], size, np.float32)
    (out,) = run("clip_by_norm", {"X": x}, {"max_norm": 0.1}, {"Out": 1})
    np.testing.assert_array_equal(out, x)


@pytest.mark.parametrize("op", ["reduce_max", "reduce_min"])
def test_an_extremum_with_nan_is_nan(op: str) -> None:
    """A listed deviation: in Paddle it depends on where the NaN stands."""
    x = np.array([[NAN, 1.0, 2.0], [1.0, NAN, 2.0], [1.0, 2.0, NAN], [1.0, 2.0, 3.0]], np.float32)
    (out,) = run(op, {"X": x}, {"dim": [1]}, {"Out": 1})
    assert np.isnan(out).tolist() == [True, True, True, False]


def test_reductions_of_five_dims(rng) -> None:
    """A listed deviation: Paddle computes nothing."""
    x = rng.normal(size=(2, 3, 2, 2, 2)).astype("float32")
    (out,) = run("reduce_sum", {"X": x}, {"dim": [0, -2], "keep_dim": True}, {"Out": 1})
    np.testing.assert_allclose(out, x.sum((0, 3), keepdims=True), rtol=1e-5)
    (out,) = run("reduce_min", {"X": x[0, 0, 0]}, {"dim": [0, 1]}, {"Out": 1})
    assert out == [x[0, 0, 0].min()]


def test_comparisons_broadcast_both_operands() -> None:
    """A listed deviation: in Paddle the result is [3, 1]."""
    column, row = np.array([[1], [2], [3]]), np.array([1, 2, 3])
    (out,) = run("less_equal", {"X": column, "Y": row}, {}, {"Out": 1})
    np.testing.assert_array_equal(out, column <= row)


@pytest.mark.parametrize("origin_mode", [False, True])
def test_fusion_gru_follows_origin_mode(rng, origin_mode: bool) -> None:
    """A listed deviation: Paddle computes the same in both modes."""
    shapes = {"x": (4, 3), "wx": (3, 6), "wh": (2, 6)}
    values = {n: rng.normal(size=s).astype("float32") for n, s in shapes.items()}
    feed = {**values, "x": fluid.create_lod_tensor(values["x"], [[3, 1]], fluid.CPUPlace())}
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        block = fluid.default_main_program().global_block()
        x, wx, wh = (fluid.data(n, [None, 3] if n == "x" else s, lod_level=int(n == "x")) for n, s in shapes.items())
        hidden = {op: block.create_var(name=op, dtype="float32") for op in ("gru", "fusion_gru")}
        projected, rest = fluid.layers.mul(x, wx), ("BatchGate", "BatchResetHiddenPrev", "BatchHidden")
        others = {
            slot: block.create_var(name=slot) for slot in (*rest, "XX", "ReorderedH0", "BatchedInput", "BatchedOut")
        }
        plain = {"Hidden": hidden["gru"], **{slot: others[slot] for slot in rest}}
        fused = {"Hidden": hidden["fusion_gru"], **{slot: v for slot, v in others.items() if slot not in rest}}
        attrs = {"origin_mode": origin_mode}
        block.append_op(type="gru", inputs={"Input": projected, "Weight": wh}, outputs=plain, attrs=attrs)
        inputs = {"X": x, "WeightX": wx, "WeightH": wh}
        block.append_op(type="fusion_gru", inputs=inputs, outputs=fused, attrs=attrs)
        fetch = list(hidden.values())
        got = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=fetch, return_numpy=False)
    np.testing.assert_allclose(np.array(got[1]), np.array(got[0]), rtol=1e-5, atol=1e-6)


def test_declared_shapes_where_dims_are_unknown() -> None:
    """Operands of one shape give that shape whatever the axis; parts of a concat tell each other's dims."""
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        column, other = fluid.data("a", [None, 1]), fluid.data("b", [None, 1])
        assert fluid.layers.elementwise_add(column, other, axis=1).shape == (-1, 1)
        left, right = fluid.data("l", [4, None, 12]), fluid.data("r", [None, 4, 12])
        assert fluid.layers.concat([left, right], axis=2).shape == (4, 4, 24)
        cells = fluid.data("c", [3, 2, 9, 6, 8])
        sizes = [fluid.layers.fill_constant([1], "int32", n) for n in (32, 16)]
        assert fluid.layers.resize_trilinear(cells, [*sizes, 8]).shape == (3, 2, -1, -1, 8)
        planes = fluid.data("p", [None, 8, None, None])  # 8 x -1 x -1 values of a row: a weight of 8 rows, as in Fluid
        assert fluid.layers.fc(planes, 3).shape == (-1, 3)
        maps, sizes = fluid.data("m", [1, 27, 2, 2]), fluid.data("s", [None, 2], dtype="int32")
        boxes, scores = fluid.layers.yolo_box(maps, sizes, [10, 13, 16, 30, 33, 23], 4, 0.01, 32)
        assert (boxes.shape, scores.shape) == ((1, 12, 4), (1, 12, 4))
        maps_of_any, one = fluid.data("n", [None, 27, 2, 2]), fluid.data("o", [1, 2], dtype="int32")
        assert fluid.layers.yolo_box(maps_of_any, one, [10, 13, 16, 30, 33, 23], 4, 0.01, 32)[0].shape == (-1, 12, 4)
        for height, width, cells in ((None, None, -1), (None, 13, -39)):
            head = fluid.data(f"h{cells}", [None, 27, height, width])
            images = fluid.layers.ones([2, 2], "int32")  # a batch that is known, as PP-YOLO's loss writes it
            found = fluid.layers.yolo_box(head, images, [10, 13, 16, 30, 33, 23], 4, 0.01, 32)
            assert [v.shape for v in found] == [(-1, cells, 4)] * 2
        window = fluid.data("w", [None, 27, 2, 1])
        assert fluid.layers.crop(maps, window).shape == (-1, 27, 2, 1)
        chosen = fluid.layers.multiplex([column, column], fluid.layers.zeros([6, 1], "int32"))
        assert chosen.shape == (-1, 1)


@pytest.mark.parametrize("level", [0, 1])
def test_declared_levels_of_parts_are_those_of_fluid(level) -> None:
    """Parts of rows have none, however the rows' axis is written; regions keep the level of those given."""
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 4], lod_level=level)
        of = {dim: {part.lod_level for part in fluid.layers.split(x, 2, dim)} for dim in (0, 1, -1, -2)}
        assert of == {0: {0}, 1: {level}, -1: {level}, -2: {0}}
        axis = fluid.layers.fill_constant([1], "int32", 0)
        assert [part.lod_level for part in fluid.layers.split(x, 2, axis)] == [level, level]
        regions, order = fluid.layers.distribute_fpn_proposals(x, 2, 3, 3, 224)
        assert [part.lod_level for part in (*regions, order)] == [level, level, 0]
        scores = [fluid.data(f"s{i}", [None, 1], lod_level=1) for i in range(2)]
        assert fluid.layers.collect_fpn_proposals([x, x], scores, 2, 3, 10).lod_level == level
        ids = fluid.layers.sampling_id(fluid.layers.softmax(x))
        assert (ids.shape, ids.lod_level) == ((-1,), level)


@pytest.mark.parametrize(
    ("start", "end", "step", "want"),
    [
        *[(5, 1, -2, [4, 2]), (5, 0, -3, [4, 1]), (10, -10, -2, [4, 2, 0]), (-1, -6, -2, [5, 3, 1])],
        *[(3, -5, -1, [3, 2]), (5, -1, -1, [5, 4, 3, 2, 1, 0]), (4, -1, -2, [4, 2, 0]), (9, -1, -4, [4, 0])],
    ],
)
def test_strided_slices_backwards_begin_at_the_end(start: int, end: int, step: int, want: list[int]) -> None:
    """Recorded from Paddle; NumPy's x[5:1:-2] is [5, 3]."""
    attrs = {"axes": [0], "starts": [start], "ends": [end], "strides": [step], "infer_flags": [1]}
    x, weights = np.arange(6, dtype=np.float32), np.arange(1.0, len(want) + 1, dtype=np.float32)
    (out,) = run("strided_slice", {"Input": x}, attrs, {"Out": 1})
    assert out.tolist() == want
    (grad,) = run("strided_slice", {"Input": x}, attrs, {"Out": 1}, {"Out": weights})
    np.testing.assert_array_equal(grad[want], weights)


@pytest.mark.parametrize("capped", [False, True])
def test_a_ragged_gradient_that_is_given_counts_its_rows_only(rng, capped: bool) -> None:
    """Padding rows of what is fed are copies of a row; as a gradient they must not count."""
    rows = {n: rng.normal(size=(5, width)) for n, width in (("x", 3), ("t", 2))}
    lod = {n: fluid.create_lod_tensor(v, [[2, 0, 3]], fluid.CPUPlace()) for n, v in rows.items()}
    w = rng.normal(size=(3, 2))
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x, t = (fluid.data(n, [None, v.shape[1]], "float64", lod_level=1) for n, v in rows.items())
        weight = fluid.data("w", [3, 2], "float64")
        weight.stop_gradient = False
        y = fluid.layers.mul(x, weight)
        y = fluid.layers.scale(y, 2.0) if capped else y  # its gradient op is no *_grad
        grads = fluid.gradients([y], [weight], target_gradients=[t])
        executor = fluid.Executor(fluid.CPUPlace())
        (got,) = executor.run(fluid.default_main_program(), feed={**lod, "w": w}, fetch_list=grads)
    np.testing.assert_allclose(got, (1 + capped) * rows["x"].T @ rows["t"], rtol=1e-10)


def test_lstmp_projects_through_the_activation_of_the_cell(rng) -> None:
    """Recorded from Paddle: any ``proj_activation`` but identity stands for ``cell_activation``."""
    x = fluid.create_lod_tensor(rng.normal(size=(4, 12)).astype("float32"), [[4]], fluid.CPUPlace())

    def projected(**activations: str) -> np.ndarray:
        with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
            fixed = fluid.ParamAttr(initializer=fluid.initializer.Constant(0.3))
            data = fluid.data("x", [None, 12], lod_level=1)
            out, _ = fluid.layers.dynamic_lstmp(data, 12, 2, param_attr=fixed, use_peepholes=False, **activations)
            executor = fluid.Executor(fluid.CPUPlace())
            executor.run(fluid.default_startup_program())
            return np.array(executor.run(feed={"x": x}, fetch_list=[out], return_numpy=False)[0])

    linear = projected(proj_activation="identity", cell_activation="sigmoid")
    assert not np.allclose(linear, projected(proj_activation="tanh", cell_activation="sigmoid"))
    for act in ("tanh", "relu"):
        want = projected(proj_activation="sigmoid", cell_activation="sigmoid")
        np.testing.assert_array_equal(projected(proj_activation=act, cell_activation="sigmoid"), want)


@pytest.mark.parametrize("op", ["stack", "concat"])
def test_the_first_of_several_inputs_gives_the_lod(rng, op: str) -> None:
    """Recorded from Paddle."""
    ragged = fluid.create_lod_tensor(rng.random((5, 3), np.float32), [[2, 0, 3]], fluid.CPUPlace())
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x, y = fluid.data("x", [None, 3], lod_level=1), fluid.data("y", [None, 3])
        join = getattr(fluid.layers, op)
        fetch, feed = [join([x, y], axis=1), join([y, x], axis=1)], {"x": ragged, "y": rng.random((5, 3), np.float32)}
        got = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=fetch, return_numpy=False)
    assert [v.lod() for v in got] == [[[0, 2, 2, 5]], []]


def test_slices_with_fewer_flags_than_axes() -> None:
    x = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4)
    bounds = {"axes": [0, 1, 2], "starts": [1, 0, 1], "ends": [2, 2, 4], "infer_flags": [1, 1]}
    (out,) = run("slice", {"Input": x}, {**bounds, "decrease_axis": [0]}, {"Out": 1})
    np.testing.assert_array_equal(out, x[1, :2, 1:])
    (out,) = run("strided_slice", {"Input": x}, {**bounds, "strides": [1, 1, 2]}, {"Out": 1})
    np.testing.assert_array_equal(out, x[1:2, :2, 1::2])


@pytest.mark.parametrize("width", [2, 6])
def test_known_numbers_are_divided_by_zero_without_a_warning(width: int) -> None:
    """A map's columns as detectors number them, from its width: the middle of two columns, 0.5, is 0 as an integer."""
    x = fluid.data("x", [None, 3, None, None])
    middle = (fluid.layers.shape(x)[3] - 1.0) / 2.0
    columns = fluid.layers.range(0, fluid.layers.shape(x)[3], 1, "float32") / middle
    feed = {"x": np.zeros((1, 3, 4, width), np.float32)}
    found = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[middle, columns])
    wanted = {2: [np.nan, np.inf], 6: [0, 0.5, 1, 1.5, 2, 2.5]}[width]  # of Paddle 1.8.5
    np.testing.assert_array_equal(found[1], np.array(wanted, np.float32))
    assert found[0].dtype == np.int32 and found[0] == (width - 1) // 2


@pytest.mark.parametrize("factor", [2.0, 3.0, 0.5, 1.7])
def test_a_power_is_right_to_two_units_in_the_last_place(rng, factor: float) -> None:
    """XLA multiplies where the factor is a small whole number; the C library's pow, which Paddle calls, rounds once."""
    x = rng.uniform(1, 2, (11, 17)).astype(np.float32)
    (out,) = run("pow", {"X": x}, {"factor": factor}, {"Out": 1})
    exact = x.astype(np.float64) ** np.float64(np.float32(factor))
    assert (np.abs(out - exact) <= 2 * np.spacing(exact.astype(np.float32))).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_floats_that_nearly_agree_are_equal(dtype: str) -> None:
    """|X - Y| < 1e-8, whatever their size, as in 1.8.5; there no infinity equals another."""
    pairs = [
        (0, 5e-9),
        (0, 2e-8),
        (1, 1 + 5e-9),
        (1e-9, -1e-9),
        (INF, INF),
        (INF, -INF),
        (NAN, NAN),
        (-INF, -INF),
        (0, 1),
    ]
    want = [True, False, True, True, True, False, False, True, False]
    x, y = np.array(pairs, dtype).T
    for op, expected in (("equal", want), ("not_equal", [not one for one in want])):
        (out,) = run(op, {"X": x, "Y": y}, {}, {"Out": 1})
        np.testing.assert_array_equal(out, expected)
        with fluid.dygraph.guard():
            left, right = fluid.dygraph.to_variable(x), fluid.dygraph.to_variable(y)
            np.testing.assert_array_equal((left == right if op == "equal" else left != right).numpy(), expected)
    same = [bool(run("equal_reduce", {"X": x[i : i + 1], "Y": y[i : i + 1]}, {}, {"Out": 1})[0][0]) for i in range(3)]
    assert same == want[:3]


def test_integers_are_equal_exactly() -> None:
    x = np.array([2**53, 2**53 + 1, -1], "int64")
    (out,) = run("equal", {"X": x, "Y": x[[0, 0, 2]]}, {}, {"Out": 1})
    assert out.tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (lambda x: fluid.layers.cumsum(x, axis=2), r"axis must be from -2 to 1, received 2"),
        (lambda x: fluid.layers.unstack(x, axis=0, num=3), r"num must be the size of X along axis 0, received 3"),
    ],
    ids=["cumsum", "unstack"],
)
@pytest.mark.parametrize("eager", [False, True])
def test_attributes_that_an_op_cannot_follow_are_refused(layer: Any, words: str, eager: bool) -> None:
    x = np.ones((2, 3), np.float32)
    with pytest.raises(EnforceNotMet, match=words):
        if eager:
            with fluid.dygraph.guard():
                found = layer(fluid.dygraph.to_variable(x))
                np.asarray((found[0] if isinstance(found, list) else found).numpy())
        else:
            main = fluid.Program()
            with fluid.program_guard(main, fluid.Program()):
                found = layer(fluid.data("x", [2, 3]))
            fluid.Executor(fluid.CPUPlace()).run(main, {"x": x}, [found])
