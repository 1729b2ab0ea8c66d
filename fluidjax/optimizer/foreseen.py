"""The learning rate that a schedule of eager mode will give next."""

from __future__ import annotations

import copy
from typing import Any

from fluidjax import unique_name
from fluidjax.base.mode import current_tracer
from fluidjax.framework import Variable
from fluidjax.layers._schedules.base import LearningRateDecay


def rate_ahead(schedule: Any) -> Any:
    """A variable with the rate of the next step, in which the schedule does not advance; None if that is not known.

    It is not known of a schedule of the user's own, whose ``step`` may do anything, and of one that reads variables.
    """
    copied = _copied(schedule)
    if copied is None:
        return None
    tracer, generator = current_tracer(), unique_name.generator
    number, numbers = tracer.ids["tmp"], dict(generator.ids)
    try:
        return copied()
    except Exception:  # raised again when the step asks for it
        return None
    finally:  # no name is taken
        tracer.ids["tmp"] = number
        generator.ids.clear()
        generator.ids.update(numbers)


def _copied(schedule: Any) -> Any:
    if not isinstance(schedule, LearningRateDecay) or not schedule.__class__.__module__.startswith("fluidjax."):
        return None
    copied = copy.copy(schedule)
    for name, value in vars(copied).items():
        if isinstance(value, LearningRateDecay):
            vars(copied)[name] = value = _copied(value)
            if value is None:
                return None
        elif isinstance(value, Variable) or callable(value):
            return None
    return copied
