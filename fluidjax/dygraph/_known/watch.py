"""Observes a call: what it reads is noted, and whether it does anything besides recording ops.

A function runs as Python, rewritten so that everything it reads or calls comes through here (see ``reading``). What
depends on its arguments alone needs no note; what it finds elsewhere is noted for comparison. Anything of which it is
not known that it would be done alike the next time is done, and the call counts as *loose*: it is never repeated.
"""

from __future__ import annotations

import builtins
import operator
import types
from collections.abc import Callable
from typing import Any

from fluidjax.dygraph._known.functions import CLASSES, FUNCTIONS, is_forward, is_of_python, names_read
from fluidjax.dygraph._known.guards import MISSING
from fluidjax.dygraph._known.reading import Unreadable, watched
from fluidjax.dygraph._known.reads import CONTAINERS, DICTS, PLAIN, Reads, of_layer
from fluidjax.dygraph.registered import Registered
from fluidjax.eager.variables.varbase import ParamBase, VarBase

_OPERATORS: dict[str, tuple[Any, str]] = {
    "Add": (operator.add, "add"), "Sub": (operator.sub, "sub"), "Mult": (operator.mul, "mul"),
    "Div": (operator.truediv, "truediv"), "FloorDiv": (operator.floordiv, "floordiv"), "Mod": (operator.mod, "mod"),
    "Pow": (operator.pow, "pow"), "MatMult": (operator.matmul, "matmul"), "USub": (operator.neg, "neg"),
    "UAdd": (operator.pos, "pos"), "Invert": (operator.invert, "invert"), "Eq": (operator.eq, "eq"),
    "NotEq": (operator.ne, "ne"), "Lt": (operator.lt, "lt"), "LtE": (operator.le, "le"), "Gt": (operator.gt, "gt"),
    "GtE": (operator.ge, "ge"), "BitAnd": (operator.and_, "and"), "BitOr": (operator.or_, "or"),
    "BitXor": (operator.xor, "xor"), "LShift": (operator.lshift, "lshift"), "RShift": (operator.rshift, "rshift"),
    "IAdd": (operator.iadd, "iadd"), "ISub": (operator.isub, "isub"), "IMult": (operator.imul, "imul"),
    "IDiv": (operator.itruediv, "itruediv"), "IPow": (operator.ipow, "ipow"),
    "IMatMult": (operator.imatmul, "imatmul"), "IBitAnd": (operator.iand, "iand"), "IBitOr": (operator.ior, "ior"),
    "IBitXor": (operator.ixor, "ixor"), "ILShift": (operator.ilshift, "ilshift"),
    "IRShift": (operator.irshift, "irshift"), "IFloorDiv": (operator.ifloordiv, "ifloordiv"),
    "IMod": (operator.imod, "imod"),
    "In": (lambda a, b: a in b, ""), "NotIn": (lambda a, b: a not in b, ""),
}  # fmt: skip


class Watch(Reads):
    """One observed call (see ``Reads``)."""

    def __init__(self, layer: Any, given: tuple[Any, ...]) -> None:
        super().__init__(layer, given)
        self._rewritten: dict[int, Any] = {}

    def run(self, layer: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """What the layer's forward returns."""
        if "forward" in layer.__dict__:
            self.loose = True
            return layer.forward(*arguments, **named)
        return self._run_forward(layer, arguments, named)

    def end(self) -> None:
        """Release what it noted: the functions it rewrote refer to it, so that only a garbage collection would."""
        for noted in (self._rewritten, self._mine, self._given, self.variables, self.before):
            noted.clear()

    def _run_forward(self, layer: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        self.guards.entry(layer.__dict__, "forward", MISSING)
        function = layer.__class__.forward
        self.guards.member(layer.__class__, "forward", function)
        return self.call(types.MethodType(function, layer), *arguments, **named)

    def _function(self, function: Any) -> Any:
        """A function of the user's, rewritten; itself if it cannot be."""
        found = self._rewritten.get(id(function))
        if found is None:
            try:
                found = watched(function, _Names(self, function))
            except Unreadable:
                self.loose, found = True, function
            self._rewritten[id(function)] = found
            self.guards.function(function)
        return found

    def operate(self, what: str, *operands: Any) -> Any:
        """An operator's result."""
        function, name = _OPERATORS[what]
        variables = [x for x in operands if isinstance(x, VarBase)]
        if variables:
            self._operands(name, *operands)
            if what[0] == "I" or not name:
                self.loose |= not name or hasattr(VarBase, f"__{name}__")
                self._operands(name[1:], *operands)
        else:
            for each in operands:
                if what in _JOINING and each.__class__ in (list, tuple):
                    self.see(each)
                else:
                    self._plain(each)
            if what[0] == "I" and operands[0].__class__ is list and id(operands[0]) not in self._mine:
                self.loose = True
        value = function(*operands)
        return self.fresh(value) if value.__class__ is list else value

    def store(self, owner: Any, name: str, value: Any) -> None:
        """``owner.name = value``: a flag of a variable that the call made."""
        made = owner.__class__ is VarBase and self._made(owner)
        self.loose |= not made or name != "stop_gradient" or value.__class__ is not bool
        setattr(owner, name, value)

    def put(self, owner: Any, index: Any, value: Any) -> None:
        """``owner[index] = value`` of a list that the call made."""
        self.loose |= id(owner) not in self._mine
        self._plain(index)
        owner[index] = value

    def call(self, function: Any, /, *arguments: Any, **named: Any) -> Any:
        """``function(*arguments, **named)``."""
        kind = function.__class__
        if kind is types.MethodType:
            if function.__self__.__class__ in (VarBase, ParamBase):
                return self._method(function, arguments, named)
            if function.__func__.__class__ is types.FunctionType:
                if is_forward(function.__func__):
                    return self._forward(function, arguments, named)
                return self._function(function.__func__)(function.__self__, *arguments, **named)
        elif kind is types.FunctionType:
            if function in FUNCTIONS:
                return self._layer_function(function, arguments, named)
            return self._function(function)(*arguments, **named)
        elif kind is types.BuiltinFunctionType or kind is types.BuiltinMethodType:
            return self._builtin(function, arguments, named)
        elif kind is type and any(function is each for each in CLASSES):
            for each in (*arguments, *named.values()):
                self._argument(each)
            value = function(*arguments, **named)
            return self.fresh(value) if kind is list or function is list else value
        elif isinstance(function, Registered):
            return self._layer(function, arguments, named)
        self.loose = True
        return function(*arguments, **named)

    def _layer_function(self, function: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        given: list[Any] = []
        for each in (*arguments, *named.values()):
            self._tensors(each, given)
        before = [var._held for var in given]
        value = function(*arguments, **named)
        if any(var._held is not held for var, held in zip(given, before, strict=True)):
            self.loose = True  # it wrote into what it was given
        return self.fresh(value) if value.__class__ is list else value

    def _tensors(self, value: Any, found: list[Any]) -> None:
        """The variables of an argument; other objects than numbers, text and variables are not known."""
        kind = value.__class__
        if kind in (VarBase, ParamBase):
            self._variable(value)
            found.append(value)
        elif kind in (tuple, list):
            self.see(value)
            for each in value:
                self._tensors(each, found)
        elif kind not in PLAIN:
            self.loose = True

    def _argument(self, value: Any) -> None:
        """An argument of ``len``, ``range`` ...: numbers are read, containers are counted or gone over."""
        if value.__class__ in CONTAINERS or isinstance(value, Registered):
            self.each(value)
        elif value.__class__ not in PLAIN and value.__class__ not in (range, enumerate, zip, reversed):
            self.loose = True

    def _builtin(self, function: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        owner = function.__self__
        if function is getattr and len(arguments) == 2 and not named and arguments[1].__class__ is str:
            return self.attribute(*arguments)
        if owner is builtins or owner.__class__ is types.ModuleType:
            self._python(function, arguments)
            self.loose |= bool(named)
        elif owner.__class__ is list and id(owner) in self._mine and function.__name__ in _LIST_METHODS:
            pass
        elif owner.__class__ is str:
            for each in (*arguments, *named.values()):
                self._plain(each)
        elif owner.__class__ in DICTS and function.__name__ in ("items", "keys", "values"):
            self.see(owner)
            return self.fresh(function(*arguments, **named))
        elif owner.__class__ in DICTS and function.__name__ in ("get", "pop") and not named:
            self._entry(owner, function.__name__, *arguments)
        else:
            self.loose = True
        value = function(*arguments, **named)
        return self.fresh(value) if value.__class__ is list else value

    def _entry(self, owner: dict[Any, Any], method: str, key: Any, default: Any = None) -> None:
        """``owner.get(key, default)``, or ``pop``."""
        self.loose |= key.__class__ not in PLAIN
        if id(owner) not in self._mine:
            self.loose |= method == "pop"
            self.guards.entry(owner, key, owner.get(key, MISSING))
            self.see(owner.get(key))

    def _python(self, function: Any, arguments: tuple[Any, ...]) -> None:
        """A function of Python's own."""
        if not is_of_python(function):
            self.loose = True
        elif function is len and isinstance(arguments[0], (VarBase, Registered)):
            if isinstance(arguments[0], Registered):
                self._container(arguments[0], "__len__")
            elif not self._made(arguments[0]):
                self._variable(arguments[0])
        elif function is isinstance:
            self.loose |= isinstance(arguments[0], Registered) and not hasattr(arguments[0], "__dict__")
            if isinstance(arguments[0], Registered):
                self.guards.type_of(arguments[0])
        elif function is len:
            self._argument(arguments[0])
        else:
            for each in arguments:
                self._plain(each)

    def _method(self, function: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """A method of a variable."""
        self.loose |= function.__name__ != "astype"
        for each in (*arguments, *named.values()):
            self._plain(each)
        owner = function.__self__.__class__
        self.guards.member(owner, function.__name__, getattr(owner, function.__name__))
        return function(*arguments, **named)

    def _layer(self, layer: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        kind, own = layer.__class__, layer.__dict__
        if kind.__call__ is not of_layer(kind, "__call__") or not own["_built"] or "forward" in own:
            self.loose = True
        if own["_forward_pre_hooks"] or own["_forward_post_hooks"]:
            self.loose = True
        if self.loose:
            return layer(*arguments, **named)
        self.guards.type_of(layer)
        self.guards.member(kind, "__call__", kind.__call__)
        self.guards.entry(own, "_built", own["_built"])
        for hooks in ("_forward_pre_hooks", "_forward_post_hooks"):
            self.guards.entry(own, hooks, own[hooks])
            self.guards.mapped(own[hooks])
        return self._run_forward(layer, arguments, named)

    def _forward(self, function: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """The forward of one of our layers, which depends on attributes of the layer."""
        layer = function.__self__
        for name in names_read(function.__func__):
            if hasattr(layer, name):
                self.attribute(layer, name)
        return self._layer_function(function, arguments, named)


class _Names:
    """A watch, for one function: what it finds in its module and in the functions around it."""

    def __init__(self, watch: Watch, function: Any) -> None:
        self._globals = function.__globals__
        self._builtins = function.__builtins__
        self._cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        self._watch = watch

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return getattr(self._watch, name)

    def outer(self, name: str, value: Any) -> Any:
        """A name of the module, or one of Python's own."""
        guards = self._watch.guards
        guards.entry(self._globals, name, self._globals.get(name, MISSING))
        if name not in self._globals:
            guards.entry(self._builtins, name, value)
        return self._watch.see(value)

    def free(self, name: str, value: Any) -> Any:
        """A name of an enclosing function."""
        self._watch.guards.cell(self._cells[name], value)
        return self._watch.see(value)


_JOINING = ("Add", "IAdd", "Mult", "IMult")  # operators of lists that do not look at the elements
_LIST_METHODS = ("append", "extend", "insert", "pop", "reverse", "index", "count", "copy", "clear")
