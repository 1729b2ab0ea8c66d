"""A counter of program runs."""

from __future__ import annotations

from fluidjax.framework import Variable
from fluidjax.initializer import Constant
from fluidjax.layer_helper import LayerHelper

__all__ = ["autoincreased_step_counter"]


def autoincreased_step_counter(counter_name: str | None = None, begin: int = 1, step: int = 1) -> Variable:
    """A persistable int64 Variable of shape [1], incremented by ``step`` at the start of every run of the main program.

    Args:
        counter_name: name of the Variable, ``@STEP_COUNTER@`` by default; a second call returns the same counter.
        begin: value during the first run.
        step: the increment.
    """
    helper = LayerHelper("global_step_counter")
    name = "@STEP_COUNTER@" if counter_name is None else counter_name
    counter, is_new = helper.create_or_get_global_variable(
        name=name, dtype="int64", shape=[1], persistable=True, belong_to_optimizer=True
    )
    if is_new:
        helper.set_variable_initializer(counter, initializer=Constant(value=begin - 1, force_cpu=True))
        helper.main_program.global_block()._prepend_op(
            type="increment", inputs={"X": [counter]}, outputs={"Out": [counter]}, attrs={"step": float(step)}
        )
        counter.stop_gradient = True
    return counter
