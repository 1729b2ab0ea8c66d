"""Shape inference computes no values of size: unknown image and text sizes cost neither memory nor work."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import fluidjax as fluid
import lowering
from fluidjax import layers, testing
from fluidjax.testing.run import bind
from lowering.dtypes import from_numpy
from lowering.program import VarView
from lowering.values import LoDArray
from tests.effort import at_most_calls

MEGABYTES, CALLS = 8, 1_000_000


def image(name="image", channels=3):
    return fluid.data(name, [None, channels, None, None])


def feature():
    return image("feature", 8)


def lengths():
    return fluid.data("lengths", [None], "int64")


BUILDERS = {
    "anchor_generator": lambda: layers.anchor_generator(
        feature(), [32.0, 64.0, 128.0, 256.0], [0.5, 1.0, 2.0], [0.1, 0.1, 0.2, 0.2], [16.0, 16.0]
    ),
    "prior_box": lambda: layers.prior_box(feature(), image(), [32.0, 64.0], [64.0, 96.0], [1.0, 2.0], flip=True),
    "density_prior_box": lambda: layers.density_prior_box(
        feature(), image(), densities=[4, 2], fixed_sizes=[32.0, 64.0], fixed_ratios=[1.0], flatten_to_2d=True
    ),
    "pool2d": lambda: layers.pool2d(image(), 3, "avg", 2, 1),
    "adaptive_pool2d": lambda: layers.adaptive_pool2d(image(), [7, 7], "avg"),
    "resize_bilinear": lambda: layers.resize_bilinear(image(), scale=2.0),
    "roi_align": lambda: layers.roi_align(feature(), fluid.data("rois", [None, 4], lod_level=1), 7, 7),
    "im2sequence": lambda: layers.im2sequence(image(), 3, 2),
    "add_position_encoding": lambda: layers.add_position_encoding(fluid.data("text", [None, None, 512]), 1.0, 1.0),
    "chunk_eval": lambda: layers.chunk_eval(
        fluid.data("found", [None, None], "int64"), fluid.data("tags", [None, None], "int64"), "IOB", 3, None, lengths()
    )[0],
    "sequence_mask": lambda: layers.sequence_mask(lengths(), None),
}


def peak_memory(work):
    """The most bytes that were allocated at once in a function."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def assert_cheap(name, work):
    with at_most_calls(CALLS, f"build {name}"):
        peak = peak_memory(work)
    assert peak < MEGABYTES << 20, f"{peak >> 20} MB of values while {name} was built"


@pytest.mark.parametrize("name", BUILDERS)
def test_building_is_cheap_whatever_the_sizes(name):
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        assert_cheap(name, BUILDERS[name])


def unknown(name, value):
    """A variable of a value's rank, dtype and LoD level, none of whose sizes is known."""
    levels = len(value.lod) if isinstance(value, LoDArray) else 0
    dtype = from_numpy(value.dtype)
    return VarView(name, dtype=dtype, shape=(-1,) * len(value.shape), lod_level=levels)


def infer_unknown(case):
    bound = bind(case, np.random.default_rng(0), np.float32)
    views = {name: unknown(name, value) for name, value in bound.values.items()}
    try:
        lowering.infer_outputs(bound.op, views.get)
    except lowering.OpError:  # sizes that the op insists on; what it took to find out counts
        pass


@pytest.mark.parametrize("family", sorted({c.op[0] for c in testing.table()}))
def test_inference_of_every_op_is_cheap_with_no_size_known(family):
    """Of every case of the corpus, by the first letter of the op."""
    for case in testing.table():
        if case.op.startswith(family):
            assert_cheap(case.name, lambda case=case: infer_unknown(case))


def test_the_shapes_of_boxes_are_known_as_far_as_they_can_be():
    """As Paddle 1.8.5 declares them."""
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        assert [v.shape for v in BUILDERS["anchor_generator"]()] == [(-1, -1, 12, 4)] * 2
        assert [v.shape for v in BUILDERS["prior_box"]()] == [(-1, -1, 8, 4)] * 2


def test_too_much_work_is_found():
    def swallows():
        for n in range(2 * CALLS):
            try:
                abs(n)
            except AssertionError:
                continue

    with pytest.raises(AssertionError, match="calls to build count"):
        assert_cheap("count", swallows)
    with pytest.raises(AssertionError, match="9 MB of values"):
        assert_cheap("hold", lambda: bytes(9 << 20))
