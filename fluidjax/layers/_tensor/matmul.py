"""Matrix and vector products."""

from __future__ import annotations

from typing import Any

from fluidjax.base.errors import ArgumentError
from fluidjax.framework import Variable, in_dygraph_mode
from fluidjax.framework.direct import as_generated
from fluidjax.layer_helper import LayerHelper
from fluidjax.writing.checks import FLOATS, FULL_FLOATS, FULL_NUMBERS, NUMBERS, check_type, check_variable_and_dtype
from fluidjax.writing.emit import emit, emit_many

__all__ = ["addmm", "bilinear_tensor_product", "bmm", "cos_sim", "cross", "dot", "matmul", "mul", "t"]


def mul(
    x: Variable, y: Variable, x_num_col_dims: int = 1, y_num_col_dims: int = 1, name: str | None = None
) -> Variable:
    """Matrix product of x and y, each flattened to a matrix.

    Args:
        x: its first ``x_num_col_dims`` dimensions form the rows; float16, float32 or float64.
        y: its first ``y_num_col_dims`` dimensions form the rows.

    Returns:
        The product, with the row dimensions of x and the column dimensions of y.
    """
    check_variable_and_dtype(x, "x", FLOATS, "mul")
    check_variable_and_dtype(y, "y", FLOATS, "mul")
    attrs = {"x_num_col_dims": x_num_col_dims, "y_num_col_dims": y_num_col_dims}
    return emit("mul", {"X": x, "Y": y}, x.dtype, attrs, name=name)


def _check_matmul(x: Variable, y: Variable, transpose_x: bool, transpose_y: bool) -> None:
    """Raise ValueError if known inner or batch dimensions differ; in eager mode the op itself reports it."""
    if in_dygraph_mode():
        return
    xs, ys = list(x.shape), list(y.shape)
    xs = [1, *xs] if len(xs) == 1 else xs
    ys = [*ys, 1] if len(ys) == 1 else ys
    if transpose_x:
        xs[-2], xs[-1] = xs[-1], xs[-2]
    if transpose_y:
        ys[-2], ys[-1] = ys[-1], ys[-2]
    if xs[-1] != ys[-2] and xs[-1] != -1 and ys[-2] != -1:
        raise ArgumentError(
            f"After performing an optional transpose, Input X's width should be equal to Y's width for matmul; "
            f"received x {x.shape}, y {y.shape}. Transpose or reshape one of them."
        )
    if len(ys) > 2 and len(xs) > 2:
        for i, dim in enumerate(ys[:-2]):
            if i < len(xs) and xs[i] >= 0 and dim >= 0 and xs[i] != dim:
                raise ArgumentError(
                    f"When the matrix is larger than 2 dimensions, the higher dimensional values of the two matrices "
                    f"need to be equal; received x {x.shape}, y {y.shape}. Reshape one of them."
                )


def matmul(
    x: Variable,
    y: Variable,
    transpose_x: bool = False,
    transpose_y: bool = False,
    alpha: float = 1.0,
    name: str | None = None,
) -> Variable:
    """Batched matrix product: out = alpha * x y over the last two dimensions.

    Args:
        x: float16, float32 or float64; a vector is treated as a row.
        y: a vector is treated as a column.
        transpose_x, transpose_y: transpose the last two dimensions first.
        alpha: scale factor.

    Raises:
        ValueError: the inner or batch dimensions differ.

    Examples:
        >>> with fluid.dygraph.guard():
        ...     x = fluid.dygraph.to_variable(np.float32([[1, 2], [3, 4]]))
        ...     print(fluid.layers.matmul(x, x, transpose_y=True).numpy())
        [[ 5. 11.]
         [11. 25.]]
    """
    for label, value in (("x", x), ("y", y)):
        check_variable_and_dtype(value, label, FLOATS, "matmul")
    _check_matmul(x, y, transpose_x, transpose_y)
    attrs = {"transpose_X": transpose_x, "transpose_Y": transpose_y, "alpha": float(alpha)}
    out = emit("matmul", {"X": x, "Y": y}, x.dtype, attrs, name=name)
    return as_generated(out) if in_dygraph_mode() else out


def bmm(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """out[b] = x[b] y[b], for x [B, M, K] and y [B, K, N].

    Raises:
        ValueError: an operand is not of rank 3, or the sizes are incompatible.
    """
    for label, value in (("x", x), ("y", y)):
        check_type(value, label, Variable, "bmm")
    if len(x.shape) != 3 or len(y.shape) != 3:
        raise ArgumentError(
            f"x and y should be 3-dimensional, received dims {len(x.shape)} and {len(y.shape)}; reshape them"
        )
    if x.shape[2] != y.shape[1]:
        raise ArgumentError(
            f"x's width must be equal with y's height, received x {x.shape}, y {y.shape}; transpose one"
        )
    return emit("bmm", {"X": x, "Y": y}, x.dtype, name=name)


def addmm(
    input: Variable, x: Variable, y: Variable, alpha: float = 1.0, beta: float = 1.0, name: str | None = None
) -> Variable:
    """out = alpha * x y + beta * input, for matrices; ``input`` is broadcast along dimensions of size 1.

    Raises:
        ValueError: an operand is not a matrix, or the sizes are incompatible.
    """
    for label, value in (("input", input), ("x", x), ("y", y)):
        check_variable_and_dtype(value, label, FULL_FLOATS, "addmm")
    if not len(input.shape) == len(x.shape) == len(y.shape) == 2:
        raise ArgumentError(
            f"The dimension of input, x, y should be 2 but receive {input.shape}, {x.shape}, {y.shape}; reshape them"
        )
    if x.shape[1] != y.shape[0]:
        raise ArgumentError(
            f"The input Variable x's width must be equal with y's height; received {x.shape}, {y.shape}"
        )
    attrs = {"Alpha": alpha, "Beta": beta}
    return emit("addmm", {"Input": input, "X": x, "Y": y}, x.dtype, attrs, name=name)


def dot(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """The inner product of vectors or batches of vectors along the last dimension, which is kept with size 1."""
    for label, value in (("x", x), ("y", y)):
        check_variable_and_dtype(value, label, FULL_NUMBERS, "dot")
    return emit("dot", {"X": x, "Y": y}, x.dtype, name=name)


def cross(input: Variable, other: Variable, dim: int | None = None) -> Variable:
    """The cross product along ``dim``, a dimension of size 3 (None: the first such)."""
    attrs = {"dim": dim} if dim is not None else {}
    return emit("cross", {"X": input, "Y": other}, input.dtype, attrs)


def cos_sim(X: Variable, Y: Variable) -> Variable:
    """out[n] = X[n] . Y[n] / (\\|X[n]\\| \\|Y[n]\\|), [N, 1]; Y may have a single row. float32."""
    check_variable_and_dtype(X, "X", "float32", "cos_sim")
    check_variable_and_dtype(Y, "Y", "float32", "cos_sim")
    outputs = [("Out", X.dtype, False), ("XNorm", X.dtype, False), ("YNorm", X.dtype, False)]
    return emit_many("cos_sim", {"X": [X], "Y": [Y]}, outputs)[0]


def t(input: Variable, name: str | None = None) -> Variable:
    """The transpose of a matrix; vectors and scalars are returned unchanged.

    Raises:
        ValueError: rank greater than 2.
    """
    check_variable_and_dtype(input, "input", NUMBERS, "transpose")
    if len(input.shape) > 2:
        raise ArgumentError(
            f"Input(input) only support N-D (N<=2) tensor, but received a {len(input.shape)}-D one."
            " Use fluid.layers.transpose with a perm."
        )
    if len(input.shape) <= 1:
        return input
    helper = LayerHelper("t", name=name)
    out = helper.create_variable_for_type_inference(input.dtype)
    shape = helper.create_variable_for_type_inference(input.dtype)
    outputs = {"Out": [out], "XShape": [shape]}
    helper.append_op(type="transpose2", inputs={"X": [input]}, outputs=outputs, attrs={"axis": [1, 0]})
    return out


def bilinear_tensor_product(
    x: Variable,
    y: Variable,
    size: int,
    act: str | None = None,
    name: str | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
) -> Variable:
    """out[b, i] = x[b] W[i] y[b] + bias[i], with a learned W [size, M, N].

    Args:
        x: [B, M], float32 or float64.
        y: [B, N].
        size: the number of output columns.
        act: activation applied to the result.
        param_attr, bias_attr: of W and the bias [1, size].
    """
    for name_of, var in (("x", x), ("y", y)):
        check_type(var, name_of, Variable, "bilinear_tensor_product")
    check_type(size, "size", int, "bilinear_tensor_product")
    helper = LayerHelper("bilinear_tensor_product", param_attr=param_attr, bias_attr=bias_attr, act=act, name=name)
    dtype = x.dtype
    shape = [size, x.shape[1], y.shape[1]]
    weight = helper.create_parameter(attr=helper.param_attr, shape=shape, dtype=dtype, is_bias=False)
    out = helper.create_variable_for_type_inference(dtype=dtype)
    inputs = {"X": x, "Y": y, "Weight": weight}
    if helper.bias_attr:
        inputs["Bias"] = helper.create_parameter(attr=helper.bias_attr, shape=[1, size], dtype=dtype, is_bias=True)
    helper.append_op(type="bilinear_tensor_product", inputs=inputs, outputs={"Out": out})
    return helper.append_activation(out)
