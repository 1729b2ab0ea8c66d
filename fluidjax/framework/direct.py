"""Layers that call their op directly in eager mode.

Fluid 1.8's eager mode has two counts for the names of results. What operators, most layers of ``fluid.dygraph`` and the
functions listed here compute is numbered by the tracer, together with ``to_variable``'s ``generated_var_N``; what the
other functions of ``fluid.layers`` compute is numbered by ``unique_name``. Both are called ``tmp_N``.
"""

from typing import Any

_UNARY = """
abs acos asin atan ceil cos cosh exp floor leaky_relu log log1p logsigmoid mean reciprocal relu round rsqrt sigmoid sin
sinh softmax softplus softsign sqrt square tanh tanh_shrink
"""
_OTHERS = """
accuracy addmm bmm concat cross cross_entropy cross_entropy2 dot dropout elementwise_add elementwise_div
elementwise_floordiv elementwise_max elementwise_min elementwise_mod elementwise_mul elementwise_pow elementwise_sub
expand fill_constant index_select kron label_smooth matmul meshgrid mul one_hot pad2d reduce_mean reduce_sum reshape
reshape2 roll scale slice softmax_with_cross_entropy split top_k topk transpose transpose2 where where_index
"""

DIRECT = frozenset(_UNARY.split() + _OTHERS.split())
"""Types of ops and layers whose results the tracer numbers when a function of ``fluid.layers`` is called."""

UNCOUNTED = DIRECT - {"bmm", "roll", "where", "where_index"}
"""Those of them that number no layer either: a ``class Relu(Layer)`` is ``relu_0`` after any ``layers.relu``."""

HELPED = frozenset(
    "bce_loss conv3d conv3d_transpose depthwise_conv2d group_norm nce nll_loss prelu spectral_norm tree_conv".split()
)
"""Types of ops of ``fluid.dygraph``'s layers whose results ``unique_name`` numbers."""


def numbered(number: int) -> str:
    """The name of a result of eager mode that has this number (see ``as_generated``)."""
    return f"tmp_{number}" if number >= 0 else f"generated_var_{~number}"


def as_generated(result: Any) -> Any:
    """An eager result, called ``generated_var_N`` instead of ``tmp_N``: what ``matmul`` and ``Linear`` make first."""
    if result._name.__class__ is int:
        result._name = ~result._name
    return result
