"""LayerObjectHelper: what a Layer needs in order to create parameters and write ops."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from fluidjax.base.mode import current_tracer
from fluidjax.framework import Variable
from fluidjax.framework.direct import HELPED
from fluidjax.framework.protos import op_proto
from fluidjax.layer_helper import LayerHelper
from fluidjax.param_attr import ParamAttr


class LayerObjectHelper(LayerHelper):
    """The helper of a Layer: unlike LayerHelper, it is created once and given the layer's arguments at each call.

    Args:
        name: the layer's full name, used as the prefix of its parameters' names.

    Attributes:
        direct: whether in eager mode the tracer numbers the layer's results (see ``framework.direct``).
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, name=name)
        self.direct = False

    def _direct(self) -> bool:
        return self.direct

    def iter_inputs_and_params(self, inputs_in: Any, param_attr_in: Any = None) -> Iterator[tuple[Any, Any]]:  # type: ignore[override]
        """Pairs of input and ParamAttr.

        Args:
            inputs_in: one value or several; arrays become variables. None for none.
            param_attr_in: one for all inputs, or one for each.

        Raises ValueError if it is False, or if the numbers differ.
        """
        self.kwargs.update(input=self._variables(inputs_in), param_attr=param_attr_in)
        if self.param_attr is False:
            raise ValueError(
                f"Param_attr should not be False in {self.name}. Pass a ParamAttr, or None for the default"
            )
        yield from super().iter_inputs_and_params()

    def input_dtype(self, inputs_in: Any) -> Any:  # type: ignore[override]
        """The common dtype of one or several values; None without any. Raises ValueError if they differ."""
        self.kwargs.update(input=self._variables(inputs_in))
        return super().input_dtype()

    def is_instance(self, param: Any, cls: type) -> None:
        """Raise TypeError unless a value is a `cls`."""
        self.kwargs.update(param=param)
        super().is_instance("param", cls)

    def _variables(self, values: Any) -> list[Any]:
        several = values if isinstance(values, (list, tuple)) else [] if values is None else [values]
        return [value if isinstance(value, Variable) else self.to_variable(value) for value in several]

    def append_activation(
        self,
        input_var: Variable,
        act: str | None = None,
        use_cudnn: bool | None = None,
        use_mkl_dnn: bool | None = None,
    ) -> Variable:
        """Apply an activation by op name; returns the input itself if there is none."""
        if act is None:
            return input_var
        tracer = current_tracer()
        if tracer is not None and not use_cudnn and not use_mkl_dnn:
            found = tracer.again(act, {"X": input_var}, {}, ("Out",), self.direct)
            if found is not None:
                return found[0]
        self.kwargs.update(act=act, use_cudnn=use_cudnn, use_mkldnn=use_mkl_dnn)
        return super().append_activation(input_var)

    def create_parameter(self, attr: Any, *args: Any, **kwargs: Any) -> Any:
        """As in LayerHelper, but accepting ``attr`` in every form that ParamAttr supports."""
        return super().create_parameter(ParamAttr._to_attr(attr), *args, **kwargs)

    def run(
        self, op_type: str, inputs: dict[str, Any], attrs: dict[str, Any], out: str = "Out", slots: tuple[str, ...] = ()
    ) -> Any:
        """Append an op with new outputs; returns the one in slot ``out``.

        Args:
            inputs: a variable per slot; None for an absent one.
            attrs: the op's attributes.
            slots: all output slots, in the order in which a program's variables are named; ``out`` alone by default.
        """
        tracer = current_tracer()
        if tracer is not None:
            if op_type != "elementwise_add":  # a bias is numbered as what it is added to
                self.direct = op_type not in HELPED
            order = _of_proto(op_type, slots) if slots and self.direct else slots
            found = tracer.op(op_type, inputs, attrs, order or (out,), self.direct)
            return found[order.index(out) if order else 0]
        given = {slot: [var] for slot, var in inputs.items() if var is not None}
        dtype = next(iter(given.values()))[0].dtype
        outputs = {slot: [self.create_variable_for_type_inference(dtype)] for slot in slots or (out,)}
        self.append_op(type=op_type, inputs=given, outputs=outputs, attrs=attrs)
        return outputs[out][0]


@cache
def _of_proto(op_type: str, slots: tuple[str, ...]) -> tuple[str, ...]:
    """Output slots in the proto's order, which is that of their names in eager mode."""
    return tuple(slot.name for slot in op_proto(op_type).outputs if slot.name in slots)
