"""Detectors whose counts of regions differ from step to step: the losses of Paddle 1.8.5, few compilations."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.execution.rooms.buckets import least_rows
from fluidjax.execution.runs import retry

from . import detection_nets

RECORDED = json.loads(Path(__file__).with_name("detection_nets.json").read_text())


@pytest.mark.parametrize("net", detection_nets.NETS)
def test_training_follows_paddle(net: str) -> None:
    """Each piece between host ops is compiled for a bucket of regions or two, not for each of 20 steps."""
    main, losses = detection_nets.train(fluid, net)
    np.testing.assert_allclose(losses, RECORDED[net], rtol=1e-3, atol=2e-5)
    (prepared,) = main.__dict__["_prepared_cache"].values()
    assert prepared.compilations <= 7
    assert len({round(step[0], 6) for step in losses}) == detection_nets.STEPS


def test_a_long_training_compiles_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """100 steps, with the room that a few rows are given where they are cheap."""
    monkeypatch.setattr(retry, "least_rows", least_rows)
    monkeypatch.setattr(detection_nets, "STEPS", 100)
    main, _ = detection_nets.train(fluid, "faster_rcnn")
    (prepared,) = main.__dict__["_prepared_cache"].values()
    assert prepared.compilations <= 6
