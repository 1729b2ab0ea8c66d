"""Which functions are converted, each of them once: the user's, but not those of this package, NumPy or Python."""

from __future__ import annotations

import ast
import functools
import inspect
import os
import types
import weakref
from collections.abc import Callable
from typing import Any

from fluidjax.to_static.source import DECORATED, NoSource, class_of, definition, is_converted, rebuilt
from fluidjax.to_static.statements import rewrite

_OWN = frozenset(("fluidjax", "lowering", "paddle", "numpy", "jax", "jaxlib"))
_STANDARD = os.path.dirname(os.__file__) + os.sep
_INSTALLED = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))

_converted: weakref.WeakKeyDictionary[Callable[..., Any], Callable[..., Any]] = weakref.WeakKeyDictionary()


def tree_of(function: types.FunctionType) -> ast.FunctionDef:
    """The syntax tree of the converted function. Raises NoSource."""
    return rewrite(definition(function), class_of(function), function.__code__.co_freevars)


def converted(function: types.FunctionType, staged: Any) -> Callable[..., Any]:
    """The converted function; generators and coroutines are left alone. Raises NoSource.

    Args:
        staged: the module whose functions the converted code calls.
    """
    known = _converted.get(function)
    if known is None:
        known = function if _suspends(function) else rebuilt(function, tree_of(function), staged)
        _converted[function] = known
    return known


def _suspends(function: types.FunctionType) -> bool:
    return inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function)


def undecorated(function: Any) -> Any:
    """The original of a function decorated by this package; others are returned unchanged."""
    while hasattr(function, DECORATED):
        function = getattr(function, DECORATED)
    return function


def belongs_to_user(function: types.FunctionType) -> bool:
    """Whether a function belongs to the user's code."""
    if (function.__module__ or "").partition(".")[0] in _OWN:
        return False
    path = function.__code__.co_filename
    return not path.startswith(_STANDARD) and not any(part in path for part in _INSTALLED)


def called(function: Any, staged: Any) -> Any:
    """What converted code calls in place of `function`: user functions, methods and objects are converted.

    Anything without readable source, such as a lambda of another module, is called unchanged.
    """
    if isinstance(function, types.MethodType):
        inner = called(function.__func__, staged)
        return function if inner is function.__func__ else types.MethodType(inner, function.__self__)
    if isinstance(function, functools.partial):
        return functools.partial(called(function.func, staged), *function.args, **function.keywords)
    if isinstance(function, types.FunctionType):
        return _function(undecorated(function), staged)
    if isinstance(function, type) or isinstance(function, types.BuiltinFunctionType):
        return function
    return _object(function, staged)


def _function(function: Any, staged: Any) -> Any:
    if not isinstance(function, types.FunctionType):
        return called(function, staged)
    if is_converted(function) or not belongs_to_user(function):
        return function
    try:
        return converted(function, staged)
    except NoSource:
        return function


def _object(instance: Any, staged: Any) -> Any:
    """A callable object: a layer with its forward converted, anything else with its __call__ converted."""
    method = getattr(type(instance), "__call__", None)  # noqa: B004
    if not isinstance(method, types.FunctionType):
        return instance
    forward = getattr(instance, "forward", None)
    if isinstance(forward, types.MethodType) and not belongs_to_user(method):
        inner = called(forward, staged)
        return instance if inner is forward else functools.partial(_with_forward, instance, inner)
    inner = _function(undecorated(method), staged)
    return instance if inner is method else types.MethodType(inner, instance)


def _with_forward(layer: Any, forward: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a layer, including its hooks, with another forward."""
    own = layer.__dict__
    if "forward" in own:
        return layer(*args, **kwargs)
    own["forward"] = forward
    try:
        return layer(*args, **kwargs)
    finally:
        del own["forward"]
