"""Recorded eager nets whose layers are made declarative: as static programs they train as Paddle's did op by op."""

from __future__ import annotations

import importlib
import json
import sys
import warnings

import pytest

from fluidjax import dygraph
from tests.golden.dygraph.compare import difference
from tests.golden.dygraph.replay import CASES


@pytest.mark.parametrize(
    "name", ["mnist_cnn", "sentiment_cnn", "seq2seq_attention", "python_control_flow", "clip_gradients"]
)
def test_the_nets_of_a_script_as_programs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUID_MODULE", "fluidjax")
    monkeypatch.syspath_prepend(str(CASES))
    monkeypatch.delitem(sys.modules, name, raising=False)
    module = importlib.import_module(name)
    del sys.modules[name]  # its layers become declarative: other tests must not find it
    dygraph.ProgramTranslator.reset()
    layers = [c for c in vars(module).values() if isinstance(c, type) and c.__module__ == name]
    for layer in layers:
        if issubclass(layer, dygraph.Layer) and "forward" in vars(layer):
            layer.forward = dygraph.declarative(layer.forward)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = json.loads(json.dumps(module.run()))
    recorded = json.loads((CASES.parent / "recorded" / f"{name}.json").read_text())
    assert difference(recorded, found) is None
    assert len(dygraph.ProgramTranslator().get_program_cache()) > 0
