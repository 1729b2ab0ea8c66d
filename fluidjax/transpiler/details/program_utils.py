"""Finding and printing the ops of a program."""

from fluidjax.base.unbuilt import unbuilt

block_to_code = unbuilt(__name__, "block_to_code")
delete_ops = unbuilt(__name__, "delete_ops")
find_op_by_input_arg = unbuilt(__name__, "find_op_by_input_arg")
find_op_by_output_arg = unbuilt(__name__, "find_op_by_output_arg")
op_to_code = unbuilt(__name__, "op_to_code")
program_to_code = unbuilt(__name__, "program_to_code")
variable_to_code = unbuilt(__name__, "variable_to_code")
