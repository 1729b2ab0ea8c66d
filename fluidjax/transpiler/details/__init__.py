# ruff: noqa: F401  (names are gathered here)
"""Tools of the transpilers."""

from fluidjax.transpiler.details import checkport, program_utils, ufind, vars_distributed
from fluidjax.transpiler.details.checkport import wait_server_ready
from fluidjax.transpiler.details.program_utils import (
    block_to_code,
    delete_ops,
    find_op_by_input_arg,
    find_op_by_output_arg,
    get_indent_space,
    op_to_code,
    program_to_code,
    variable_to_code,
)
from fluidjax.transpiler.details.ufind import UnionFind
from fluidjax.transpiler.details.vars_distributed import VarDistributed, VarsDistributed, VarStruct
