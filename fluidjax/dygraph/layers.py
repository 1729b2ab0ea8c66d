"""Layer: all or part of a network as an object that owns its parameters and sublayers."""

from __future__ import annotations

import collections
import copy
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from fluidjax import unique_name
from fluidjax.base.enums import VarType
from fluidjax.base.errors import EnforceNotMet, explain
from fluidjax.base.tracebacks import shorten
from fluidjax.base.unknown import unknown_name
from fluidjax.dygraph import registered
from fluidjax.dygraph._known import calls
from fluidjax.dygraph.layer_object_helper import LayerObjectHelper
from fluidjax.dygraph.persistables import is_left_out, state_of
from fluidjax.eager.whole.together import clear_gradients
from fluidjax.framework import Parameter, Variable, _dygraph_tracer, default_main_program

__all__ = ["Layer"]


def _convert_camel_to_snake(name: str) -> str:
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()


class HookRemoveHelper:
    """The result of registering a hook; ``remove()`` unregisters it."""

    next_hook_id = 0

    def __init__(self, hooks: dict[int, Any]) -> None:
        self._hooks_ref = hooks
        self._hook_id = HookRemoveHelper.next_hook_id
        HookRemoveHelper.next_hook_id += 1

    def remove(self) -> None:
        """Remove the hook, if it is still registered."""
        self._hooks_ref.pop(self._hook_id, None)


class Layer(registered.Registered):
    """All or part of a network: override ``forward``, and assign parameters and sublayers as attributes.

    Args:
        name_scope: prefix of its full name; by default the class name in snake case.
        dtype: of the parameters.

    Examples:
        >>> class Twice(fluid.dygraph.Layer):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.linear = fluid.dygraph.Linear(3, 3)
        ...     def forward(self, x):
        ...         return self.linear(self.linear(x))
        >>> with fluid.dygraph.guard():
        ...     net = Twice()
        ...     print(net(fluid.layers.ones([2, 3], "float32")).shape, len(net.parameters()))
        [2, 3] 2
    """

    def __init__(self, name_scope: str | None = None, dtype: Any = VarType.FP32) -> None:
        self.training = True
        self._full_name = unique_name.generate(name_scope or _convert_camel_to_snake(type(self).__name__))
        self._helper = LayerObjectHelper(self._full_name)
        self._built = False
        self._dtype = dtype
        self._parameters = registered.Held()
        self._sub_layers = registered.Held()
        self._forward_pre_hooks: dict[int, Any] = collections.OrderedDict()
        self._forward_post_hooks: dict[int, Any] = collections.OrderedDict()
        self._loaddict_holder: dict[str, Any] = collections.OrderedDict()  # the state that was set last

    # Modes

    def train(self) -> None:
        """Switch this layer and its sublayers to training mode and resume recording gradients. Requires eager mode."""
        self._tracer().train_mode()
        self._set_training(True)

    def eval(self) -> None:
        """Switch this layer and its sublayers to evaluation mode; no layer records gradients. Requires eager mode."""
        self._tracer().eval_mode()
        self._set_training(False)

    def _tracer(self) -> Any:
        tracer = _dygraph_tracer()
        if tracer is None:
            raise AttributeError(
                explain(
                    f"{self._full_name}: train() and eval() switch eager mode, and it is off",
                    "a call inside fluid.dygraph.guard()",
                    "a call outside of it",
                    "call it in the guard, or use program.clone(for_test=True) in static mode",
                )
            )
        return tracer

    def _set_training(self, training: bool) -> None:
        self.training = training
        for layer in self.sublayers():
            layer.training = training

    # Names, parameters and variables

    def full_name(self) -> str:
        """The layer's name, prefix of its parameters' names: ``linear_0``."""
        return self._full_name

    def create_parameter(
        self,
        shape: Any,
        attr: Any = None,
        dtype: Any = "float32",
        is_bias: bool = False,
        default_initializer: Any = None,
    ) -> Any:
        """Create a parameter, named after the layer and initialised; assign it to an attribute to register it.

        Args:
            shape: the dimensions.
            attr: a ParamAttr, a name ...; False for no parameter, in which case the result is None.
            dtype: of the parameter.
            is_bias: initialise with zeros (else: Xavier) if neither ``attr`` nor ``default_initializer`` is given.
            default_initializer: initialiser used if ``attr`` has none.
        """
        return self._helper.create_parameter(copy.deepcopy(attr), shape, dtype, is_bias, default_initializer)

    def create_variable(
        self,
        name: str | None = None,
        persistable: bool | None = None,
        dtype: Any = None,
        type: VarType = VarType.LOD_TENSOR,
    ) -> Variable:
        """Create an empty variable named after the layer."""
        full = f"{self._full_name}.{name}" if name else unique_name.generate(f"{self._full_name}._generated_var")
        dtype = self._dtype if dtype is None else dtype
        block = default_main_program().current_block()
        return block.create_var(name=full, persistable=persistable, dtype=dtype, type=type)

    def parameters(self, include_sublayers: bool = True) -> list[Any]:
        """All parameters, without duplicates."""
        return [p for _, p in self.named_parameters(include_sublayers=include_sublayers)]

    def named_parameters(self, prefix: str = "", include_sublayers: bool = True) -> Iterator[tuple[str, Any]]:
        """Pairs of structured name and parameter; a shared parameter appears once, under its first name."""
        return registered.parameters(self, prefix, include_sublayers)

    def sublayers(self, include_sublayers: bool = True) -> list[Any]:
        """All sublayers at any depth, without duplicates."""
        return [layer for _, layer in self.named_sublayers(include_sublayers=include_sublayers)]

    def named_sublayers(
        self, prefix: str = "", include_sublayers: bool = True, include_self: bool = False, layers_set: Any = None
    ) -> Iterator[tuple[str, Any]]:
        """Pairs of structured name and layer; a shared layer appears once; those in ``layers_set`` are skipped."""
        return registered.layers(
            self, prefix, include_sublayers, include_self, set() if layers_set is None else layers_set
        )

    def clear_gradients(self) -> None:
        """Set the existing gradients of all trainable parameters to zero."""
        clear_gradients(registered.each_parameter(self))

    def add_sublayer(self, name: str, sublayer: Any) -> Any:
        """Register a layer under a name, and return it. Raises AssertionError if it is not a Layer."""
        registered.check_layer(self, name, sublayer)
        self._sub_layers[name] = sublayer
        return sublayer

    def add_parameter(self, name: str, parameter: Any) -> Any:
        """Register a parameter (or None) under a name, and return it. Raises TypeError if it is not a parameter."""
        if parameter is not None and not isinstance(parameter, Parameter):
            raise TypeError(registered.wrong_kind(self, name, parameter, "parameter"))
        self._parameters[name] = parameter
        return parameter

    # Calls

    def register_forward_pre_hook(self, hook: Callable[[Any, Any], Any]) -> HookRemoveHelper:
        """Call ``hook(layer, inputs)`` before each forward; a result other than None replaces the inputs."""
        return _register(self._forward_pre_hooks, hook)

    def register_forward_post_hook(self, hook: Callable[[Any, Any, Any], Any]) -> HookRemoveHelper:
        """Call ``hook(layer, inputs, outputs)`` after each forward; a result other than None replaces the outputs."""
        return _register(self._forward_post_hooks, hook)

    def _build_once(self, *args: Any, **kwargs: Any) -> None:
        """Called before the first forward, with its arguments."""

    def __call__(self, *inputs: Any, **kwargs: Any) -> Any:
        for before in list(self._forward_pre_hooks.values()) if self._forward_pre_hooks else ():
            replaced = before(self, inputs)
            if replaced is not None:
                inputs = replaced if isinstance(replaced, tuple) else (replaced,)
        if not self._built:
            self._build_once(*inputs, **kwargs)
            self._built = True
        elif not self._forward_pre_hooks and not self._forward_post_hooks:
            known = calls.again(self, inputs, kwargs)
            if known is not None:
                return known[0]
        try:
            outputs = self.forward(*inputs, **kwargs)
        except EnforceNotMet as error:  # of an op
            shorten(error)
            raise
        for after in list(self._forward_post_hooks.values()) if self._forward_post_hooks else ():
            replaced = after(self, inputs, outputs)
            if replaced is not None:
                outputs = replaced
        return outputs

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Compute the layer's outputs; to be overridden by every layer."""
        raise NotImplementedError(
            f"{type(self).__name__} ({self._full_name}) has no forward(): define what it computes, or call the layers "
            "that it holds."
        )

    def backward(self, *inputs: Any) -> NoReturn:
        """Always raises ValueError: gradients are derived from the ops."""
        raise ValueError("Layer shouldn't implement backward: call loss.backward().")

    # Attributes

    def __getattr__(self, name: str) -> Any:
        own = self.__dict__  # this is how each parameter and sublayer is read: a loop takes as long as the rest
        held = own.get("_parameters")
        if held is not None and name in held:
            return held[name]
        held = own.get("_sub_layers")
        if held is not None and name in held:
            return held[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        of_class = isinstance(getattr(type(self), name, None), property)
        if of_class:
            object.__setattr__(self, name, value)
        if not registered.assign(self, name, value) and not of_class:
            object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        for held in (self._parameters, self._sub_layers):
            if name in held:
                del held[name]
                return
        object.__delattr__(self, name)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            f"can't pickle {type(self).__name__} objects, nor copy them. Make another one and give it this one's "
            "state_dict()."
        )

    # State

    def state_dict(
        self, destination: Any = None, include_sublayers: bool = True, structured_name_prefix: str = ""
    ) -> dict[str, Any]:
        """All parameters (not copies) by structured name, the layer's own before those of its sublayers."""
        found = collections.OrderedDict() if destination is None else destination
        for name, parameter in self._parameters.items():
            if parameter is not None:
                found[structured_name_prefix + name] = parameter
        for name, layer in self._sub_layers.items() if include_sublayers else ():
            if layer is not None:
                found.update(layer.state_dict(found, True, f"{structured_name_prefix}{name}."))
        return found

    def set_dict(
        self, stat_dict: dict[str, Any], include_sublayers: bool = True, use_structured_name: bool = True
    ) -> None:
        """Set the parameters to a result of ``state_dict`` or ``load_dygraph``.

        Args:
            stat_dict: arrays or variables by name; or what ``load_persistables`` gave, by the parameters' own names.
            include_sublayers: accepted for compatibility with Fluid: sublayers are always included.
            use_structured_name: whether names are structured (``fc.weight``) rather than the parameters' own.

        Raises RuntimeError for a missing parameter, AssertionError for a wrong shape or dtype. Unused entries cause a
        warning.
        """
        stat_dict, use_structured_name = state_of(stat_dict, use_structured_name)
        self._loaddict_holder = stat_dict
        unused = set(stat_dict)
        for prefix, layer in self.named_sublayers(include_self=True):
            unused -= layer._hold(prefix, stat_dict)
        for structured, parameter in self.state_dict().items():
            name = structured if use_structured_name else parameter.name
            if is_left_out(self, name, stat_dict):
                continue
            registered.check_there(self, name, stat_dict, use_structured_name)
            parameter.set_value(stat_dict[name])
            unused.discard(name)
        if unused:
            warnings.warn(
                f"Variables [ {sorted(unused)} ] in the state dict belong to no parameter of {self._full_name}; they "
                "are not used.",
                stacklevel=2,
            )

    def _hold(self, prefix: str, state: dict[str, Any]) -> set[str]:
        """Names in a state that a layer keeps for its first call, having no parameters before."""
        return set()

    def load_dict(
        self, stat_dict: dict[str, Any], include_sublayers: bool = True, use_structured_name: bool = True
    ) -> None:
        """The same as ``set_dict``."""
        self.set_dict(stat_dict, include_sublayers, use_structured_name)


def _register(hooks: dict[int, Any], hook: Any) -> HookRemoveHelper:
    helper = HookRemoveHelper(hooks)
    hooks[helper._hook_id] = hook
    return helper


__getattr__ = unknown_name(__name__)
