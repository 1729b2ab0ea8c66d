"""ParamAttr: how a layer creates its parameters."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from fluidjax.base.errors import ArgumentError
from fluidjax.base.unknown import unknown_name
from fluidjax.initializer import Constant, Initializer, Xavier
from fluidjax.regularizer import WeightDecayRegularizer

__all__ = ["ParamAttr", "WeightNormParamAttr"]


def _checked(name: str, value: Any, *kinds: type) -> None:
    if not isinstance(value, kinds):
        expected = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(
            f"The type of '{name}' in ParamAttr must be {expected}, but received {type(value).__name__} ({value!r}). "
            "Convert the value."
        )


def _with_clip(init: Callable[..., None]) -> Callable[..., None]:
    """Make ``init`` also accept a clip of the parameter's gradient, as releases before 1.8 did."""

    @functools.wraps(init)
    def wrapped(self: Any, *args: Any, gradient_clip: Any = None, clip: Any = None, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        self.gradient_clip = clip if gradient_clip is None else gradient_clip

    return wrapped


class ParamAttr:
    """The attributes of a parameter.

    Args:
        name: generated if None; layers given the same name share the parameter.
        initializer: an Initializer; the layer's default if None.
        learning_rate: factor applied to the optimizer's learning rate.
        regularizer: overrides the optimizer's regularization.
        trainable: whether optimizers update it.
        do_model_average: whether ModelAverage includes it.

    Fluid up to 1.7 also takes ``gradient_clip`` (before 0.12 ``clip``), the clipping of this parameter's gradient.
    Raises TypeError for an attribute of the wrong type.

    Examples:
        >>> attr = fluid.ParamAttr("w", initializer=fluid.initializer.Constant(0.5), learning_rate=0.1)
        >>> y = fluid.layers.fc(fluid.data("x", [None, 3]), 2, param_attr=attr, bias_attr=False)
        >>> fluid.default_main_program().global_block().var("w").shape
        (3, 2)
    """

    gradient_clip: Any = None

    @_with_clip
    def __init__(
        self,
        name: str | None = None,
        initializer: Initializer | None = None,
        learning_rate: float = 1.0,
        regularizer: WeightDecayRegularizer | None = None,
        trainable: bool = True,
        do_model_average: bool = True,
    ) -> None:
        _checked("name", name, str, type(None))
        if initializer is not None and not callable(initializer):
            _checked("initializer", initializer, Initializer)
        _checked("learning_rate", learning_rate, float, int)
        _checked("trainable", trainable, bool)
        _checked("do_model_average", do_model_average, bool)
        if name == "":
            raise ArgumentError("ParamAttr's name is an empty text. Give it one, or leave it out for a generated one.")
        self.name = name
        self.initializer = initializer
        self.learning_rate = learning_rate
        self.regularizer = regularizer
        self.trainable = trainable
        self.do_model_average = do_model_average

    def _set_default_initializer(self, initializer: Initializer | None) -> None:
        """Use `initializer` if none was given."""
        if self.initializer is not None:
            return
        if initializer is None:
            raise ArgumentError("ParamAttr.initializer is not set, and the layer has no default. Give ParamAttr one.")
        self.initializer = initializer

    def _set_default_param_initializer(self) -> None:
        """Initialise as a weight: Xavier."""
        self._set_default_initializer(Xavier())

    def _set_default_bias_initializer(self) -> None:
        """Initialise as a bias: zeros."""
        self._set_default_initializer(Constant(0.0))

    @staticmethod
    def _to_attr(arg: Any) -> Any:
        """A ParamAttr from what layers accept: None, a ParamAttr, a name, an initializer, a regularizer, a bool, or a
        a list of those; False stays False (no parameter)."""
        if arg is None or arg is True:
            return ParamAttr()
        if arg is False:
            return False
        if isinstance(arg, (list, tuple)):
            return [ParamAttr._to_attr(item) for item in arg]
        if isinstance(arg, ParamAttr):
            return arg
        if isinstance(arg, str):
            return ParamAttr(name=arg)
        if isinstance(arg, Initializer):
            return ParamAttr(initializer=arg)
        if isinstance(arg, WeightDecayRegularizer):
            return ParamAttr(regularizer=arg)
        raise TypeError(
            f"{type(arg)} cast to ParamAttr: {arg!r} is no setting of a parameter. Expected a ParamAttr, a name, an "
            "initializer, a regularizer, a bool or None."
            + (f" Call the class: {arg.__name__}(...)." if isinstance(arg, type) else " Pass one of these.")
        )

    def _to_kwargs(self, with_initializer: bool = False) -> dict[str, Any]:
        """The attributes in the form required by ``Block.create_parameter``."""
        kwargs: dict[str, Any] = {
            "name": self.name,
            "optimize_attr": {"learning_rate": self.learning_rate},
            "regularizer": self.regularizer,
            "trainable": self.trainable,
            "do_model_average": self.do_model_average,
        }
        if self.gradient_clip is not None:
            kwargs["gradient_clip_attr"] = self.gradient_clip
        if with_initializer:
            kwargs["initializer"] = self.initializer
        return kwargs


class WeightNormParamAttr(ParamAttr):
    """Weight normalisation: a parameter represented by direction and norm, ``w = g * v / |v|``.

    Args:
        dim: the axis along which each slice has its own norm; None for a single norm.
    """

    # The variables `w` of all parameters made so.
    params_with_weight_norm: list[Any] = []

    @_with_clip
    def __init__(
        self,
        dim: int | None = None,
        name: str | None = None,
        initializer: Initializer | None = None,
        learning_rate: float = 1.0,
        regularizer: WeightDecayRegularizer | None = None,
        trainable: bool = True,
        do_model_average: bool = False,
    ) -> None:
        super().__init__(name, initializer, learning_rate, regularizer, trainable, do_model_average)
        self.dim = dim


__getattr__ = unknown_name(__name__)
