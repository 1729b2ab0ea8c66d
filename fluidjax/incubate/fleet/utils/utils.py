"""Saving, loading and checking programs of a fleet."""

from fluidjax.base.unbuilt import unbuilt

load_program = unbuilt(__name__, "load_program")
save_program = unbuilt(__name__, "save_program")
program_type_trans = unbuilt(__name__, "program_type_trans")
check_saved_vars_try_dump = unbuilt(__name__, "check_saved_vars_try_dump")
parse_program = unbuilt(__name__, "parse_program")
check_pruned_program_vars = unbuilt(__name__, "check_pruned_program_vars")
graphviz = unbuilt(__name__, "graphviz")
