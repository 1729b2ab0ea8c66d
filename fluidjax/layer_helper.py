"""LayerHelper: interprets a layer's arguments and writes its ops."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import lowering
from fluidjax import unique_name
from fluidjax.base.mode import current_tracer
from fluidjax.base.tracebacks import shorten
from fluidjax.base.unknown import unknown_name
from fluidjax.framework import Operator, Parameter, Variable
from fluidjax.framework.direct import UNCOUNTED
from fluidjax.layer_helper_base import LayerHelperBase
from fluidjax.param_attr import ParamAttr

__all__ = ["LayerHelper"]


class LayerHelper(LayerHelperBase):
    """Helper for writing one layer.

    Args:
        layer_type: the type of layer, from which its name is derived: ``fc`` -> ``fc_0``.
        kwargs: the layer's arguments. ``name``, ``input``, ``param_attr``, ``bias_attr``, ``act``, ``use_cudnn`` and
            ``use_mkldnn`` are interpreted.
    """

    def __init__(self, layer_type: str, **kwargs: Any) -> None:
        self.kwargs = kwargs
        if kwargs.get("name") is None:
            uncounted = layer_type in UNCOUNTED and current_tracer() is not None
            kwargs["name"] = f"{layer_type}_0" if uncounted else unique_name.generate(layer_type)
        super().__init__(kwargs["name"], layer_type=layer_type)

    def append_op(self, *args: Any, **kwargs: Any) -> Operator:
        """Append an op to the current block; arguments as for Block.append_op."""
        tracer = current_tracer()
        if tracer is not None:
            try:
                return tracer.trace_op(*args, **kwargs)
            except lowering.errors.EnforceNotMet as error:
                shorten(error)
                raise
        return self.main_program.current_block().append_op(*args, **kwargs)

    def multiple_input(self, input_param_name: str = "input") -> list[Any]:
        """The input argument as a list."""
        inputs = self.kwargs.get(input_param_name, [])
        return list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]

    def input(self, input_param_name: str = "input") -> Any:
        """The input argument, if there is exactly one. Raises ValueError otherwise."""
        inputs = self.multiple_input(input_param_name)
        if len(inputs) != 1:
            raise ValueError(
                f"layer {self.name}: {self.layer_type} takes one {input_param_name}, got {len(inputs)}. Pass one "
                "variable."
            )
        return inputs[0]

    @property
    def param_attr(self) -> Any:
        """The argument ``param_attr`` as a ParamAttr."""
        return ParamAttr._to_attr(self.kwargs.get("param_attr"))

    @property
    def bias_attr(self) -> Any:
        """The argument ``bias_attr`` as a ParamAttr, or False for no bias."""
        return ParamAttr._to_attr(self.kwargs.get("bias_attr"))

    def multiple_param_attr(self, length: int) -> list[Any]:
        """One ParamAttr per input; a single one is used for all. Raises ValueError if the numbers differ."""
        attrs = self.param_attr
        attrs = attrs if isinstance(attrs, list) else [attrs]
        if len(attrs) != 1 and len(attrs) != length:
            raise ValueError(
                f"layer {self.name}: parameter number mismatch, {len(attrs)} param_attr for {length} inputs. Give one, "
                "or one for each input."
            )
        if len(attrs) == 1 and length != 1:
            attrs = [copy.deepcopy(attrs[0]) for _ in range(length)]
        return attrs

    def iter_inputs_and_params(self, input_param_name: str = "input") -> Iterator[tuple[Any, Any]]:
        """Pairs of input and ParamAttr."""
        inputs = self.multiple_input(input_param_name)
        yield from zip(inputs, self.multiple_param_attr(len(inputs)), strict=True)

    def input_dtype(self, input_param_name: str = "input") -> Any:
        """The common dtype of all inputs; None without inputs. Raises ValueError if they differ."""
        dtypes = [each.dtype for each in self.multiple_input(input_param_name)]
        for dtype in dtypes:
            if dtype != dtypes[0]:
                raise ValueError(
                    f"layer {self.name}: Data Type mismatch: {dtypes[0]} to {dtype} among its inputs. Cast them to one "
                    "dtype with fluid.layers.cast."
                )
        return dtypes[0] if dtypes else None

    def get_parameter(self, name: str) -> Parameter:
        """The parameter of that name. Raises ValueError if it does not exist."""
        param = self.main_program.global_block().vars.get(name)
        if not isinstance(param, Parameter):
            raise ValueError(f"no Parameter name {name} found in the main program. Check the name.")
        return param

    def append_bias_op(self, input_var: Variable, dim_start: int = 1, dim_end: int | None = None) -> Variable:
        """Add a bias shaped like dimensions `dim_start` to `dim_end` of the input, if the layer has one."""
        attr = self.bias_attr
        if not attr:
            return input_var
        size = list(input_var.shape[dim_start:dim_end])
        bias = self.create_parameter(attr=attr, shape=size, dtype=input_var.dtype, is_bias=True)
        out = self.create_variable_for_type_inference(dtype=input_var.dtype)
        self.append_op(
            type="elementwise_add",
            inputs={"X": [input_var], "Y": [bias]},
            outputs={"Out": [out]},
            attrs={"axis": dim_start},
        )
        return out

    def append_activation(self, input_var: Variable) -> Variable:
        """Apply the activation given by ``act``, if any.

        Raises TypeError if ``act`` is not a string.
        """
        act = self.kwargs.get("act")
        if act is None:
            return input_var
        if not isinstance(act, str):
            raise TypeError(
                f"layer {self.name}: the activation {act!r} should be a str, the type of an op like 'relu'."
            )
        given = {name: self.kwargs[name] for name in ("use_cudnn", "use_mkldnn") if self.kwargs.get(name)}
        known = lowering.get_op(act).attrs if given and lowering.has_op(act) else {}
        attrs = {name: value for name, value in given.items() if name in known}
        tracer = current_tracer()
        again = None if tracer is None else tracer.again(act, {"X": input_var}, attrs, ("Out",))
        if again is not None:
            return again[0]
        out = self.create_variable_for_type_inference(dtype=input_var.dtype)
        self.append_op(
            type=act,
            inputs={"X": [input_var]},
            outputs={"Out": [out]},
            attrs=attrs,
        )
        return out

    def is_instance(self, param_name: str, cls: type) -> None:
        """Raise TypeError unless the argument of that name is a `cls`."""
        param = self.kwargs.get(param_name)
        if not isinstance(param, cls):
            raise TypeError(
                f"The input {param_name} parameter of method {self.layer_type} must be {cls.__name__}, got {param!r}."
            )


__getattr__ = unknown_name(__name__)
