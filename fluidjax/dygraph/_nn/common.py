"""The most common layers, Linear, Embedding and Dropout, with BilinearTensorProduct and PRelu."""

from __future__ import annotations

from typing import Any

from fluidjax.base.errors import explain
from fluidjax.base.mode import follows_training, in_dygraph_mode
from fluidjax.dygraph._nn.kept import Kept
from fluidjax.dygraph._nn.named import named, of_sizes
from fluidjax.dygraph.layers import Layer
from fluidjax.framework import Variable, default_main_program
from fluidjax.framework.direct import as_generated
from fluidjax.initializer import Constant
from fluidjax.writing.checks import FLOATS, FULL_FLOATS, check_dtype


def require(condition: bool, message: str) -> None:
    """Raise AssertionError, as Fluid's layers do for an invalid argument."""
    if not condition:
        raise AssertionError(message)


def check_flag(name: str, value: Any) -> None:
    """Raise ValueError unless an argument is True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} should be True or False, and it is {value!r}. Pass a bool.")


def check_variable(layer: Layer, name: str, value: Any, dtypes: tuple[str, ...] = ()) -> None:
    """Raise TypeError if a layer is called with an array instead of a variable, in a program also for its dtype.

    ``dtypes`` are those that the layer takes; any if it is empty.
    """
    if not isinstance(value, Variable):
        raise TypeError(
            explain(
                f"{layer.full_name()}: {name} is no variable",
                "a variable of eager mode, or of a program",
                f"{type(value)}",
                "make it one with fluid.dygraph.to_variable",
            )
        )
    if dtypes and not in_dygraph_mode():
        check_dtype(value.dtype, name, dtypes, layer.full_name())


class Linear(Layer):
    """Linear map act(input W + b) over the last axis of an input of any rank.

    Args:
        input_dim: size of the input's last axis.
        output_dim: size of the output's last axis.
        param_attr: attributes of ``weight`` [input_dim, output_dim].
        bias_attr: attributes of ``bias`` [output_dim]; False for none.
        act: activation of the result.
        dtype: of the parameters.

    Examples:
        >>> with fluid.dygraph.guard():
        ...     linear = fluid.dygraph.Linear(3, 2, act="relu")
        ...     print(linear(fluid.layers.ones([4, 3], "float32")).shape, linear.weight.shape)
        [4, 2] [3, 2]
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        param_attr: Any = None,
        bias_attr: Any = None,
        act: str | None = None,
        dtype: Any = "float32",
    ) -> None:
        super().__init__()
        self._act = act
        self._dtype = dtype
        self.weight = self.create_parameter([input_dim, output_dim], param_attr, dtype)
        self.bias = self.create_parameter([output_dim], bias_attr, dtype, is_bias=True)
        self._attrs = {"transpose_X": False, "transpose_Y": False, "alpha": 1.0}

    def forward(self, input: Variable) -> Variable:
        """The input with its last axis mapped to output_dim. Raises TypeError for an array."""
        check_variable(self, "input", input, FLOATS)
        out = self._helper.run("matmul", {"X": input, "Y": self.weight}, self._attrs)
        if self.bias is None and self._act is None and in_dygraph_mode():
            out = as_generated(out)
        out = plus_bias(self, out, len(input.shape) - 1)
        return self._helper.append_activation(out, self._act)


def plus_bias(layer: Layer, out: Variable, axis: int) -> Variable:
    """Add the layer's ``bias`` along an axis, if it has one."""
    bias = layer.bias
    if bias is None:
        return out
    return layer._helper.run("elementwise_add", {"X": out, "Y": bias}, {"axis": axis})


@named("size is_sparse is_distributed padding_idx param_attr dtype")
class Embedding(Layer):
    """Look up rows of a table by id: [N] -> [N, D], [N, 1] -> [N, 1, D].

    Args:
        size: [number of ids, D].
        is_sparse: whether the gradient is a SelectedRows.
        is_distributed: recorded in the op.
        padding_idx: an id that maps to zeros and is not trained; a negative value counts from the end.
        param_attr: attributes of ``weight``, the table.
        dtype: of the table.

    Examples:
        >>> with fluid.dygraph.guard():
        ...     table = fluid.dygraph.Embedding(size=[100, 8])
        ...     print(table(fluid.dygraph.to_variable(np.int64([[3], [5]]))).shape)
        [2, 1, 8]
    """

    _is_sparse = Kept("is_sparse")
    _is_distributed = Kept("is_distributed")
    _remote_prefetch = Kept("remote_prefetch")
    _padding_idx = Kept("padding_idx")

    def __init__(
        self,
        size: list[int],
        is_sparse: bool = False,
        is_distributed: bool = False,
        padding_idx: int | None = None,
        param_attr: Any = None,
        dtype: Any = "float32",
    ) -> None:
        super().__init__()
        self._size, self._param_attr = size, param_attr
        padding_idx = -1 if padding_idx is None else padding_idx if padding_idx >= 0 else size[0] + padding_idx
        self._dtype = dtype
        self._is_sparse, self._is_distributed, self._padding_idx = is_sparse, is_distributed, padding_idx
        self._remote_prefetch = is_sparse and not is_distributed
        self.weight = self.create_parameter(size, param_attr, dtype)

    def forward(self, input: Variable) -> Variable:
        """The rows of int64 ids of any shape: that shape followed by D."""
        check_variable(self, "input", input, ("int64",))
        return self._helper.run("lookup_table_v2", {"W": self.weight, "Ids": input}, self._attrs)


class Dropout(Layer):
    """Set elements of the input to zero at random while ``training``.

    Args:
        p: the probability that an element is zeroed.
        seed: makes the mask reproducible; by default the main program's random_seed, if set.
        dropout_implementation: "downgrade_in_infer" scales by 1 - p in evaluation; "upscale_in_train" divides by it
            during training.
        is_test: in static mode only: disable dropout.
    """

    def __init__(
        self,
        p: float = 0.5,
        seed: int | None = None,
        dropout_implementation: str = "downgrade_in_infer",
        is_test: bool = False,
    ) -> None:
        super().__init__()
        require(isinstance(p, (float, int)), f"Dropout: p argument should be a number, and it is {p!r}.")
        require(0 <= p <= 1, f"Dropout: p argument should between 0 and 1, and it is {p}.")
        require(
            seed is None or isinstance(seed, int), f"Dropout: seed argument should be None or an int, not {seed!r}."
        )
        require(
            dropout_implementation in ("downgrade_in_infer", "upscale_in_train"),
            "dropout_implementation argument should be 'downgrade_in_infer' or 'upscale_in_train', and it is "
            f"{dropout_implementation!r}.",
        )
        self._dropout_prob = p
        self._seed = seed
        self._dropout_implementation = dropout_implementation
        self._is_test = is_test

    def forward(self, input: Variable) -> Variable:
        """A Variable shaped like the input."""
        check_variable(self, "input", input)
        seed = self._seed or default_main_program().random_seed or None
        attrs = {
            "dropout_prob": self._dropout_prob,
            "is_test": not self.training if follows_training() else self._is_test,
            "fix_seed": seed is not None,
            "seed": seed or 0,
            "dropout_implementation": self._dropout_implementation,
        }
        return self._helper.run("dropout", {"X": input}, attrs, "Out", ("Out", "Mask"))


@named(
    "size name act param_attr bias_attr",
    of_sizes(
        input1_dim=lambda given, inputs: inputs[0].shape[1],
        input2_dim=lambda given, inputs: inputs[1].shape[1],
        output_dim=lambda given, inputs: given.pop("size"),
    ),
)
class BilinearTensorProduct(Layer):
    """act(x W_i y + b_i) for each i in range(output_dim).

    Args:
        input1_dim, input2_dim: sizes of x and y.
        output_dim: size of the output.
        name: accepted for compatibility with Fluid.
        act: activation of the result.
        param_attr: attributes of ``weight`` [output_dim, input1_dim, input2_dim].
        bias_attr: attributes of ``bias`` [1, output_dim]; False for none.
        dtype: of the parameters.
    """

    def __init__(
        self,
        input1_dim: int,
        input2_dim: int,
        output_dim: int,
        name: str | None = None,
        act: str | None = None,
        param_attr: Any = None,
        bias_attr: Any = None,
        dtype: Any = "float32",
    ) -> None:
        super().__init__()
        self._param_attr, self._bias_attr = param_attr, bias_attr
        self._act, self._name = act, name
        self._input1_dim, self._input2_dim, self._output_dim = input1_dim, input2_dim, output_dim
        self._dtype = dtype
        self.weight = self.create_parameter([output_dim, input1_dim, input2_dim], param_attr, dtype)
        self.bias = self.create_parameter([1, output_dim], bias_attr, dtype, is_bias=True)

    def forward(self, x: Variable, y: Variable) -> Variable:
        """[N, output_dim] of x [N, input1_dim] and y [N, input2_dim]."""
        check_variable(self, "x", x, FULL_FLOATS)
        check_variable(self, "y", y, FULL_FLOATS)
        inputs = {"X": x, "Y": y, "Weight": self.weight, "Bias": self.bias}
        out = self._helper.run("bilinear_tensor_product", inputs, {})
        self._helper.direct = False  # the tracer numbers the product, unique_name its activation, as in Fluid
        return self._helper.append_activation(out, self._act)


def _mode_comes_second(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return "name_scope" in kwargs or bool(args) and ("mode" in kwargs or isinstance([*args, None][1], str))


@named(
    "mode param_attr",
    of_sizes(channel=lambda given, inputs: inputs[0].shape[1], input_shape=lambda given, inputs: list(inputs[0].shape)),
    _mode_comes_second,
)
class PRelu(Layer):
    """max(0, x) + alpha * min(0, x), with a learned alpha, initially 1.

    Args:
        mode: "all" for a single alpha, "channel" for one per channel, "element" for one per element.
        channel: the number of channels, in mode "channel".
        input_shape: in mode "element", the input's shape including the batch axis.
        param_attr: attributes of ``weight``, the alphas.
        dtype: of the parameters.
    """

    def __init__(
        self,
        mode: str,
        channel: int | None = None,
        input_shape: Any = None,
        param_attr: Any = None,
        dtype: Any = "float32",
    ) -> None:
        super().__init__("prelu")
        self._mode, self._param_attr = mode, param_attr
        self._dtype = dtype
        self._alpha_shape = self._shape_of_alpha(mode, channel, input_shape)
        self.weight = self.create_parameter(self._alpha_shape, param_attr, dtype, default_initializer=Constant(1.0))

    def _shape_of_alpha(self, mode: str, channel: int | None, input_shape: Any) -> list[int]:
        if mode == "all":
            return [1]
        if mode == "channel":
            known = isinstance(channel, int)
            require(known, f"PRelu: channel argument is required when mode is 'channel', and it is {channel!r}.")
            return [1, channel, 1, 1]  # type: ignore[list-item]
        if mode == "element":
            known = isinstance(input_shape, (list, tuple))
            require(known, f"PRelu: input_shape argument is required when mode is 'element', not {input_shape!r}.")
            return [1, *input_shape[1:]]
        raise ValueError(f"PRelu: mode should be one of all, channel, element, and it is {mode!r}.")

    def forward(self, input: Variable) -> Variable:
        """A Variable shaped like the input."""
        check_variable(self, "input", input, ("float32",))
        return self._helper.run("prelu", {"X": input, "Alpha": self.weight}, {"mode": self._mode})
