"""Layers for sequences, trees and large vocabularies: GRUUnit, NCE, TreeConv, and two for static mode only."""

from __future__ import annotations

from typing import Any

from fluidjax.dygraph._nn.common import check_variable, require
from fluidjax.dygraph._nn.kept import Kept
from fluidjax.dygraph._nn.named import named, of_sizes
from fluidjax.dygraph.layers import Layer
from fluidjax.framework import Variable, in_dygraph_mode
from fluidjax.layers._loss.sampled import SAMPLERS, check_sampler, custom_inputs
from fluidjax.writing.checks import FULL_FLOATS

_ACTIVATIONS = {"identity": 0, "sigmoid": 1, "tanh": 2, "relu": 3}


@named("size param_attr bias_attr activation gate_activation origin_mode dtype")
class GRUUnit(Layer):
    """One step of a gated recurrent unit.

    Args:
        size: three times the hidden size.
        param_attr: attributes of ``weight`` [hidden, size].
        bias_attr: attributes of ``bias`` [1, size]; False for none.
        activation: of the candidate: "identity", "sigmoid", "tanh" or "relu".
        gate_activation: of the gates.
        origin_mode: accepted for compatibility with Fluid, which ignores it.
        dtype: of the parameters.

    Raises KeyError for an unknown activation.
    """

    def __init__(
        self,
        size: int,
        param_attr: Any = None,
        bias_attr: Any = None,
        activation: str = "tanh",
        gate_activation: str = "sigmoid",
        origin_mode: bool = False,
        dtype: Any = "float32",
    ) -> None:
        super().__init__()
        self._helper.direct = True
        self._bias_attr = bias_attr
        self._dtype = dtype
        self.activation = _ACTIVATIONS[activation]
        self.gate_activation = _ACTIVATIONS[gate_activation]
        hidden = size // 3
        self._bias_size = [1, 3 * hidden]
        self.weight = self.create_parameter([hidden, 3 * hidden], param_attr, dtype)
        self.bias = self.create_parameter(self._bias_size, bias_attr, dtype, is_bias=True)

    def forward(self, input: Variable, hidden: Variable) -> tuple[Variable, Variable, Variable]:
        """(hidden [N, H], reset_hidden_pre [N, H], gate [N, 3 H]) from input [N, 3 H] and hidden [N, H]."""
        check_variable(self, "input", input, FULL_FLOATS)
        check_variable(self, "hidden", hidden, FULL_FLOATS)
        helper = self._helper
        inputs = {"Input": [input], "HiddenPrev": [hidden], "Weight": [self.weight]}
        if self.bias is not None:
            inputs["Bias"] = [self.bias]
        gate, reset, updated = [helper.create_variable_for_type_inference(self._dtype) for _ in range(3)]
        helper.append_op(
            type="gru_unit",
            inputs=inputs,
            outputs={"Gate": [gate], "ResetHiddenPrev": [reset], "Hidden": [updated]},
            attrs={"activation": self.activation, "gate_activation": self.gate_activation},
        )
        return updated, reset, gate


@named(
    "num_total_classes sample_weight param_attr bias_attr num_neg_samples sampler custom_dist seed is_sparse",
    of_sizes(dim=lambda given, inputs: inputs[0].shape[1]),
)
class NCE(Layer):
    """Noise-contrastive estimation: a logistic loss of the labels against randomly drawn classes.

    Args:
        num_total_classes: number of classes.
        dim: number of input features.
        sample_weight: accepted for compatibility with Fluid; pass it to the call instead.
        param_attr: attributes of ``weight`` [num_total_classes, dim].
        bias_attr: attributes of ``bias`` [num_total_classes, 1], which exists only if they are given.
        num_neg_samples: number of classes drawn per row, 10 by default.
        sampler: "uniform", "log_uniform", or "custom_dist" with ``custom_dist``, the probability of each class.
        seed: makes the samples reproducible.
        is_sparse: whether gradients are SelectedRows.
        dtype: of the parameters.
    """

    def __init__(
        self,
        num_total_classes: int,
        dim: int,
        sample_weight: Any = None,
        param_attr: Any = None,
        bias_attr: Any = None,
        num_neg_samples: int | None = None,
        sampler: str = "uniform",
        custom_dist: Any = None,
        seed: int = 0,
        is_sparse: bool = False,
        dtype: Any = "float32",
    ) -> None:
        super().__init__()
        self._param_attr, self._bias_attr = param_attr, bias_attr
        self._dtype = dtype
        check_sampler(sampler, custom_dist)
        # Drawn tables are parameters by name only: they are not registered.
        self._tables = custom_inputs(self._helper, custom_dist, num_total_classes) if sampler == "custom_dist" else {}
        self._num_total_classes = num_total_classes
        self._num_neg_samples = 10 if num_neg_samples is None else int(num_neg_samples)
        self._attrs = {
            "num_total_classes": int(num_total_classes),
            "num_neg_samples": self._num_neg_samples,
            "seed": seed,
            "sampler": SAMPLERS[sampler],
            "is_sparse": is_sparse,
            "remote_prefetch": is_sparse,
        }
        self.weight = self.create_parameter([num_total_classes, dim], param_attr, dtype)
        self.bias = None
        if bias_attr:
            self.bias = self.create_parameter([num_total_classes, 1], bias_attr, dtype, is_bias=True)

    def forward(self, input: Variable, label: Variable, sample_weight: Variable | None = None) -> Variable:
        """[N, 1] from input [N, dim] and label, int64 [N, labels]."""
        check_variable(self, "input", input, FULL_FLOATS)
        check_variable(self, "label", label, ("int64",))
        if sample_weight is not None:
            check_variable(self, "sample_weight", sample_weight)
        inputs = {"Input": input, "Label": label, "Weight": self.weight, "Bias": self.bias}
        inputs |= {"SampleWeight": sample_weight, **self._tables}
        cost = self._helper.run("nce", inputs, self._attrs, "Cost", ("Cost", "SampleLogits", "SampleLabels"))
        return cost / (self._num_neg_samples + 1)


@named(
    "output_size num_filters max_depth act param_attr bias_attr name",
    of_sizes(feature_size=lambda given, inputs: inputs[0].shape[2]),
)
class TreeConv(Layer):
    """Tree-based convolution: each window is a node with its descendants.

    Args:
        feature_size: number of features per node.
        output_size: size of the output's third axis.
        num_filters: size of the output's last axis.
        max_depth: depth of a window.
        act: activation of the result.
        param_attr: attributes of ``weight`` [feature_size, 3, output_size, num_filters].
        bias_attr: attributes of ``bias`` [num_filters], which exists only if they are given.
        name: accepted for compatibility with Fluid.
        dtype: of the parameters.
    """

    _max_depth = Kept("max_depth")

    def __init__(
        self,
        feature_size: int,
        output_size: int,
        num_filters: int = 1,
        max_depth: int = 2,
        act: str | None = "tanh",
        param_attr: Any = None,
        bias_attr: Any = None,
        name: str | None = None,
        dtype: Any = "float32",
    ) -> None:
        super().__init__()
        self._act = act
        self._param_attr, self._bias_attr = param_attr, bias_attr
        self._dtype = dtype
        self._feature_size, self._output_size, self._num_filters = feature_size, output_size, num_filters
        self._max_depth, self._name = max_depth, name
        if bias_attr:
            self.bias = self.create_parameter([num_filters], bias_attr, dtype, is_bias=True)
        self.weight = self.create_parameter([feature_size, 3, output_size, num_filters], param_attr, dtype)

    def forward(self, nodes_vector: Variable, edge_set: Variable) -> Variable:
        """[N, nodes, output_size, num_filters] from vectors [N, nodes, feature_size] and edges int32 [N, edges, 2]."""
        check_variable(self, "nodes_vector", nodes_vector)
        check_variable(self, "edge_set", edge_set)
        inputs = {"NodesVector": nodes_vector, "EdgeSet": edge_set, "Filter": self.weight}
        out = self._helper.run("tree_conv", inputs, self._attrs)
        if self._bias_attr:
            out = self._helper.run("elementwise_add", {"X": out, "Y": self.bias}, {"axis": 1})
        return self._helper.append_activation(out, self._act)


def _static_only(name: str) -> None:
    require(
        not in_dygraph_mode(),
        f"{name} is not supported by dynamic graph mode yet! Its input is ragged; use it in a static program.",
    )


class SequenceConv(Layer):
    """``layers.sequence_conv`` as a Layer, for static mode.

    Args:
        name_scope: prefix of its name.
        num_filters: width of the result.
        filter_size: number of rows in a context window; filter_stride: must be 1.
        padding: accepted for compatibility with Fluid.
        bias_attr, param_attr: attributes of ``bias`` and ``weight``.
        act: activation of the result.
    """

    def __init__(
        self,
        name_scope: str,
        num_filters: int,
        filter_size: int = 3,
        filter_stride: int = 1,
        padding: Any = None,
        bias_attr: Any = None,
        param_attr: Any = None,
        act: str | None = None,
    ) -> None:
        _static_only("SequenceConv")
        super().__init__(name_scope)
        self._num_filters = num_filters
        self._filter_size = filter_size
        self._filter_stride = filter_stride
        self._bias_attr = bias_attr
        self._param_attr = param_attr
        self._act = act

    def _build_once(self, input: Variable) -> None:
        self._dtype = input.dtype
        shape = [self._filter_size * input.shape[1], self._num_filters]
        self.weight = self.create_parameter(shape, self._param_attr, self._dtype)
        self.bias = self.create_parameter([self._num_filters], self._bias_attr, self._dtype, is_bias=True)

    def forward(self, input: Variable) -> Variable:
        """[rows, num_filters] from [rows, width] with LoD."""
        attrs = {
            "contextStride": self._filter_stride,
            "contextStart": -(self._filter_size // 2),
            "contextLength": self._filter_size,
        }
        out = self._helper.run("sequence_conv", {"X": input, "Filter": self.weight}, attrs)
        if self.bias is not None:
            out = self._helper.run("elementwise_add", {"X": out, "Y": self.bias}, {"axis": 1})
        return self._helper.append_activation(out, self._act)


class RowConv(Layer):
    """``layers.row_conv`` as a Layer, for static mode.

    Args:
        name_scope: prefix of its name.
        future_context_size: number of following rows in the window.
        param_attr: attributes of ``weight``.
        act: activation of the result.
    """

    def __init__(
        self, name_scope: str, future_context_size: int, param_attr: Any = None, act: str | None = None
    ) -> None:
        _static_only("RowConv")
        super().__init__(name_scope)
        self._future_context_size = future_context_size
        self._param_attr = param_attr
        self._act = act

    def _build_once(self, input: Variable) -> None:
        self._dtype = input.dtype
        shape = [self._future_context_size + 1, input.shape[1]]
        self.weight = self.create_parameter(shape, self._param_attr, self._dtype)

    def forward(self, input: Variable) -> Variable:
        """A Variable shaped like the input, rows with LoD."""
        out = self._helper.run("row_conv", {"X": input, "Filter": self.weight}, {})
        return self._helper.append_activation(out, self._act)
