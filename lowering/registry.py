"""The op registry: one Python function is a whole operator.

The function's signature is the OpProto (positional parameters are input slots, keyword-only ones attributes), its
body the kernel, its docstring the formula; a gradient rule stands beside it. See ``op`` for the notation.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from lowering.errors import AttrError, RegistryError, UnknownOpError
from lowering.program import GRAD
from lowering.values import LoDArray, Meta, RankTable, SelectedRows, StepScopes, TensorArray, is_concrete
from lowering.vendor import COMMON, VENDOR


class Long(int):
    """Annotation of a LONG attribute."""


class Longs(list):
    """Annotation of a LONGS attribute."""


class Block(int):
    """Annotation of a BLOCK attribute (the index of a sub-block)."""


class Blocks(list):
    """Annotation of a BLOCKS attribute."""


class Value:
    """Annotation of a parameter that takes whatever the variable holds (LoDArray, SelectedRows, array ...)."""


class Sizes:
    """Annotation of a parameter that takes a shape, or a dim of one: row counts come as they are (see ``counts``)."""


_ATTR_TYPES: dict[Any, str] = {
    int: "INT",
    float: "FLOAT",
    str: "STRING",
    bool: "BOOLEAN",
    list[int]: "INTS",
    list[float]: "FLOATS",
    list[str]: "STRINGS",
    list[bool]: "BOOLEANS",
    Long: "LONG",
    Longs: "LONGS",
    Block: "BLOCK",
    Blocks: "BLOCKS",
}
RowsRule = str | None | Callable[[Mapping[str, Any], int], str | None]
_RAW = (Value, SelectedRows, TensorArray, RankTable, StepScopes)
_SPECIAL = ("key", "ctx", "in_place")
_MISSING = object()


@dataclass(frozen=True)
class Slot:
    """One input or output slot. ``wants``: 'array', 'lod' (LoDArray), 'meta', 'sizes' or 'raw' (as it is)."""

    name: str
    param: str
    duplicable: bool = False
    dispensable: bool = False
    wants: str = "array"


@dataclass(frozen=True)
class AttrSpec:
    name: str
    type: str
    default: Any = None
    required: bool = False
    param: str = ""  # '' for vendor attributes, which no rule reads


@dataclass(frozen=True)
class Check:
    """What an op insists on about its numbers: ``fn`` of some of the rule's parameters; see ``engine.checks``."""

    fn: Callable[..., Any]
    inputs: tuple[Slot, ...]
    attrs: tuple[AttrSpec, ...]


@dataclass
class OpDef:
    """All that is known of one op type. Callable as the plain function it was made from."""

    type: str
    fn: Callable[..., Any]
    inputs: list[Slot]
    outputs: list[Slot]
    attrs: dict[str, AttrSpec]
    special: frozenset[str] = frozenset()
    kind: str = "plain"
    rows: RowsRule = None
    lod: Mapping[str, str] = field(default_factory=dict)  # output slot -> input slot
    diff: tuple[str, ...] = ()  # parameters of the differentiable inputs
    gradient: OpDef | None = None
    make_grad: Callable[..., Any] | None = None
    infer: Callable[..., Any] | None = None
    fold: bool = False
    linear: bool = False
    inplace: Mapping[str, str] = field(default_factory=dict)  # output slot -> input slot
    absent: tuple[str, ...] = ()  # parameters of required inputs whose variable may hold no value yet
    undeclared: tuple[str, ...] = ()  # output slots, or "Slot:dtype", that shape inference leaves to the layer
    updates: tuple[str, ...] = ()  # input slots whose variables the op changes; new values follow its outputs
    forward: OpDef | None = None  # for a gradient op, what it is the gradient of
    demands: Check | None = None
    once: str = ""  # for a gradient op, why there is no gradient of it
    loops: bool = False  # for a gradient op: it, or its forward op, loops as long as the values say

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)

    @property
    def doc(self) -> str:
        return inspect.getdoc(self.fn) or ""

    @property
    def differentiable(self) -> bool:
        return double_gradient(self) is not None or self.make_grad is not None

    @property
    def obstacle(self) -> str | None:
        """Why this gradient op cannot be differentiated; None where it can, and for ops that are no gradient ops."""
        if self.forward is None:
            return None
        if self.kind in ("block", "host"):
            return f"it is the gradient of {self.forward.type}, which runs other ops"
        if self.updates:
            return f"it changes {list(self.updates)} itself"
        return self.once or None

    @property
    def gradient_slots(self) -> frozenset[str]:
        """The input slots of a gradient op that bring gradients: those that the forward op does not have."""
        forward = self
        while forward.forward is not None:
            forward = forward.forward
        own = {s.name for s in [*forward.inputs, *forward.outputs]}
        return frozenset(s.name for s in self.inputs if s.name not in own)

    def rows_rule(self, attrs: Mapping[str, Any], ndim: int) -> str | None:
        """What padding rows mean to one op with these attributes, its padded value having ``ndim`` dims."""
        if not callable(self.rows):
            return self.rows
        return self.rows({s.name: attrs.get(s.name, s.default) for s in self.attrs.values()}, ndim)

    def input(self, name: str) -> Slot | None:
        return next((s for s in self.inputs if s.name == name), None)

    def output(self, name: str) -> Slot | None:
        return next((s for s in self.outputs if s.name == name), None)

    def slot_of(self, param: str) -> Slot | None:
        return next((s for s in [*self.inputs, *self.outputs] if s.param == param), None)

    def grad(self, fn: Callable[..., Any] | None = None, **options: Any) -> Any:
        """Declare the gradient rule: its parameters say what the grad op reads, its results are d(diff inputs).

        Args:
            type: the grad op's type, default ``<type>_grad``.
            wrt: parameters of the inputs that get gradients, default the op's ``diff``.
            rows, lod, kind, slots: as for ``op``.
            once: why the grad op cannot be differentiated again, as the end of "... because"; '' where it can.
            loops: whether the rule or the op's function loops as long as the values say (``lax.while_loop``).
            updates: parameters of inputs whose variables the grad op changes, though no output names them; the rule
                returns their new values after the gradients. In the outermost block only.
        """
        if fn is None:
            return lambda f: self.grad(f, **options)
        self.gradient = register(_grad_def(self, fn, **options))
        return self.gradient

    def check(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Declare what the op insists on about its numbers: parameters of the rule -> list of ``checks.Demand``."""
        positional, keyword, _ = _signature(fn)
        slots = (replace(_slot_of(self, p.name), wants=_wants(_inner(p.annotation))) for p in positional)
        attrs = (replace(self.attrs[p.name.rstrip("_")], param=p.name) for p in keyword)
        self.demands = Check(fn, tuple(slots), tuple(attrs))
        return fn

    def grad_maker(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Declare a function from ``GradMaker`` to the list of OpSpecs that compute the gradient."""
        self.make_grad = fn
        return fn

    def grad_grad(self, fn: Callable[..., Any] | None = None, **options: Any) -> Any:
        """Declare the gradient of this op's grad op, with Fluid's DDX / DOut / DDOut slots; see ``_grad_grad_def``."""
        if fn is None:
            return lambda f: self.grad_grad(f, **options)
        if self.gradient is None:
            raise RegistryError(f"{self.type}: declare the gradient before the gradient of the gradient")
        self.gradient.gradient = register(_grad_grad_def(self.gradient, fn, **options))
        return self.gradient.gradient


_REGISTRY: dict[str, OpDef] = {}


def register(definition: OpDef) -> OpDef:
    """Enter an op; RegistryError when its type is taken by another rule."""
    known = _REGISTRY.get(definition.type)
    if known is not None:
        raise RegistryError(
            f"op {definition.type!r} is registered twice: by {known.fn.__module__} and by {definition.fn.__module__};"
            " an op type has one rule, so rename or remove one of them"
        )
    _REGISTRY[definition.type] = definition
    return definition


def registered_ops() -> list[str]:
    """All registered op types, sorted (grad ops with a rule of their own included)."""
    return sorted(_REGISTRY)


def has_op(type: str) -> bool:
    return type in _REGISTRY or _derived(type) is not None


def get_op(type: str) -> OpDef:
    """The definition of op ``type``; UnknownOpError (with the nearest names) when there is none."""
    found = _REGISTRY.get(type) or _derived(type)
    if found is None:
        raise UnknownOpError(_unknown_op_message(type))
    return found


def _unknown_op_message(type: str) -> str:
    import difflib

    near = difflib.get_close_matches(type, _REGISTRY, n=3)
    hint = f"; similar ops that exist: {', '.join(near)}" if near else ""
    return (
        f"op {type!r} is unknown: expected one of the {len(_REGISTRY)} registered op types{hint}."
        " Register a rule for it with lowering.op (CONTRIBUTING: how to add an op)"
    )


def _derived(type: str) -> OpDef | None:
    """A gradient of a gradient that has no rule of its own follows from its grad op by vjp."""
    if not type.endswith("_grad"):
        return None
    base = _REGISTRY.get(type[: -len("_grad")]) or _derived(type[: -len("_grad")])
    if base is not None:
        double_gradient(base)
    return _REGISTRY.get(type)


def double_gradient(definition: OpDef) -> OpDef | None:
    """The grad op of an op; that of a grad op without a rule is derived on demand."""
    wanting = definition.gradient is None and definition.make_grad is None
    if wanting and definition.forward is not None and definition.obstacle is None:
        from lowering.engine.higher import differentiate

        differentiate(definition)
    return definition.gradient


# --- notation -----------------------------------------------------------------------------------------------------


def camel(param: str) -> str:
    """``moment1_out`` -> ``Moment1Out``."""
    return "".join(part[:1].upper() + part[1:] for part in param.split("_"))


def snake(slot: str) -> str:
    """``SavedMean`` -> ``saved_mean``; ``XShape`` -> ``x_shape``; ``X@GRAD`` -> ``d_x``."""
    if slot.endswith(GRAD):
        return "d_" + snake(slot[: -len(GRAD)])
    text = ""
    for i, char in enumerate(slot):
        boundary = i and char.isupper() and (not slot[i - 1].isupper() or slot[i + 1 : i + 2].islower())
        text += ("_" if boundary and slot[i - 1] != "_" else "") + char.lower()
    return text


def parse_outputs(text: str, slots: Mapping[str, str]) -> list[Slot]:
    """``"Y MeanOut Xs* Mask?"``: ``*`` duplicable, ``?`` dispensable."""
    params = {name: param for param, name in slots.items()}
    found = []
    for word in text.split():
        name = word.rstrip("*?")
        param = params.get(name, snake(name))
        found.append(Slot(name, param, "*" in word[len(name) :], "?" in word[len(name) :]))
    return found


def _wants(annotation: Any) -> str:
    if annotation is Meta:
        return "meta"
    if annotation is LoDArray:
        return "lod"
    if annotation is Sizes:
        return "sizes"
    return "raw" if annotation in _RAW else "array"


def _inner(annotation: Any) -> Any:
    """What the annotation of a parameter says of one value."""
    if getattr(annotation, "__origin__", None) is list:
        return annotation.__args__[0]
    return None if annotation is list else annotation


def _input_slot(param: inspect.Parameter, name: str) -> Slot:
    annotation = param.annotation
    duplicable = annotation is list or getattr(annotation, "__origin__", None) is list
    dispensable = param.default is not inspect.Parameter.empty
    return Slot(name, param.name, duplicable, dispensable, _wants(_inner(annotation)))


def _slot_of(definition: OpDef, param: str) -> Slot:
    found = next((s for s in definition.inputs if s.param == param), None)
    if found is None:
        known = [s.param for s in definition.inputs]
        raise RegistryError(f"check of {definition.type}: {param!r} is none of the op's inputs, which are {known}")
    return found


def _attr_spec(param: inspect.Parameter, where: str) -> AttrSpec:
    default = param.default
    required = default is inspect.Parameter.empty
    annotation = param.annotation
    if annotation is inspect.Parameter.empty and not required:
        annotation = type(default)
    if annotation not in _ATTR_TYPES:
        raise RegistryError(
            f"{where}: attribute {param.name!r} is annotated {annotation!r}; expected one of int, float, str, bool,"
            " list[int], list[float], list[str], list[bool], Long, Longs, Block, Blocks"
        )
    kind = _ATTR_TYPES[annotation]
    value = None if required else _convert(kind, default, lambda got: RegistryError(f"{where}: default {got!r}"))
    return AttrSpec(param.name.rstrip("_"), kind, value, required, param.name)


def _vendor_attrs(vendor: str | Mapping[str, Any]) -> dict[str, AttrSpec]:
    wanted = dict.fromkeys(vendor.split(), _MISSING) if isinstance(vendor, str) else dict(vendor)
    return {
        name: AttrSpec(name, VENDOR[name][0], VENDOR[name][1] if value is _MISSING else value)
        for name, value in wanted.items()
    }


_SignatureParts = tuple[list[inspect.Parameter], list[inspect.Parameter], frozenset[str]]


def _signature(fn: Callable[..., Any]) -> _SignatureParts:
    """(positional parameters, attribute parameters, special keywords asked for)."""
    params = list(inspect.signature(fn, eval_str=True).parameters.values())
    positional = [p for p in params if p.kind is p.POSITIONAL_OR_KEYWORD]
    keyword = [p for p in params if p.kind is p.KEYWORD_ONLY]
    special = frozenset(p.name for p in keyword if p.name in _SPECIAL)
    return positional, [p for p in keyword if p.name not in _SPECIAL], special


def _names(words: str | Iterable[str]) -> tuple[str, ...]:
    return tuple(words.split()) if isinstance(words, str) else tuple(words)


def op(
    type: str | None = None,
    *,
    out: str = "Out",
    slots: Mapping[str, str] | None = None,
    diff: str | Iterable[str] | None = None,
    vendor: str | Mapping[str, Any] = "",
    lod: str | Mapping[str, str] | None = "",
    rows: RowsRule = None,
    grad: str | None = None,
    reads: str | None = None,
    grad_type: str | None = None,
    inplace: Mapping[str, str] | None = None,
    infer: Callable[..., Any] | None = None,
    fold: bool = False,
    linear: bool = False,
    kind: str = "plain",
    absent: str = "",
    undeclared: str = "",
) -> Callable[[Callable[..., Any]], OpDef]:
    """Register the decorated function as an operator.

    Args:
        type: op type; default the function's name without a trailing ``_``.
        out: output slots in the order of the results, ``*`` duplicable, ``?`` dispensable.
        slots: parameter -> slot name where it is not the CamelCase of the parameter.
        diff: parameters of the inputs that get gradients; default every input.
        vendor: names of ignored attributes (see ``vendor.VENDOR``), or a dict that overrides their defaults.
        lod: where outputs take their LoD from: a parameter name (for every output), a dict output slot -> parameter,
            None for nowhere; the default is ``Out`` (or the only output) from ``X``.
        rows: what padding rows mean to the op. ``"wise"``: an output row depends on the same input row alone
            (``"wise x"`` lists the parameters that carry rows, others being weights); ``"masked"``: the rule takes
            LoDArrays and re-establishes the invariants itself; None: exact rows only. Or a function of (attributes,
            rank of the padded value) to one of these.
        grad: ``"vjp"`` derives the gradient from the function; otherwise declare it with ``.grad``, or none exists.
        reads: what the derived grad op reads, as parameter names; default all inputs, outputs and output gradients.
        inplace: output slot -> parameter that Fluid's layers bind to the same variable.
        infer: shape inference of its own, ``infer(op_view, var_of) -> {output name: VarInfo}``.
        fold: evaluate while tracing when all inputs are small and known.
        linear: of integers, outputs are sums and products of inputs and constants, or parts of them: a row count
            among the inputs stays one (see ``counts``).
        absent: parameters of required inputs whose variable may hold no value yet; the rule then gets None.
        undeclared: output slots (``Slot:dtype``: their data types) that inference leaves as the layer declared them.
        kind: ``plain``, ``block`` (runs sub-blocks; gets raw values and ``ctx``) or ``host`` (outside jit).
    """

    def decorate(fn: Callable[..., Any]) -> OpDef:
        name = type or fn.__name__.rstrip("_")
        odd = dict(slots or {})
        definition = _parsed(fn, name, out, odd, vendor)
        definition.kind, definition.rows, definition.infer, definition.fold = kind, rows, infer, fold
        definition.lod, definition.linear = _lod_map(definition, lod), linear
        definition.absent, definition.undeclared = _names(absent), _names(undeclared)
        definition.inplace = {o: (definition.slot_of(p) or Slot(p, p)).name for o, p in (inplace or {}).items()}
        definition.diff = _names(diff) if diff is not None else _differentiable(definition)
        _check_params(definition, definition.diff, "diff")
        register(definition)
        if grad == "vjp":
            _derive_gradient(definition, reads, grad_type)
        return definition

    return decorate


def _parsed(
    fn: Callable[..., Any], name: str, out: str, odd: Mapping[str, str], vendor: str | Mapping[str, Any]
) -> OpDef:
    """The slots, attributes and special keywords that a rule's signature and ``out`` state."""
    positional, keyword, special = _signature(fn)
    inputs = [_input_slot(p, odd.get(p.name, camel(p.name))) for p in positional]
    attrs = {spec.name: spec for spec in (_attr_spec(p, f"op {name}") for p in keyword)}
    return OpDef(name, fn, inputs, parse_outputs(out, odd), attrs | _vendor_attrs(vendor), special)


def _derive_gradient(definition: OpDef, reads: str | None, grad_type: str | None) -> None:
    from lowering.derive import vjp_definition

    definition.gradient = register(vjp_definition(definition, reads=reads, type=grad_type))


def _differentiable(definition: OpDef) -> tuple[str, ...]:
    return tuple(s.param for s in definition.inputs if s.wants != "meta")


def _check_params(definition: OpDef, params: Iterable[str], what: str) -> None:
    known = {s.param for s in definition.inputs}
    unknown = [p for p in params if p not in known]
    if unknown:
        raise RegistryError(f"op {definition.type}: {what} names {unknown}, but its inputs are {sorted(known)}")


def _lod_map(definition: OpDef, lod: str | Mapping[str, str] | None) -> dict[str, str]:
    if lod is None:
        return {}
    if lod == "":
        has_x = definition.input("X") is not None
        outs = [s.name for s in definition.outputs if s.name == "Out"]
        return {name: "X" for name in outs} if has_x else {}
    if isinstance(lod, str):
        lod = {s.name: lod for s in definition.outputs}
    _check_params(definition, lod.values(), "lod")
    return {out: definition.slot_of(param).name for out, param in lod.items()}  # type: ignore[union-attr]


def _grad_param_slot(forward: OpDef, param: inspect.Parameter, slots: Mapping[str, str]) -> Slot:
    """The slot of one parameter of a gradient rule: a forward input, a forward output, or ``d_<output>``."""
    if param.name in slots:
        return _input_slot(param, slots[param.name])
    base = forward.slot_of(param.name)
    suffix = ""
    if base is None and param.name.startswith("d_"):
        base = next((s for s in forward.outputs if s.param == param.name[2:]), None)
        suffix = GRAD
    if base is None:
        raise RegistryError(
            f"gradient of {forward.type}: parameter {param.name!r} is no input or output of the op and no d_<output>;"
            f" inputs are {[s.param for s in forward.inputs]}, outputs {[s.param for s in forward.outputs]}"
        )
    read = _input_slot(param, base.name + suffix)
    return replace(read, duplicable=base.duplicable, dispensable=read.dispensable or base.dispensable)


def _grad_attrs(forward: OpDef, keyword: list[inspect.Parameter]) -> dict[str, AttrSpec]:
    """A grad op inherits all attributes of its forward op; the rule names those it reads."""
    attrs = {name: replace(spec, param="") for name, spec in forward.attrs.items()}
    for param in keyword:
        name = param.name.rstrip("_")
        if name in attrs and param.annotation is inspect.Parameter.empty:
            attrs[name] = replace(attrs[name], param=param.name)
        else:
            attrs[name] = _attr_spec(param, f"gradient of {forward.type}")
    return attrs


def _grad_attrs_inherited(forward: OpDef) -> dict[str, AttrSpec]:
    """A derived gradient calls the forward function, so it reads the same attributes."""
    return {name: replace(spec, required=False) for name, spec in forward.attrs.items()}


def grad_rows(forward: OpDef) -> RowsRule:
    """The rows rule of a grad op: rows also come through the forward op's outputs and their gradients."""
    if callable(forward.rows):
        rule = forward.rows
        return lambda attrs, ndim: _with_output_carriers(forward, rule(attrs, ndim))
    return _with_output_carriers(forward, forward.rows)


def _with_output_carriers(forward: OpDef, rule: str | None) -> str | None:
    if rule is None or not rule.startswith("wise "):
        return rule
    outputs = [s.param for s in forward.outputs]
    return " ".join([rule, *outputs, *(f"d_{p}" for p in outputs)])


def _grad_outputs(forward: OpDef, wrt: Iterable[str]) -> list[Slot]:
    slots = [forward.slot_of(p) for p in wrt]
    return [Slot(s.name + GRAD, "d_" + s.param, s.duplicable, True) for s in slots if s is not None]


def _grad_def(
    forward: OpDef,
    fn: Callable[..., Any],
    *,
    type: str | None = None,
    wrt: str | None = None,
    rows: str | None = "",
    lod: Mapping[str, str] | None = None,
    kind: str | None = None,
    slots: Mapping[str, str] | None = None,
    updates: str = "",
    once: str = "",
    loops: bool = False,
) -> OpDef:
    positional, keyword, special = _signature(fn)
    targets = _names(wrt) if wrt else forward.diff
    _check_params(forward, targets, "wrt")
    definition = OpDef(
        type or forward.type + "_grad",
        fn,
        [_grad_param_slot(forward, p, slots or {}) for p in positional],
        _grad_outputs(forward, targets),
        _grad_attrs(forward, keyword),
        special,
        kind or forward.kind,
        grad_rows(forward) if rows == "" else rows,
        forward=forward,
    )
    definition.lod = dict(lod) if lod is not None else grad_lod_map(definition)
    definition.updates = tuple(s.name for s in definition.inputs if s.param in _names(updates))
    definition.once, definition.loops = once, loops
    return definition


def grad_lod_map(definition: OpDef) -> dict[str, str]:
    """X@GRAD carries the LoD of X where the grad op reads X, else that of the first output gradient it reads."""
    reads = [s.name for s in definition.inputs]
    fallback = next((n for n in reads if n.endswith(GRAD)), None)
    shared = {s.name: s.name[: -len(GRAD)] if s.name[: -len(GRAD)] in reads else fallback for s in definition.outputs}
    return {out: source for out, source in shared.items() if source is not None}


def _grad_grad_def(
    grad_op: OpDef, fn: Callable[..., Any], *, out: str, type: str | None = None, rows: str | None = ""
) -> OpDef:
    """Double gradients name slots after the first op: DDX is d(X@GRAD), DOut is Out@GRAD (or, as a result, d Out)."""
    forward = grad_op.forward
    assert forward is not None
    positional, keyword, special = _signature(fn)
    names = {s.param: s.name for s in [*forward.inputs, *forward.outputs]}

    def slot_name(param: str) -> str:
        if param in names:
            return names[param]
        for prefix in ("dd", "d"):
            if param.startswith(prefix) and param[len(prefix) :] in names:
                return prefix.upper() + names[param[len(prefix) :]]
        raise RegistryError(f"gradient of {grad_op.type}: cannot tell the slot of parameter {param!r}")

    inputs = [_input_slot(p, slot_name(p.name)) for p in positional]
    outputs = [replace(s, dispensable=True) for s in parse_outputs(out, {})]
    definition = OpDef(
        type or grad_op.type + "_grad",
        fn,
        inputs,
        outputs,
        _grad_attrs(grad_op, keyword),
        special,
        grad_op.kind,
        grad_rows(grad_op) if rows == "" else rows,
        forward=grad_op,
    )
    definition.lod = _second_lod_map(definition)
    return definition


def _second_lod_map(definition: OpDef) -> dict[str, str]:
    """DX carries the LoD of X, DDOut that of Out, or of DOut where Out is not read."""
    reads = {s.name for s in definition.inputs}

    def source(name: str) -> str | None:
        base = name.removesuffix(GRAD) if name.endswith(GRAD) else name[2:] if name.startswith("DD") else name[1:]
        return next((n for n in (base, "D" + base, "DDX") if n in reads), None)

    found = {s.name: source(s.name) for s in definition.outputs}
    return {out: name for out, name in found.items() if name is not None}


# --- attributes ---------------------------------------------------------------------------------------------------


def _float32(value: float) -> float:
    return float(np.float32(value))


_CONVERTERS: dict[str, tuple[tuple[type, ...], Callable[[Any], Any]]] = {
    "INT": ((int, np.integer, bool), int),
    "LONG": ((int, np.integer, bool), int),
    "BLOCK": ((int, np.integer), int),
    "FLOAT": ((int, float, np.integer, np.floating), _float32),
    "STRING": ((str, bytes), lambda v: v if isinstance(v, str) else v.decode("utf-8", "surrogateescape")),
    "BOOLEAN": ((bool, np.bool_, int, np.integer), bool),
}
_LISTS = {
    "INTS": "INT",
    "LONGS": "LONG",
    "FLOATS": "FLOAT",
    "STRINGS": "STRING",
    "BOOLEANS": "BOOLEAN",
    "BLOCKS": "BLOCK",
}


def _convert(kind: str, value: Any, error: Callable[[Any], Exception]) -> Any:
    if kind in _LISTS:
        if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
            raise error(value)
        return [_convert(_LISTS[kind], v, error) for v in value]
    accepted, convert = _CONVERTERS[kind]
    if not isinstance(value, accepted):
        raise error(value)
    return convert(value)


def check_attrs(type: str, attrs: Mapping[str, Any], *, where: str = "") -> dict[str, Any]:
    """Attributes of an op about to be written: converted to Fluid's types, defaults filled in.

    A grad op's attributes are inherited from its forward op, so they are converted where known and kept otherwise.
    Raises AttrError for an attribute that is unknown, of the wrong type, or required and missing.
    """
    definition = get_op(type)
    place = f"op {type}{where}"
    checked: dict[str, Any] = {}
    for name, value in attrs.items():
        spec = definition.attrs.get(name)
        if spec is not None:
            checked[name] = _convert(spec.type, value, partial(_attr_type_error, place, spec))
        elif name in COMMON or definition.forward is not None:
            checked[name] = value
        else:
            known = ", ".join(sorted(definition.attrs)) or "none"
            raise AttrError(f"{place} has no attribute {name!r}; expected one of: {known}. Remove or rename it")
    if definition.forward is None:
        _fill_defaults(definition, checked, place)
    return checked


def _fill_defaults(definition: OpDef, checked: dict[str, Any], place: str) -> None:
    for spec in definition.attrs.values():
        if spec.name in checked:
            continue
        if spec.required:
            raise AttrError(f"{place} needs attribute {spec.name!r} ({spec.type}), and none was given; pass it")
        checked[spec.name] = list(spec.default) if isinstance(spec.default, list) else spec.default


def _attr_type_error(place: str, spec: AttrSpec, got: Any) -> AttrError:
    return AttrError(
        f"{place}: attribute {spec.name!r} expects {spec.type}, received {got!r} ({type(got).__name__});"
        " convert the value"
    )


def concrete(value: Any, what: str) -> np.ndarray:
    """``value`` as a host array; NeedsConcrete when it depends on data that only the running program knows."""
    if is_concrete(value) or isinstance(value, (int, float, bool, list, tuple)):
        return np.asarray(value)
    data = value.data if isinstance(value, LoDArray) else value
    if is_concrete(data):
        return np.asarray(data)
    from jax.core import Tracer

    if not isinstance(data, Tracer):
        return np.asarray(data)
    from lowering.errors import NeedsConcrete

    raise NeedsConcrete(what)
