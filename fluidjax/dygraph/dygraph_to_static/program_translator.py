"""ProgramTranslator: eager functions as static programs, one per function and signature."""

from __future__ import annotations

import ast
import types
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fluidjax.base.errors import explain
from fluidjax.base.mode import current_tracer, in_dygraph_mode, tracer_guard
from fluidjax.base.places import CPUPlace
from fluidjax.base.scope import Scope
from fluidjax.dygraph.dygraph_to_static.building import (
    building,
    declare_input,
    fed,
    is_value,
    map_values,
    new_parameters,
)
from fluidjax.dygraph.dygraph_to_static.partial_program import PartialProgramLayer
from fluidjax.eager.variables.varbase import VarBase
from fluidjax.executor import Executor, scope_guard
from fluidjax.framework import Program, Variable
from fluidjax.io import save_inference_model
from fluidjax.to_static import staged
from fluidjax.to_static.convert import converted, tree_of, undecorated
from fluidjax.to_static.sequences import VariableList
from fluidjax.to_static.values import Optional, is_container, is_variable, items_of, leaves, remade

__all__ = ["ProgramTranslator", "convert_function_with_cache"]


def convert_function_with_cache(dygraph_func: Any) -> Any:
    """Convert `dygraph_func` to a function that writes its computation into the current programs; cached.

    Raises TypeError if its source is not available.
    """
    function = undecorated(dygraph_func)
    if isinstance(function, types.MethodType):
        return types.MethodType(convert_function_with_cache(function.__func__), function.__self__)
    return converted(function, staged) if isinstance(function, types.FunctionType) else staged.call(function)


class FunctionCache:
    """Converted functions, by what they were converted from."""

    def __init__(self) -> None:
        self._converted: dict[Any, Any] = {}

    def get_or_cache_func(self, func: Any) -> Any:
        """The converted function; the same one for the same function."""
        if func not in self._converted:
            self._converted[func] = convert_function_with_cache(func)
        return self._converted[func]

    def exist(self, func: Any) -> bool:
        """Whether a function was converted by this cache."""
        return func in self._converted


class FunctionSpec:
    """A function together with the arguments of a call.

    Args:
        func: a function or method.
        args, kwargs: its arguments; a leading layer is its receiver.
    """

    def __init__(self, func: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None) -> None:
        function = undecorated(func)
        if isinstance(function, types.MethodType):
            args, function = (function.__self__, *args), function.__func__
        self.dyfunc: Any = function
        self.args, self.kwargs = tuple(args), dict(kwargs or {})

    @property
    def instance(self) -> Any:
        """The layer whose method it is; None for a plain function."""
        return self.args[0] if self.args and hasattr(self.args[0], "named_parameters") else None

    @property
    def arguments(self) -> tuple[Any, ...]:
        """All arguments other than the layer."""
        args = self.args if self.instance is None else self.args[1:]
        return (list(args), self.kwargs)

    def signature(self) -> Hashable:
        """The key shared by calls that use the same program: shapes and dtypes of values, other arguments, modes."""
        layer, tracer = self.instance, current_tracer()
        modes = tracer is None or tracer._train_mode
        training = () if layer is None else tuple(s.training for s in (layer, *layer.sublayers()))
        return _signature(self.arguments), modes, training


def _signature(value: Any) -> Hashable:
    if is_container(value):
        keys = tuple(value) if isinstance(value, dict) else ()
        return type(value), keys, tuple(_signature(item) for item in items_of(value))
    if isinstance(value, np.ndarray):
        return "array", value.shape, str(value.dtype)
    if isinstance(value, VarBase):
        return "variable", tuple(value.shape), value.dtype, value.stop_gradient
    try:
        hash(value)
    except TypeError:
        return "object", id(value)
    return type(value), value


class ConcreteProgram(NamedTuple):
    """A function converted to a program.

    Attributes:
        inputs: the variables to feed the argument values to.
        outputs: the variables returned.
        parameters: the eager parameters it reads.
        result: the function's return value, with program variables.
        main_program, startup_program: the programs written.
    """

    inputs: list[Variable]
    outputs: list[Variable]
    parameters: list[Any]
    result: Any
    main_program: Program
    startup_program: Program

    @staticmethod
    def from_func_spec(spec: FunctionSpec) -> ConcreteProgram:
        """Write the program for a call.

        Raises ValueError if the function creates parameters, since every call would train new ones.
        """
        function = convert_function_with_cache(spec.dyfunc)
        with building() as (main, startup):
            inputs = [declare_input(main, value) for value in fed(spec.arguments)]
            given = iter(inputs)
            args, kwargs = map_values(lambda _: next(given), spec.arguments)
            layer = [] if spec.instance is None else [spec.instance]
            result = function(*layer, *args, **kwargs)
            made = new_parameters(main)
            if made:
                raise ValueError(_makes_parameters(spec.dyfunc, made))
            assert main._captures is not None
            outputs = [var for leaf in leaves(result) if isinstance(leaf, Variable) for var in _fetched(leaf)]
            static = [v if is_variable(v) else main._captures.variable(v) for v in outputs]
        parameters = [v for v in main._captures.values.values() if hasattr(v, "trainable")]
        return ConcreteProgram(inputs, static, parameters, result, main, startup)


def _makes_parameters(function: Any, names: list[str]) -> str:
    return explain(
        f"We don't support to define layer with parameters in the function decorated by @declarative: "
        f"{function.__qualname__} makes {', '.join(names)}",
        "parameters that are made once, in __init__",
        "parameters that each call would make anew",
        "make the layer in __init__ and keep it in an attribute",
    )


_Entry = tuple[ConcreteProgram, PartialProgramLayer]


class ProgramCache:
    """Programs by call signature."""

    def __init__(self) -> None:
        self._of_layers: weakref.WeakKeyDictionary[Any, dict[Hashable, _Entry]] = weakref.WeakKeyDictionary()
        self._of_functions: dict[Any, dict[Hashable, _Entry]] = {}
        self._last: tuple[FunctionSpec, _Entry] | None = None

    def __getitem__(self, spec: FunctionSpec) -> _Entry:
        """The program for a call, written on first use. Raises ValueError for any other key."""
        if not isinstance(spec, FunctionSpec):
            raise ValueError(f"type(item) should be FunctionSpec, but received {type(spec)}. Make one of the call.")
        entries = self._entries(spec)
        key = spec.dyfunc, spec.signature()
        found = entries.get(key)
        if found is None:
            found = entries[key] = _build(spec)
        self._last = spec, found
        return found

    def _entries(self, spec: FunctionSpec) -> dict[Hashable, _Entry]:
        if spec.instance is None:
            return self._of_functions.setdefault(spec.dyfunc, {})
        return self._of_layers.setdefault(spec.instance, {})

    def last(self) -> tuple[FunctionSpec, _Entry]:
        """The most recent call and its program. Raises AssertionError if there is none."""
        assert self._last is not None, "No valid cached program in ProgramCache. Call a @declarative function first."
        return self._last

    def __len__(self) -> int:
        return sum(len(e) for e in (*self._of_layers.values(), *self._of_functions.values()))


def _build(spec: FunctionSpec) -> _Entry:
    concrete = ConcreteProgram.from_func_spec(spec)
    state = concrete.main_program._captures
    assert state is not None
    return concrete, PartialProgramLayer(concrete.main_program, concrete.inputs, concrete.outputs, state.values)


class ProgramTranslator:
    """Converts eager functions to static programs. The class is a singleton.

    Attributes:
        enable_declarative: whether ``@declarative`` functions run as programs rather than op by op.
    """

    _instance: ProgramTranslator | None = None
    enable_declarative: bool
    _program_cache: ProgramCache

    def __new__(cls) -> ProgramTranslator:
        if cls._instance is None:
            cls._instance = super().__new__(cls)
            cls._instance._start()
        return cls._instance

    def _start(self) -> None:
        self._program_cache = ProgramCache()
        self.enable_declarative = True

    @classmethod
    def get_instance(cls) -> ProgramTranslator:
        """The single instance."""
        return cls()

    @classmethod
    def reset(cls) -> None:
        """Discard all programs and re-enable conversion."""
        if cls._instance is not None:
            cls._instance._start()

    def enable(self, enable_declarative: bool) -> None:
        """Set whether ``@declarative`` functions run as programs or op by op. Raises TypeError unless it is a bool."""
        if not isinstance(enable_declarative, bool):
            raise TypeError(
                f"The type of 'enable_declarative' in ProgramTranslator.enable must be bool, but received "
                f"{type(enable_declarative)}. Pass True or False."
            )
        self.enable_declarative = enable_declarative

    def get_output(self, dygraph_func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """The result of the function, run as a program, as eager variables.

        The structure of the return value is preserved, except that a list or tuple of one variable is that variable, as
        in Fluid; numbers and None are returned unchanged.
        """
        _check_callable(dygraph_func, "get_output")
        if not self.enable_declarative:
            return undecorated(dygraph_func)(*args, **kwargs)
        if not in_dygraph_mode():
            return self._inline(dygraph_func, args, kwargs)
        spec = FunctionSpec(dygraph_func, args, kwargs)
        concrete, partial = self._program_cache[spec]
        values = [VarBase(v) if isinstance(v, np.ndarray) else v for v in fed(spec.arguments)]
        for value, given in zip(values, fed(spec.arguments), strict=True):
            if isinstance(given, np.ndarray):
                value.stop_gradient = True
        return _alone(_outside(concrete.result, iter(partial(values))))

    def _inline(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """In static mode: write the function into the current programs."""
        values = fed([list(args), kwargs])
        if any(is_value(v) for v in values):
            raise AssertionError(
                explain(
                    "a @declarative function was called in static mode with values",
                    "a call under fluid.dygraph.guard(), or Variables of the program that is being written",
                    ", ".join(type(v).__name__ for v in values),
                    "enter fluid.dygraph.guard(), or feed the values to fluid.data variables",
                )
            )
        return convert_function_with_cache(function)(*args, **kwargs)

    def get_func(self, dygraph_func: Callable[..., Any]) -> Callable[..., Any]:
        """A function that writes the computation of `dygraph_func` into the current programs."""
        _check_callable(dygraph_func, "get_func")
        return convert_function_with_cache(dygraph_func) if self.enable_declarative else dygraph_func

    def get_program(self, dygraph_func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """(main program, startup program, variables to feed, variables to fetch) of a call."""
        _check_callable(dygraph_func, "get_program")
        if not self.enable_declarative:
            return undecorated(dygraph_func)(*args, **kwargs)
        concrete, _ = self._program_cache[FunctionSpec(dygraph_func, args, kwargs)]
        return concrete.main_program, concrete.startup_program, concrete.inputs, concrete.outputs

    def get_code(self, dygraph_func: Callable[..., Any]) -> str:
        """The source of the converted function. Raises TypeError if the source of `dygraph_func` is not available."""
        _check_callable(dygraph_func, "get_code")
        function = undecorated(dygraph_func)
        return ast.unparse(ast.fix_missing_locations(tree_of(getattr(function, "__func__", function)))) + "\n"

    def save_inference_model(
        self, dirname: str, feed: Sequence[int] | None = None, fetch: Sequence[int] | None = None
    ) -> None:
        """Save the program of the most recent call for inference, with its parameters.

        Args:
            dirname: the directory.
            feed, fetch: indices of the inputs and outputs to keep; all by default.
        """
        _, (concrete, partial) = self._program_cache.last()
        inputs = _chosen(concrete.inputs, feed, "feed")
        outputs = _chosen(concrete.outputs, fetch, "fetch")
        save_program(dirname, concrete.main_program, [v.name for v in inputs], outputs, partial.state)

    def get_program_cache(self) -> ProgramCache:
        """The cache of programs by call."""
        return self._program_cache


def _check_callable(function: Any, method: str) -> None:
    assert callable(function), f"Input dygraph_func is not a callable in ProgramTranslator.{method}. Pass a function."


def _chosen(variables: list[Variable], indices: Sequence[int] | None, what: str) -> list[Variable]:
    if indices is None:
        return variables
    for index in indices:
        if not -len(variables) <= index < len(variables):
            raise IndexError(
                f"{what} index {index} is out of range: expected 0 to {len(variables) - 1}. Choose another."
            )
    return [variables[i] for i in indices]


def save_program(
    dirname: str, program: Program, feeds: Sequence[str], fetches: Sequence[Variable], state: dict[str, Any]
) -> None:
    """Save a program for inference, taking the values of its persistable variables from eager variables."""
    scope = Scope()
    for name, value in state.items():
        scope.var(name).get_tensor().set(value.numpy(), CPUPlace())
    with tracer_guard(None), scope_guard(scope):
        copy = program.clone()
        targets = [copy.global_block().var(v.name) for v in fetches]
        save_inference_model(dirname, list(feeds), targets, Executor(), main_program=copy)


def _outside(result: Any, values: Any) -> Any:
    """A return value with program variables replaced by eager ones."""
    if is_container(result):
        items = [_outside(item, values) for item in items_of(result)]
        return list(items) if isinstance(result, tuple) else remade(result, items)
    if isinstance(result, VariableList):
        return _list_of(next(values), next(values))
    if isinstance(result, Optional):
        value, present = next(values), next(values)
        return value if present else None
    return next(values) if isinstance(result, Variable) else result


def _alone(result: Any) -> Any:
    """The variable of a list that holds only it."""
    single = isinstance(result, list) and len(result) == 1 and isinstance(result[0], VarBase)
    return result[0] if single else result


def _fetched(leaf: Any) -> list[Any]:
    if isinstance(leaf, Optional):
        return [leaf, leaf.present]
    return [leaf, leaf.length] if isinstance(leaf, VariableList) else [leaf]


def _list_of(array: VarBase, length: VarBase) -> list[VarBase]:
    """The items of a list filled by the program. Raises TypeError if gradients would have to flow to them."""
    if not array.stop_gradient:
        raise TypeError(
            explain(
                "a @declarative function returned a list that a loop on a variable filled, and gradients are recorded",
                "variables, which gradients flow through",
                "a list of which only the run knows the length",
                "return fluid.layers.stack(list), or call it under fluid.dygraph.no_grad()",
            )
        )
    held = array._array()
    elements = held.buffer if held.stacked else held.items
    return [VarBase(np.asarray(elements[i])) for i in range(int(length))]
