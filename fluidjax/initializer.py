"""Initializers: each writes, into the startup program, the op that initialises a parameter."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from fluidjax import unique_name
from fluidjax.base.enums import VarType
from fluidjax.base.errors import ArgumentError
from fluidjax.base.mode import in_dygraph_mode
from fluidjax.base.unknown import unknown_name
from fluidjax.framework.block import Block
from fluidjax.framework.variable import Variable

if TYPE_CHECKING:
    from fluidjax.framework.operator import Operator

__all__ = [
    "Constant",
    "Uniform",
    "Normal",
    "TruncatedNormal",
    "Xavier",
    "Bilinear",
    "MSRA",
    "ConstantInitializer",
    "UniformInitializer",
    "NormalInitializer",
    "TruncatedNormalInitializer",
    "XavierInitializer",
    "BilinearInitializer",
    "MSRAInitializer",
    "NumpyArrayInitializer",
]


class Initializer:
    """Base class of initializers."""

    def __call__(self, param: Variable, block: Block) -> Any:
        """Write the op that initialises `param` into `block`."""
        raise TypeError(f"{type(self).__name__} initialises nothing. Use one of {', '.join(__all__[:7])}.")

    def _check_block(self, block: Block) -> None:
        if not isinstance(block, Block):
            raise TypeError(
                f"{type(self).__name__}: the block is {block!r}. Expected a Block. Pass startup_program.global_block()."
            )

    def _check_float(self, var: Variable) -> None:
        if var.dtype not in (VarType.FP16, VarType.FP32, VarType.FP64):
            raise TypeError(
                f"{type(self).__name__}: the data type of {var.name} must be float16, float32 or float64, but received "
                f"{var.dtype}. Initialise integers with Constant or NumpyArrayInitializer."
            )

    def _compute_fans(self, var: Variable) -> tuple[int, int]:
        """(fan-in, fan-out); a matrix is [in, out], a filter [out, in, *receptive field]."""
        shape = var.shape
        if not shape:
            return 1, 1
        if len(shape) == 1:
            return shape[0], shape[0]
        if len(shape) == 2:
            return shape[0], shape[1]
        receptive = math.prod(shape[2:])
        return shape[1] * receptive, shape[0] * receptive

    def _emit(
        self, var: Variable, block: Block, op_type: str, attrs: dict[str, Any], prefix: str = "", prepend: bool = True
    ) -> Operator:
        """Write the op, followed by a cast if the variable has half precision and `prefix` names a float32 temporary.

        Fluid prepends initialising ops, so a startup program contains them in reverse order.
        """
        out, dtype = var, var.dtype
        if prefix and dtype == VarType.FP16:
            dtype = VarType.FP32
            name = unique_name.generate(".".join([prefix, var.name, "tmp"]))
            out = block.create_var(name=name, shape=var.shape, dtype=dtype, type=VarType.LOD_TENSOR, persistable=False)
        attrs = {**attrs, "dtype": int(dtype)}
        make = block._prepend_op if prepend else block.append_op
        # Fluid gives these ops an empty dict of inputs, or none at all, and only the former shows in the OpDesc.
        inputs: dict[str, Any] | None = {} if op_type == "uniform_random" else None
        op = make(type=op_type, inputs=inputs, outputs={"Out": out}, attrs=attrs)
        if out is not var:
            cast = {"in_dtype": int(dtype), "out_dtype": int(var.dtype)}
            block.append_op(type="cast", inputs={"X": out}, outputs={"Out": var}, attrs=cast)
        if not in_dygraph_mode():
            var.op = op
        return op


def _seed(seed: int, block: Block) -> int:
    return seed if seed else block.program.random_seed


class ConstantInitializer(Initializer):
    """Sets every element to `value`. `force_cpu` is recorded in the op; XLA decides where to place the value.

    Examples:
        >>> w = fluid.layers.create_parameter([2], "float32", "w", default_initializer=fluid.initializer.Constant(0.5))
        >>> startup = fluid.Executor().run(fluid.default_startup_program())
        >>> np.array(fluid.global_scope().find_var("w").get_tensor())
        array([0.5, 0.5], dtype=float32)
    """

    def __init__(self, value: float = 0.0, force_cpu: bool = False) -> None:
        if value is None:
            raise ArgumentError("Constant: the value is None. Expected a number.")
        self._value = value
        self._force_cpu = force_cpu

    def __call__(self, var: Variable, block: Block) -> Operator:
        """Write a ``fill_constant`` op."""
        self._check_block(block)
        attrs = {"shape": list(var.shape), "value": float(self._value), "force_cpu": self._force_cpu}
        return self._emit(var, block, "fill_constant", attrs, "constant_init")


class UniformInitializer(Initializer):
    """Draws elements uniformly from [`low`, `high`).

    With `diag_num`, that many elements on a diagonal, `diag_step` columns apart, are set to `diag_val`.

    Examples:
        >>> attr = fluid.ParamAttr(initializer=fluid.initializer.Uniform(-0.1, 0.1, seed=1))
        >>> w = fluid.layers.create_parameter([100], "float32", attr=attr)
        >>> startup = fluid.Executor().run(fluid.default_startup_program())
        >>> bool(abs(np.array(fluid.global_scope().find_var(w.name).get_tensor())).max() < 0.1)
        True
    """

    def __init__(
        self,
        low: float = -1.0,
        high: float = 1.0,
        seed: int = 0,
        diag_num: int = 0,
        diag_step: int = 0,
        diag_val: float = 1.0,
    ) -> None:
        if low is None or high is None or high < low:
            raise ArgumentError(f"Uniform: low {low} and high {high} are no range. Give numbers with low <= high.")
        self._low, self._high, self._seed = low, high, seed
        self._diagonal = {"diag_num": diag_num, "diag_step": diag_step, "diag_val": float(diag_val)}

    def __call__(self, var: Variable, block: Block) -> Operator:
        """Write a ``uniform_random`` op."""
        self._check_block(block)
        self._check_float(var)
        return _uniform(self, var, block, (self._low, self._high), self._seed, "uniform_random", **self._diagonal)


def _uniform(
    init: Initializer,
    var: Variable,
    block: Block,
    limits: tuple[float, float],
    seed: int,
    prefix: str,
    **diagonal: Any,
) -> Operator:
    attrs = {
        "shape": list(var.shape),
        "min": float(limits[0]),
        "max": float(limits[1]),
        "seed": _seed(seed, block),
        **diagonal,
    }
    return init._emit(var, block, "uniform_random", attrs, prefix)


def _normal(
    init: Initializer, var: Variable, block: Block, mean: float, std: float, seed: int, prefix: str
) -> Operator:
    attrs = {"shape": list(var.shape), "mean": float(mean), "std": float(std), "seed": _seed(seed, block)}
    op_type = "truncated_gaussian_random" if prefix == "truncated_gaussian_random" else "gaussian_random"
    return init._emit(var, block, op_type, attrs, prefix)


class NormalInitializer(Initializer):
    """Draws elements from a normal distribution with mean `loc` and standard deviation `scale`.

    Examples:
        >>> attr = fluid.ParamAttr(initializer=fluid.initializer.Normal(0.0, 0.02, seed=1))
        >>> w = fluid.layers.create_parameter([1000], "float32", attr=attr)
        >>> startup = fluid.Executor().run(fluid.default_startup_program())
        >>> round(float(np.array(fluid.global_scope().find_var(w.name).get_tensor()).std()), 2)
        0.02
    """

    def __init__(self, loc: float = 0.0, scale: float = 1.0, seed: int = 0) -> None:
        if loc is None or scale is None:
            raise ArgumentError(f"Normal: loc is {loc}, scale is {scale}. Expected numbers.")
        self._mean, self._std_dev, self._seed = loc, scale, seed

    def __call__(self, var: Variable, block: Block) -> Operator:
        """Write a ``gaussian_random`` op."""
        self._check_block(block)
        self._check_float(var)
        return _normal(self, var, block, self._mean, self._std_dev, self._seed, "gaussian_random")


class TruncatedNormalInitializer(Initializer):
    """A normal distribution truncated at two standard deviations: values beyond are redrawn.

    Examples:
        >>> attr = fluid.ParamAttr(initializer=fluid.initializer.TruncatedNormal(0.0, 0.1, seed=1))
        >>> w = fluid.layers.create_parameter([1000], "float32", attr=attr)
        >>> startup = fluid.Executor().run(fluid.default_startup_program())
        >>> bool(abs(np.array(fluid.global_scope().find_var(w.name).get_tensor())).max() <= 0.2)
        True
    """

    def __init__(self, loc: float = 0.0, scale: float = 1.0, seed: int = 0) -> None:
        if loc is None or scale is None:
            raise ArgumentError(f"TruncatedNormal: loc is {loc}, scale is {scale}. Expected numbers.")
        self._mean, self._std_dev, self._seed = loc, scale, seed

    def __call__(self, var: Variable, block: Block) -> Operator:
        """Write a ``truncated_gaussian_random`` op."""
        self._check_block(block)
        return _normal(self, var, block, self._mean, self._std_dev, self._seed, "truncated_gaussian_random")


class XavierInitializer(Initializer):
    """Glorot initialisation: with n = fan-in + fan-out, uniform in +-sqrt(6 / n), or normal with std sqrt(2 / n)."""

    def __init__(
        self, uniform: bool = True, fan_in: float | None = None, fan_out: float | None = None, seed: int = 0
    ) -> None:
        assert uniform is not None and seed is not None, "Xavier: uniform or seed is None. Leave it out."
        self._uniform, self._fan_in, self._fan_out, self._seed = uniform, fan_in, fan_out, seed

    def __call__(self, var: Variable, block: Block) -> Operator:
        """Write a ``uniform_random`` or ``gaussian_random`` op."""
        self._check_block(block)
        self._check_float(var)
        fans = self._compute_fans(var)
        fan_in = fans[0] if self._fan_in is None else self._fan_in
        fan_out = fans[1] if self._fan_out is None else self._fan_out
        if self._uniform:
            limit = math.sqrt(6.0 / float(fan_in + fan_out))
            return _uniform(self, var, block, (-limit, limit), self._seed, "xavier_init")
        std = math.sqrt(2.0 / float(fan_in + fan_out))
        return _normal(self, var, block, 0.0, std, self._seed, "xavier_init")


class MSRAInitializer(Initializer):
    """He initialisation, for ReLU: uniform in +-sqrt(6 / fan-in), or normal with std sqrt(2 / fan-in)."""

    def __init__(self, uniform: bool = True, fan_in: float | None = None, seed: int = 0) -> None:
        assert uniform is not None and seed is not None, "MSRA: uniform or seed is None. Leave it out."
        self._uniform, self._fan_in, self._seed = uniform, fan_in, seed

    def __call__(self, var: Variable, block: Block) -> Operator:
        """Write a ``uniform_random`` or ``gaussian_random`` op."""
        self._check_block(block)
        fan_in = self._compute_fans(var)[0] if self._fan_in is None else self._fan_in
        if self._uniform:
            limit = math.sqrt(6.0 / float(fan_in))
            return _uniform(self, var, block, (-limit, limit), self._seed, "masra_init")
        return _normal(self, var, block, 0.0, math.sqrt(2.0 / float(fan_in)), self._seed, "masra_init")


def _write_values(
    init: Initializer, var: Variable, block: Block, values: np.ndarray, prefix: str, **options: Any
) -> Operator:
    """Write an ``assign_value`` op. Raises ValueError for dtypes it cannot hold, or too many elements."""
    fields: dict[VarType, tuple[str, Callable[[Any], Any]]] = {
        VarType.FP16: ("fp32_values", float),
        VarType.FP32: ("fp32_values", float),
    }
    fields[VarType.INT32] = ("int32_values", int)
    if var.dtype not in fields:
        raise ArgumentError(
            f"{type(init).__name__}: unsupported dtype {var.dtype} of {var.name}. Expected float16, float32 or int32: "
            "the op assign_value holds no others. Use another dtype, or set the value in the Scope."
        )
    if values.size > 1024 * 1024 * 1024:
        raise ArgumentError(
            f"The size of input is too big: {values.size} values for {var.name}, an op holds up to 2**30. Consider "
            "saving them to a file and loading it with fluid.io.load_vars."
        )
    field, kind = fields[var.dtype]
    attrs = {"shape": list(values.shape), field: [kind(v) for v in values.reshape(-1).tolist()]}
    return init._emit(var, block, "assign_value", attrs, prefix, **options)


class BilinearInitializer(Initializer):
    """Filters [out, in, k, k] for a transposed convolution that upsamples images by bilinear interpolation.

    With f = ceil(k / 2) and c = (2 f - 1 - f mod 2) / (2 f), element i of the flattened filter is
    (1 - |x / f - c|) (1 - |y / f - c|), x = i mod k, y = (i / k) mod k. Fluid 1.8 on Python 3 uses true division
    there, so y is not an integer; programs trained that way depend on it.
    """

    def __call__(self, var: Variable, block: Block) -> Operator:
        """Write an ``assign_value`` op. Raises ValueError unless the shape is [out, in, k, k]."""
        self._check_block(block)
        shape = var.shape
        if len(shape) != 4:
            raise ArgumentError(
                f"Bilinear: the length of shape must be 4, {var.name} has {list(shape)}. Use another one."
            )
        if shape[2] != shape[3]:
            raise ArgumentError(f"Bilinear: shape[2] must be equal to shape[3], {var.name} has {list(shape)}.")
        size = shape[3]
        f = np.ceil(size / 2.0)
        c = (2 * f - 1 - f % 2) / (2.0 * f)
        i = np.arange(math.prod(shape))
        x, y = i % size, (i / size) % size
        weight = ((1 - abs(x / f - c)) * (1 - abs(y / f - c))).astype(np.float32)
        return _write_values(self, var, block, weight.reshape(shape), "bilinear_init", prepend=False)


class NumpyArrayInitializer(Initializer):
    """Sets the parameter to the given array; float32 or int32."""

    def __init__(self, value: np.ndarray) -> None:
        if not isinstance(value, np.ndarray):
            raise ArgumentError(f"NumpyArrayInitializer: {value!r} is no NumPy array. Pass numpy.asarray(value).")
        self._value = value

    def __call__(self, var: Variable, block: Block) -> Operator:
        """Write an ``assign_value`` op."""
        self._check_block(block)
        return _write_values(self, var, block, self._value, "numpy_array_init")


Constant = ConstantInitializer
Uniform = UniformInitializer
Normal = NormalInitializer
TruncatedNormal = TruncatedNormalInitializer
Xavier = XavierInitializer
Bilinear = BilinearInitializer
MSRA = MSRAInitializer


def force_init_on_cpu() -> bool:
    """Always False: XLA computes initial values where the parameters reside. From Fluid up to 1.7."""
    return False


@contextmanager
def init_on_cpu() -> Iterator[None]:
    """A no-op; in Fluid up to 1.7, parameters created inside were initialised on the CPU."""
    yield


__getattr__ = unknown_name(__name__)
