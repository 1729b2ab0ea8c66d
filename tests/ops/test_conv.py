"""All ways to compute a convolution's parts are equal."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lowering
from lowering.ops.nn import conv_columns, conv_strips, conv_transpose
from lowering.ops.nn import conv_kernels as kernels
from lowering.ops.nn.conv_kernels import Geometry

pytestmark = pytest.mark.usefixtures("compiled_quickly")

SHAPES = {
    "plain": ((2, 3, 7, 6), (4, 3, 3, 3), Geometry((1, 1), ((1, 1), (1, 1)), (1, 1), 1)),
    "strided": ((2, 3, 8, 7), (4, 3, 3, 2), Geometry((2, 3), ((1, 0), (0, 2)), (1, 1), 1)),
    "dilated": ((2, 2, 9, 9), (3, 2, 3, 3), Geometry((2, 1), ((2, 2), (0, 1)), (2, 3), 1)),
    "crop": ((1, 2, 6, 6), (3, 2, 2, 2), Geometry((3, 3), ((0, 0), (0, 0)), (1, 1), 1)),
    "pointwise": ((2, 3, 5, 6), (4, 3, 1, 1), Geometry((2, 2), ((0, 0), (0, 0)), (1, 1), 1)),
    "groups": ((2, 6, 7, 6), (4, 3, 3, 2), Geometry((2, 1), ((1, 0), (0, 1)), (1, 2), 2)),
    "depthwise": ((2, 3, 7, 6), (6, 1, 3, 3), Geometry((1, 2), ((1, 1), (1, 1)), (1, 1), 3)),
    "grouped_pointwise": ((2, 4, 5, 6), (6, 2, 1, 1), Geometry((2, 1), ((0, 0), (0, 0)), (1, 1), 2)),
    "few": ((2, 3, 7, 9), (5, 3, 3, 3), Geometry((1, 1), ((1, 1), (0, 2)), (2, 1), 1)),
    "few_strided": ((2, 2, 7, 9), (16, 2, 3, 2), Geometry((1, 2), ((1, 1), (0, 1)), (1, 1), 1)),
    "odd": ((2, 3, 6, 5), (18, 3, 3, 3), Geometry((2, 1), ((1, 1), (1, 1)), (1, 2), 1)),
    "as_long": ((2, 2, 5, 9), (3, 2, 2, 8), Geometry((1, 1), ((0, 1), (1, 0)), (1, 1), 1)),
    "as_long_strided": ((2, 2, 9, 4), (3, 2, 4, 2), Geometry((3, 2), ((1, 0), (0, 0)), (2, 1), 1)),
    "volume_groups": ((2, 4, 5, 4, 3), (6, 2, 2, 2, 2), Geometry((2, 1, 1), ((1, 0), (0, 1), (1, 1)), (1, 1, 1), 2)),
    "volume_dilated": ((1, 3, 9, 5, 5), (2, 3, 3, 3, 1), Geometry((2, 2, 1), ((3, 1), (1, 1), (0, 0)), (2, 1, 2), 1)),
    "volume_depth": ((2, 3, 7, 2, 3), (4, 3, 3, 1, 1), Geometry((3, 1, 1), ((0, 0), (0, 0), (0, 0)), (1, 1, 1), 1)),
    "volume_plane": ((2, 3, 3, 7, 6), (4, 3, 1, 3, 3), Geometry((1, 1, 1), ((0, 0), (1, 1), (1, 1)), (1, 1, 1), 1)),
    "volume_pointwise": ((2, 3, 4, 5, 3), (4, 3, 1, 1, 1), Geometry((2, 1, 1), ((0, 0),) * 3, (1, 1, 1), 1)),
    "volume": ((1, 2, 4, 5, 4), (3, 2, 2, 3, 2), Geometry((1, 2, 1), ((1, 1), (0, 0), (1, 0)), (1, 1, 1), 1)),
}


@pytest.fixture
def drawn(request, rng):
    x_shape, w_shape, geo = SHAPES[request.param]
    x, w = rng.standard_normal(x_shape), rng.standard_normal(w_shape)
    with jax.enable_x64(True):
        x, w = jnp.asarray(x), jnp.asarray(w)
        dy = jnp.asarray(rng.standard_normal(kernels._general(x, w, geo).shape))
        yield x, w, dy, geo


def agree(ways, *arrays):
    """All results of a function of the arrays are equal; it compiles at once."""
    first, *others = jax.jit(ways)(*arrays)
    assert others
    for other in others:
        np.testing.assert_allclose(other, first, atol=1e-12)


@pytest.mark.parametrize("drawn", SHAPES, indirect=True)
def test_input_gradients_agree(drawn):
    x, w, dy, geo = drawn
    ways = kernels.input_grad_direct, kernels.input_grad_columns, kernels.input_grad
    agree(lambda dy, w: [way(dy, w, x.shape, geo) for way in ways], dy, w)


@pytest.mark.parametrize("drawn", SHAPES, indirect=True)
def test_filter_gradients_agree(drawn):
    x, w, dy, geo = drawn
    ways = kernels.filter_grad_direct, kernels.filter_grad, kernels.filter_grad_columns
    agree(lambda x, dy: [way(x, dy, w.shape, geo) for way in ways], x, dy)


@pytest.mark.parametrize("drawn", SHAPES, indirect=True)
def test_columns_are_the_convolution(drawn):
    x, w, dy, geo = drawn
    assert kernels.reached(x.shape, w.shape, geo) == dy.shape[2:]
    agree(lambda x, w: [way(x, w, geo) for way in (kernels._general, kernels.by_columns, kernels.forward)], x, w)


def test_columns_of_a_kernel_as_long_as_the_image_are_made_by_positions():
    """Its rows of 64 taps stand at two places: two reads, and two sums in the gradient, not 64."""
    x, w, geo = jnp.zeros((2, 1, 6, 65)), jnp.zeros((4, 1, 3, 64)), Geometry((1, 1), ((0, 0), (0, 0)), (1, 1), 1)
    dy = jnp.zeros((2, 4, 4, 2))
    parts = {
        "slice": jax.make_jaxpr(lambda: kernels.by_columns(x, w, geo)),
        "pad": jax.make_jaxpr(lambda: kernels.input_grad_columns(dy, w, x.shape, geo)),
    }
    for kind, traced in parts.items():
        assert 2 <= [one.primitive.name for one in traced().jaxpr.eqns].count(kind) <= 3 + 2 + 1


@pytest.mark.parametrize("drawn", [name for name in SHAPES if name.startswith("volume")], indirect=True)
def test_volumes_are_convolved_as_images_on_a_cpu(drawn):
    """XLA:CPU's loops over volumes take up to 75 times as long."""
    x, w, dy, geo = drawn
    parts = {
        "forward": lambda x, w, dy: kernels.forward(x, w, geo),
        "input": lambda x, w, dy: kernels.input_grad(dy, w, x.shape, geo),
        "filter": lambda x, w, dy: kernels.filter_grad(x, dy, w.shape, geo),
    }
    for name, part in parts.items():
        text = jax.jit(part).trace(x, w, dy).lower(lowering_platforms=("cpu",)).as_text()
        found = [line for line in text.splitlines() if "stablehlo.convolution" in line]
        assert not any("0, 1, 2]x" in line for line in found), (name, found)


@pytest.mark.parametrize("drawn", ["plain", "strided", "few", "few_strided", "odd"], indirect=True)
def test_strips_are_the_convolution(drawn):
    x, w, dy, geo = drawn
    assert conv_strips.pays(w.shape, geo, dy.shape[3])
    agree(lambda x, w: [way(x, w, geo) for way in (kernels._general, kernels.in_strips)], x, w)
    if set(geo.strides) == {1}:
        ways = kernels.input_grad_direct, kernels.input_grad_strips
        agree(lambda dy, w: [way(dy, w, x.shape, geo) for way in ways], dy, w)


@pytest.mark.parametrize(("channels", "width"), [((16, 16), 2), ((8, 3), 4), ((3, 16), 8), ((1, 1), 8), ((17, 3), 1)])
def test_strips_are_as_wide_as_xla_needs(channels, width):
    """The channels of a strip exceed 16, up to eight columns; many channels need no strips, nor do symbolic sizes."""
    out, read = channels
    geo = Geometry((1, 1), ((1, 1), (1, 1)), (1, 1), 1)
    assert conv_strips.strip_width((out, read, 3, 3), geo) == width
    assert conv_strips.strip_width((out, read, 3, 3), geo._replace(groups=read + 1)) == 1
    assert not conv_strips.pays((out, read, 3, 3), geo, jax.export.symbolic_shape("n")[0])


def convolutions(x: tuple, w: tuple, stride: int = 1, groups: int = 1) -> int:
    """How many of a convolution and its two gradients are convolutions still, and no products, where XLA gets them."""
    geo = Geometry((stride,) * 2, ((0, 0), (0, 0)), (1, 1), groups)

    def all_three(x, w, dy):
        grads = kernels.input_grad(dy, w, x.shape, geo), kernels.filter_grad(x, dy, w.shape, geo)
        return kernels.forward(x, w, geo), *grads

    dy = (x[0], w[0], *kernels.reached(x, w, geo))
    shapes = [jax.ShapeDtypeStruct(s, np.float32) for s in (x, w, dy)]
    return jax.jit(all_three).lower(*shapes).as_text().count("stablehlo.convolution")


def test_large_kernels_are_a_product_on_cpu():
    """Of 25 taps and more, unless their columns outgrow the cache."""
    assert convolutions((4, 16, 12, 12), (4, 16, 5, 5)) == 0
    assert convolutions((4096, 16, 12, 12), (4, 16, 5, 5)) == convolutions((4, 16, 12, 12), (4, 16, 3, 3)) == 3


@pytest.mark.parametrize(("taps", "count"), [(5, 2), (3, 0)])
def test_sums_of_many_taps_are_taken_once_for_what_reads_them(rng, taps, count, monkeypatch):
    x_shape, w, geo = (2, 3, 9, 8), rng.standard_normal((4, 3, taps, taps)), Geometry((1, 1), ((1, 1),) * 2, (1, 1), 1)
    dy = rng.standard_normal((2, 4, *conv_columns.reached(x_shape, w.shape, geo)))

    def gradient(dy, w):
        return conv_columns.input_grad_columns(dy, w, x_shape, geo)

    assert jax.jit(gradient).lower(dy, w).as_text().count("compare GT") == count  # the branch that is never taken
    found = jax.jit(gradient)(dy, w)
    monkeypatch.setattr(conv_columns, "once_on_cpu", lambda value: value)
    np.testing.assert_array_equal(found, jax.jit(lambda dy, w: gradient(dy, w))(dy, w))


@pytest.mark.parametrize("stride", [1, 2])
def test_few_positions_are_a_product_on_cpu(stride):
    """No more of them than output channels."""
    assert convolutions((4, 16, 6, 6), (64, 16, 3, 3), stride) == 0
    assert convolutions((4, 16, 12, 12), (64, 16, 3, 3), stride) == 3


def test_groups_are_products_on_cpu():
    """The convolution itself only if its columns stay in cache."""
    assert convolutions((4096, 16, 12, 12), (32, 4, 3, 3), groups=4) == 1
    assert convolutions((4, 16, 12, 12), (32, 4, 3, 3), groups=4) == 0
    assert convolutions((4, 16, 12, 12), (16, 1, 3, 3), groups=16) == 0


@pytest.mark.parametrize("drawn", ["pointwise"], indirect=True)
def test_pointwise_is_the_convolution(drawn):
    x, w, _, geo = drawn
    np.testing.assert_allclose(kernels.pointwise(x, w, geo), kernels._general(x, w, geo), atol=1e-12)


def test_output_size_out_of_reach():
    geo = Geometry((2, 2), ((0, 0), (0, 0)), (1, 1), 1)
    assert conv_transpose.transpose_sizes((3, 3), (3, 3), geo, [8, 7]) == (8, 7)
    with pytest.raises(ValueError, match="not reachable"):
        conv_transpose.transpose_sizes((3, 3), (3, 3), geo, [9, 7])


@pytest.mark.parametrize("groups", [1, 2])
def test_im2col_step_does_not_count(rng, groups):
    """How many images the kernel unfolds at a time: Paddle mixes up images and channels above 1."""
    x, offset = rng.standard_normal((2, 4, 5, 5)), 0.5 * rng.standard_normal((2, 18, 5, 5))
    mask, w = rng.random((2, 9, 5, 5)), rng.standard_normal((4, 4 // groups, 3, 3))
    op = lowering.get_op("deformable_conv")
    with jax.enable_x64(True):
        both = op(x, offset, mask, w, paddings=[1, 1], groups=groups, im2col_step=2)
        each = [
            op(x[i : i + 1], offset[i : i + 1], mask[i : i + 1], w, paddings=[1, 1], groups=groups, im2col_step=1)
            for i in range(2)
        ]
    np.testing.assert_allclose(both, np.concatenate(each), rtol=1e-10)
