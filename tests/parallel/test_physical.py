"""Several physical devices of one host: a CPU that XLA was told to make eight of, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import jax

# Ops whose gradients are proven there (``tests.parallel.divided``): against those of the program that is not divided.
PROVEN = {"lookup_in_share"}


def test_several_physical_devices() -> None:
    flags = {**os.environ, "JAX_PLATFORMS": "cpu"}
    flags["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
    if jax.__version_info__ < (0, 11):
        flags["XLA_FLAGS"] += " --xla_cpu_use_fusion_emitters=false"
    flags["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"  # both as ``compiled_quickly``
    child = [sys.executable, "-W", "error", "-m", "tests.parallel.physical"]
    done = subprocess.run(child, env=flags, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0 and "all is well" in done.stdout, done.stdout + done.stderr
