"""Which library a call in a syntax tree is of, as far as the names that scripts give to modules tell."""

from __future__ import annotations

from typing import Any

from fluidjax.base.errors import explain
from fluidjax.dygraph.dygraph_to_static.static_analysis import module_of
from fluidjax.dygraph.dygraph_to_static.trees import kind, source_of

# Fluid's own eager classes that have a static function, by the name of the class.
dygraph_class_to_static_api = {
    "CosineDecay": "cosine_decay",
    "ExponentialDecay": "exponential_decay",
    "InverseTimeDecay": "inverse_time_decay",
    "NaturalExpDecay": "natural_exp_decay",
    "NoamDecay": "noam_decay",
    "PiecewiseDecay": "piecewise_decay",
    "PolynomialDecay": "polynomial_decay",
}


def is_api_in_module(node: Any, module_prefix: str) -> bool:
    """Whether a call's function is defined in a module of Fluid, such as ``"paddle.fluid.layers"``, or below it.

    Raises AssertionError if `node` is no call.
    """
    called, prefix = _called(node), _ours(module_prefix)
    if prefix == "fluidjax" and called.startswith("paddle.") and not called.startswith("paddle.fluid."):
        return False  # of paddle itself, whose functions are defined here and there
    found = module_of(called)
    return found == prefix or found.startswith(prefix + ".")


def _ours(module: str) -> str:
    """The module here that has the place of one of Paddle's."""
    fluid = "paddle.fluid"
    return "fluidjax" + module[len(fluid) :] if (module + ".").startswith(fluid + ".") else f"fluidjax.{module}"


def is_paddle_api(node: Any) -> bool:
    """Whether a call is of Fluid."""
    return is_api_in_module(node, "paddle.fluid")


def is_dygraph_api(node: Any) -> bool:
    """Whether a call is of ``fluid.dygraph``, its converter left out."""
    converter = "paddle.fluid.dygraph.dygraph_to_static"
    return is_api_in_module(node, "paddle.fluid.dygraph") and not is_api_in_module(node, converter)


def is_to_variable(node: Any) -> bool:
    """Whether a call is of ``to_variable``."""
    return is_dygraph_api(node) and _called(node).endswith("to_variable")


def is_numpy_api(node: Any) -> bool:
    """Whether a call is of NumPy, by either of its usual names."""
    return _called(node).startswith(("np.", "numpy."))


def to_static_api(dygraph_class: str) -> str:
    """The function of ``fluid.layers`` for a class of ``fluid.dygraph``; raises NotImplementedError if it has none."""
    if dygraph_class not in dygraph_class_to_static_api:
        raise NotImplementedError(
            explain(
                f"Paddle dygraph API {dygraph_class} cannot be converted to static graph at present.",
                ", ".join(dygraph_class_to_static_api),
                dygraph_class,
                "make the layer outside of the function that is converted",
            )
        )
    return dygraph_class_to_static_api[dygraph_class]


def _called(node: Any) -> str:
    assert kind(node) == "Call", f"expected the node of a call, received {kind(node)}: pass that of f(x)"
    return source_of(node.func)
