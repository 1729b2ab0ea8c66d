"""DataFeeder: converts samples, as yielded by readers, to the feed of ``Executor.run``."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

from fluidjax.base.enums import VarType, to_numpy_dtype, to_var_type
from fluidjax.base.errors import EnforceNotMet
from fluidjax.base.mode import in_dygraph_mode
from fluidjax.base.places import CUDAPlace, Place, cpu_places, cuda_places
from fluidjax.base.tracebacks import shortened
from fluidjax.base.unknown import unknown_name
from fluidjax.base.values import LoDTensor
from fluidjax.framework import Program, Variable, default_main_program

__all__ = ["DataFeeder"]

_DTYPES = ("bool", "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8")


@cache
def _name_of(dtype: VarType) -> str:
    return to_numpy_dtype(dtype).name  # which NumPy puts together each time


def convert_dtype(dtype: Any) -> str:
    """The name of a dtype ('float32'), given a VarType, a NumPy type or dtype, or a name.

    Raises ValueError for types that Fluid tensors do not support.
    """
    if isinstance(dtype, VarType):
        name = _name_of(dtype)
    elif isinstance(dtype, np.dtype):
        name = dtype.name
    elif isinstance(dtype, type):
        name = dtype.__name__.rstrip("_") if issubclass(dtype, (np.generic, bool)) else dtype.__name__
    else:
        name = dtype if isinstance(dtype, str) else repr(dtype)
    if name not in _DTYPES:
        raise ValueError(
            f"dtype must be any of [{', '.join(_DTYPES)}], but received {dtype!r}; name one of them, for instance "
            "'float32' or 'int64'"
        )
    return name


def check_variable_and_dtype(
    input: Any, input_name: str, expected_dtype: Any, op_name: str, extra_message: str = ""
) -> None:
    """Raise TypeError unless ``input`` is a Variable with an expected dtype."""
    if expected_dtype.__class__ is tuple and isinstance(input, Variable):
        known = input.dtype, expected_dtype
        if known in _fitting:
            return
        check_dtype(known[0], input_name, expected_dtype, op_name, extra_message)
        _fitting.add(known)
        return
    check_type(input, input_name, Variable, op_name, extra_message)
    check_dtype(input.dtype, input_name, expected_dtype, op_name, extra_message)


_fitting: set[tuple[VarType, tuple[str, ...]]] = set()  # data types, and what they are among


def check_type(input: Any, input_name: str, expected_type: Any, op_name: str, extra_message: str = "") -> None:
    """Raise TypeError unless ``input`` has an expected type; as in Fluid, not checked for attributes in eager mode."""
    if not isinstance(input, expected_type) and (expected_type is Variable or not in_dygraph_mode()):
        raise TypeError(
            f"The type of '{input_name}' in {op_name} must be {expected_type}, but received {type(input)}. "
            f"{extra_message or _remedy(input)}"
        )


_CAST = "Declare it with such a data type, or convert it with fluid.layers.cast."


def _remedy(input: Any) -> str:
    if isinstance(input, np.ndarray):
        return "Feed the array to a variable made by fluid.data, or make it one with fluid.layers.assign."
    return (
        "Pass a variable that fluid.data or a layer returned." if isinstance(input, str) else "Pass one of such a type."
    )


def check_dtype(input_dtype: Any, input_name: str, expected_dtype: Any, op_name: str, extra_message: str = "") -> None:
    """Raise TypeError (EnforceNotMet in eager mode) unless a dtype is among the expected ones, given by name.

    Eager mode takes it in any notation of NumPy ("double", int), as Fluid does.
    """
    loose = in_dygraph_mode() and isinstance(input_dtype, (str, type))
    name = convert_dtype(to_var_type(input_dtype) if loose else input_dtype)
    expected = expected_dtype if isinstance(expected_dtype, str) else list(expected_dtype)
    if name not in ([expected] if isinstance(expected, str) else expected):
        raise (EnforceNotMet if in_dygraph_mode() else TypeError)(
            f"The data type of '{input_name}' in {op_name} must be {expected}, but received {name}. "
            f"{extra_message or _CAST}"
        )


class DataToLoDTensorConverter:
    """Collects the values of one variable, sample by sample, in a LoDTensor.

    Args:
        place: where to place the tensor.
        lod_level: nesting depth of the sequences in a sample.
        shape: the variable's shape; with a single unknown dimension, flat samples are reshaped to it.
        dtype: dtype, in any notation.

    Attributes:
        name: name of the variable, for error messages, if known.
    """

    name = ""

    def __init__(self, place: Place, lod_level: int, shape: Sequence[int] | None, dtype: Any) -> None:
        self.place = place
        self.lod_level = lod_level
        dims = tuple(shape or ())
        self.shape = dims if sum(dim < 0 for dim in dims) <= 1 else None
        self.dtype = convert_dtype(dtype)
        self._reset()

    def _reset(self) -> None:
        self.data: list[Any] = []
        self.lod: list[list[int]] = [[] for _ in range(self.lod_level)]

    def feed(self, data: Any) -> None:
        """Add one sample."""
        self._feed(data, self.lod)

    def _feed(self, data: Any, lod: Sequence[list[int]]) -> None:
        if not lod:
            self.data.append(data)
            return
        if not hasattr(data, "__len__"):
            raise TypeError(
                f"a sample of a variable with lod_level={self.lod_level} is too flat: expected a list of a sequence's "
                f"values, received {type(data).__name__}; nest it as deep as lod_level says"
            )
        lod[0].append(len(data))
        for part in data:
            self._feed(part, lod[1:])

    def done(self) -> LoDTensor:
        """The tensor of all samples since the last call, and reset."""
        array = self._shaped(self._array())
        tensor = LoDTensor()
        tensor.set(array, self.place)
        if self.lod_level:
            tensor.set_recursive_sequence_lengths(self.lod)
        self._reset()
        return tensor

    def _array(self) -> np.ndarray:
        try:
            return np.array(self.data, dtype=self.dtype)
        except (ValueError, TypeError, OverflowError) as error:
            whose = f"the samples of {self.name!r}" if self.name else "the samples of a variable"
            raise ValueError(
                f"{whose} of shape {self.shape} are no {self.dtype} array: expected numbers of that type, as many in "
                f"each sample, received {_told(self.data)}; mend the reader that yields them"
            ) from error

    def _shaped(self, array: np.ndarray) -> np.ndarray:
        if not self.shape:
            return array
        if array.ndim != len(self.shape):
            try:
                return array.reshape(self.shape)
            except ValueError as error:
                raise ValueError(
                    f"Reshape error. What is defined in data layer is {self.shape}, but receive {array.shape}; give "
                    "samples with as many numbers as the layer declares"
                ) from error
        return array


class BatchedTensorProvider:
    """Batches of LoDTensors from a generator of samples.

    Args:
        feed_list: the variables to which the fields of a sample belong.
        place: where to place tensors.
        batch_size: number of samples per batch.
        generator: a function that yields samples.
        drop_last: drop an incomplete last batch.
    """

    def __init__(
        self, feed_list: Sequence[Variable], place: Place, batch_size: int, generator: Callable, drop_last: bool
    ) -> None:
        self.place = place
        self.batch_size = batch_size
        self.generator = generator
        self.drop_last = drop_last
        self.converters = [DataToLoDTensorConverter(place, v.lod_level, v.shape, v.dtype) for v in feed_list]

    def __call__(self) -> Iterator[list[LoDTensor]]:
        samples = iter(self.generator())
        while group := list(itertools.islice(samples, self.batch_size)):
            if len(group) == self.batch_size or not self.drop_last:
                yield convert(self.converters, group)


def convert(converters: Sequence[DataToLoDTensorConverter], samples: Iterable[Any]) -> list[LoDTensor]:
    """One tensor per field of the samples."""
    for sample in samples:
        if len(sample) != len(converters):
            raise AssertionError(
                f"The number of fields in data ({len(sample)}) does not match len(feed_list) ({len(converters)}); let "
                "the reader yield tuples of one value for each variable, and feed lists of them: [(x, y), (x, y)]"
            )
        for converter, field in zip(converters, sample, strict=True):
            converter.feed(field)
    return [converter.done() for converter in converters]


def _told(samples: list[Any]) -> str:
    """Samples that make no array, for an error: their shapes where they differ, else how they read."""
    try:
        shapes = list(dict.fromkeys(np.shape(sample) for sample in samples))
    except ValueError:  # ragged ones have none
        shapes = []
    return f"samples of the shapes {', '.join(map(str, shapes[:6]))}" if len(shapes) > 1 else f"{samples!r:.120}"


class DataFeeder:
    """Converts batches of samples to feeds.

    Args:
        feed_list: the variables (or their names) that the fields of a sample belong to, in order.
        place: where to place tensors.
        program: the program in which to look up names; the default main program if None.

    Raises TypeError for an entry that is neither a Variable nor a name.

    Examples:
        >>> image, label = fluid.data("image", [None, 2]), fluid.data("label", [None, 1], "int64")
        >>> feeder = fluid.DataFeeder([image, label], fluid.CPUPlace())
        >>> feed = feeder.feed([([0.1, 0.2], 1), ([0.3, 0.4], 0)])
        >>> {name: tensor.shape() for name, tensor in feed.items()}
        {'image': [2, 2], 'label': [2, 1]}
    """

    def __init__(self, feed_list: Sequence[Variable | str], place: Place, program: Program | None = None) -> None:
        program = default_main_program() if program is None else program
        self.feed_vars: list[Variable] = []
        for item in feed_list:
            var = program.block(0).var(item) if isinstance(item, str) else item
            if not isinstance(var, Variable):
                raise TypeError(
                    f"Feed list should contain a list of variable, received {type(item).__name__}; pass Variables or "
                    "their names"
                )
            self.feed_vars.append(var)
        self.feed_names = [var.name for var in self.feed_vars]
        self.feed_dtypes = [var.dtype for var in self.feed_vars]
        self.feed_shapes = [var.shape for var in self.feed_vars]
        self.feed_lod_level = [var.lod_level for var in self.feed_vars]
        self.place = place

    @shortened
    def feed(self, iterable: Iterable[Any]) -> dict[str, LoDTensor]:
        """The feed of one batch: a dict from names to LoDTensors.

        Args:
            iterable: samples, each a tuple or list with one value per variable: an array or nested list with its
                shape, excluding the batch, or for a LoD variable a list of such values.

        Raises AssertionError for a sample with the wrong number of fields, ValueError for one with the wrong size
        or type, TypeError for one not nested as deeply as the variable's lod_level.
        """
        converters = [
            DataToLoDTensorConverter(self.place, *described)
            for described in zip(self.feed_lod_level, self.feed_shapes, self.feed_dtypes, strict=True)
        ]
        for converter, name in zip(converters, self.feed_names, strict=True):
            converter.name = name
        return dict(zip(self.feed_names, convert(converters, iterable), strict=True))

    def feed_parallel(
        self, iterable: Iterable[Iterable[Any]], num_places: int | None = None
    ) -> Iterator[dict[str, LoDTensor]]:
        """The feeds of several devices, one batch each.

        Raises ValueError unless there are as many batches as devices.
        """
        places = self._places(num_places)
        missing = object()
        for place, batch in itertools.zip_longest(places, iterable, fillvalue=missing):
            if place is missing or batch is missing:
                raise ValueError(
                    "feed_parallel takes multiple mini-batches. Each mini-batch will be feed on each device. The "
                    f"number of devices and number of mini-batches must be same: expected {len(places)} batches; "
                    "give as many, or pass num_places"
                )
            part = DataFeeder(self.feed_vars, place)  # type: ignore[arg-type]
            yield part.feed(batch)  # type: ignore[arg-type]

    def _places(self, num_places: int | None) -> Sequence[Place]:
        if isinstance(self.place, CUDAPlace):
            return cuda_places() if num_places is None else [CUDAPlace(i) for i in range(num_places)]
        return cpu_places(num_places)

    def decorate_reader(
        self,
        reader: Callable[[], Iterable[Any]],
        multi_devices: bool,
        num_places: int | None = None,
        drop_last: bool = True,
    ) -> Callable[[], Iterator[Any]]:
        """Convert a reader of batches to a reader of feeds.

        Args:
            reader: a reader of batches.
            multi_devices: yield lists of feeds, one per device.
            num_places: number of devices; all by default.
            drop_last: drop trailing batches too few for all devices; otherwise they raise ValueError.
        """

        def feeds() -> Iterator[Any]:
            if not multi_devices:
                yield from map(self.feed, reader())
                return
            count = len(self._places(num_places))
            batches = iter(reader())
            while group := list(itertools.islice(batches, count)):
                if len(group) == count:
                    yield list(self.feed_parallel(group, num_places))
                elif not drop_last:
                    raise ValueError(
                        f"{len(group)} batches are left over, too few for {count} devices: The data batch which cannot "
                        "fit for devices will be dropped is not implementation. Other strategies are not implemented; "
                        "pass drop_last=True, or make the number of batches a multiple of the number of devices"
                    )

        return feeds


__getattr__ = unknown_name(__name__)
