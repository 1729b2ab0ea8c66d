"""Layers that are made from an op's proto: ``fluid.layers.layer_function_generator``."""

from collections.abc import Iterator

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.layer_helper import LayerHelper
from fluidjax.layers.layer_function_generator import autodoc, generate_activation_fn, generate_layer_fn, templatedoc
from fluidjax.layers.nn import _elementwise_op


@pytest.fixture(autouse=True)
def counted_from_zero() -> Iterator[None]:
    """Layers are numbered as in a new process."""
    with fluid.unique_name.guard():
        yield


def test_a_layer_takes_variables_by_place_or_name_and_attributes_by_name() -> None:
    x = fluid.data("x", [2, 3])
    maximum, scale = generate_layer_fn("elementwise_max"), generate_layer_fn("scale")
    outs = [maximum(x, scale(x=x, scale=2.0)), maximum(x=x, y=x, axis=-1, act="relu", name="named")]
    assert [v.name for v in outs] == ["elementwise_max_0.tmp_0", "named.tmp_1"]
    feed = {"x": np.array([[1, -1, 2], [0, 3, -2]], "float32")}
    found = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=outs)
    np.testing.assert_array_equal(found[0], np.maximum(feed["x"], 2 * feed["x"]))
    np.testing.assert_array_equal(found[1], np.maximum(feed["x"], 0))


def test_a_layer_writes_into_out_and_an_activation_takes_floats() -> None:
    x, out = fluid.data("x", [2, 3]), fluid.default_main_program().global_block().create_var(name="mine")
    assert generate_layer_fn("square")(x, out=out) is out
    assert generate_activation_fn("tanh")(x).name == "tanh_0.tmp_0"
    with pytest.raises(TypeError, match="tanh must be"):
        generate_activation_fn("tanh")(fluid.data("whole", [2], "int64"))


@pytest.mark.parametrize(
    ("op_type", "message"),
    [("split", "Only non duplicable|only non duplicable"), ("top_k", "2 outputs"), ("nonesuch", "not been registered")],
)
def test_ops_that_are_no_layers_are_refused(op_type: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        generate_layer_fn(op_type)


def test_inputs_must_be_variables_of_one_dtype() -> None:
    maximum, x = generate_layer_fn("elementwise_max"), fluid.data("x", [2])
    with pytest.raises(ValueError, match="must be variable"):
        maximum(x, 3)
    with pytest.raises(ValueError, match="same dtype"):
        maximum(x, fluid.data("y", [2], "float64"))


def test_docstrings_quote_the_op() -> None:
    @templatedoc("scale")
    def quoted() -> None:
        """A ${comment} B ${x_type} C ${bias_type} D ${other}"""

    @autodoc(" More.")
    def square() -> None:
        pass

    assert quoted.__doc__ == f"A {generate_layer_fn('scale').__doc__.split(chr(10))[0]} B Variable C FLOAT D ${{other}}"
    assert square.__doc__ == generate_layer_fn("square").__doc__ + " More."


def test_binary_layers_of_scripts_hand_their_arguments_to_a_helper() -> None:
    def add(x: fluid.Variable, y: fluid.Variable, axis: int = -1, act: str | None = None) -> fluid.Variable:
        return _elementwise_op(LayerHelper("elementwise_add", **locals()))

    x = fluid.data("x", [2, 3])
    assert [add(x, x).name, add(x, x, act="relu").name] == ["elementwise_add_0.tmp_0", "elementwise_add_1.tmp_1"]
    with pytest.raises(AssertionError, match="y cannot be None"):
        add(x, None)
