"""Parameter: a variable that optimizers update."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fluidjax.base.enums import VarType
from fluidjax.framework.variable import Variable, VariableMetaClass
from fluidjax.proto import framework_pb2 as pb

if TYPE_CHECKING:
    from fluidjax.framework.block import Block


class EagerParameter:
    """Base class of eager parameters; ``isinstance(x, Parameter)`` holds for them too."""

    __slots__ = ()


class ParameterMetaClass(VariableMetaClass):
    """Implements ``isinstance(x, Parameter)`` as Fluid scripts expect it."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return super().__instancecheck__(instance) or (cls is Parameter and issubclass(type(instance), EagerParameter))


# What a clone's parameters inherit. As in Fluid 1.8, the clip of ``set_gradient_clip`` is not among it.
_FIELDS = "trainable optimize_attr regularizer do_model_average is_distributed own_gradient_clip".split()


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
        # Until 1.7 one was given by ParamAttr, too, and every parameter had the field: PaddleHub copies all fields.
        self.own_gradient_clip = settings.get("gradient_clip_attr")
        self.gradient_clip_attr: Any = None

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
