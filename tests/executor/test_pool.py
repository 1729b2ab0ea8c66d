"""What flags and configs say of a GPU's pool of memory: what is passed on to jax, and when."""

import functools
import os
from collections.abc import Iterator
from typing import Any
from unittest import mock

import jax
import pytest
from jax._src.lib import xla_client

import fluidjax as fluid
from fluidjax import memory
from fluidjax.base import flags, pool

GROWING = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "XLA_CLIENT_MEM_FRACTION": "0.95"}
LIMIT = 10_000 << 20
FRACTION, STRATEGY = "FLAGS_fraction_of_gpu_memory_to_use", "FLAGS_allocator_strategy"
SIZE = "FLAGS_initial_gpu_memory_in_mb"


class Device:
    """As much of a jax device as is asked."""

    def __init__(self, platform: str = "gpu") -> None:
        self.platform = platform

    def memory_stats(self) -> dict[str, int]:
        return {"bytes_limit": LIMIT}


@pytest.fixture
def machine() -> Iterator[dict[str, str]]:
    """A process with a GPU in which jax has not started: its environment; nothing of it stays."""
    environment: dict[str, str] = {}
    with (
        mock.patch.dict(flags.FLAGS),
        mock.patch.object(flags, "_named", set()),
        mock.patch.multiple(pool, _first=None, may_accelerate=lambda: True, backends_are_initialized=lambda: False),
        mock.patch.object(pool, "reserve", functools.cache(pool.reserve.__wrapped__)),
        mock.patch.object(pool.ask, "__defaults__", ("", environment)),
    ):
        yield environment


def taken(platform: str = "gpu") -> list[int]:
    """The bytes allocated when a device is used twice."""
    device = Device(platform)
    with mock.patch.object(pool, "_take") as take:
        pool.reserve(device)
        pool.reserve(device)
    return [call.args[1] for call in take.call_args_list]


CASES: dict[str, tuple[dict[str, Any], list[int]]] = {
    "a fraction": ({FRACTION: 0.25}, [LIMIT // 4]),
    "a size before the fraction": ({SIZE: 300, FRACTION: 0.25}, [300 << 20]),
    "growing from nothing": ({STRATEGY: "auto_growth"}, []),
    "growing, whatever the fraction": ({FRACTION: 0.25, STRATEGY: "auto_growth"}, []),
    "a chunk of Fluid's size": ({STRATEGY: "naive_best_fit"}, [int(LIMIT * 0.92)]),
}


@pytest.mark.parametrize("name", CASES)
def test_flags_before_jax_starts(name: str, machine: dict[str, str]) -> None:
    given, chunks = CASES[name]
    fluid.set_flags(given)
    assert machine == GROWING
    assert taken() == chunks
    assert taken("tpu") == []


def test_flags_of_the_environment(machine: dict[str, str]) -> None:
    with mock.patch.dict(os.environ, {SIZE: "200"}):
        flags.FLAGS.update(flags._from_environment())
        flags._ask_for_memory(os.environ)
    assert (machine, taken()) == (GROWING, [200 << 20])


def test_without_such_a_flag_nothing_is_passed_on(machine: dict[str, str]) -> None:
    """The others have no effect: jax decides by how much it grows, and allocates the host's memory as it needs it."""
    without = ("FLAGS_reallocate_gpu_memory_in_mb", "FLAGS_gpu_memory_limit_mb", "FLAGS_initial_cpu_memory_in_mb")
    fractions = ("FLAGS_fraction_of_cpu_memory_to_use", "FLAGS_fraction_of_cuda_pinned_memory_to_use")
    fluid.set_flags(dict.fromkeys(without, 64) | dict.fromkeys(fractions, 0.5))
    assert (machine, taken()) == ({}, [])


def test_jaxs_own_variables_win(machine: dict[str, str]) -> None:
    machine |= {"XLA_PYTHON_CLIENT_PREALLOCATE": "true", "XLA_PYTHON_CLIENT_MEM_FRACTION": ".5"}
    before = dict(machine)
    fluid.core.globals()[FRACTION] = 0.25
    assert machine == before, "jax refuses both names of the fraction"


@pytest.mark.parametrize(("older", "limit"), [("", 0.95), (".5", 0.5)])
def test_jax_understands_what_it_is_told(older: str, limit: float, machine: dict[str, str]) -> None:
    """What jax asks of its plugin for GPUs, from the variables as it reads them: a pool that grows, and how far."""
    machine.update({"XLA_PYTHON_CLIENT_MEM_FRACTION": older} if older else {})
    fluid.set_flags({FRACTION: 0.25})
    with mock.patch.dict(os.environ, machine):
        options = xla_client.generate_pjrt_gpu_plugin_options()
    assert (options["preallocate"], options["memory_fraction"]) == (False, limit)


def test_a_flag_that_comes_too_late_says_so(machine: dict[str, str]) -> None:
    late = mock.patch.multiple(pool, backends_are_initialized=lambda: True)
    with late, mock.patch.object(jax, "local_devices", lambda: [Device()]):
        with pytest.warns(UserWarning, match=rf"{FRACTION} comes too late.*\n.*\n.*\n  what to do: set {FRACTION}"):
            fluid.set_flags({FRACTION: 0.25})
    assert (machine, taken()) == ({}, [])


def test_a_machine_without_a_gpu_is_left_alone(machine: dict[str, str]) -> None:
    with mock.patch.object(pool, "may_accelerate", lambda: False):
        fluid.set_flags({FRACTION: 0.25})
    assert machine == {}


def test_a_predictor_names_its_chunk(machine: dict[str, str]) -> None:
    config = fluid.core.AnalysisConfig("model")
    with pytest.warns(UserWarning, match="JAX sees no GPU"):
        config.enable_use_gpu(100, 0)
    assert (machine, taken()) == (GROWING, [100 << 20])
    assert config.fraction_of_gpu_memory_for_pool() == 0


@pytest.mark.parametrize(("fraction", "chunk"), [(0.5, LIMIT // 2), (-1.0, 100 << 20)])
def test_the_older_config_names_a_fraction(fraction: float, chunk: int, machine: dict[str, str]) -> None:
    config = fluid.core.NativeConfig()
    config.use_gpu, config.fraction_of_gpu_memory = True, fraction
    with pytest.warns(UserWarning, match="JAX sees no GPU"):
        config.as_analysis()
    assert taken() == [chunk]


def test_a_chunk_that_is_not_there_is_said(machine: dict[str, str]) -> None:
    fluid.set_flags({SIZE: 99})
    with mock.patch.object(pool, "_take", side_effect=RuntimeError("RESOURCE_EXHAUSTED: 99 of 7")):
        with pytest.warns(UserWarning, match=r"first chunk.*\n.*10,485,760,000\n  received: RESOURCE_EXHAUSTED"):
            pool.reserve(Device())


def test_the_chunk_is_released_at_once() -> None:
    device = jax.local_devices(backend="cpu")[0]
    before = memory.of().used
    pool._take(device, 3 << 20)
    assert memory.of().used <= before
