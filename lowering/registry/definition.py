"""What is known of one op: its slots, attributes and rules. Plain data, beneath everything else."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from lowering.values import RankTable, SelectedRows, StepScopes, TensorArray


class Long(int):
    """Annotation of a LONG attribute."""


class Longs(list):
    """Annotation of a LONGS attribute."""


class Scalars(list):
    """Annotation of a SCALARS attribute (Paddle 2: numbers of any type)."""


class Float64s(list):
    """Annotation of a FLOAT64S attribute (Paddle 2)."""


class Block(int):
    """Annotation of a BLOCK attribute (the index of a sub-block)."""


class Blocks(list):
    """Annotation of a BLOCKS attribute."""


class Value:
    """Annotation of a parameter that accepts any kind of value (LoDArray, SelectedRows, array ...)."""


class Sizes:
    """Annotation of a parameter that takes a shape, or a dim of one: row counts are not converted (see ``counts``)."""


@dataclass(frozen=True)
class Wise:
    """Row-wise: an output row depends on the same row of the inputs alone.

    Attributes:
        carriers: the parameters whose values have these rows, as words; '' for all. The others are weights; in a
            gradient rule the outputs and their gradients have the rows too.
    """

    carriers: str = ""

    def params(self, definition: OpDef) -> list[str]:
        """The parameters of ``definition`` whose values have the rows; none means all."""
        words = self.carriers.split()
        own = {s.param for s in definition.root.inputs}
        return [s.param for s in definition.inputs if words and (s.param in words or s.param not in own)]


@dataclass(frozen=True)
class Masked:
    """The rule takes LoDArrays and re-establishes the invariants of padding itself.

    Attributes:
        carriers: the parameters taken as arrays whose rows go with those of a LoDArray, as words. The other arrays
            beside a LoDArray are weights, lengths and the like: with padding rows they would be too long.
    """

    carriers: str = ""

    def weights(self, definition: OpDef) -> frozenset[str]:
        """The parameters of ``definition`` that cannot have padding rows."""
        own = definition.root.inputs
        if not any(slot.wants == "lod" for slot in own):
            return frozenset()
        return frozenset(slot.param for slot in own if slot.wants == "array").difference(self.carriers.split())


WISE, MASKED = Wise(), Masked()

# What padding rows mean to an op; None: it supports exact rows only.
Rows = Wise | Masked | None
# Or a function from (attributes, rank of the padded value) to one of these.
RowsRule = Rows | Callable[[Mapping[str, Any], int], Rows]


# Keywords of a rule that are not attributes: a random key, the block's context, which outputs are their inputs, and
# whether what the op demands of its values (see ``lowering.engine.checks``) is known to be met whenever it runs.
SPECIAL = ("key", "ctx", "in_place", "checked")
RAW_TYPES = (Value, SelectedRows, TensorArray, RankTable, StepScopes)


class Slot(NamedTuple):
    """One input or output slot.

    Attributes:
        name, param: Fluid's name and the rule's parameter.
        duplicable: whether it takes several variables.
        dispensable: whether it may be omitted.
        wants: 'array', 'lod' (LoDArray), 'meta', 'sizes' or 'raw' (unchanged).
        intermediate: whether an output is only kept for the gradient.
        newer: whether it was added by Paddle 2: read if a program has it, never written.
    """

    name: str
    param: str
    duplicable: bool = False
    dispensable: bool = False
    wants: str = "array"
    intermediate: bool = False
    newer: bool = False


class AttrSpec(NamedTuple):
    """One attribute: its Fluid name and type ('INT', 'FLOATS' ...), its default, and the rule's parameter for it.

    One added by Paddle 2 (``newer``) is read if a program has it, and never filled in; ``later`` is the name
    that Paddle 2 gave an attribute of 1.8.
    """

    name: str
    type: str
    default: Any = None
    required: bool = False
    param: str = ""  # '' for vendor attributes, which no rule reads
    newer: bool = False
    later: str = ""


class Check(NamedTuple):
    """``fn`` of some of the rule's parameters: what an op requires of its numbers (see ``engine.checks``) or
    declarations (``engine.shapes.infer``), or its results with room for all rows (``Rule.with_room``)."""

    fn: Callable[..., Any]
    inputs: tuple[Slot, ...]
    attrs: tuple[AttrSpec, ...]
    asks: bool = False  # whether it takes ``ctx``


@dataclass
class OpDef:
    """All that is known of one op type. Callable as the plain function it was created from."""

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
    compares: bool = False
    inplace: Mapping[str, str] = field(default_factory=dict)  # output slot -> input slot
    spare: tuple[str, ...] = ()  # parameters of required inputs that Paddle 2 may leave unbound
    absent: tuple[str, ...] = ()  # parameters of required inputs whose variable may have no value yet
    begins: Mapping[str, str] = field(default_factory=dict)  # of these, input slot -> attribute that None stands for
    undeclared: tuple[str, ...] = ()  # output slots, or "Slot:dtype", that shape inference leaves to the layer
    updates: tuple[str, ...] = ()  # input slots whose variables the op changes; new values follow its outputs
    continues: tuple[str, ...] = ()  # output slots whose variables the op continues from, or may leave unchanged
    continues_if: str = ""  # the attribute whose truth makes it so; without one, it always is
    changes: tuple[str, ...] = ()  # input slots whose variables a block op, in a backward pass, changes in ``ctx.env``
    forward: OpDef | None = None  # for a gradient op, the op it differentiates
    demands: Check | None = None
    insists: Check | None = None
    once: str = ""  # for a gradient op, why it has no gradient
    recall: OpDef | None = None  # for an op that draws: computes its saved results from its inputs and its draws
    moves: str = ""  # for a host op: "early" or "late", the direction in which it may pass other ops (see ``gather``)
    roomy: Check | None = None  # results where sizes cannot follow values: with room for all rows, and their number
    loops: bool = False  # for a gradient op: it, or its forward op, has a loop whose length depends on values

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)

    @property
    def doc(self) -> str:
        """The docstring of the op's rule; '' if it has none."""
        return inspect.getdoc(self.fn) or ""

    @cached_property
    def block_attrs(self) -> tuple[tuple[str, bool], ...]:
        """The attributes that name blocks: (name, whether it names several)."""
        blocks = {"BLOCK": False, "BLOCKS": True}
        return tuple((name, blocks[spec.type]) for name, spec in self.attrs.items() if spec.type in blocks)

    @property
    def on_host(self) -> bool:
        """Whether no compiled function can contain the op."""
        return self.kind == "host" and self.roomy is None

    @property
    def differentiable(self) -> bool:
        """Whether the op has a gradient op, or one can be derived."""
        derivable = self.forward is not None and self.obstacle is None
        return self.gradient is not None or self.make_grad is not None or derivable

    @property
    def has_written_gradient(self) -> bool:
        """Whether the op's gradient op was written by hand, rather than derived for an order of differentiation."""
        return self.gradient is not None and self.make_grad is None

    @property
    def root(self) -> OpDef:
        """For a gradient op of any order, the op at its root; any other op itself."""
        return self if self.forward is None else self.forward.root

    @property
    def obstacle(self) -> str | None:
        """Why this gradient op cannot be differentiated; None if it can, and for ops that are not gradient ops."""
        if self.forward is None:
            return None
        if self.kind in ("block", "host"):
            return f"it is the gradient of {self.forward.type}, which runs other ops"
        if self.updates:
            return f"it changes {list(self.updates)} itself"
        return self.once or None

    @property
    def gradient_slots(self) -> frozenset[str]:
        """The input slots of a gradient op that receive gradients: those that the forward op does not have."""
        own = {s.name for s in [*self.root.inputs, *self.root.outputs]}
        return frozenset(s.name for s in self.inputs if s.name not in own)

    def rows_rule(self, attrs: Mapping[str, Any], ndim: int) -> Rows:
        """What padding rows mean to one op with these attributes, whose padded value has ``ndim`` dims."""
        if not callable(self.rows):
            return self.rows
        given = {s.name: attrs.get(s.name, attrs.get(s.later, s.default)) for s in self.attrs.values()}
        return self.rows(given, ndim)

    def own_seed(self, attrs: Mapping[str, Any]) -> int:
        """The seed that one op with these attributes fixes; 0 if it draws with the run's, as by default."""
        spec, seed = self.attrs.get("seed"), int(attrs.get("seed", 0) or 0)
        return 0 if spec is not None and seed == spec.default else seed

    def input(self, name: str) -> Slot | None:
        """The input slot of that name; None if there is none."""
        return next((s for s in self.inputs if s.name == name), None)

    def output(self, name: str) -> Slot | None:
        """The output slot of that name; None if there is none."""
        return next((s for s in self.outputs if s.name == name), None)

    def slot_of(self, param: str) -> Slot | None:
        """The input or output slot for the rule's parameter ``param``; None if there is none."""
        return next((s for s in [*self.inputs, *self.outputs] if s.param == param), None)
