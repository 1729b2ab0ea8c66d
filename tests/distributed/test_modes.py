"""One trainer and two servers train as one process does, in every mode that keeps step."""

from __future__ import annotations

import numpy as np
import pytest

import fluidjax as fluid
from tests.distributed.jobs import Job, dense, sparse

OPTIMIZERS = {
    "sgd": lambda: fluid.optimizer.SGD(0.1),
    "momentum": lambda: fluid.optimizer.Momentum(0.1, 0.9),
    "adam": lambda: fluid.optimizer.Adam(0.05, lazy_mode=True),
}


@pytest.mark.parametrize("network", [dense, sparse])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_rounds_of_one_trainer_are_the_steps_of_one_process(network, optimizer):
    job = Job(network, OPTIMIZERS[optimizer])
    with job.running():
        losses = job.train()
    assert losses[-1] < losses[0] and not job.errors
    np.testing.assert_allclose(losses, job.alone(), rtol=1e-5)


def test_each_gradient_is_used_at_once_in_async_mode():
    job = Job(config={"sync_mode": False}, sync=False)
    with job.running():
        losses = job.train()
    np.testing.assert_allclose(losses, job.alone(), rtol=1e-5)
