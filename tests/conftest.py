"""Fixtures for every test."""

import os
import random
import signal
import zlib
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from jax._src import compiler

# What is compiled beside the runs depends on their times; the tests of that turn it on.
os.environ.setdefault("FLAGS_background_compilation", "0")

# Examples follow from a test's name. How long one takes says more about the machine than about the code.
settings.register_profile("fluidjax", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("fluidjax")


def seed_of(name: str) -> int:
    """A seed that follows from a test's name, so that a test draws the same numbers alone or in a full run."""
    return zlib.crc32(name.encode())


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """A NumPy generator seeded from the test's node id."""
    return np.random.default_rng(seed_of(request.node.nodeid))


@pytest.fixture(autouse=True)
def drawn_by_name(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs without a seed, and Python's and NumPy's own streams, draw what follows from the test's name."""
    seed = seed_of(request.node.nodeid)
    monkeypatch.setattr("fluidjax.execution.steps.seeds.entropy", seed)
    monkeypatch.setattr("fluidjax.eager.recorded.pending.recorder._draws", 0)
    random.seed(seed)
    np.random.seed(seed)


@pytest.fixture(autouse=True)
def each_program_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs share no executable with an equal one: tests compile the same program in two ways and compare."""
    monkeypatch.setattr("fluidjax.execution.executables.kept.shared.get", lambda key: None)


@pytest.fixture(autouse=True, scope="session")
def compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What XLA compiled for one test, in any worker, is loaded for another that lowers to the same.

    Each test still traces, lowers and counts its compilations.
    """
    before = jax.config.jax_compilation_cache_dir, jax.config.jax_persistent_cache_min_compile_time_secs
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    jax.config.update("jax_compilation_cache_dir", str(folder / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.02)
    yield
    jax.config.update("jax_compilation_cache_dir", before[0])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", before[1])


@pytest.fixture(autouse=True, scope="module")
def what_compiles_beside_ends() -> Iterator[None]:
    """What a file's eager nets repeated is compiled in a thread, which the next file would see or wait for."""
    yield
    from fluidjax.execution.executables import background

    background.wait()


@pytest.fixture(scope="module")
def compiled_quickly() -> Iterator[None]:
    """Compiles without XLA's costly passes: for files that compile much, run it once, and compare to a tolerance.

    What users get is held by the networks, the recordings op by op, and by all tests that compare bits.
    """

    def quick(*args: Any, **kwargs: Any) -> Any:
        """Fusions are emitted as LLVM's instructions at once and not by way of MLIR, which takes half of the time."""
        options = options_of(*args, **kwargs)
        if jax.__version_info__ < (0, 11):  # there is but one way since
            options.env_option_overrides = [("xla_cpu_use_fusion_emitters", False), *options.env_option_overrides]
        return options

    options_of = compiler.get_compile_options
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiler, "get_compile_options", quick)
        jax.config.update("jax_disable_most_optimizations", True)
        yield
        jax.config.update("jax_disable_most_optimizations", False)
    jax.clear_caches()


@pytest.fixture
def interrupts_arrive() -> Iterator[None]:
    """Python's own handler of Ctrl-C: a shell starts what runs in its background with interrupts ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def programs_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Default programs as in a new process, so that no test runs what another one wrote."""
    from fluidjax.framework import Program, guards

    main = Program()
    monkeypatch.setattr(guards, "FIRST_PROGRAM", main)
    monkeypatch.setattr(guards, "_main_program_", main)
    monkeypatch.setattr(guards, "_startup_program_", Program())


def settings_of_jax() -> tuple[Any, ...]:
    """Whether 64-bit types are on, in this thread and in the process, and this thread's device."""
    return jax.enable_x64.get_local(), jax.default_device.get_local(), jax.enable_x64.get_global()


@pytest.fixture(autouse=True)
def settings_of_jax_stay() -> Iterator[None]:
    """Whatever a test runs or interrupts, 64-bit types are on in its end only if they were on before."""
    before = settings_of_jax()
    yield
    after = settings_of_jax()
    jax.enable_x64.set_local(before[0])
    jax.default_device.set_local(before[1])
    jax.enable_x64.set_global(before[2])
    assert after == before, "jax's settings are not what they were"
