"""VarBase: an eager variable, with a value and, if it takes part in training, a gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidjax import framework, unique_name
from fluidjax.base import mode
from fluidjax.base.enums import VarType, to_numpy_dtype, to_var_type
from fluidjax.base.errors import EnforceNotMet, explain
from fluidjax.base.values import LoDTensor
from fluidjax.eager import values
from fluidjax.eager.backward.strategy import BackwardStrategy
from fluidjax.eager.recorded.groups import Member
from fluidjax.eager.recorded.pending import recorder
from fluidjax.eager.sequences.packs import Piece
from fluidjax.eager.sequences.points import Point
from fluidjax.eager.values import UNKNOWN, Spec, Value
from fluidjax.eager.variables.beneath import Beneath
from fluidjax.eager.variables.gradients import Gradients
from fluidjax.eager.variables.held import Holder
from fluidjax.eager.variables.sharing import Shared, shared
from fluidjax.execution.scopes.fetched import FetchedArray
from fluidjax.framework.direct import numbered
from fluidjax.framework.guards import default_main_program
from fluidjax.framework.parameter import EagerParameter
from fluidjax.framework.valueless import REFLECTED
from fluidjax.framework.variable import EagerVariable
from lowering.values import SelectedRows


class VarBase(Beneath, Gradients, EagerVariable):
    """A named value.

    Args:
        value: a NumPy array; None for no value yet.
        place: its location; decided by XLA.
        persistable: whether it is state.
        zero_copy: whether it shares memory with `value`, as by ``to_variable``.
        name: its name; generated if empty.

    As in Fluid, ``VarBase(dtype, dims, name, type, persistable)`` is a variable without a value that is declared so.
    """

    __slots__ = (
        "__weakref__", "_copies", "_declared", "_grad", "_held", "_name", "_place", "_stop_gradient", "persistable",
    )  # fmt: skip

    def __init__(
        self,
        value: Any = None,
        place: Any = None,
        persistable: bool = False,
        zero_copy: bool = False,
        name: str | None = None,
    ) -> None:
        self._name: str | int | None = None
        self.persistable, self._declared = persistable, UNKNOWN
        self._held: Value | Shared | Member | None = None
        self._stop_gradient: bool | None = None
        self._grad = None
        self._place: Any = None
        if isinstance(value, VarType):
            self._declare(value, place, persistable, zero_copy, name)
            return
        self._name = name or generated_name()
        if value is not None:
            together = zero_copy and isinstance(value, np.ndarray)
            self._held = (shared(value) if together else None) or values.value_of(value)

    @staticmethod
    def _of(name: str | int | None, value: Value | Shared | None, stop_gradient: bool | None = None) -> VarBase:
        var = _new(VarBase)
        var._name, var._held, var._stop_gradient = name, value, stop_gradient
        var.persistable, var._grad, var._place, var._declared = False, None, None, UNKNOWN
        return var

    @staticmethod
    def _temporary(ids: dict[str, int]) -> VarBase:
        """A variable for a result, called ``tmp_N`` with the next number of `ids`."""
        ids["tmp"] = (number := ids["tmp"]) + 1
        return VarBase._of(number, None)

    @property
    def _value(self) -> Value | None:
        held = self._held
        return held if held is None or held.__class__ is Value else held.now()  # type: ignore[union-attr]

    @_value.setter
    def _value(self, value: Value | None) -> None:
        held = self._held
        found = value if held is None or held.__class__ is Value else held.becomes(value)  # type: ignore[union-attr]
        if self._place is not None:
            self._place[0].touched(self._place[1])
        self._held = found

    # What it is.

    @property
    def _spec(self) -> Spec:
        held = self._held
        return self._declared if held is None else held.spec

    @property
    def name(self) -> str:
        """The name; made when it is asked for."""
        if self._name.__class__ is not str:
            self._name = unique_name.generate("tmp") if self._name is None else numbered(int(self._name))
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        self._name = name

    @property
    def shape(self) -> list[int]:
        """The dimensions; of a sparse gradient, those of the rows that it holds."""
        spec = self._spec
        return list(spec.shape) if spec.rows is None else self._shape_of_rows()

    @property
    def dtype(self) -> VarType:
        """The dtype."""
        return self._spec.dtype

    @property
    def type(self) -> VarType:
        """The type of variable: LOD_TENSOR, or SELECTED_ROWS for a sparse gradient."""
        return self._spec.kind

    @property
    def stop_gradient(self) -> bool:
        """Whether gradients are blocked."""
        return self._stop_gradient is not False

    @stop_gradient.setter
    def stop_gradient(self, value: bool) -> None:
        held = self._held
        if held is not None and held.__class__ is not Value:  # what is known of the variable no longer holds
            held.stopping(bool(value))  # type: ignore[union-attr]
        if self._place is not None:
            self._place[0].touched(self._place[1])
        self._stop_gradient = bool(value)
        if self._grad is not None and self._grad.__class__ is not Value:
            self._grad._stop_gradient = self._stop_gradient

    @property
    def block(self) -> Any:
        """The global block of the default main program; ops appended to it run immediately."""
        return default_main_program().global_block()

    @property
    def lod_level(self) -> int:
        """The LoD level."""
        return len(self.lod())

    def lod(self) -> list[list[int]]:
        """The LoD offsets; [] if there are none."""
        return [] if self._value is None else values.lod_of(self._array())

    # Values.

    def _array(self) -> Any:
        """The value, once computed. Raises EnforceNotMet if there is none."""
        held = self._held
        value = held if held is None or held.__class__ is Value else held.now()  # type: ignore[union-attr]
        if value is None:
            raise EnforceNotMet(
                explain(
                    f"variable {self.name} holds no value",
                    "one that an op or set_value gave",
                    "a variable that was only declared",
                    "pass it as an op's output first, or call set_value",
                )
            )
        array = value.array
        return recorder.array_of(value) if array is None or array.__class__ is Piece else array

    def _check_dense(self, method: str) -> None:
        if self._spec.kind is VarType.SELECTED_ROWS:
            raise EnforceNotMet(
                explain(
                    f"{method}: variable {self.name} holds SelectedRows",
                    "a dense value",
                    "a sparse gradient",
                    "call gradient() of its parameter, which gives (values, rows)",
                )
            )

    def numpy(self) -> np.ndarray:
        """A copy of the value. Raises EnforceNotMet if it is sparse."""
        array = self._array()
        if isinstance(array, SelectedRows):
            self._check_dense("numpy")
        return values.on_host(array).view(FetchedArray)

    def set_value(self, value: Any) -> None:
        """Replace the value. Raises AssertionError unless shape and dtype are unchanged."""
        array = value.numpy() if isinstance(value, VarBase) else value
        if isinstance(array, LoDTensor):
            array = np.array(array)
        if not isinstance(array, np.ndarray):
            raise AssertionError(
                f"Variable {self.name}.set_value: expected a NumPy array, a variable or a LoDTensor, received "
                f"{type(value).__name__}. Convert it with numpy.array."
            )
        if self._value is not None:
            self._check_dense("set_value")
            self._check_alike(array)
        self._value = values.value_of(array)

    def _check_alike(self, array: np.ndarray) -> None:
        shape, dtype = self._spec.shape, to_numpy_dtype(self._spec.dtype)
        if tuple(array.shape) != shape:
            raise AssertionError(
                f"Variable Shape not match, Variable [ {self.name} ] need tensor with shape {list(shape)} but load set "
                f"tensor with shape {list(array.shape)}. Build the layer as it was saved, or reshape the array."
            )
        if array.dtype != dtype:
            raise AssertionError(
                f"Variable dtype not match, Variable [ {self.name} ] need tensor with dtype {dtype} but load tensor "
                f"with dtype {array.dtype}. Cast the array."
            )

    def value(self) -> Holder:
        """Fluid's handle to the value: ``var.value().get_tensor()``."""
        return Holder(self)

    def detach(self) -> VarBase:
        """A variable with the same value that blocks gradients. Raises EnforceNotMet if it is sparse."""
        self._array()
        self._check_dense("detach")
        return VarBase._of(self._name_of_copy(), self._value, True)

    def _copy_to(self, place: Any, blocking: bool = True) -> VarBase:
        return VarBase._of(self._name_of_copy(), self._value, self._stop_gradient)

    def _name_of_copy(self) -> str:
        """The name, and the number of copies made before this one."""
        self._copies = getattr(self, "_copies", -1) + 1
        return f"{self.name}{self._copies}"

    # Gradients.

    def backward(self, backward_strategy: Any = None, retain_graph: bool = False) -> None:
        """Compute the gradients of this variable with respect to everything it depends on, replacing existing ones.

        Args:
            backward_strategy: a BackwardStrategy; affects the order of sums only.
            retain_graph: whether backward may be called again.
        """
        if backward_strategy is not None and not isinstance(backward_strategy, BackwardStrategy):
            raise TypeError(
                f"backward: the first argument is {backward_strategy!r:.60}. Expected a BackwardStrategy or None. Pass "
                "retain_graph by its name."
            )
        tracer = mode.tracer
        if tracer is None:
            raise AssertionError(
                "backward: eager mode is off. Expected a call under fluid.dygraph.guard(). Call it inside the guard."
            )
        tracer.backward(self, backward_strategy, retain_graph)

    # Python's own.

    def __len__(self) -> int:
        """The size of the first dimension."""
        shape = self.shape
        if not shape:
            raise IndexError(f"variable {self.name} is a scalar of shape [] and has no length. Reshape it to [1].")
        return shape[0]

    def _one(self) -> Any:
        shape = self._spec.shape
        if int(np.prod(shape)) != 1:
            raise AssertionError(
                f"variable {self.name} of shape {list(shape)} is no single number. Expected one element. Reduce it, or "
                "use numpy()."
            )
        return self.numpy().reshape(-1)[0]

    def __bool__(self) -> bool:
        """Whether the only element is greater than 0."""
        return bool(self._one() > 0)

    __nonzero__ = __bool__

    def __float__(self) -> float:
        return float(self._one())

    def __int__(self) -> int:
        return int(self._one())

    def __index__(self) -> int:
        return int(self._one())

    __hash__ = object.__hash__

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """An operator with a number of NumPy's on its left is an op; other functions of NumPy take the values."""
        if method == "__call__" and not isinstance(inputs[0], VarBase) and ufunc.__name__ in REFLECTED:
            left = inputs[0]
            number = isinstance(left, np.ndarray) and left.ndim == 0  # NumPy makes arrays of numbers that it compares
            return getattr(self, f"__{REFLECTED[ufunc.__name__]}__")(left[()] if number else left)
        values = (value.numpy() if isinstance(value, VarBase) else value for value in inputs)
        return getattr(ufunc, method)(*values, **kwargs)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """The value as an array, for ``numpy.array(x)``."""
        return np.asarray(self.numpy(), dtype=dtype)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        raise TypeError(f"variable {self.name} cannot be copied deeply. Copy its value: to_variable(var.numpy()).")

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(f"variable {self.name} cannot be pickled. Save its state with fluid.save_dygraph.")

    def to_string(self, throw_on_error: bool = True, with_details: bool = False) -> str:
        """Name, dtype, shape and values, in Fluid's format."""
        if self._value is None:
            return f"name {self.name}, shape: {self.shape}, not inited"
        self._check_dense("to_string")
        return f"name {self.name}, dtype: {self.dtype} shape: {self.shape} {self.value().get_tensor()}"

    def __str__(self) -> str:
        return self.to_string(True)


def generated_name() -> str:
    """The next name of a variable that is not an op's result, ``generated_var_N``."""
    tracer = mode.tracer
    return unique_name.generate("generated_var") if tracer is None else tracer.generate("generated_var")


def recorded(
    point: Point, node: Any, stop_gradient: bool | None, ids: dict[str, int]
) -> tuple[list[VarBase], list[Value | None]]:
    """(new variables, their values) for the op that leads to a point: ``record``, and a variable for each output.

    Args:
        node: the tape's node for the op, None if there is none.
        stop_gradient: of the variables.
        ids: supplies their numbers.
    """
    serial, outputs, code, name, k = recorder.serial, recorder.outputs, point.first, ids["tmp"], 0
    variables: list[VarBase] = []
    results: list[Value | None] = []
    for spec in point.outs:
        value = None
        if spec is not None:
            value = _new(Value)
            value.array, value.spec, value.serial, value.index = None, spec, serial, code
            outputs[code] = value
        var = _new(VarBase)
        var._name, var._held, var._stop_gradient, var._grad = name + k, value, stop_gradient, None
        var._place, var.persistable, var._declared = None if node is None else (node, k), False, UNKNOWN
        results.append(value)
        variables.append(var)
        code += 1
        k += 1  # noqa: SIM113 (enumerate takes longer)
    ids["tmp"] = name + k
    recorder.point = point
    return variables, results


_new: Any = object.__new__


def gradient_of(var: VarBase, grad: Any, create: bool) -> VarBase:
    """The gradient of a variable as a variable named after it; `create`: whether gradients flow through it."""
    if not isinstance(grad, VarBase):
        return VarBase._of(var._grad_name(), grad, not create)
    if grad._name is None:
        grad._name = var._grad_name()
    return grad


class ParamBase(VarBase, EagerParameter):
    """A parameter: a persistable variable updated by training.

    Args:
        shape: dimensions, all positive.
        dtype: its dtype.
        name: generated if None.
        trainable: whether optimizers update it.
        optimize_attr: optimizer settings; ``{"learning_rate": 1.0}`` scales the learning rate.
        regularizer: its own regularizer, which overrides the optimizer's.
        do_model_average: whether ModelAverage includes it.

    Raises ValueError if the shape or dtype is missing or a dimension is not positive.
    """

    def __init__(self, shape: Any, dtype: Any, **kwargs: Any) -> None:
        if shape is None or not len(shape):
            raise ValueError("The shape of Parameter should not be None or empty. Give all dimensions.")
        if dtype is None:
            raise ValueError("The dtype of Parameter should not be None. Give it, for instance 'float32'.")
        for size in shape:
            if int(size) <= 0:
                raise ValueError(
                    f"Parameter {kwargs.get('name')}: every dimension of its shape must be positive, got "
                    f"{list(shape)}. Give the layer sizes that are known."
                )
        super().__init__(persistable=True, name=kwargs.get("name") or unique_name.generate("_eager_param_base"))
        self._declared = Spec.of(tuple(int(n) for n in shape), to_var_type(dtype))
        self.trainable = kwargs.get("trainable", True)
        self.optimize_attr = kwargs.get("optimize_attr", {"learning_rate": 1.0})
        self.regularizer = kwargs.get("regularizer")
        self.do_model_average = kwargs.get("do_model_average")
        self.is_distributed = False
        self._stop_gradient = False

    def to_string(self, throw_on_error: bool, with_details: bool = False) -> str:  # type: ignore[override]
        """As for a variable; Fluid requires the first argument here."""
        return super().to_string(throw_on_error, with_details)

    def __str__(self) -> str:
        return self.to_string(True)

    __repr__ = __str__


def varbase_creator(
    type: VarType | None = VarType.LOD_TENSOR,
    name: str | None = None,
    shape: Any = None,
    dtype: Any = None,
    persistable: bool | None = None,
    **kwargs: Any,
) -> VarBase:
    """A variable without a value, for an op to write to.

    Args:
        name: its name; generated if None.
        type, shape, dtype: reported until then; LOD_TENSOR, [] and float32 if None.
        persistable: whether it is state.
        kwargs: accepted for compatibility with Fluid.
    """
    var = VarBase(name=name, persistable=bool(persistable))
    sizes, element = tuple(int(n) for n in shape or ()), VarType.FP32 if dtype is None else to_var_type(dtype)
    var._declared = Spec.of(sizes, element, VarType(type or VarType.LOD_TENSOR))
    return var


framework.ParamBase = ParamBase
framework._varbase_creator = varbase_creator
