"""What a layer needs to write itself into the default programs: parameters, variables, initialisation."""

from __future__ import annotations

import copy
from typing import Any

from fluidjax import unique_name
from fluidjax.base.enums import VarType, to_var_type
from fluidjax.base.mode import current_tracer, in_dygraph_mode
from fluidjax.base.tracebacks import shortened
from fluidjax.framework import (
    EagerVariable,
    Operator,
    Parameter,
    Program,
    Variable,
    default_main_program,
    default_startup_program,
)
from fluidjax.framework.direct import DIRECT
from fluidjax.initializer import Constant, Initializer, Xavier
from fluidjax.param_attr import ParamAttr, WeightNormParamAttr
from fluidjax.writing.weight_norm import normalized_parameter


def _check_unused(name: str) -> None:
    if unique_name.dygraph_parameter_name_checker(name):
        raise ValueError(
            f"parameter name [{name}] have be been used. In dygraph mode, the name of parameter can't be same. Please "
            "check the parameter attr value passed to self.create_parameter or constructor of dygraph Layers; leave "
            "the name out to share nothing, or use the layer twice to share it."
        )


class LayerHelperBase:
    """Creates variables and parameters named after one layer."""

    def __init__(self, name: str, layer_type: str) -> None:
        self._layer_type = layer_type
        self._name = name

    @property
    def name(self) -> str:
        """The layer's name, prefix of its variables' names."""
        return self._name

    @property
    def layer_type(self) -> str:
        """The type of layer."""
        return self._layer_type

    @property
    def main_program(self) -> Program:
        """The program to which the layer is written."""
        return default_main_program()

    @property
    def startup_program(self) -> Program:
        """The program to which its parameters' initialisation is written."""
        return default_startup_program()

    def to_variable(self, value: Any, name: str | None = None) -> Any:
        """An eager variable with the value of an array. Raises AssertionError in static mode."""
        tracer = current_tracer()
        if tracer is None:
            raise AssertionError(
                "to_variable belongs to eager mode; a Program has no values of its own. Feed the array, or use "
                "fluid.layers.assign."
            )
        return value if isinstance(value, EagerVariable) else tracer.to_variable(value, name)

    @shortened
    def create_parameter(
        self,
        attr: Any,
        shape: Any,
        dtype: Any,
        is_bias: bool = False,
        default_initializer: Initializer | None = None,
        stop_gradient: bool = False,
        type: VarType = VarType.LOD_TENSOR,
    ) -> Parameter | Variable | None:
        """Create a parameter, and write its initialisation to the startup program.

        Args:
            attr: a ParamAttr, or what makes one (a name, an initializer, a regularizer, True or None); False for no
                parameter, in which case the result is None.
            shape: the dimensions.
            dtype: of the parameter.
            is_bias: initialise with zeros if neither `attr` nor `default_initializer` specifies an initializer.
            default_initializer: initializer used if `attr` has none.

        Raises TypeError for a dtype that is not floating-point, without an initializer.
        """
        attr = ParamAttr._to_attr(copy.copy(attr))
        if attr is False:
            return None
        if not isinstance(attr, ParamAttr):
            raise TypeError(
                f"layer {self.name}: its parameter's settings are {attr!r}. Expected a ParamAttr. Convert them with "
                "ParamAttr._to_attr."
            )
        if attr.initializer is None:
            self._set_initializer(attr, dtype, is_bias, default_initializer)
        if attr.name is None:
            attr.name = unique_name.generate(".".join([self.name, "b" if is_bias else "w"]))
        if isinstance(attr, WeightNormParamAttr):
            param = normalized_parameter(self.name, attr, shape, dtype, self.main_program, self.startup_program)
            WeightNormParamAttr.params_with_weight_norm.append(param)
            return param
        settings = {"dtype": dtype, "shape": shape, "type": type}
        if in_dygraph_mode():
            _check_unused(attr.name)
            kwargs = attr._to_kwargs(with_initializer=True)
            return self.main_program.global_block().create_parameter(**settings, **kwargs, stop_gradient=stop_gradient)
        self.startup_program.global_block().create_parameter(**settings, **attr._to_kwargs(with_initializer=True))
        return self.main_program.global_block().create_parameter(**settings, **attr._to_kwargs())

    def _set_initializer(
        self, attr: ParamAttr, dtype: Any, is_bias: bool, default_initializer: Initializer | None
    ) -> None:
        if default_initializer is not None:
            attr._set_default_initializer(default_initializer)
            return
        if to_var_type(dtype) not in (VarType.FP16, VarType.FP32, VarType.FP64):
            raise TypeError(
                f"layer {self.name}: Can not create parameter with default initializer when dtype is not float type, "
                f"and it is {dtype}. Set default_initializer (or ParamAttr's initializer) to fit the parameter dtype!"
            )
        if is_bias:
            attr._set_default_bias_initializer()
        else:
            attr._set_default_param_initializer()

    def _get_default_initializer(self, dtype: Any) -> Initializer:
        """The default initializer of a variable of that dtype."""
        is_float = to_var_type(dtype) in (VarType.FP16, VarType.FP32, VarType.FP64)
        return Xavier() if is_float else Constant()

    def create_variable_for_type_inference(self, dtype: Any, stop_gradient: bool = False) -> Variable:
        """A temporary variable for a result; its shape is inferred from the op that writes it."""
        tracer = current_tracer()
        if tracer is not None:
            return tracer.temporary(dtype, self._direct())
        return self.main_program.current_block().create_var(
            name=unique_name.generate_with_ignorable_key(".".join([self.name, "tmp"])),
            dtype=dtype,
            type=VarType.LOD_TENSOR,
            persistable=False,
            stop_gradient=stop_gradient,
        )

    def _direct(self) -> bool:
        """Whether in eager mode the tracer numbers the layer's results (see ``framework.direct``)."""
        return self._layer_type in DIRECT

    # What it was called before Fluid 1.0; scripts still do.
    create_tmp_variable = create_variable_for_type_inference

    def create_variable(self, *args: Any, **kwargs: Any) -> Variable:
        """A variable in the current block; arguments as for Block.create_var."""
        return self.main_program.current_block().create_var(*args, **kwargs)

    def create_global_variable(self, persistable: bool = False, *args: Any, **kwargs: Any) -> Variable:
        """A variable in the global block."""
        return self.main_program.global_block().create_var(
            *args, persistable=persistable, **{"stop_gradient": False, **kwargs}
        )

    def create_or_get_global_variable(self, name: str, *args: Any, **kwargs: Any) -> tuple[Variable, bool]:
        """(the global variable of that name, whether it was just created)."""
        block = self.main_program.global_block()
        if block.has_var(name):
            return block.var(name), False
        return self.create_global_variable(*args, name=name, **kwargs), True

    def set_variable_initializer(self, var: Variable, initializer: Initializer) -> Variable:
        """Initialise a variable of the main program in the startup program; returns the startup program's variable.

        In eager mode, the variable itself is initialised immediately.
        """
        if in_dygraph_mode():
            initializer(var, self.main_program.global_block())
            return var
        return self.startup_program.global_block().create_var(
            name=var.name,
            type=var.type,
            dtype=var.dtype,
            shape=var.shape,
            persistable=True,
            initializer=initializer,
        )

    def append_op(self, *args: Any, **kwargs: Any) -> Operator:
        """Append an op to the current block; arguments as for Block.append_op."""
        tracer = current_tracer()
        if tracer is not None:
            return tracer.trace_op(*args, **kwargs)
        return self.main_program.current_block().append_op(*args, **kwargs)
