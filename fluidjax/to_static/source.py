"""Functions to syntax trees, and back."""

from __future__ import annotations
import __future__

import ast
import inspect
import linecache
import types
from functools import lru_cache
from typing import Any

from fluidjax.base.errors import explain

# The name by which converted code refers to the staged functions.
STAGED = "_jst"
# The attribute in which a decorator of this package stores the original function.
DECORATED = "__dygraph_function__"

_produced: set[types.CodeType] = set()


class NoSource(TypeError):
    """The source of a function is unavailable, or is not a ``def``."""


def is_converted(function: types.FunctionType) -> bool:
    """Whether `function`, or the function enclosing its definition, is the result of a conversion."""
    return function.__code__ in _produced


def definition(function: types.FunctionType) -> ast.FunctionDef:
    """The ``def`` of a function, with the line numbers of its file, without decorators and annotations.

    Raises NoSource if the source cannot be read, as for functions typed at a prompt, and for a lambda.
    """
    code = function.__code__
    try:
        lines, first = inspect.getsourcelines(code)
    except (OSError, TypeError) as error:
        raise NoSource(_no_source(function, str(error))) from error
    indented = lines[0][:1].isspace()
    text = "".join(["if 1:\n", *lines] if indented else lines)
    try:
        node = ast.parse(text).body[0]
    except SyntaxError as error:
        raise NoSource(_no_source(function, f"its lines do not stand alone: {error.msg}")) from error
    if indented:
        assert isinstance(node, ast.If)
        node = node.body[0]
    if not isinstance(node, ast.FunctionDef) or node.name != code.co_name:  # a lambda among the defaults of a def
        raise NoSource(_no_source(function, "it is no def"))
    ast.increment_lineno(node, first - 1 - indented)
    node.decorator_list = []
    return node


def is_current(function: types.FunctionType) -> bool:
    """Whether the lines that ``definition`` reads are those that a function was compiled from.

    A file may be edited while its functions run.
    """
    code = function.__code__
    text = "".join(linecache.getlines(code.co_filename, function.__globals__))
    found = _codes_in(text, code.co_filename).get((code.co_name, code.co_firstlineno), ())
    return any(_alike(each, code) for each in found)


@lru_cache(maxsize=32)
def _codes_in(text: str, filename: str) -> dict[tuple[str, int], list[types.CodeType]]:
    """The code of all functions in a file, by name and first line."""
    found: dict[tuple[str, int], list[types.CodeType]] = {}
    try:
        ahead = [compile(text, filename, "exec", dont_inherit=True)]
    except (SyntaxError, ValueError):  # while it is edited
        return found
    while ahead:
        code = ahead.pop()
        found.setdefault((code.co_name, code.co_firstlineno), []).append(code)
        ahead += [each for each in code.co_consts if isinstance(each, types.CodeType)]
    return found


def _alike(one: Any, two: Any) -> bool:
    """Whether two pieces of code, or two of their constants, are the same."""
    if type(one) is not type(two):
        return False
    if not isinstance(one, types.CodeType):
        return bool(one == two) and (type(one) is not float or one.hex() == two.hex())
    for part in ("co_code", "co_names", "co_varnames", "co_cellvars", "co_freevars"):
        if getattr(one, part) != getattr(two, part):
            return False
    return len(one.co_consts) == len(two.co_consts) and all(map(_alike, one.co_consts, two.co_consts))


def _no_source(function: types.FunctionType, found: str) -> str:
    return explain(
        f"{function.__qualname__} cannot be converted to a static program",
        "a function whose source file can be read",
        found,
        "define it by def in a file, or do not decorate it",
    )


def class_of(function: types.FunctionType) -> str | None:
    """The name of the class in which a method was defined; its private names are mangled with it."""
    parts = function.__qualname__.split(".")
    return parts[-2] if len(parts) > 1 and parts[-2] != "<locals>" else None


def rebuilt(function: types.FunctionType, node: ast.FunctionDef, staged: Any) -> types.FunctionType:
    """A function from a changed tree, with the globals, closure and defaults of `function`."""
    _drop_defaults(node)
    free = [*function.__code__.co_freevars, STAGED]
    parameters = [ast.arg(name) for name in free]
    arguments = ast.arguments(posonlyargs=[], args=parameters, kwonlyargs=[], kw_defaults=[], defaults=[])
    # In recursive calls its name refers to the global, unless its closure contains it.
    own = [] if node.name in free else [ast.Global([node.name])]
    outer = function_of("_outer", arguments, [*own, node])
    module = ast.fix_missing_locations(ast.Module(body=[outer], type_ignores=[]))
    flags = function.__code__.co_flags & __future__.annotations.compiler_flag
    compiled = compile(module, function.__code__.co_filename, "exec", flags=flags, dont_inherit=True)
    code = _code_in(_code_in(compiled, "_outer"), node.name)
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    cells[STAGED] = types.CellType(staged)
    closure = tuple(cells[name] for name in code.co_freevars)
    result = types.FunctionType(code, function.__globals__, function.__name__, function.__defaults__, closure)
    result.__kwdefaults__ = function.__kwdefaults__
    result.__qualname__, result.__module__ = function.__qualname__, function.__module__
    result.__doc__ = function.__doc__
    _note(code)
    return result


def function_of(name: str, arguments: ast.arguments, body: list[ast.stmt]) -> ast.FunctionDef:
    """A ``def`` with the given statements."""
    node = ast.FunctionDef(name=name, args=arguments, body=body, decorator_list=[])
    node.type_params = []  # type: ignore[attr-defined]  # of Python 3.12
    return node


def _drop_defaults(node: ast.FunctionDef) -> None:
    """Defaults were evaluated when the function was defined, so the old function's are reused."""
    args = node.args
    args.defaults = [ast.Constant(None) for _ in args.defaults]
    args.kw_defaults = [None if d is None else ast.Constant(None) for d in args.kw_defaults]
    for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg):
        if arg is not None:
            arg.annotation = None
    node.returns = None


def _code_in(code: types.CodeType, name: str) -> types.CodeType:
    return next(c for c in code.co_consts if isinstance(c, types.CodeType) and c.co_name == name)


def _note(code: types.CodeType) -> None:
    _produced.add(code)
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            _note(inner)
