"""FLAGS_cudnn_deterministic: what is passed on to XLA, and when."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import jax
import pytest

import fluidjax as fluid
from fluidjax.base import flags, repeating

FLAG, ON = "FLAGS_cudnn_deterministic", "--xla_gpu_deterministic_ops=true"


@pytest.fixture
def machine() -> Iterator[dict[str, str]]:
    """A process with a GPU in which jax has not started: its environment; nothing of it stays."""
    environment: dict[str, str] = {}
    with (
        mock.patch.dict(flags.FLAGS),
        mock.patch.multiple(repeating, may_accelerate=lambda: True, backends_are_initialized=lambda: False),
        mock.patch.object(repeating.ask, "__defaults__", (environment,)),
    ):
        yield environment


def test_xla_is_told_before_it_starts(machine: dict[str, str]) -> None:
    fluid.set_flags({FLAG: 0})
    assert machine == {}
    fluid.set_flags({FLAG: 1})
    assert machine == {"XLA_FLAGS": ON}
    fluid.set_flags({FLAG: 1})
    assert machine == {"XLA_FLAGS": ON}
    fluid.set_flags({FLAG: 0})
    assert machine == {"XLA_FLAGS": ""}


def test_other_options_stay(machine: dict[str, str]) -> None:
    machine["XLA_FLAGS"] = "--xla_gpu_autotune_level=0"
    fluid.set_flags({FLAG: 1})
    assert machine == {"XLA_FLAGS": f"--xla_gpu_autotune_level=0 {ON}"}


def test_what_xlas_own_variable_says_wins(machine: dict[str, str]) -> None:
    machine["XLA_FLAGS"] = said = "--xla_gpu_deterministic_ops=false"
    fluid.set_flags({FLAG: 1})
    assert machine == {"XLA_FLAGS": said}


def test_a_flag_that_comes_too_late_is_warned_about(machine: dict[str, str]) -> None:
    device = mock.Mock(platform="gpu")
    with (
        mock.patch.object(repeating, "backends_are_initialized", lambda: True),
        mock.patch.object(jax, "local_devices", lambda: [device]),
    ):
        with pytest.warns(UserWarning, match="comes too late: jax has started"):
            fluid.set_flags({FLAG: 1})
        device.platform = "tpu"
        fluid.set_flags({FLAG: 1})  # has no such sums
    assert machine == {}


def test_xla_knows_the_option() -> None:
    """An unknown one would end the process."""
    name = ON.removeprefix("--").removesuffix("=true")
    assert jax.jit(lambda x: x + 1).lower(1.0).compile({name: True})(1.0) == 2
    with pytest.raises(jax.errors.JaxRuntimeError, match="No such compile option"):
        jax.jit(lambda x: x + 2).lower(1.0).compile({name + "_": True})
