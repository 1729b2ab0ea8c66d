"""Layers whose first argument is a name, as in Fluid 1.3 to 1.6; the sizes that they leave out the first input tells.

``Conv2D("conv", num_filters=20, filter_size=5)`` is such a layer: it has its parameters from its first call on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from fluidjax.base.mode import current_tracer
from fluidjax.dygraph.layers import Layer
from fluidjax.dygraph.persistables import ByName, part_of
from fluidjax.framework import Variable

Given = dict[str, Any]
Sizes = Callable[[Given, tuple[Any, ...]], Given]


def _begins_with_text(args: tuple[Any, ...], kwargs: Given) -> bool:
    return "name_scope" in kwargs or bool(args) and isinstance(args[0], str)


def named(
    arguments: str,
    sizes: Sizes | None = None,
    has_name: Callable[[tuple[Any, ...], Given], bool] = _begins_with_text,
) -> Callable[[type[Layer]], Any]:
    """Let a layer's class take a name and the arguments of Fluid 1.3 to 1.6 as well.

    Args:
        arguments: those that followed the name, in their order then.
        sizes: (what is given, the inputs of the first call) -> the arguments of Fluid 1.8; None: they are the same.
        has_name: whether a call's arguments begin with a name.
    """
    order = ("name_scope", *arguments.split())

    def decorate(kind: type[Layer]) -> type[Layer]:
        init = kind.__init__

        @functools.wraps(init)
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            if not has_name(args, kwargs):
                return init(self, *args, **kwargs)
            if args and not isinstance(args[0], str):
                args = (None, *args)  # Fluid 1.3 had FC(size)
            given = _bound(kind.__name__, order, args, kwargs)
            tracer = current_tracer()
            if tracer is not None:
                tracer.made.named = True
            scope = given.pop("name_scope", None)
            if sizes is None:
                return init(self, **given)
            Layer.__init__(self, scope)
            self._pending = functools.partial(_made, self, init, sizes, given)
            self._held_state = {}
            return None

        kind.__init__ = __init__  # type: ignore[method-assign]
        kind._build_once = _build_once  # type: ignore[method-assign]
        kind._hold = _hold  # type: ignore[method-assign]
        return kind

    return decorate


def _bound(kind: str, order: tuple[str, ...], args: tuple[Any, ...], kwargs: Given) -> Given:
    """Arguments by name. Raises TypeError for more than there were, and for one that is given twice or unknown."""
    if len(args) > len(order):
        raise TypeError(f"{kind} with a name takes {len(order)} arguments, as in Fluid 1.6, and received {len(args)}.")
    given = dict(zip(order, args, strict=False))
    wrong = [name for name in kwargs if name in given or name not in order]
    if wrong:
        raise TypeError(
            f"{kind} with a name takes {', '.join(order)}, as in Fluid 1.6, each once; received {wrong}. Leave the name"
            " out to use the arguments of Fluid 1.8."
        )
    return given | kwargs


def _made(layer: Any, init: Any, sizes: Sizes, given: Given, inputs: tuple[Any, ...]) -> None:
    """Initialise a layer for the inputs of its first call; it stays in its mode, and keeps its hooks."""
    kept = {name: layer.__dict__[name] for name in ("training", "_forward_pre_hooks", "_forward_post_hooks")}
    held = layer._held_state
    init(layer, **sizes(given, inputs))
    layer.__dict__.update(kept)
    if held:
        layer.set_dict(part_of(held, layer))


def _build_once(self: Any, *inputs: Any, **kwargs: Any) -> None:
    """Make a layer that waited for its inputs."""
    pending = self.__dict__.pop("_pending", None)
    if pending is not None:
        pending((*inputs, *kwargs.values()))


def _hold(self: Any, prefix: str, state: Given) -> set[str]:
    """Keep what a state dict has for a layer that has no parameters yet; the names of what it keeps."""
    if "_pending" not in self.__dict__:
        return set()
    if isinstance(state, ByName):  # which of its names are this layer's, its parameters will know
        self._held_state = state
        return set(state)
    start = f"{prefix}." if prefix else ""
    mine = {name for name in state if name.startswith(start)}
    self._held_state = {name[len(start) :]: state[name] for name in mine}
    return mine


def of_channels(given: Given, inputs: tuple[Any, ...]) -> Given:
    """The first input's second size is the number of channels."""
    return {"num_channels": inputs[0].shape[1], **given}


def of_sizes(**taken: Callable[[Given, tuple[Any, ...]], Any]) -> Sizes:
    """Arguments of today, each made of those given (it may take some out) and the inputs."""

    def sizes(given: Given, inputs: tuple[Any, ...]) -> Given:
        rest = dict(given)
        return {name: take(rest, inputs) for name, take in taken.items()} | rest

    return sizes


def _widths(given: Given, inputs: tuple[Any, ...]) -> Given:
    begin, sizes = given.get("num_flatten_dims", 1), []
    for each in _listed(inputs[0]):
        width = 1
        for size in each.shape[begin:]:
            width *= size
        sizes.append(width)
    return {"input_dims": sizes, **given}


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


@named(
    "size num_flatten_dims param_attr bias_attr act is_test dtype",
    _widths,
    lambda args, kwargs: "input_dims" not in kwargs,
)
class FC(Layer):
    """act(x W + b), of what an input's axes from ``num_flatten_dims`` on make as one; several inputs are added up.

    Fluid 1.8 has ``Linear`` in its place. ``FC("fc", size=10)`` has its parameters from its first call on.

    Args:
        input_dims: for each input, the size that it has as a row; with a name in place of it, the first call tells.
        size: the size of the output's last axis.
        num_flatten_dims: how many axes stay.
        param_attr, bias_attr: settings of the weights and of ``bias`` [size], False for none.
        act: an activation.
        is_test: kept for Fluid's sake.
        dtype: the parameters' element type.
    """

    def __init__(
        self,
        input_dims: list[int],
        size: int,
        num_flatten_dims: int = 1,
        param_attr: Any = None,
        bias_attr: Any = None,
        act: str | None = None,
        is_test: bool = False,
        dtype: Any = "float32",
    ) -> None:
        super().__init__()
        self._num_flatten_dims = num_flatten_dims
        self._act = act
        self._dtype = dtype
        self._weights = [f"weight_{index}" if index else "weight" for index in range(len(input_dims))]
        for name, width in zip(self._weights, input_dims, strict=True):
            self.add_parameter(name, self.create_parameter([width, size], param_attr, dtype))
        self.bias = self.create_parameter([size], bias_attr, dtype, is_bias=True)

    def forward(self, input: Variable | list[Variable]) -> Variable:
        """The first ``num_flatten_dims`` axes of the input, and one of ``size``."""
        attrs = {"x_num_col_dims": self._num_flatten_dims, "y_num_col_dims": 1}
        products = [
            self._helper.run("mul", {"X": each, "Y": getattr(self, name)}, attrs)
            for each, name in zip(_listed(input), self._weights, strict=True)
        ]
        out = products[0]
        for other in products[1:]:
            out = out + other
        if self.bias is not None:
            out = self._helper.run("elementwise_add", {"X": out, "Y": self.bias}, {"axis": self._num_flatten_dims})
        return self._helper.append_activation(out, self._act)
