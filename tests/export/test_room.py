"""Results whose number of rows only values decide: with room for all of them, and their number."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest
from jax import export

import fluidjax as fluid
from fluidjax.eager.first.evaluator import Evaluator, Meter, Unknown
from fluidjax.export import to_jax
from fluidjax.export.files import Model
from lowering.engine.x64 import in_x64
from lowering.registry import get_op
from lowering.values import LoDArray, TensorArray
from tests.here import PLATFORM


def boxes(*shape: int) -> np.ndarray:
    corner = np.random.uniform(0, 1, (*shape, 2))
    return np.concatenate([corner, corner + np.random.uniform(-0.05, 0.5, (*shape, 2))], -1).astype("float32")


def coarse(*shape: int) -> np.ndarray:
    """Scores among which many are equal."""
    return np.random.choice(np.linspace(0, 1, 9), shape).astype("float32")


def padded(value: LoDArray, room: int) -> LoDArray:
    data = np.concatenate([value.data, np.repeat(value.data[:1], room, 0)])
    return LoDArray(data, value.lod, np.asarray(len(value.data), np.int32))


def flat(value) -> list:
    return [part for item in value for part in flat(item)] if isinstance(value, (list, tuple)) else [value]


def both(type: str, *values, rtol: float = 0, **attrs) -> None:
    """The op on the host, and with room under jit, give the same rows."""
    definition = get_op(type)
    attrs = {s.param: s.default for s in definition.attrs.values() if s.param} | attrs
    wanted = flat(definition.fn(*values, **attrs))
    given = jax.tree.map(lambda v: padded(v, 3) if isinstance(v, LoDArray) else v, values, is_leaf=_is_lod)
    rule = definition.roomy
    names = {spec.param: attrs[spec.param] for spec in rule.attrs}
    found = flat(in_x64(lambda: compiled(lambda *taken: rule.fn(*taken[: len(rule.inputs)], **names), *given))())
    for got, want in zip(found, wanted, strict=False):
        if isinstance(got, LoDArray):
            lod = want.lod if isinstance(want, LoDArray) else ()
            assert [np.asarray(level).tolist() for level in got.lod] == [v.tolist() for v in lod]
            rows = got.rows()
            np.testing.assert_array_equal(got.data[rows:], np.broadcast_to(got.data[:1], got.shape)[rows:])
            got, want = got.data[:rows], want.data if isinstance(want, LoDArray) else want
        np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)


def compiled(function, *values):
    """What a function gives under jit: its trace on NumPy, since it runs once, or compiled as quickly as may be."""
    traced = jax.jit(function).trace(*values)
    try:
        with np.errstate(all="ignore"):
            leaves = Evaluator(traced.jaxpr, Meter()).run([np.asarray(leaf) for leaf in jax.tree.leaves(values)])
    except Unknown:
        quick = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
        return jax.device_get(traced.lower().compile(quick)(*values))
    return jax.tree.unflatten(jax.tree.structure(traced.out_info), leaves)


def _is_lod(value) -> bool:
    return isinstance(value, LoDArray)


NMS = {"score_threshold": 0.1, "nms_threshold": 0.3, "nms_eta": 1.0, "normalized": True}


def test_suppression():
    both("multiclass_nms2", boxes(2, 9), coarse(2, 3, 9), **NMS, background_label=-1, nms_top_k=4, keep_top_k=3)


def test_adaptive_suppression_of_boxes_by_class():
    lod = (np.array([0, 2, 9], np.int32),)
    values = LoDArray(boxes(9, 3), lod), LoDArray(coarse(9, 3), lod)
    attrs = NMS | {"nms_eta": 0.8, "nms_threshold": 0.7, "normalized": False}
    both("multiclass_nms2", *values, **attrs, background_label=0, nms_top_k=8, keep_top_k=5)


def test_neighbours_are_merged():
    near = np.repeat(boxes(2, 5), 2, axis=1) + np.random.uniform(0, 0.02, (2, 10, 4)).astype("float32")
    attrs = NMS | {"nms_eta": 0.9, "nms_threshold": 0.6, "score_threshold": 0.3}
    both(
        "locality_aware_nms", near, coarse(2, 3, 10), **attrs, background_label=0, nms_top_k=6, keep_top_k=4, rtol=1e-5
    )


def test_levels_of_detections():
    """Scores that are equal across levels and classes; the last level takes all above 0."""
    anchors = [20 * boxes(6), 20 * boxes(4)]
    deltas = [np.random.uniform(-0.3, 0.3, (2, n, 4)).astype("float32") for n in (6, 4)]
    info = np.array([[20, 18, 1], [31, 40, 2.5]], np.float32)
    attrs = {"score_threshold": 0.3, "nms_top_k": 9, "nms_threshold": 0.4, "nms_eta": 1.0}
    for keep in (-1, 5):
        scores = [coarse(2, n, 3) for n in (6, 4)]
        both("retinanet_detection_output", deltas, scores, anchors, info, **attrs, keep_top_k=keep, rtol=1e-5)


def test_matching():
    lod = (np.array([0, 3, 7], np.int32),)
    dist = LoDArray(coarse(7, 5), lod)
    for kind in ("bipartite", "per_prediction"):
        both("bipartite_match", dist, match_type=kind, dist_threshold=0.5)
    match = np.array([[0, -1, 2, -1, -1], [-1, 3, -1, -1, 1]], np.int32)
    loss, found = coarse(2, 5), coarse(2, 5) / 2
    attrs = {"neg_pos_ratio": 1.5, "neg_dist_threshold": 0.4, "sample_size": 3}
    for kind in ("max_negative", "hard_example"):
        both("mine_hard_examples", loss, match, found, loss[::-1].copy(), mining_type=kind, **attrs)
    negative = LoDArray(np.array([[1], [3], [0]], np.int32), (np.array([0, 1, 3], np.int32),))
    both("target_assign", LoDArray(coarse(7, 1, 4), lod), match, negative, mismatch_value=2)


def test_a_share_of_negatives_is_counted_in_float32():
    """7 of 10 is 7: 0.7 is a little less than 7/10 in float32, and 10 times it is rounded to 7."""
    match = np.array([[0] * 10 + [-1] * 10], np.int32)
    loss, none = np.arange(20, dtype=np.float32)[None], np.zeros((1, 20), np.float32)
    attrs = {"neg_dist_threshold": 0.5, "sample_size": 0, "mining_type": "max_negative"}
    rule = get_op("mine_hard_examples").fn
    assert len(rule(loss, match, none, neg_pos_ratio=float(np.float32(0.7)), **attrs)[0].data) == 7


def test_places_and_elements_under_a_mask():
    x, mask = coarse(4, 3), np.random.rand(4, 3) > 0.5
    both("where_index", mask)
    both("where_index", mask * x)
    both("masked_select", x, mask)
    both("masked_select", x, np.zeros(3, bool))
    for chosen in (mask, mask[0]):  # the latter broadcast
        count = int(np.broadcast_to(chosen, x.shape).sum())
        rows = np.random.uniform(1, 2, count).astype("float32")
        wanted = np.zeros_like(x)
        np.place(wanted, np.broadcast_to(chosen, x.shape), rows)
        back = get_op("masked_select").gradient.roomy.fn
        more = LoDArray(np.append(rows, [7] * (x.size - count)).astype("float32"), (), np.int32(count))
        np.testing.assert_array_equal(compiled(back, x, chosen, more), wanted)


def test_distinct_values():
    x, whole = np.round(3 * coarse(7)), {"dtype": 3}
    both("unique", x, **whole, is_sorted=False)
    both("unique", np.random.randint(0, 2, (6, 3)), **whole, is_sorted=True, axis=[0])
    both("unique_consecutive", np.round(x / 2), **whole)
    rows = padded(LoDArray(x), 2)
    distinct = partial(get_op("unique").roomy.fn, is_sorted=True, axis=(), dtype=3)
    values, places, _, counts = in_x64(lambda: compiled(distinct, rows))()
    wanted = np.unique(x, return_inverse=True, return_counts=True)
    for got, want in zip((values, places, counts), wanted, strict=True):
        np.testing.assert_array_equal(got.data[: got.nrows], want)


@pytest.mark.parametrize("version", ["", "_v2"])
def test_proposals(version):
    """Two images, one without a large enough box."""
    anchors = 20 * boxes(2, 3, 2)
    scores, deltas = (
        np.random.uniform(0, 1, (2, 2, 2, 3)).astype("float32"),
        0.3 * boxes(2, 2, 3, 2).reshape(2, 2, 3, 8),
    )
    info = np.array([[20, 20, 1], [0.5, 0.5, 0.1]], np.float32)[:, : 2 if version else 3]
    values = scores, deltas.transpose(0, 3, 1, 2), info, anchors, np.full_like(anchors, 0.9)
    attrs = {"pre_nms_topN": 9, "nms_thresh": 0.5, "min_size": 3.0, "eta": 0.9} | (
        {"pixel_offset": False} if version else {}
    )
    both(f"generate_proposals{version}", *values, **attrs, post_nms_topN=3, rtol=1e-5)


def test_levels_of_a_pyramid():
    """Sizes at the edges of levels, and just below them, where rounding decides."""
    ends = 2.0 ** np.arange(2, 11)[:, None] * np.random.choice([1, 1 - 6e-8, 0.9], (9, 2))
    regions = np.concatenate([np.zeros((9, 2)), ends], 1).astype("float32")
    attrs = {"min_level": 2, "max_level": 5, "refer_level": 4, "refer_scale": 32, "pixel_offset": False}
    both("distribute_fpn_proposals", regions, np.array([4, 0, 5], np.int32), **attrs)
    values = LoDArray(regions, (np.array([0, 4, 4, 9], np.int32),))
    both("distribute_fpn_proposals", values, None, **attrs)
    more = LoDArray(boxes(3), (np.array([0, 0, 1, 3], np.int32),))
    scores = [LoDArray(coarse(v.capacity, 1), v.lod) for v in (values, more)]
    both("collect_fpn_proposals", [values, more], scores, [], post_nms_topN=5)
    numbers = [np.diff(v.lod[0]) for v in (values, more)]
    both("collect_fpn_proposals", [regions, more.data], [v.data for v in scores], numbers, post_nms_topN=50)


def test_the_best_rows_and_branches_of_different_lengths():
    rows = LoDArray(coarse(4))
    best = partial(get_op("top_k_v2").roomy.fn, k=None, k_=3, axis=0, largest=False)
    values, places = in_x64(lambda: compiled(best, padded(rows, 2)))()
    np.testing.assert_array_equal(values.data, np.sort(rows.data)[:3])
    np.testing.assert_array_equal(places.data, np.argsort(rows.data, stable=True)[:3])
    branches = get_op("select_input").roomy.fn
    for chosen, want in enumerate([rows.data, rows.data[:2]]):
        got = compiled(branches, [padded(rows, 2), rows.data[:2]], np.int32(chosen))
        np.testing.assert_array_equal(got.data[: got.nrows], want)
        assert got.capacity == 6


def test_elements_that_a_loop_wrote():
    buffer = coarse(4, 2, 3)
    join = partial(
        get_op("tensor_array_to_tensor").roomy.fn, TensorArray(None, buffer, np.array([3], np.int32)), axis=0, ctx=None
    )
    joined = jax.device_get([join(use_stack=True), join(use_stack=False)])
    for (got, sizes), want in zip(joined, [buffer[:3], buffer[:3].reshape(6, 3)], strict=True):
        np.testing.assert_array_equal(got.data[: got.nrows], want)
        np.testing.assert_array_equal(sizes.data[: sizes.nrows], [2, 2, 2])


def test_a_path_of_tags_is_as_long_as_its_input():
    scores, moves = coarse(2, 5, 4), coarse(4, 4)
    definition, length = get_op("viterbi_decode"), np.array([3, 1])
    best, path = in_x64(lambda: definition.fn(scores, moves, length, include_bos_eos_tag=True))()
    roomy = in_x64(
        lambda: compiled(partial(definition.roomy.fn, length=length, include_bos_eos_tag=True), scores, moves)
    )()
    np.testing.assert_array_equal(roomy[0], best)
    np.testing.assert_array_equal(roomy[1], np.pad(path, ((0, 0), (0, 2))))


@pytest.mark.parametrize("limit", [0.1, 2.0], ids=["some", "none"])
def test_detection_models(tmp_path, limit):
    """Rows, offsets and their number in each door; without a box no rows, where Fluid has one of [[-1]]."""
    at, scores = fluid.data("at", [None, 9, 4]), fluid.data("scores", [None, 3, 9])
    found = fluid.layers.multiclass_nms(at, fluid.layers.fc(scores, 9, 2, act="sigmoid"), limit, 8, 5)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    fluid.io.save_inference_model(str(tmp_path), ["at", "scores"], [found], exe)
    feed = {"at": boxes(2, 9), "scores": coarse(2, 3, 9)}
    (wanted,) = exe.run(feed=feed, fetch_list=[found], return_numpy=False)
    function, parameters = to_jax(str(tmp_path))
    (got,) = compiled(function, parameters, feed)
    if limit > 1:
        assert (int(got.nrows), got.lod[0].tolist(), np.array(wanted).tolist()) == (0, [0, 0, 0], [[-1]])
    else:
        assert got.lod[0].tolist() == wanted.lod()[0]
        np.testing.assert_allclose(got.data[: got.nrows], np.array(wanted), rtol=1e-6)
    model = Model(tmp_path, None, None)
    if limit > 1:
        assert model.write(str(tmp_path / "c"), "c", batch=2)  # compared with the Executor
    else:
        files = model.write(str(tmp_path / "hlo"), "stablehlo", platforms=[PLATFORM])
        exported = export.deserialize(bytearray(Path(files[0]).read_bytes()))
        (told,) = jax.tree.unflatten(exported.out_tree, exported.out_avals)
        shapes = {name: [str(part.shape) for part in jax.tree.leaves(value)] for name, value in told.items()}
        assert shapes == {"data": ["(5*batch, 6)"], "nrows": ["()"], "lod": ["(batch + 1,)"]}


def test_rows_under_a_mask_go_through_a_layer():
    """As programs of Paddle 2 select rows: nonzero, flatten, gather, a matrix product."""
    block = fluid.default_main_program().global_block()
    x, weights = fluid.data("x", [None, 4]), fluid.layers.create_parameter([4, 3], "float32", "w")
    chosen = fluid.layers.where(fluid.layers.reduce_sum(x, 1) > 0)
    flat, out = (block.create_var(name=name, dtype=kind) for name, kind in (("flat", "int64"), ("out", "float32")))
    shape = block.create_var(name="shape", dtype="int64")
    axes = {"start_axis": 0, "stop_axis": -1}
    block.append_op("flatten_contiguous_range", {"X": chosen}, {"Out": flat, "XShape": shape}, axes)
    block.append_op("matmul_v2", {"X": fluid.layers.gather(x, flat), "Y": weights}, {"Out": out})
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    function, parameters = to_jax(fluid.default_main_program(), ["x"], [flat, out])
    given = {"x": np.random.uniform(-1, 1, (5, 4)).astype("float32")}
    for got, want in zip(
        compiled(function, parameters, given), exe.run(feed=given, fetch_list=[flat, out]), strict=True
    ):
        np.testing.assert_allclose(got.data[: got.nrows], want, rtol=1e-6)
