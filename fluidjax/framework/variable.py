"""Variable and Parameter: views of a VarDesc message, with information that the message does not hold."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from fluidjax.base.enums import VarType, to_var_type
from fluidjax.base.errors import explain
from fluidjax.framework import messages
from fluidjax.framework.names import generated_name, grad_var_name
from fluidjax.framework.text import message_text
from fluidjax.framework.var_desc import VarDescView
from fluidjax.proto import framework_pb2 as pb

if TYPE_CHECKING:
    from fluidjax.framework.block import Block
    from fluidjax.framework.operator import Operator


class EagerVariable:
    """Base class of eager variables; ``isinstance(x, Variable)`` holds for them too."""

    __slots__ = ()


class EagerParameter:
    """Base class of eager parameters; ``isinstance(x, Parameter)`` holds for them too."""

    __slots__ = ()


class VariableMetaClass(type):
    """Implements ``isinstance(x, Variable)`` as Fluid scripts expect it."""

    def __instancecheck__(cls, instance: Any) -> bool:
        kind = cls, instance.__class__
        found = _instances.get(kind)
        if found is None:
            eager = cls is Variable and issubclass(kind[1], EagerVariable)
            found = _instances[kind] = eager or super().__instancecheck__(instance)
        return found


_instances: dict[tuple[type, type], bool] = {}  # layers ask for each of their inputs


# NumPy's name of an operator, and what its right operand calls it.
_OPERATORS = (
    "add:radd subtract:rsub multiply:rmul divide:rtruediv power:rpow"
    " less:gt less_equal:ge greater:lt greater_equal:le equal:eq not_equal:ne"
)
REFLECTED = dict(pair.split(":") for pair in _OPERATORS.split())


class Variable(metaclass=VariableMetaClass):
    """A named value of a program; created by ``Block.create_var``.

    Args:
        block: the block it belongs to.
        type: variable type, LOD_TENSOR by default.
        name: a name unique in the block; generated if None.
        shape: dimensions, -1 if unknown.
        dtype: its dtype, in Fluid's or NumPy's notation.
        lod_level: number of LoD levels, 0 for none.
        persistable: whether it persists between runs.
        error_clip: clipping of its gradient in the backward pass.
        stop_gradient: whether to block gradients.
        is_data: whether it is fed.
        need_check_feed: whether feeds must match shape and dtype.

    Raises ValueError if the block has a variable of that name with a different description.
    """

    def __init__(
        self,
        block: Block,
        type: VarType | int = VarType.LOD_TENSOR,
        name: str | None = None,
        shape: Sequence[int] | None = None,
        dtype: Any = None,
        lod_level: int | None = None,
        capacity: int | None = None,
        persistable: bool | None = None,
        error_clip: Any = None,
        stop_gradient: bool = False,
        is_data: bool = False,
        need_check_feed: bool = False,
        belong_to_optimizer: bool = False,
        **kwargs: Any,
    ) -> None:
        self.block = block
        self.proto: pb.VarDesc
        if name is None:
            name = generated_name(block.vars)
        existing = block.vars.get(name)
        self.proto = block.proto.vars.add(name=name) if existing is None else existing.proto
        wanted = {
            "type": VarType(type),
            "shape": None if shape is None else messages.dims_of(shape),
            "dtype": None if dtype is None else to_var_type(dtype),
            "lod_level": lod_level,
            "persistable": persistable,
        }
        try:
            self._describe(wanted, existing)
        except Exception:
            if existing is None:
                del block.proto.vars[-1]
            raise
        if need_check_feed:
            self.proto.need_check_feed = True
        self._init_info(error_clip, stop_gradient, is_data, belong_to_optimizer)
        block.vars[name] = self
        block.program._bump()

    def _init_info(
        self,
        error_clip: Any = None,
        stop_gradient: bool = False,
        is_data: bool = False,
        belong_to_optimizer: bool = False,
    ) -> None:
        self.error_clip = error_clip
        self._stop_gradient = stop_gradient
        self.is_data = is_data
        self.belong_to_optimizer = belong_to_optimizer
        self.op: Operator | None = None
        self._info: dict[str, Any] = {}

    @classmethod
    def _of(cls, block: Block, proto: pb.VarDesc) -> Variable:
        """A view of a message already contained in the block's message."""
        var = cls.__new__(cls)
        var.block, var.proto = block, proto
        var._init_info()
        return var

    def _describe(self, wanted: dict[str, Any], existing: Variable | None) -> None:
        """Write the requested properties to a new message, or compare them with the existing variable's."""
        if existing is None:
            messages.set_kind(self.proto, wanted["type"])
            if wanted["persistable"] is not None:
                self.proto.persistable = bool(wanted["persistable"])
            if wanted["shape"] is not None or wanted["dtype"] is not None:
                messages.set_tensor(self.proto, wanted["shape"], wanted["dtype"])
            if wanted["lod_level"] is not None:
                self.desc.set_lod_level(wanted["lod_level"])
            return
        for field, value in wanted.items():
            if value is not None and getattr(existing, field) != value:
                raise ValueError(
                    f"Variable '{self.name}' has been created before. The previous {field} is "
                    f"{getattr(existing, field)}, the new {field} is {value}. They are not matched. "
                    "Give the new variable another name, or ask for the same."
                )

    # The message's fields.

    @property
    def desc(self) -> VarDescView:
        """Fluid's VarDesc."""
        return VarDescView(self.proto, self.block.program._bump)

    @property
    def name(self) -> str:
        """The name."""
        return self.proto.name

    @name.setter
    def name(self, new_name: str) -> None:
        self.proto.name = new_name
        self.block.program._bump()

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions; -1 if unknown."""
        return tuple(messages.need_tensor_desc(self.proto, "shape").dims)

    @property
    def dtype(self) -> VarType:
        """The dtype."""
        return VarType(messages.need_tensor_desc(self.proto, "dtype").data_type)

    @property
    def lod_level(self) -> int:
        """The number of LoD levels; 0 for SelectedRows."""
        if self.type == VarType.SELECTED_ROWS:
            return 0
        return self.desc.lod_level()

    @property
    def type(self) -> VarType:
        """The type of the variable."""
        return VarType(self.proto.type.type)

    @property
    def persistable(self) -> bool:
        """Whether the variable persists between runs."""
        return self.proto.persistable

    @persistable.setter
    def persistable(self, value: bool) -> None:
        self.proto.persistable = bool(value)
        self.block.program._bump()

    @property
    def stop_gradient(self) -> bool:
        """Whether gradients are blocked."""
        return self._stop_gradient

    @stop_gradient.setter
    def stop_gradient(self, value: bool) -> None:
        self._stop_gradient = bool(value)
        self.block.program._bump()

    @property
    def grad_name(self) -> str:
        """The name of its gradient."""
        return grad_var_name(self.name)

    def _set_error_clip(self, error_clip: Any) -> None:
        self.error_clip = error_clip

    def _set_info(self, key: str, value: Any) -> None:
        self._info[key] = value

    def _get_info(self, key: str) -> Any:
        return self._info.get(key)

    def _copy_info_from(self, other: Variable) -> None:
        """Copy information that the message does not hold."""
        self.error_clip = other.error_clip
        self._stop_gradient = other._stop_gradient
        self.is_data = other.is_data
        self.belong_to_optimizer = other.belong_to_optimizer
        self._info = dict(other._info)

    # Text.

    def to_string(self, throw_on_error: bool, with_details: bool = False) -> str:
        """The message as text; `with_details` adds information held only by the front end.

        With `throw_on_error`, raises ValueError if a required field is missing.
        """
        text = message_text(self.proto, throw_on_error)
        if with_details:
            text += "".join(f"{name}: {getattr(self, name)}\n" for name in self._detail_names)
        return text

    _detail_names: tuple[str, ...] = ("error_clip", "stop_gradient")

    def __str__(self) -> str:
        return self.to_string(throw_on_error=True)

    __repr__ = __str__

    # What a static variable cannot be asked: it holds no numbers while the program is built.

    def _no_number(self, wanted: str) -> NoReturn:
        raise TypeError(
            explain(
                f"{wanted} of Variable {self.name!r}",
                "a number or an array",
                "a variable of a program, which holds no value until the program runs",
                f"fetch it: exe.run(program, feed=..., fetch_list=[{self.name!r}]); or write under"
                " fluid.dygraph.guard(), where variables have values",
            )
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """An array of the variable itself, as of any object: lists of variables become arrays of them."""
        if dtype is not None and np.dtype(dtype) != object:
            self._no_number("np.array()")
        array = np.empty((), object)
        array[()] = self
        return array

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Variable:
        """An operator with a number of NumPy's on its left makes an op; other functions of NumPy find no numbers."""
        if method == "__call__" and inputs[0] is not self and ufunc.__name__ in REFLECTED:
            return getattr(self, f"__{REFLECTED[ufunc.__name__]}__")(inputs[0])
        self._no_number(f"np.{ufunc.__name__}()")

    def __float__(self) -> NoReturn:
        self._no_number("float()")

    def __int__(self) -> NoReturn:
        self._no_number("int()")

    def __bool__(self) -> bool:
        """True, as for any object; warns if used as a condition, which does not depend on its value."""
        if self.type == VarType.LOD_TENSOR and self.dtype == VarType.BOOL:
            warnings.warn(
                explain(
                    f"Variable {self.name!r} is used as a condition of Python's",
                    "something that is true or false while the program is built",
                    "a variable, which counts as true whatever it will hold",
                    "use fluid.layers.cond or while_loop, or fluid.dygraph.declarative",
                ),
                stacklevel=2,
            )
        return True

    # Operators on variables make ops: framework.slicing writes those of [], layers.math_op_patch the others, and ==
    # too, so a hash must be kept.
    __hash__ = object.__hash__

    if TYPE_CHECKING:

        def __add__(self, other: Any) -> Variable: ...
        def __radd__(self, other: Any) -> Variable: ...
        def __sub__(self, other: Any) -> Variable: ...
        def __rsub__(self, other: Any) -> Variable: ...
        def __mul__(self, other: Any) -> Variable: ...
        def __rmul__(self, other: Any) -> Variable: ...
        def __truediv__(self, other: Any) -> Variable: ...
        def __rtruediv__(self, other: Any) -> Variable: ...
        def __pow__(self, other: Any) -> Variable: ...
        def __rpow__(self, other: Any) -> Variable: ...
        def __floordiv__(self, other: Any) -> Variable: ...
        def __mod__(self, other: Any) -> Variable: ...
        def __lt__(self, other: Any) -> Variable: ...
        def __le__(self, other: Any) -> Variable: ...
        def __gt__(self, other: Any) -> Variable: ...
        def __ge__(self, other: Any) -> Variable: ...
        def __neg__(self) -> Variable: ...
        def astype(self, dtype: Any) -> Variable: ...
        def __getitem__(self, item: Any) -> Variable: ...

    def __iter__(self) -> NoReturn:
        raise TypeError(
            f"Variable {self.name} cannot be iterated: a program has no values while it is built. "
            "Use fluid.layers.unstack or fluid.layers.While."
        )

    # Eager mode only.

    def detach(self) -> NoReturn:
        """Eager mode only."""
        self._eager_only("detach")

    def numpy(self) -> NoReturn:
        """Eager mode only."""
        self._eager_only("numpy")

    def set_value(self, value: Any) -> NoReturn:
        """Eager mode only."""
        self._eager_only("set_value")

    def backward(self, backward_strategy: Any = None) -> NoReturn:
        """Eager mode only."""
        self._eager_only("backward")

    def gradient(self) -> NoReturn:
        """Eager mode only."""
        self._eager_only("gradient")

    def clear_gradient(self) -> NoReturn:
        """Eager mode only."""
        self._eager_only("clear_gradient")

    def _eager_only(self, method: str) -> NoReturn:
        raise AssertionError(
            f"Variable {self.name}: {method}() belongs to eager mode, and this variable is part of a Program: it has "
            "no value of its own. Fetch it with Executor.run(fetch_list=[...]), or read it from the Scope."
        )


class ParameterMetaClass(VariableMetaClass):
    """Implements ``isinstance(x, Parameter)`` as Fluid scripts expect it."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return super().__instancecheck__(instance) or (cls is Parameter and issubclass(type(instance), EagerParameter))


# Until 1.7 every parameter had a gradient_clip_attr: PaddleHub copies parameters field by field.
_FIELDS = "trainable optimize_attr regularizer do_model_average is_distributed gradient_clip_attr".split()


class Parameter(Variable, metaclass=ParameterMetaClass):
    """A persistable variable updated by training.

    Args:
        shape: dimensions, all known and positive.
        dtype: its dtype.
        trainable: whether optimizers update it.
        optimize_attr: optimizer settings; ``{"learning_rate": 1.0}`` scales the learning rate.
        regularizer: overrides the optimizer's regularization.
        do_model_average: whether ModelAverage includes it.

    Raises ValueError if the shape or dtype is missing or a dimension is not positive.

    Examples:
        >>> y = fluid.layers.fc(fluid.data("x", [None, 4]), 2)
        >>> weight, bias = fluid.default_main_program().all_parameters()
        >>> weight.shape, weight.trainable, weight.persistable
        ((4, 2), True, True)
    """

    def __init__(
        self,
        block: Block,
        shape: Sequence[int],
        dtype: Any,
        type: VarType | int = VarType.LOD_TENSOR,
        **kwargs: Any,
    ) -> None:
        if shape is None:
            raise ValueError("The shape of Parameter should not be None. Give all dimensions.")
        if dtype is None:
            raise ValueError("The dtype of Parameter should not be None. Give it, for instance 'float32'.")
        if not len(shape):
            raise ValueError("The dimensions of shape for Parameter must be greater than 0. Give at least one.")
        for size in shape:
            if isinstance(size, str):
                raise TypeError(f"Parameter: a dimension of its shape is {size!r}. Expected an int. Convert it.")
            if int(size) <= 0:
                raise ValueError(
                    f"Parameter {kwargs.get('name')}: every dimension of its shape must be positive, got "
                    f"{list(shape)}. Give the input of the layer a shape in which this dimension is known."
                )
        kwargs.setdefault("persistable", True)
        super().__init__(block, type=type, shape=shape, dtype=dtype, **kwargs)
        self._init_parameter(kwargs)

    def _init_parameter(self, settings: dict[str, Any]) -> None:
        self.trainable = settings.get("trainable", True)
        self.optimize_attr = settings.get("optimize_attr", {"learning_rate": 1.0})
        self.regularizer = settings.get("regularizer")
        self.do_model_average = settings.get("do_model_average")
        self.is_distributed = False
        self.gradient_clip_attr = settings.get("gradient_clip_attr")

    @classmethod
    def _of(cls, block: Block, proto: pb.VarDesc) -> Parameter:
        param = super()._of(block, proto)
        assert isinstance(param, Parameter)
        param._init_parameter({})
        return param

    def _copy_info_from(self, other: Variable) -> None:
        super()._copy_info_from(other)
        for name in _FIELDS:
            setattr(self, name, getattr(other, name))

    _detail_names = ("error_clip", "stop_gradient", "trainable", "optimize_attr", "regularizer", "do_model_average")
