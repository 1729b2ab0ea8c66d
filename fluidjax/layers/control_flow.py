# ruff: noqa: F401  (the names of fluid.layers.control_flow are gathered here)
"""The names of ``fluid.layers.control_flow``."""

from fluidjax.base.unknown import unknown_name
from fluidjax.layers._control_flow.basic import (
    Print,
    array_length,
    array_read,
    array_write,
    create_array,
    equal,
    greater_equal,
    greater_than,
    increment,
    is_empty,
    less_equal,
    less_than,
    not_equal,
)
from fluidjax.layers._control_flow.blocks import BlockGuard, BlockGuardWithCompletion, While, WhileGuard
from fluidjax.layers._control_flow.branches import (
    ConditionalBlock,
    ConditionalBlockGuard,
    IfElse,
    IfElseBlockGuard,
    Switch,
)
from fluidjax.layers._control_flow.dynamic_rnn import DynamicRNN
from fluidjax.layers._control_flow.functions import case, cond, copy_var_to_parent_block, switch_case, while_loop
from fluidjax.layers._control_flow.ragged import (
    array_to_lod_tensor,
    lod_rank_table,
    lod_tensor_to_array,
    max_sequence_len,
    merge_lod_tensor,
    reorder_lod_tensor_by_rank,
    select_input,
    select_output,
    shrink_memory,
    split_lod_tensor,
)
from fluidjax.layers._control_flow.static_rnn import StaticRNN, StaticRNNMemoryLink

__all__ = [
    "DynamicRNN",
    "IfElse",
    "Print",
    "StaticRNN",
    "Switch",
    "While",
    "array_length",
    "array_read",
    "array_write",
    "case",
    "cond",
    "create_array",
    "equal",
    "greater_equal",
    "greater_than",
    "increment",
    "is_empty",
    "less_equal",
    "less_than",
    "not_equal",
    "reorder_lod_tensor_by_rank",
    "switch_case",
    "while_loop",
]

__getattr__ = unknown_name(__name__)
