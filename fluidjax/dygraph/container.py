"""Containers of layers and parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from fluidjax.base.errors import explain
from fluidjax.dygraph import registered
from fluidjax.dygraph.layers import Layer
from fluidjax.framework import Parameter

__all__ = ["Sequential", "ParameterList", "LayerList"]


class Sequential(Layer):
    """Layers called in order, each on the result of the previous one.

    Args:
        layers: layers, registered as "0", "1" ..., or (name, layer) tuples.
    """

    def __init__(self, *layers: Any) -> None:
        super().__init__()
        named = layers if layers and isinstance(layers[0], tuple) else enumerate(layers)
        for name, layer in named:
            self.add_sublayer(str(name), layer)

    def __getitem__(self, name: Any) -> Any:
        return self._sub_layers[str(name)]

    def __setitem__(self, name: Any, layer: Any) -> None:
        self.add_sublayer(str(name), layer)

    def __delitem__(self, name: Any) -> None:
        if str(name) not in self._sub_layers:
            raise AssertionError(f"{self.full_name()} holds no layer {name!r}; it holds {list(self._sub_layers)}.")
        del self._sub_layers[str(name)]

    def __len__(self) -> int:
        return len(self._sub_layers)

    def forward(self, input: Any) -> Any:
        """The result of applying all layers to the input."""
        for layer in self._sub_layers.values():
            input = layer(input)
        return input


class ParameterList(Layer):
    """A list of parameters, registered as "0", "1" ... Setting anything else raises AssertionError."""

    def __init__(self, parameters: Iterable[Any] | None = None) -> None:
        super().__init__()
        for index, parameter in enumerate(parameters or ()):
            self[index] = parameter

    def __getitem__(self, idx: int) -> Any:
        return self._parameters[str(idx)]

    def __setitem__(self, idx: int, param: Any) -> None:
        if not isinstance(param, Parameter):
            raise AssertionError(
                explain(f"{self.full_name()}[{idx}] is no parameter", "a parameter", repr(param), "make it by "
                        "create_parameter")
            )  # fmt: skip
        setattr(self, str(idx), param)

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._parameters.values())

    def append(self, parameter: Any) -> ParameterList:
        """Append a parameter; returns the list. Raises TypeError for anything else."""
        self.add_parameter(str(len(self)), parameter)
        return self


class LayerList(Layer):
    """A list of layers, registered as "0", "1" ..., for the containing layer to call.

    Indices start at 0; a slice is a new LayerList. Raises AssertionError for anything that is not a layer.
    """

    def __init__(self, sublayers: Iterable[Any] | None = None) -> None:
        super().__init__()
        self.extend(sublayers or ())

    def __getitem__(self, idx: Any) -> Any:
        if isinstance(idx, slice):
            return type(self)(list(self)[idx])
        return self._sub_layers[str(idx)]

    def __setitem__(self, idx: int, sublayer: Any) -> None:
        setattr(self, str(idx), sublayer)

    def __delitem__(self, idx: Any) -> None:
        if not isinstance(idx, slice):
            delattr(self, str(idx))
        left = list(self)
        if isinstance(idx, slice):
            del left[idx]
        self._renumber(left)

    def __len__(self) -> int:
        return len(self._sub_layers)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._sub_layers.values())

    def _renumber(self, layers: list[Any]) -> None:
        self._sub_layers = registered.Held((str(i), layer) for i, layer in enumerate(layers))

    def append(self, sublayer: Any) -> LayerList:
        """Append a layer; returns the list."""
        self.add_sublayer(str(len(self)), sublayer)
        return self

    def insert(self, index: int, sublayer: Any) -> None:
        """Insert a layer before the one at ``index``, which must exist."""
        if not (isinstance(index, int) and 0 <= index < len(self)):
            raise AssertionError(
                f"{self.full_name()}.insert: index should be an integer in range [0, len(self)), and it is {index!r}, "
                f"len(self) {len(self)}. To add at the end, use append."
            )
        registered.check_layer(self, index, sublayer)
        layers = list(self)
        layers.insert(index, sublayer)
        self._renumber(layers)

    def extend(self, sublayers: Iterable[Any]) -> LayerList:
        """Append several layers; returns the list."""
        for layer in sublayers:
            self.append(layer)
        return self
