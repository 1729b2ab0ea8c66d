"""Random tensors. A nonzero ``seed`` gives the same values in every run."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidjax import unique_name
from fluidjax.base.enums import to_var_type
from fluidjax.base.errors import ArgumentError
from fluidjax.framework import Variable
from fluidjax.framework import device_guard as on_device
from fluidjax.layer_helper import LayerHelper
from fluidjax.layers._tensor.shapes import as_attr, as_tensors, contains_variable, shape_argument
from fluidjax.writing.checks import FLOATS, FULL_FLOATS, INTS, check_dtype, check_type, check_variable_and_dtype
from fluidjax.writing.emit import emit

__all__ = [
    "gaussian_random",
    "gaussian_random_batch_size_like",
    "randint",
    "randn",
    "random_crop",
    "randperm",
    "sampling_id",
    "uniform_random",
    "uniform_random_batch_size_like",
]


def _shape_of(helper: LayerHelper, inputs: dict[str, Any], attrs: dict[str, Any], shape: Any, with_attr: bool) -> None:
    """Bind a shape that may contain Variables; its plain numbers become int64 temporaries of the layer."""
    if isinstance(shape, Variable):
        shape.stop_gradient = True
        inputs["ShapeTensor"] = shape
        return
    if not len(shape):
        raise ArgumentError("The size of argument(shape) can't be zero; pass at least one dim")
    mixed = contains_variable(shape)
    if mixed:
        inputs["ShapeTensorList"] = as_tensors(helper, shape, "int64")
    if with_attr or not mixed:
        attrs["shape"] = as_attr(shape)


def _drawn(op_type: str, shape: Any, dtype: Any, attrs: dict[str, Any], out: Variable | None = None) -> Variable:
    helper = LayerHelper(op_type)
    inputs: dict[str, Any] = {}
    attrs = {**attrs, "dtype": int(to_var_type(dtype))}
    if op_type == "uniform_random":
        _shape_of(helper, inputs, attrs, shape, with_attr=True)
    else:
        shape_argument(helper, inputs, attrs, shape, op_type)
    if out is None:
        out = helper.create_variable_for_type_inference(dtype)
    helper.append_op(type=op_type, inputs=inputs, outputs={"Out": out}, attrs=attrs)
    return out


def uniform_random(shape: Any, dtype: Any = "float32", min: float = -1.0, max: float = 1.0, seed: int = 0) -> Variable:
    """Uniform random values from [min, max).

    Args:
        shape: a list of ints and Variables [1], or a Variable.
        dtype: float32 or float64.
        min, max: the bounds.
        seed: 0 for different values in each run.
    """
    check_type(shape, "shape", (list, tuple, Variable), "uniform_random/rand")
    dtype = to_var_type(dtype)
    check_dtype(dtype, "dtype", FULL_FLOATS, "uniform_random/rand")
    return _drawn("uniform_random", shape, dtype, {"min": min, "max": max, "seed": seed})


def gaussian_random(shape: Any, mean: float = 0.0, std: float = 1.0, seed: int = 0, dtype: Any = "float32") -> Variable:
    """Random values from the normal distribution N(mean, std ** 2); ``shape`` as for uniform_random."""
    check_type(shape, "shape", (list, tuple, Variable), "gaussian_random/randn")
    dtype = to_var_type(dtype)
    check_dtype(dtype, "dtype", FULL_FLOATS, "gaussian_random/randn")
    return _drawn("gaussian_random", shape, dtype, {"mean": mean, "std": std, "seed": seed})


def _batch_like(op_type: str, input: Variable, shape: Any, dtype: Any, attrs: dict[str, Any]) -> Variable:
    check_type(input, "Input", Variable, op_type)
    check_type(shape, "shape", (list, tuple), op_type)
    check_dtype(dtype, "dtype", FLOATS, op_type)
    attrs = {"shape": list(shape), **attrs, "dtype": int(to_var_type(dtype))}
    return emit(op_type, {"Input": input}, dtype, attrs)


def uniform_random_batch_size_like(
    input: Variable,
    shape: list[int],
    dtype: Any = "float32",
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    min: float = -1.0,
    max: float = 1.0,
    seed: int = 0,
) -> Variable:
    """``uniform_random`` whose dimension ``output_dim_idx`` equals dimension ``input_dim_idx`` of ``input``."""
    check_variable_and_dtype(input, "Input", FULL_FLOATS, "uniform_random_batch_size_like")
    attrs = {"input_dim_idx": input_dim_idx, "output_dim_idx": output_dim_idx, "min": min, "max": max, "seed": seed}
    return _batch_like("uniform_random_batch_size_like", input, shape, dtype, attrs)


def gaussian_random_batch_size_like(
    input: Variable,
    shape: list[int],
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    mean: float = 0.0,
    std: float = 1.0,
    seed: int = 0,
    dtype: Any = "float32",
) -> Variable:
    """``gaussian_random`` whose dimension ``output_dim_idx`` equals dimension ``input_dim_idx`` of ``input``."""
    attrs = {"input_dim_idx": input_dim_idx, "output_dim_idx": output_dim_idx, "mean": mean, "std": std, "seed": seed}
    return _batch_like("gaussian_random_batch_size_like", input, shape, dtype, attrs)


def _check_device(device: str | None) -> None:
    if device not in (None, "cpu", "gpu"):
        raise ArgumentError(f"The input device should in [None, 'cpu', 'gpu'], received {device!r}; leave it out")


def randint(
    low: int,
    high: int | None = None,
    shape: Any = None,
    out: Variable | None = None,
    dtype: Any = None,
    device: str | None = None,
    stop_gradient: bool = False,
    seed: int = 0,
    name: str | None = None,
) -> Variable:
    """Random integers from [low, high), or [0, low) without ``high``; shape [1] and int64 by default.

    Raises:
        ValueError: the range is empty.
    """
    low, high = (0, low) if high is None else (low, high)
    shape = [1] if shape is None else shape
    dtype = "int64" if dtype is None else dtype
    check_type(shape, "shape", (list, tuple, Variable), "randint")
    check_dtype(dtype, "dtype", INTS, "randint")
    if low >= high:
        raise ArgumentError(f"randint's low must less then high, but received low = {low}, high = {high}; swap them")
    _check_device(device)
    helper = LayerHelper("randint", name=name)
    inputs: dict[str, Any] = {}
    attrs: dict[str, Any] = {"low": low, "high": high, "seed": seed}
    _shape_of(helper, inputs, attrs, shape, with_attr=False)
    if out is None:
        out = helper.create_variable(
            name=unique_name.generate_with_ignorable_key(f"{helper.name}.tmp"), dtype=dtype, persistable=False
        )
    attrs["dtype"] = int(out.dtype)
    out.stop_gradient = stop_gradient
    with on_device(device):
        helper.append_op(type="randint", inputs=inputs, outputs={"Out": out}, attrs=attrs)
    return out


def randn(
    shape: Any,
    out: Variable | None = None,
    dtype: Any = None,
    device: str | None = None,
    stop_gradient: bool = True,
    name: str | None = None,
) -> Variable:
    """Random values from the standard normal distribution; float32 unless ``dtype`` is given."""
    helper = LayerHelper("randn", name=name)
    check_type(shape, "shape", (list, tuple, Variable), "randn")
    if not len(shape):
        raise ArgumentError("The size of argument(shape) can't be zero; pass at least one dim")
    dtype = "float32" if dtype is None else dtype
    check_dtype(dtype, "create data type", FULL_FLOATS, "randn")
    _check_device(device)
    if out is None:
        out = helper.create_variable_for_type_inference(dtype=dtype)
    out.stop_gradient = stop_gradient
    attrs = {"mean": 0.0, "std": 1.0, "seed": 0, "dtype": int(to_var_type(dtype))}
    inputs: dict[str, Any] = {}
    shape_argument(helper, inputs, attrs, shape, "randn")
    with on_device(device):
        helper.append_op(type="gaussian_random", inputs=inputs, outputs={"Out": out}, attrs=attrs)
    return out


def randperm(
    n: int,
    out: Variable | None = None,
    dtype: Any = "int64",
    device: str | None = None,
    stop_gradient: bool = True,
    seed: int = 0,
) -> Variable:
    """A random permutation of 0 .. n - 1, int32 or int64.

    Raises:
        ValueError: ``n`` is not positive.
    """
    if n < 1:
        raise ArgumentError(f"The input n should be greater than 0 in randperm op, received {n}; pass a positive n")
    if out is not None:
        check_variable_and_dtype(out, "out", [str(np.dtype(dtype))], "randperm")
    check_dtype(dtype, "dtype", ("int64", "int32"), "randperm")
    _check_device(device)
    helper = LayerHelper("randperm")
    if out is None:
        out = helper.create_variable_for_type_inference(dtype=dtype)
    out.stop_gradient = stop_gradient
    attrs = {"n": n, "dtype": int(out.dtype), "seed": seed}
    with on_device(device):
        helper.append_op(type="randperm", inputs={}, outputs={"Out": out}, attrs=attrs)
    return out


def random_crop(x: Variable, shape: list[int], seed: Any = None) -> Variable:
    """Crop a window of ``shape`` from the last dimensions of ``x``, at a random position for each sample.

    Args:
        x: [N, ...].
        shape: sizes of the last dimensions.
        seed: an int, an int64 Variable advanced by the op, or None to draw one now.

    Raises:
        ValueError: ``seed`` has another type.
    """
    check_variable_and_dtype(x, "x", ("float32", "float64", "uint8", "int16", "int32"), "random_crop")
    helper = LayerHelper("random_crop")
    out = helper.create_variable_for_type_inference(x.dtype)
    seed = int(np.random.randint(-65536, 65536)) if seed is None else seed
    attrs: dict[str, Any] = {"shape": list(shape)}
    if isinstance(seed, int):
        attrs["startup_seed"] = seed
        seed = helper.create_variable(name=unique_name.generate("random_crop_seed"), dtype="int64", persistable=True)
    elif not isinstance(seed, Variable):
        raise ArgumentError(f"'seed' must be a Variable or an int, received {type(seed).__name__}; pass one of them")
    inputs = {"X": x, "Seed": seed}
    helper.append_op(type="random_crop", inputs=inputs, outputs={"Out": out, "SeedOut": seed}, attrs=attrs)
    return out


def sampling_id(x: Variable, min: float = 0.0, max: float = 1.0, seed: int = 0, dtype: Any = "float32") -> Variable:
    """Sample a column for each row of ``x``, which holds probabilities: [N]."""
    return emit("sampling_id", {"X": x}, dtype, {"min": min, "max": max, "seed": seed})
