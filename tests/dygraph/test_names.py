"""The names of eager mode, and their arguments, are those of Paddle 1.8.5."""

from __future__ import annotations

import numpy as np
import pytest

import fluidjax as fluid
from tests.spec import api
from tests.spec.signatures import check

# Of converting functions into programs: they are held elsewhere.
OTHERS = ("dygraph_to_static", "TracedLayer", "ProgramTranslator", "StaticModelRunner", "jit.", "base.p")
NAMES = [
    name
    for name, entry in api().items()
    if "fluid.dygraph" in entry.get("alias_of", name) and not any(part in name for part in OTHERS)
]


@pytest.mark.parametrize("name", [*NAMES, "paddle.fluid.monkey_patch_varbase", "paddle.fluid.in_dygraph_mode"])
def test_a_name_takes_what_it_takes_in_fluid(name: str) -> None:
    assert check(name).state == "equal", check(name).problem


def test_the_tracer_runs_ops() -> None:
    with fluid.dygraph.guard():
        x, out = fluid.dygraph.to_variable(np.array([1.0, -1.0], "float32")), fluid.core.VarBase()
        fluid.dygraph.Tracer().trace_op("relu", {"X": [x]}, {"Out": [out]}, {})
        assert out.numpy().tolist() == [1, 0]
        fluid.monkey_patch_varbase()
        assert (out + 1.0).numpy().tolist() == [2, 1]
