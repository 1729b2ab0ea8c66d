"""``python -m benchmarks.torch_worker MODEL STEPS [compile]``: time one PyTorch model in a process of its own."""

from __future__ import annotations

import os
import sys

import torch

from benchmarks import torch_large, torch_models
from benchmarks.measure import RAGGED, measure, report


def main() -> None:
    """Measure and report."""
    model, steps = sys.argv[1], int(sys.argv[2])
    compile = torch.compile if "compile" in sys.argv[3:] else (lambda net: net)
    torch.set_default_device(torch_models.DEVICE)
    torch.backends.cudnn.allow_tf32 = False  # float32 means float32 in all peers
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    alike = torch_models.DENSE | torch_large.MODELS
    build = (alike | torch_models.RAGGED)[model]
    report(measure(lambda: build(compile), steps, *((9, 0) if model in alike else RAGGED)))


if __name__ == "__main__":
    main()
