"""Names of attributes and roles, as scripts find them in the modules of Fluid's transpilers."""

from __future__ import annotations

from fluidjax.base.enums import OpRole
from fluidjax.framework.names import OP_NAMESCOPE, OP_ROLE, OP_ROLE_VAR
from fluidjax.transpiler.roles import CLIP_SCOPE

LOOKUP_TABLE_TYPE = ["lookup_table", "lookup_table_v2"]
LOOKUP_TABLE_GRAD_TYPE = ["lookup_table_grad", "lookup_table_v2_grad"]
OP_NAME_SCOPE = OP_NAMESCOPE
CLIP_OP_NAME_SCOPE = CLIP_SCOPE
OP_ROLE_VAR_ATTR_NAME = OP_ROLE_VAR
op_role_attr_name = RPC_OP_ROLE_ATTR_NAME = OP_ROLE
OPT_OP_ROLE_ATTR_VALUE = OpRole.Optimize
RPC_OP_ROLE_ATTR_VALUE = OpRole.RPC
DIST_OP_ROLE_ATTR_VALUE = OpRole.Dist
LR_SCHED_OP_ROLE_ATTR_VALUE = OpRole.LRSched
