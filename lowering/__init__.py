"""What Fluid's operators mean in JAX: the op registry and the lowering of blocks.

Usable alone: ``get_op("tanh")`` is the op's function with its proto, ``run_block`` runs a block given as a
``ProgramView``. Nothing here imports the front end.
"""

from lowering.engine.context import Context
from lowering.engine.gradients.grad_maker import GradMaker, grad_ops
from lowering.engine.gradients.higher import saved_slots
from lowering.engine.runner import Runner, run_block
from lowering.engine.shapes.infer import infer_outputs
from lowering.errors import (
    AttrError,
    LoweringError,
    NeedsConcrete,
    NeedsExact,
    OpError,
    RegistryError,
    SlotError,
    UninitializedError,
    UnknownOpError,
)
from lowering.program import EMPTY, GRAD, BlockView, OpSpec, OpView, ProgramView, VarInfo, VarView
from lowering.registry import (
    MASKED,
    WISE,
    AttrSpec,
    OpDef,
    Slot,
    Wise,
    check_attrs,
    double_gradient,
    get_op,
    has_op,
    op,
    registered_ops,
)
from lowering.values import LoDArray, Meta, RankTable, SelectedRows, StepScopes, TensorArray, concrete

from lowering import ops  # isort: skip  (registers every rule; needs the names above)

__all__ = [
    "EMPTY", "GRAD", "MASKED", "WISE", "AttrError", "AttrSpec", "BlockView", "Context", "GradMaker", "LoDArray",
    "LoweringError", "Meta", "NeedsConcrete", "NeedsExact", "OpDef", "OpError", "OpSpec", "OpView", "ProgramView",
    "RankTable", "RegistryError", "Runner", "SelectedRows", "Slot", "SlotError", "StepScopes", "TensorArray",
    "UninitializedError", "UnknownOpError", "VarInfo", "VarView", "Wise", "check_attrs", "concrete", "double_gradient",
    "get_op", "grad_ops", "has_op", "infer_outputs", "op", "ops", "registered_ops", "run_block", "saved_slots",
]  # fmt: skip
