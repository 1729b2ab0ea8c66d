"""What layers declare of their results, also where a run makes something else: as Paddle 1.8.5 does."""

import pytest

import fluidjax as fluid

L, C = fluid.layers, fluid.contrib.layers
INT32, INT64, FLOAT = 2, 3, 5


def data(name, shape, dtype="float32", lod_level=0):
    return fluid.data(name, shape, dtype, lod_level)


def image():
    return data("x", [-1, 4, 6, 6])


def boxes(*shape):
    return data("b", list(shape)), data("s", [1, 2, 3])


def pyramid(*levels):
    """Boxes, scores and anchors of levels with so many anchors."""
    shapes = {"b": [1, -1, 4], "s": [1, -1, 5], "a": [-1, 4]}
    return [
        [data(f"{name}{rows}", [rows if size == -1 else size for size in shape]) for rows in levels]
        for name, shape in shapes.items()
    ]


def regions(width=4):
    return data("r", [-1, width], lod_level=1)


def ragged_boxes():
    return data("b", [-1, 2, 4], lod_level=1), data("s", [-1, 2], lod_level=1)


def ids(name="y"):
    return data(name, [-1, 1], "int64")


def accuracy(correct, total):
    block = fluid.default_main_program().global_block()
    made = [block.create_var(name=n, dtype=d, shape=[1]) for n, d in (("c", correct), ("t", total))]
    return L.accuracy(data("p", [5, 10]), ids(), correct=made[0], total=made[1])


def proposals():
    anchors = data("a", [4, 4, 3, 4]), data("v", [4, 4, 3, 4])
    return L.generate_proposals(data("p", [-1, 3, 4, 4]), data("d", [-1, 12, 4, 4]), data("i", [-1, 3]), *anchors)


def yolo():
    labels = data("g", [-1, 6, 4]), data("l", [-1, 6], "int32")
    return L.yolov3_loss(data("x", [-1, 21, 4, 4]), *labels, [1, 2, 3, 4, 5, 6], [0, 1, 2], 2, 0.5, 32)


def deformable_pool():
    return L.deformable_roi_pooling(
        data("x", [-1, 8, 6, 6]), regions(), data("t", [-1, 2, 2, 2]), pooled_height=2, pooled_width=2,
        part_size=(2, 2), group_size=(1, 1),
    )  # fmt: skip


# What is built, and slot -> (shape, dtype, LoD level) of its op's outputs.
CASES = {
    "multiclass_nms2": (
        lambda: C.multiclass_nms2(*boxes(1, 3, 4), 0.1, 10, 10, return_index=True),
        {"Out": ((3, 6), FLOAT, 1), "Index": ((3, 1), INT64, 1)},
    ),
    "matrix_nms": (
        lambda: L.matrix_nms(*boxes(1, 3, 4), 0.1, 0.2, 20, 8, return_index=True),
        {"Out": ((3, 6), FLOAT, 1), "Index": ((3, 1), INT64, 1)},
    ),
    "multiclass_nms": (lambda: L.multiclass_nms(*ragged_boxes(), 0.1, 10, 10), {"Out": ((-1, 6), FLOAT, 1)}),
    "locality_aware_nms": (
        lambda: L.locality_aware_nms(data("b", [1, 3, 4]), data("s", [1, 1, 3]), 0.1, 10, 10),
        {"Out": ((3, 6), FLOAT, 0)},
    ),
    "retinanet_detection_output": (
        lambda: L.retinanet_detection_output(*pyramid(6, 3), data("i", [1, 3])),
        {"Out": ((6, 4 + 2), FLOAT, 0)},
    ),
    "shuffle_batch": (
        lambda: C.shuffle_batch(data("x", [4, 2]), seed=3),
        {"Out": ((4, 2), FLOAT, 0), "ShuffleIdx": ((-1,), INT64, 0), "SeedOut": ((0,), INT64, 0)},
    ),
    "random_crop": (lambda: L.random_crop(image(), [4, 3, 3]), {"SeedOut": ((), INT64, 0)}),
    "accuracy": (
        lambda: accuracy("int32", "int64"),
        {"Accuracy": ((1,), FLOAT, 0), "Correct": ((1,), INT32, 0), "Total": ((1,), INT64, 0)},
    ),
    "instance_norm": (
        lambda: L.instance_norm(image()),
        {"SavedMean": ((-4,), FLOAT, 0), "SavedVariance": ((-4,), FLOAT, 0), "Y": ((-1, 4, 6, 6), FLOAT, 0)},
    ),
    "sample_logits": (
        lambda: L.sampled_softmax_with_cross_entropy(data("x", [-1, 50]), ids(), 5),
        {"LogitsDim": ((-1, 50, 0), FLOAT, 0)},
    ),
    "hierarchical_sigmoid": (lambda: L.hsigmoid(data("x", [-1, 6]), ids(), 20), {"PreOut": ((), FLOAT, 0)}),
    "roi_pool": (lambda: L.roi_pool(image(), regions(), 2, 2), {"Argmax": ((-1, 4, 2, 2), INT32, 0)}),
    "roi_perspective_transform": (
        lambda: L.roi_perspective_transform(data("x", [2, 7, 6, 6]), regions(8), 3, 5),
        {"Out": ((-1, 7, 3, 5), FLOAT, 1), "Out2InIdx": ((-1, 7, 3, 5), INT32, 0), "Mask": ((-1, 1, 3, 5), INT32, 0)},
    ),
    "max_pool2d_with_index": (
        lambda: L.adaptive_pool2d(image(), 2, "max", require_index=True),
        {"Mask": ((-1, 4, 2, 2), FLOAT, 0)},
    ),
    "bipartite_match": (
        lambda: L.bipartite_match(data("d", [3, 5], lod_level=1)),
        {"ColToRowMatchIndices": ((3, 5), INT32, 0), "ColToRowMatchDist": ((3, 5), FLOAT, 0)},
    ),
    "box_clip": (lambda: L.box_clip(regions(), data("i", [-1, 3])), {"Output": ((-1, 4), FLOAT, 1)}),
    "generate_proposals": (
        proposals,
        {"RpnRois": ((-1, 4), FLOAT, 0), "RpnRoiProbs": ((-1, 1), FLOAT, 0), "RpnRoisLod": ((), INT32, 0)},
    ),
    "collect_fpn_proposals": (
        lambda: L.collect_fpn_proposals([regions()], [data("s", [-1, 1], lod_level=1)], 2, 2, 10),
        {"FpnRois": ((10, 4), FLOAT, 1)},
    ),
    "yolov3_loss": (yolo, {"ObjectnessMask": ((-1, 3, 4, 4), INT32, 0)}),
    "affine_grid": (
        lambda: L.affine_grid(data("t", [2, 2, 3]), [2, 4, 6, 6]),
        {"Output": ((2, -1, -1, 2), FLOAT, 0)},
    ),
    "deformable_psroi_pooling": (deformable_pool, {"TopCount": ((-1, 8, 2, 2), INT32, 0)}),
    "im2sequence": (lambda: L.im2sequence(data("x", [2, 3, 6, 6]), 2), {"Out": ((2, 12), FLOAT, 1)}),
    "pyramid_hash": (
        lambda: C.search_pyramid_hash(data("y", [-1, 1], "int32", 1), 8, 20, 3, 4, 0.5, 1, False, 10, 10, 3, 0.1),
        {"Out": ((-1, 8), FLOAT, 1), "X_Temp_Out": ((-1, 1), FLOAT, 0), "DropPos": ((), FLOAT, 0)},
    ),
}


@pytest.mark.parametrize("op_type", CASES)
def test_outputs_are_declared_as_in_paddle(op_type):
    build, wanted = CASES[op_type]
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        build()
    block = main.global_block()
    (op,) = [op for op in block.ops if op.type == op_type]
    found = {slot: block.var(op.output(slot)[0]) for slot in wanted}
    assert {slot: (tuple(v.shape), int(v.dtype), v.lod_level) for slot, v in found.items()} == wanted


def beside():
    """What knows its rows, beside what does not."""
    return data("free", [-1, 4]), data("known", [3, 4])


MIXED = {
    "less_than": (lambda a, b: a < b, (-1, 4)),
    "greater_than": (lambda a, b: b > a, (3, 4)),
    "logical_and": (lambda a, b: L.logical_and(a > 1, b > 1), (-1, 4)),
    "sum": (lambda a, b: L.sum([a, b]), (-1, 4)),
    "concat": (lambda a, b: L.concat([a, b], 1), (3, 8)),
    "matmul": (lambda a, b: L.matmul(data("f", [-1, 2, 5]), data("g", [3, 5, 2])), (-1, 2, 2)),
    "inner dim": (lambda a, b: L.matmul(data("e", [-1, -1]), b), (-1, 4)),
    "columns": (lambda a, b: L.matmul(b, data("e", [4, -1])), (3, -1)),
    "columns of what may be of any depth": (lambda a, b: L.matmul(b, data("e", [-1, -1])), (3, -1)),
    "rows of a transposed matrix": (lambda a, b: L.matmul(data("e", [-1, 3]), b, transpose_x=True), (3, 4)),
    "unknown rows of one": (lambda a, b: L.matmul(data("e", [3, -1]), b, transpose_x=True), (-1, 4)),
    "unknown columns in batches": (
        lambda a, b: L.matmul(data("e", [2, 3, 5]), data("g", [-1, -1, -1])),
        (2, 3, -1),
    ),
    "matrix and vector": (lambda a, b: L.matmul(a, data("v", [4])), (-1,)),
    "vectors": (lambda a, b: L.matmul(data("u", [-1]), data("v", [4])), (1,)),
    "channels": (lambda a, b: L.fsp_matrix(data("e", [2, 3, 4, 5]), data("g", [-1, -1, 4, 5])), (2, 3, -1)),
    "a grid": (lambda a, b: L.grid_sampler(data("e", [2, 3, 4, 5]), data("g", [-1, -1, 5, 2])), (2, 3, -1, 5)),
    "labels": (lambda a, b: L.log_loss(data("e", [-1, 1]), data("g", [4, -1])), (-1, 1)),
    "fc": (lambda a, b: L.fc([a, b], 2), (-1, 2)),
    "bilinear": (lambda a, b: L.bilinear_tensor_product(a, b, 2), (-1, 2)),
    "cross entropy": (lambda a, b: L.sigmoid_cross_entropy_with_logits(a, b), (-1, 4)),
    "labels of known rows": (lambda a, b: L.bpr_loss(a, data("l", [3, 1], "int64")), (-1, 1)),
}


@pytest.mark.parametrize("name", MIXED)
def test_unknown_rows_beside_known_ones(name):
    build, shape = MIXED[name]
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        assert build(*beside()).shape == shape


def test_inputs_that_never_fit_are_declared_without_a_shape():
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        assert L.label_smooth(*beside()).shape == ()


def test_hsigmoid_is_dense_without_a_custom_tree(capsys):
    with fluid.program_guard(fluid.Program(), fluid.Program()) as _, fluid.unique_name.guard():
        cost = L.hsigmoid(data("x", [-1, 6]), ids(), 20, is_sparse=True)
        assert [cost.block.ops[-1].attr(name) for name in ("is_sparse", "remote_prefetch")] == [False, False]
    assert "custom tree" in capsys.readouterr().out


@pytest.mark.parametrize("padding, size", [(0, 6), (1, 8)])
@pytest.mark.parametrize("image, offset, mask", [(-1, 2, 2), (2, -1, 2), (2, 2, -1), (-1, -1, -1)])
def test_any_batch_of_a_deformable_convolution_may_be_unknown(image, offset, mask, padding, size):
    """The image's is that of the result; offsets are held against it once all sizes are known."""
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        sources = data("x", [image, 4, 8, 8]), data("o", [offset, 18, 8, 8]), data("m", [mask, 9, 8, 8])
        found = L.deformable_conv(*sources, 6, 3, padding=padding)
    assert found.shape == (image, 6, size, size)


def test_sides_of_a_deformable_convolution_may_be_unknown():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        sources = data("x", [-1, 4, -1, 8]), data("o", [-1, 18, -1, -1]), data("m", [-1, 9, 8, 8])
        assert L.deformable_conv(*sources, 6, 3, padding=1).shape == (-1, 6, -1, 8)
        known = data("y", [2, 4, 8, 8]), data("p", [2, 18, 8, 8]), data("n", [2, 9, 8, 8])
        with pytest.raises(fluid.core.EnforceNotMet, match="Offset covers"):
            L.deformable_conv(*known, 6, 3, padding=0)
