"""Wrong arguments of layers say what is wrong and what to do."""

import numpy as np
import pytest

import fluidjax as fluid

L = fluid.layers


@pytest.fixture(autouse=True)
def fresh():
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        yield


def image(*shape):
    return fluid.data("image", shape or (None, 3, 8, 8))


def ids():
    return fluid.data("ids", (None, 1), "int64")


ENFORCED = fluid.core.EnforceNotMet


def mask(dtype="float32"):
    return fluid.data("mask", (1,), dtype)


def filled(value):
    block = fluid.default_main_program().global_block()
    attrs = {"value": value}
    x = fluid.data("x", [2, 3], "int64")
    block.append_op("fill_any_like", {"X": x}, {"Out": block.create_var(dtype="int64")}, attrs)


def nms(**given):
    args = {"score_threshold": 0.1, "nms_top_k": 4, "keep_top_k": 4, **given}
    return L.multiclass_nms(fluid.data("boxes", [1, 2, 4]), fluid.data("scores", [1, 2, 2]), **args)


FEW_DIMS = r"Input\(Index\).shape\[-1\] should be no greater than Input\(X\).rank"

WRONG = {
    "more numbers than dims": (lambda: L.gather_nd(image(4, 5), L.ones([2, 3], "int64")), ENFORCED, FEW_DIMS),
    "more numbers than dims to add to": (
        lambda: L.scatter_nd_add(image(4, 5), L.ones([2, 3], "int64"), L.ones([2], "float32")),
        ENFORCED,
        FEW_DIMS,
    ),
    "a number as flag": (lambda: L.less_than(image(2), image(2), force_cpu=1), TypeError, "'force_cpu' in less_than"),
    "one branch alone": (lambda: L.control_flow.select_input(1, mask("int32")), TypeError, "'inputs' in select_input"),
    "a branch by a fraction": (lambda: L.control_flow.select_input([image()], mask()), TypeError, "must be .'int32'"),
    "a way by a fraction": (
        lambda: L.control_flow.select_output(image(), [ids()], mask()),
        TypeError,
        "'mask' in select_output",
    ),
    "ways that are no list": (
        lambda: L.control_flow.select_output(image(), ids(), mask("int32")),
        TypeError,
        "'outputs' in select_output",
    ),
    "a number that the type does not hold": (lambda: filled(1e30), ENFORCED, "cannot be filled into a tensor of int64"),
    "one group of channels": (lambda: L.maxout(image(2, 4, 2, 2), 1), ENFORCED, "'groups' must be at least 2"),
    "a switch that is a text": (lambda: L.dropout(image(2, 3), 0.5, is_test="x"), ENFORCED, "expects BOOLEAN"),
    "samples of a vector": (lambda: L.sampling_id(image(4)), ENFORCED, "X must have 2 dims"),
    "sizes that are no vector": (lambda: L.uniform_random(L.ones([1, 2], "int64")), ENFORCED, "must have 1 dims"),
    "labels that are no column": (lambda: L.accuracy(image(2, 3), L.ones([2], "int64")), ENFORCED, "Label must have 2"),
    "distances of three dims": (
        lambda: L.edit_distance(*[L.ones([2, 3, 1], "int64")] * 2),
        ENFORCED,
        "Hyps must have 2",
    ),
    "distances of tables": (
        lambda: L.edit_distance(*[L.ones([2, 3], "int64")] * 2),
        ENFORCED,
        "dim 1 of Hyps must be 1",
    ),
    "clicks that are a vector": (
        lambda: L.teacher_student_sigmoid_loss(*[image(4)] * 2),
        ENFORCED,
        "X must have 2 dims",
    ),
    "clicks of a table": (
        lambda: L.teacher_student_sigmoid_loss(*[image(2, 3)] * 2),
        ENFORCED,
        "dim 1 of Label must be 1",
    ),
    "ranks of a table": (lambda: L.margin_rank_loss(*[image(2, 3)] * 3), ENFORCED, "dim 1 of Label must be 1"),
    "a gather of a name": (lambda: L.gather("x", ids()), TypeError, "'input' in gather must be"),
    "a gather_nd of numbers": (lambda: L.gather_nd([2, 4], ids()), TypeError, "'input' in gather_nd must be"),
    "a scatter of nothing": (lambda: L.scatter(None, ids(), image()), TypeError, "'input' in scatter must be"),
    "a slice of a name": (lambda: L.slice("x", [0], [0], [1]), TypeError, "'input' in slice must be"),
    "regions of a name": (lambda: L.psroi_pool("x", image(2, 4), 1, 1.0, 1, 1), TypeError, "'input' in psroi_pool"),
    "one_hot of a row of ids": (lambda: L.one_hot(fluid.data("row", (3,), "int64"), 5), ENFORCED, "rank of X"),
    "a threshold that is an int": (lambda: nms(score_threshold=1), TypeError, "'score_threshold' in multiclass_nms"),
    "an overlap that is an int": (lambda: nms(nms_threshold=1), TypeError, "'nms_threshold' in multiclass_nms"),
    "a count that is a fraction": (lambda: nms(nms_top_k=4.0), TypeError, "'nms_top_k' in multiclass_nms"),
    "a switch that is a number": (lambda: nms(normalized=1), TypeError, "'normalized' in multiclass_nms"),
    "two variables for one": (lambda: L.reduce_max([image(2), image(2)]), TypeError, "'input' in reduce_max"),
    "axis out of range": (lambda: L.reduce_sum(image(2, 3), 5), ENFORCED, r"\[-2, 2\)"),
    "index out of range": (lambda: image(2, 3)[5], ENFORCED, "nothing is left of axis 0"),
    "empty slice": (lambda: image(2, 3)[:, 1:1], ENFORCED, "nothing is left of axis 1"),
    "more indices than dims": (lambda: image(2, 3)[0, 1, 2], IndexError, "at most 2"),
    "concat of unequal parts": (lambda: L.concat([image(2, 3), L.ones([3, 4], "float32")]), ENFORCED, "along axis 1"),
    "concat of other ranks": (lambda: L.concat([image(2, 3), L.ones([3], "float32")]), ENFORCED, "rank"),
    "an array as operand": (lambda: image(2, 3) * np.ones(3, "float32"), TypeError, "neither a Variable nor a number"),
    "groups do not divide": (lambda: L.conv2d(image(), 6, 3, groups=2), ValueError, "divisible by groups"),
    "unknown padding": (lambda: L.conv2d(image(), 6, 3, padding="FOO"), ValueError, "'SAME' or 'VALID'"),
    "padding on batch": (
        lambda: L.conv2d(image(), 6, 3, padding=[[1, 1], [0, 0], [1, 1], [1, 1]]),
        ValueError,
        "batch or channel",
    ),
    "unknown format": (lambda: L.conv2d(image(), 6, 3, data_format="NCWH"), ValueError, "'NCHW' or 'NHWC'"),
    "unknown channels": (lambda: L.conv2d(image(None, None, 8, 8), 6, 3), ValueError, "should be defined"),
    "no filter size": (lambda: L.conv2d_transpose(image(), 6), ValueError, "output_size must be set"),
    "no pool size": (lambda: L.pool2d(image()), ValueError, "pool_size"),
    "pool type": (lambda: L.pool2d(image(), 2, "median"), ValueError, "'max' or 'avg'"),
    "ceil with valid": (
        lambda: L.pool2d(image(), 2, pool_padding="VALID", ceil_mode=True),
        ValueError,
        "ceil_mode",
    ),
    "index of averages": (
        lambda: L.adaptive_pool2d(image(), 2, "avg", require_index=True),
        ValueError,
        "require_index",
    ),
    "no bias": (lambda: L.batch_norm(image(), bias_attr=False), AssertionError, "bias_attr"),
    "abn activation": (lambda: L.inplace_abn(image(), act="relu"), ValueError, "leaky_relu"),
    "no size": (lambda: L.image_resize(image()), ValueError, "out_shape and scale"),
    "a size that is no int": (lambda: L.crop_tensor(image(4, 6), [2, 3.0]), TypeError, "'shape' in crop_tensor"),
    "a fraction of a filter": (lambda: L.conv2d(image(), 1.5, 3), TypeError, "whole numbers"),
    "a fraction of a size": (lambda: L.fc(image(None, 3), 2.5), TypeError, "whole numbers"),
    "transposed without groups": (lambda: L.conv2d_transpose(image(), 3, None, 3, groups=0), ValueError, "positive"),
    "a number to pool": (lambda: L.pool2d(1, 2), TypeError, "'input' in pool2d"),
    "a number as switch": (lambda: L.pool2d(image(), 2, use_cudnn=0), TypeError, "'use_cudnn'"),
    "a size by itself": (lambda: L.crop(image(4, 6), 3), TypeError, "'shape' in crop"),
    "a product with a number": (lambda: L.bilinear_tensor_product(1, image(2, 3), 3), TypeError, "'x'"),
    "layout of channels": (
        lambda: L.affine_channel(image(2, 3), L.ones([3], "float32"), L.ones([3], "float32"), "CN"),
        ENFORCED,
        "data_layout must be one of",
    ),
    "norm along the last axis": (lambda: L.spectral_norm(image(2, 3), -1), ENFORCED, "dim must be one of 0, 1"),
    "norm of no steps": (lambda: L.spectral_norm(image(2, 3), 0, -1), ENFORCED, "power_iters must be at least 0"),
    "statistics of planes": (lambda: L.data_norm(image(2, 6, 1)), ENFORCED, "X must have 2 dims"),
    "clicks of planes": (
        lambda: L.continuous_value_model(image(2, 4, 8), fluid.data("cvm", (2, 2))),
        ENFORCED,
        "X must have 2 dims",
    ),
    "a size of zero": (lambda: L.crop_tensor(image(4, 6), [2, 0]), ValueError, "positive ints or -1"),
    "an offset that is no int": (lambda: L.crop_tensor(image(4, 6), [2, 3], [0, 1.0]), TypeError, "'offsets'"),
    "resample": (lambda: L.image_resize(image(), [4, 4], resample="CUBIC"), ValueError, "resample"),
    "ids of floats": (lambda: L.embedding(image(), [4, 4]), TypeError, "int64"),
    "dropout of ints": (lambda: L.dropout(ids(), 0.5), TypeError, "float32"),
    "few classes": (lambda: L.hsigmoid(image(None, 3), ids(), 1), ValueError, "must not be less than 2"),
    "sampler": (lambda: L.nce(image(None, 3), ids(), 9, sampler="zipf"), ValueError, "sampler"),
    "distribution": (
        lambda: L.nce(image(None, 3), ids(), 9, sampler="custom_dist", custom_dist=[1.0]),
        ValueError,
        "custom_dist",
    ),
    "smoothing": (lambda: L.label_smooth(image(None, 3), epsilon=2.0), ValueError, "between 0 and 1"),
    "dot of matrices": (lambda: L.dot(image(2, 3, 4), image(2, 3, 4)), ENFORCED, "X must have 1 or 2 dims"),
    "dot of a matrix and a vector": (lambda: L.dot(image(2, 3), ids()), ENFORCED, "must agree"),
    "cross along two": (lambda: L.cross(image(3, 2), image(3, 2), 1), ENFORCED, "dim 1 of X must be 3"),
    "index of two dims": (
        lambda: L.index_select(image(2, 3), fluid.data("ids", (2, 2), "int64"), 0),
        ENFORCED,
        "dim 1 of Index must be 1",
    ),
    "samples of planes": (lambda: L.index_sample(image(2, 3, 4), ids()), ENFORCED, "X must have 2 dims"),
    "samples of other rows": (
        lambda: L.index_sample(image(2, 3), fluid.data("ids", (3, 2), "int64")),
        ENFORCED,
        "rows of X and Index must agree",
    ),
    "a sum of two shapes": (lambda: L.sums([image(4, 4), fluid.data("other", (4, 2))]), ENFORCED, "all X must agree"),
    "a sum of two ranks": (lambda: L.sum([image(4), fluid.data("other", (4, 1))]), ENFORCED, "all X must agree"),
    "shifts without dims": (lambda: L.roll(image(2, 3), [1, 2], [0]), ENFORCED, "shifts must have 1 items"),
    "no variable": (lambda: L.fc(3, 4), TypeError, "Variable"),
    "several counters": (lambda: L.increment(image(3)), RuntimeError, "one element, received shape \\[3\\]"),
    "heads": (
        lambda: fluid.nets.scaled_dot_product_attention(image(2, 5, 6), image(2, 5, 6), image(2, 5, 6), 4),
        ValueError,
        "divisible",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_message(name):
    build, kind, text = WRONG[name]
    with pytest.raises(kind, match=text):
        build()


def test_dense_where_sparse_is_expected():
    with pytest.raises(TypeError, match="SELECTED_ROWS"):
        L.get_tensor_from_selected_rows(image())


def of_one(make, *shape):
    """The layer's shape of a variable, and of a list that holds it alone."""
    x = image(*shape)
    return make(x).shape, make([x]).shape


@pytest.mark.parametrize(
    "make",
    [
        lambda x: L.gather(x, L.ones([2], "int64")),
        lambda x: L.gather_nd(x, L.ones([2, 1], "int64")),
        lambda x: L.slice(x, [0], [0], [1]),
        lambda x: L.scatter(x, L.ones([2], "int64"), x),
        lambda x: fluid.one_hot(x, 3),
        lambda x: L.pool2d(x, 2),
        L.gelu,
        L.erf,
        L.size,
        L.reduce_max,
        L.reduce_min,
        L.reduce_prod,
    ],
)
def test_a_list_of_one_is_its_variable(make):
    alone, listed = of_one(make, 2, 3, 4, 4)
    assert alone == listed


def test_what_only_the_feed_tells_is_paired_with_care():
    x, y = fluid.data("x", [-1, 1]), fluid.data("y", [-1, -1])
    loss = L.huber_loss(x, y, 1.0)
    feed = {"x": np.ones((3, 1), "float32"), "y": np.ones((1, 3), "float32")}
    with pytest.raises(ENFORCED, match=r"the dims of X and Y must agree, received \[3, 1\] and \[1, 3\]"):
        fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[loss])


def test_a_row_has_one_class():
    x, label = fluid.data("x", [None, 3]), fluid.data("label", [None, 2], "int64")
    loss = L.hsigmoid(x, label, 4)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    feed = {"x": np.ones((2, 3), "float32"), "label": np.ones((2, 2), "int64")}
    with pytest.raises(ENFORCED, match="Label must hold one class for each row of X"):
        exe.run(feed=feed, fetch_list=[loss])
