"""LayerObjectHelper: what a Layer needs in order to create parameters and write ops."""

from __future__ import annotations

from typing import Any

from fluidjax.base.mode import current_tracer
from fluidjax.framework import Variable
from fluidjax.layer_helper import LayerHelper
from fluidjax.param_attr import ParamAttr


class LayerObjectHelper(LayerHelper):
    """The helper of a Layer: unlike LayerHelper, it is created once and given the layer's arguments at each call.

    Args:
        name: the layer's full name, used as the prefix of its parameters' names.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, name=name)

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
            found = tracer.again(act, {"X": input_var}, {}, ("Out",))
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
            slots: all output slots, in the order in which their variables are named; ``out`` alone by default.
        """
        tracer = current_tracer()
        if tracer is not None:
            return tracer.op(op_type, inputs, attrs, slots or (out,))[slots.index(out) if slots else 0]
        given = {slot: [var] for slot, var in inputs.items() if var is not None}
        dtype = next(iter(given.values()))[0].dtype
        outputs = {slot: [self.create_variable_for_type_inference(dtype)] for slot in slots or (out,)}
        self.append_op(type=op_type, inputs=given, outputs=outputs, attrs=attrs)
        return outputs[out][0]
