"""Observes a call: what it reads is noted, and whether it does anything besides recording ops.

A function runs as Python, rewritten so that everything it reads or calls comes through here (see ``reading``). What
depends on its arguments alone needs no note; what it finds elsewhere is noted for comparison. Anything of which it is
not known that it would be done alike the next time is done, and the call counts as *loose*: it is never repeated.
"""

from __future__ import annotations

import builtins
import operator
import types
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from fluidjax.base.enums import VarType
from fluidjax.dygraph._known.functions import CLASSES, FUNCTIONS, is_forward, is_of_python, names_read
from fluidjax.dygraph._known.guards import MISSING, Guards
from fluidjax.dygraph._known.reading import Unreadable, watched
from fluidjax.dygraph.registered import Registered
from fluidjax.eager.pending import recorder
from fluidjax.eager.varbase import ParamBase, VarBase

PLAIN = (int, float, bool, str, type(None), VarType)
_DICTS = (dict, OrderedDict)
_CONTAINERS = (tuple, list, *_DICTS)
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
    "IRShift": (operator.irshift, "irshift"), "IFloorDiv": (operator.ifloordiv, "ifloordiv"), "IMod": (operator.imod, "imod"),
    "In": (lambda a, b: a in b, ""), "NotIn": (lambda a, b: a not in b, ""),
}  # fmt: skip


class Watch:
    """One observed call.

    Args:
        layer: the layer that is called.
        given: the lists among its arguments, which are looked at each time.

    Attributes:
        loose: whether it did something that is not known to be done alike again.
        variables: the variables that it found outside its arguments.
    """

    def __init__(self, layer: Any, given: list[Any]) -> None:
        self.guards = Guards(layer)
        self.loose = False
        self.variables: dict[int, Any] = {}
        self._mine: dict[int, Any] = {}  # lists made by the call
        self._given = {id(each): each for each in given}
        self._first = len(recorder.outputs)
        self._serial = recorder.serial
        self._rewritten: dict[int, Any] = {}

    def run(self, layer: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """What the layer's forward returns."""
        self.guards.entry(layer.__dict__, "forward", MISSING)
        return self._run_forward(layer, arguments, named)

    def _run_forward(self, layer: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        function = getattr(layer.__class__, "forward")  # noqa: B009 (no layer is a subclass for mypy)
        self.guards.member(layer.__class__, "forward", function)
        return self.call(types.MethodType(function, layer), *arguments, **named)

    # What is read.

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

    def see(self, value: Any) -> Any:
        """Note what a value holds that was found outside; returns it."""
        kind = value.__class__
        if kind in PLAIN or kind is VarBase:
            if kind is VarBase:
                self._variable(value)
        elif kind is ParamBase:
            self._variable(value)
        elif kind is tuple:
            for each in value:
                self.see(each)
        elif kind is list:
            if id(value) not in self._mine and id(value) not in self._given:
                self.guards.listed(value)
                for each in value:
                    self.see(each)
        elif value.__class__ in _DICTS:
            if id(value) not in self._mine:
                self.guards.mapped(value)
                for each in value.values():
                    self.see(each)
        return value

    def _variable(self, var: Any) -> None:
        if not self._made(var):
            self.variables[id(var)] = var

    def _made(self, var: Any) -> bool:
        held = var._held
        return held is not None and getattr(held, "serial", -1) == self._serial and held.index >= self._first

    def attribute(self, owner: Any, name: str) -> Any:
        """``owner.name``."""
        value = getattr(owner, name)
        if isinstance(owner, VarBase):
            self._of_variable(owner, name)
            return self.fresh(value) if value.__class__ is list else value
        if owner.__class__ is types.ModuleType:
            self.guards.entry(owner.__dict__, name, value)
            self.loose |= name not in owner.__dict__
        elif owner.__class__ in _CONTAINERS or owner.__class__ in PLAIN:
            self.see(owner)
        elif owner.__class__ is type:
            self.guards.member(owner, name, value)
        else:
            self._of_object(owner, name)
        return self.see(value)

    def _of_variable(self, var: Any, name: str) -> None:
        if name not in ("shape", "dtype", "stop_gradient", "astype") or var.__class__ not in (VarBase, ParamBase):
            self.loose = True
        elif not self._made(var):
            self._variable(var)

    def _of_object(self, owner: Any, name: str) -> None:
        kind = owner.__class__
        is_layer = isinstance(owner, Registered)
        if isinstance(owner, type):
            self.loose = True
            return
        own = getattr(owner, "__dict__", None)
        ordinary = kind.__getattribute__ is object.__getattribute__ and own is not None
        if not ordinary or (getattr(kind, "__getattr__", None) is not (_layer_getattr(kind) if is_layer else None)):
            self.loose = True
            return
        self.guards.type_of(owner)
        member = getattr(kind, name, MISSING)
        self.guards.member(kind, name, member)
        if member is not MISSING and not isinstance(member, (types.FunctionType, *PLAIN)):
            self.loose = True  # a property, or something else that computes
        elif name in own:  # type: ignore[operator]
            self.guards.entry(own, name, own[name])  # type: ignore[index, arg-type]
        else:
            self.guards.entry(own, name, MISSING)  # type: ignore[arg-type]
            if member is MISSING and is_layer:
                for where in ("_parameters", "_sub_layers"):
                    held = own[where]  # type: ignore[index]
                    self.guards.entry(own, where, held)  # type: ignore[arg-type]
                    self.guards.entry(held, name, held.get(name, MISSING))
                    if name in held:
                        break

    def item(self, owner: Any, index: Any) -> Any:
        """``owner[index]``."""
        if isinstance(owner, VarBase):
            self._operands("getitem", owner)
            self._plain(index)
        elif owner.__class__ is list or owner.__class__ is tuple or owner.__class__ in _DICTS:
            self.see(owner)
            self._plain(index)
        elif isinstance(owner, Registered) and index.__class__ is int:
            self._container(owner, "__getitem__")
        else:
            self.loose = True
        value = owner[index]
        return self.fresh(value) if owner.__class__ is list and value.__class__ is list and index.__class__ is slice else value

    def _container(self, owner: Any, method: str) -> None:
        """A list of layers or parameters is looked at as a whole."""
        kind = owner.__class__
        function = getattr(kind, method, None)
        if getattr(function, "__module__", "") != "fluidjax.dygraph.container":
            self.loose = True
            return
        self.guards.member(kind, method, function)
        self.guards.type_of(owner)
        for where in ("_parameters", "_sub_layers"):
            self.guards.entry(owner.__dict__, where, owner.__dict__[where])
            self.see(owner.__dict__[where])

    def _plain(self, value: Any) -> None:
        """A value that may be compared and converted."""
        kind = value.__class__
        if kind is slice:
            value, kind = (value.start, value.stop, value.step), tuple
        if kind in (tuple, list):
            self.see(value)
            for each in value:
                self._plain(each)
        elif kind not in PLAIN:
            self.loose = True

    def plain(self, value: Any) -> Any:
        """A value that is written as text."""
        self._plain(value)
        return value

    def slice(self, start: Any, stop: Any, step: Any) -> Any:
        """``start:stop:step``."""
        return slice(start, stop, step)

    def each(self, value: Any) -> Any:
        """What is iterated over."""
        kind = value.__class__
        if isinstance(value, Registered):
            self._container(value, "__iter__")
        elif kind in (tuple, list) or value.__class__ in _DICTS:
            self.see(value)
        elif kind not in (range, enumerate, zip, reversed, str) and id(value) not in self._mine:
            self.loose = True
        return value

    def fresh(self, value: Any) -> Any:
        """A container that the call made."""
        self._mine[id(value)] = value
        return value

    def truth(self, value: Any) -> Any:
        """A condition."""
        kind = value.__class__
        if kind in (tuple, list) or value.__class__ in _DICTS:
            self.see(value)
        elif kind not in PLAIN:
            self.loose = True
        return value

    # What is done.

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

    def _operands(self, name: str, *operands: Any) -> None:
        """The operands of an operator on variables: these, and numbers."""
        for each in operands:
            if each.__class__ in (VarBase, ParamBase):
                self._variable(each)
            elif each.__class__ not in (int, float, bool):
                self.loose = True
        for method in (f"__{name}__", f"__r{name}__"):
            self.guards.member(VarBase, method, getattr(VarBase, method, MISSING))
            self.guards.member(ParamBase, method, getattr(ParamBase, method, MISSING))

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

    def call(self, function: Any, *arguments: Any, **named: Any) -> Any:
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
        if value.__class__ in _CONTAINERS or isinstance(value, Registered):
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
        elif owner.__class__ in _DICTS and function.__name__ in ("items", "keys", "values"):
            self.see(owner)
            return self.fresh(function(*arguments, **named))
        else:
            self.loose = True
        value = function(*arguments, **named)
        return self.fresh(value) if value.__class__ is list else value

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
        if kind.__call__ is not _layer_call(kind) or not own["_built"] or "forward" in own:
            self.loose = True
        if own["_forward_pre_hooks"] or own["_forward_post_hooks"]:
            self.loose = True
        if self.loose:
            return layer(*arguments, **named)
        self.guards.type_of(layer)
        self.guards.member(kind, "__call__", kind.__call__)
        self.guards.entry(own, "_built", own["_built"])
        self.guards.entry(own, "forward", MISSING)
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
        return getattr(self._watch, name)  # type: ignore[no-any-return]

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


def _of_layer(kind: type, name: str) -> Any:
    for each in kind.__mro__:
        if each.__module__ == "fluidjax.dygraph.layers" and each.__name__ == "Layer":
            return each.__dict__[name]
    return None


def _layer_getattr(kind: type) -> Any:
    return _of_layer(kind, "__getattr__")


def _layer_call(kind: type) -> Any:
    return _of_layer(kind, "__call__")
