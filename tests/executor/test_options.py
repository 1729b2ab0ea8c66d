"""Options of XLA that this version may lack."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from fluidjax.execution.executables import options
from fluidjax.execution.executables.executable import Executable


def doubled(x: jax.Array) -> jax.Array:
    return x + x


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "_unknown", set())


def test_options_that_xla_lacks_are_left_out() -> None:
    x = np.float32([1, 2])
    given = {"xla_no_such_option": True, "xla_backend_optimization_level": 0, "xla_none_either": 1}
    traced = jax.jit(doubled).trace(x)
    for _ in range(2):
        (found,) = jax.tree.leaves(Executable.of(traced, options=given).call(x))
        assert np.asarray(found).tolist() == [2, 4]
    assert options._unknown == {"xla_no_such_option", "xla_none_either"}


def test_a_wrong_value_is_told() -> None:
    traced = jax.jit(doubled).trace(np.float32([1, 2]))
    with pytest.raises(Exception, match="xla_backend_optimization_level"):
        Executable.of(traced, options={"xla_backend_optimization_level": "much"})
    assert not options._unknown


def test_after_the_first_call_a_call_is_jaxs_own_fast_one() -> None:
    """It is found under a private name, without which each step would be slower and nothing be said."""
    x = np.float32([1, 2])
    executable = Executable.of(jax.jit(doubled).trace(x))
    executable.call(x)
    executable.settle()
    assert executable.call is not executable.compiled
