"""The op registry: one Python function is a whole operator.

The function's signature is the OpProto (positional parameters are input slots, keyword-only ones attributes), its
body the kernel, its docstring the formula; a gradient rule stands beside it. See ``op`` for the notation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import EllipsisType
from typing import Any

from lowering.errors import RegistryError
from lowering.program import GRAD
from lowering.registry.definition import AttrSpec, Check, Masked, OpDef, RowsRule, Slot, Wise
from lowering.registry.derived import vjp_definition
from lowering.registry.gradients import differentiable_params, grad_lod_map, gradient_outputs
from lowering.registry.signature import EMPTY, Param
from lowering.registry.slots import (
    attr_spec,
    camel,
    checked_slot,
    input_slot,
    parse_outputs,
    signature,
    vendor_attrs,
    words,
)
from lowering.registry.table import register


class Rule(OpDef):
    """The definition that ``op`` puts in place of a function; its gradient is declared by further decorators."""

    def grad(self, fn: Callable[..., Any] | None = None, **options: Any) -> Any:
        """Declare the gradient rule: its parameters tell what the grad op reads, its results are d(diff inputs).

        Args:
            type: the grad op's type, default ``<type>_grad``.
            wrt: parameters of the inputs that get gradients, default the op's ``diff``.
            rows, lod, kind, slots: as for ``op``.
            once: why the grad op cannot be differentiated again, as the end of "... because"; '' if it can.
            loops: whether the rule or the op's function has a loop whose length depends on values (``lax.while_loop``).
            newer: parameters that gradient ops of later releases read, and ours do not have.
            updates: parameters of inputs whose variables the grad op changes, although no output names them; the rule
                returns their new values after the gradients. In the outermost block only.
        """
        if fn is None:
            return lambda f: self.grad(f, **options)
        self.gradient = register(_grad_def(self, fn, **options))
        return self.gradient

    def check(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Declare what the op requires of its numbers: parameters of the rule -> list of ``checks.Demand``."""
        self.demands = self._of_parameters(fn)
        return fn

    def fits(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Declare what the op requires during construction: declared variables and attributes -> ValueError.

        The variables may have unknown dims, -1, which the helpers in ``lowering.ops.fitting`` accept.
        """
        self.insists = self._of_parameters(fn)
        return fn

    def with_room(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Declare the results of an op whose sizes depend on values where they cannot, as in exported functions.

        ``fn`` takes values as a host op does, traced ones, and returns rows as LoDArrays: room for as many as there can
        be, and ``nrows``. Raises Need for what it does not cover.
        """
        self.roomy = self._of_parameters(fn)
        return fn

    def grad_with_room(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Declare the same of the gradient op, whose rows are those of the op's results; padding counts for nothing."""
        if self.gradient is None:
            raise RegistryError(f"{self.type}: declare the gradient before its room")
        self.gradient.roomy = Rule._of_parameters(self.gradient, fn)  # type: ignore[arg-type]
        return fn

    def _of_parameters(self, fn: Callable[..., Any]) -> Check:
        positional, keyword, special = signature(fn)
        slots = (checked_slot(self, p) for p in positional)
        attrs = (self.attrs[p.name.rstrip("_")]._replace(param=p.name) for p in keyword)
        return Check(fn, tuple(slots), tuple(attrs), "ctx" in special)

    def redo(self, *, out: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Declare results ``out`` of an op that draws random numbers as a function of its inputs and its draws (its
        other results), so that its gradient op can be differentiated again."""

        def declare(fn: Callable[..., Any]) -> Callable[..., Any]:
            positional, keyword, special = signature(fn)
            slots = [_grad_param_slot(self, p, {}) for p in positional]
            self.recall = OpDef(
                self.type, fn, slots, parse_outputs(out, {}), _grad_attrs(self, keyword), special, forward=self
            )
            return fn

        return declare

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
    compares: bool = False,
    kind: str = "plain",
    absent: str = "",
    begins: Mapping[str, str] | None = None,
    spare: str = "",
    undeclared: str = "",
    continues: str = "",
    continues_if: str = "",
    changes: str = "",
    moves: str = "",
    newer: str = "",
    renamed: Mapping[str, str] | None = None,
) -> Callable[[Callable[..., Any]], OpDef]:
    """Register the decorated function as an operator.

    Args:
        type: op type; default the function's name without a trailing ``_``.
        out: output slots in the order of the results, ``*`` duplicable, ``?`` dispensable, ``~``
            intermediate (kept for the gradient).
        slots: parameter -> slot name, if it is not the CamelCase of the parameter.
        diff: parameters of the inputs that get gradients; default every input.
        vendor: names of ignored attributes (see ``vendor.VENDOR``), or a dict that overrides their defaults.
        lod: the source of the outputs' LoD: a parameter name (for every output), a dict output slot -> parameter,
            None for no LoD; the default is ``Out`` (or the only output) from ``X``.
        rows: what padding rows mean to the op. ``WISE``: an output row depends on the same input row alone
            (``Wise("x label")`` lists the parameters that carry rows, others being weights); ``MASKED``: the rule
            takes LoDArrays and re-establishes the invariants itself (arrays beside them are weights, but for those
            that ``Masked("label")`` lists); None: exact rows only. Or a function of
            (attributes, rank of the padded value) to one of these. A gradient rule has its op's by default.
        grad: ``"vjp"`` derives the gradient from the function; otherwise declare it with ``.grad``, or none exists.
        reads: what the derived grad op reads, as parameter names; default all inputs, outputs and output gradients.
        inplace: output slot -> parameter that Fluid's layers bind to the same variable.
        infer: shape inference of its own, ``infer(op_view, var_of) -> {output name: VarInfo}``.
        fold: evaluate during tracing if all inputs are small and known.
        linear: for integers, outputs are sums and products of inputs and constants, or parts of them: a row count
            among the inputs stays one (see ``counts``).
        compares: the least difference between inputs matters: what is read elsewhere too is computed once (see
            ``pinned``).
        spare: parameters of required inputs that programs of later releases may leave unbound; the rule gets None.
        absent: parameters of required inputs whose variable may have no value yet; the rule then gets None.
        begins: those of them, parameter -> attribute, for which None means the number that the attribute is.
        undeclared: output slots (``Slot:dtype``: their data types) that inference leaves as declared by the layer.
        continues: output slots whose variables the op continues from: it adds to their values, or may keep them.
        continues_if: the attribute whose truth makes it so; always, by default.
        changes: parameters of inputs whose variables a block op changes in a backward pass, through ``ctx.env``.
        kind: ``plain``, ``block`` (runs sub-blocks; gets raw values and ``ctx``) or ``host`` (outside jit).
        moves: ``early`` or ``late``: the direction in which a host op may pass ops that share no variable with it.
        newer: slots and attributes, as parameters, that releases after 1.8 added to an op of 1.8.
        renamed: attributes of 1.8 that those releases renamed, old name -> new name.
    """

    def decorate(fn: Callable[..., Any]) -> OpDef:
        name = type or fn.__name__.rstrip("_")
        odd = dict(slots or {})
        definition = _with_newer(_parsed(fn, name, out, odd, vendor), words(newer), renamed or {})
        definition.kind, definition.rows, definition.infer, definition.fold = kind, _rows(rows, name), infer, fold
        definition.lod, definition.linear, definition.compares = _lod_map(definition, lod), linear, compares
        definition.absent, definition.spare, definition.undeclared = words(absent), words(spare), words(undeclared)
        definition.begins = {definition.slot_of(p).name: attr for p, attr in (begins or {}).items()}  # type: ignore
        definition.continues, definition.continues_if, definition.moves = words(continues), continues_if, moves
        definition.changes = tuple(s.name for s in definition.inputs if s.param in words(changes))
        definition.inplace = {o: (definition.slot_of(p) or Slot(p, p)).name for o, p in (inplace or {}).items()}
        definition.diff = words(diff) if diff is not None else differentiable_params(definition)
        _check_params(definition, definition.diff, "diff")
        register(definition)
        if grad == "vjp":
            _derive_gradient(definition, reads, grad_type)
        return definition

    return decorate


def _parsed(
    fn: Callable[..., Any], name: str, out: str, odd: Mapping[str, str], vendor: str | Mapping[str, Any]
) -> Rule:
    """The slots, attributes and special keywords given by a rule's signature and ``out``."""
    positional, keyword, special = signature(fn)
    inputs = [input_slot(p, odd.get(p.name, camel(p.name))) for p in positional]
    attrs = {spec.name: spec for spec in (attr_spec(p, f"op {name}") for p in keyword)}
    return Rule(name, fn, inputs, parse_outputs(out, odd), attrs | vendor_attrs(vendor), special)


def _with_newer(definition: Rule, params: tuple[str, ...], renamed: Mapping[str, str]) -> Rule:
    """The definition, with the additions of releases after 1.8 marked."""
    if not params and not renamed:
        return definition
    definition.inputs = [s._replace(newer=s.param in params) for s in definition.inputs]
    definition.outputs = [s._replace(newer=s.param in params) for s in definition.outputs]
    definition.attrs = {
        name: s._replace(newer=s.param in params, later=renamed.get(name, "")) for name, s in definition.attrs.items()
    }
    return definition


def _derive_gradient(definition: OpDef, reads: str | None, grad_type: str | None) -> None:
    definition.gradient = register(vjp_definition(definition, reads=reads, type=grad_type))


def _check_params(definition: OpDef, params: Iterable[str], what: str) -> None:
    known = {s.param for s in definition.inputs}
    unknown = [p for p in params if p not in known]
    if unknown:
        raise RegistryError(f"op {definition.type}: {what} names {unknown}, but its inputs are {sorted(known)}")


def _rows(rows: Any, type: str) -> RowsRule:
    if rows is None or callable(rows) or isinstance(rows, Wise | Masked):
        return rows
    raise RegistryError(f'op {type}: rows is {rows!r}; expected WISE, Wise("x label"), MASKED, None or a function')


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


def _grad_param_slot(forward: OpDef, param: Param, slots: Mapping[str, str]) -> Slot:
    """The slot of one parameter of a gradient rule: a forward input, a forward output, or ``d_<output>``."""
    base = forward.slot_of(param.name)
    if param.name in slots:
        return input_slot(param, slots[param.name])._replace(newer=base is not None and base.newer)
    suffix = ""
    if base is None and param.name.startswith("d_"):
        base = next((s for s in forward.outputs if s.param == param.name[2:]), None)
        suffix = GRAD
    if base is None:
        raise RegistryError(
            f"gradient of {forward.type}: parameter {param.name!r} is no input or output of the op and no d_<output>;"
            f" inputs are {[s.param for s in forward.inputs]}, outputs {[s.param for s in forward.outputs]}"
        )
    read = input_slot(param, base.name + suffix)
    dispensable = read.dispensable or base.dispensable
    return read._replace(duplicable=base.duplicable, dispensable=dispensable, newer=base.newer)


def _grad_attrs(forward: OpDef, keyword: list[Param]) -> dict[str, AttrSpec]:
    """A grad op inherits all attributes of its forward op; the rule names those it reads."""
    attrs = {name: spec._replace(param="") for name, spec in forward.attrs.items()}
    for param in keyword:
        name = param.name.rstrip("_")
        if name in attrs and param.annotation is EMPTY:
            attrs[name] = attrs[name]._replace(param=param.name)
        else:
            attrs[name] = attr_spec(param, f"gradient of {forward.type}")
    return attrs


def _grad_def(
    forward: OpDef,
    fn: Callable[..., Any],
    *,
    type: str | None = None,
    wrt: str | None = None,
    rows: RowsRule | EllipsisType = ...,
    lod: Mapping[str, str] | None = None,
    kind: str | None = None,
    slots: Mapping[str, str] | None = None,
    updates: str = "",
    continues: str = "",
    changes: str = "",
    once: str = "",
    loops: bool = False,
    newer: str = "",
) -> OpDef:
    positional, keyword, special = signature(fn)
    targets = words(wrt) if wrt else forward.diff
    _check_params(forward, targets, "wrt")
    definition = Rule(
        type or forward.type + "_grad",
        fn,
        [_grad_param_slot(forward, p, slots or {}) for p in positional],
        gradient_outputs(forward, targets),
        _grad_attrs(forward, keyword),
        special,
        kind or forward.kind,
        forward.rows if rows is ... else _rows(rows, forward.type + "_grad"),
        forward=forward,
    )
    own = words(newer)
    definition.inputs = [s._replace(newer=True, dispensable=True) if s.param in own else s for s in definition.inputs]
    definition.lod = dict(lod) if lod is not None else grad_lod_map(definition)
    definition.updates = tuple(s.name for s in definition.inputs if s.param in words(updates))
    definition.continues = words(continues)
    definition.changes = tuple(s.name for s in definition.inputs if s.param in words(changes))
    definition.once, definition.loops = once, loops
    return definition


def _grad_grad_def(
    grad_op: OpDef, fn: Callable[..., Any], *, out: str, type: str | None = None, rows: RowsRule | EllipsisType = ...
) -> OpDef:
    """Double gradients name slots after the first op: DDX is d(X@GRAD), DOut is Out@GRAD (as a result, d Out).

    ``d_out`` is slot Out@GRAD, for rules that need more than Fluid's slots.
    """
    forward = grad_op.forward
    assert forward is not None
    positional, keyword, special = signature(fn)
    names = {s.param: s.name for s in [*forward.inputs, *forward.outputs]}

    def slot_name(param: str) -> str:
        if param in names:
            return names[param]
        if param.startswith("d_") and param[2:] in names:
            return names[param[2:]] + GRAD
        for prefix in ("dd", "d"):
            if param.startswith(prefix) and param[len(prefix) :] in names:
                return prefix.upper() + names[param[len(prefix) :]]
        raise RegistryError(f"gradient of {grad_op.type}: cannot tell the slot of parameter {param!r}")

    inputs = [input_slot(p, slot_name(p.name)) for p in positional]
    outputs = [s._replace(dispensable=True) for s in parse_outputs(out, {})]
    definition = Rule(
        type or grad_op.type + "_grad",
        fn,
        inputs,
        outputs,
        _grad_attrs(grad_op, keyword),
        special,
        grad_op.kind,
        grad_op.rows if rows is ... else _rows(rows, grad_op.type + "_grad"),
        forward=grad_op,
    )
    definition.lod = _second_lod_map(definition)
    return definition


def _second_lod_map(definition: OpDef) -> dict[str, str]:
    """DX has the LoD of X, DDOut that of Out, or of DOut if Out is not read."""
    reads = {s.name for s in definition.inputs}

    def source(name: str) -> str | None:
        base = name.removesuffix(GRAD) if name.endswith(GRAD) else name[2:] if name.startswith("DD") else name[1:]
        return next((n for n in (base, "D" + base, "DDX") if n in reads), None)

    found = {s.name: source(s.name) for s in definition.outputs}
    return {out: name for out, name in found.items() if name is not None}
