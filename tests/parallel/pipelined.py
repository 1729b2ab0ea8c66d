"""Sections of a program on devices of their own; run by ``tests.parallel.physical``."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

import fluidjax as fluid
from fluidjax import layers
from fluidjax.execution.devices.pipeline import Stage
from fluidjax.execution.steps.seeds import resume


class Line:
    """A net of three parts that trains on a file, as it is or cut.

    Args:
        queue: how many batches are on their way; None: it is not cut.
    """

    def __init__(self, queue: int | None) -> None:
        self.main, self.startup, self.scope = fluid.Program(), fluid.Program(), fluid.Scope()
        self.main.random_seed = 7
        self.losses: list[float] = []
        with fluid.program_guard(self.main, self.startup), fluid.unique_name.guard():
            ids, y = fluid.data("ids", [None, 1], "int64", lod_level=1), fluid.data("y", [None, 1])
            words = layers.dropout(fluid.embedding(ids, [20, 6], param_attr="emb"), 0.2)
            first = layers.sequence_pool(layers.reshape(words, [-1, 6]), "sum")
            second = layers.batch_norm(layers.fc(first, 8, act="tanh", param_attr="w0", bias_attr="b0"))
            out = layers.fc(second, 1, param_attr="w1", bias_attr="b1")
            self.loss = layers.mean(layers.square_error_cost(out, y))
            optimizer = fluid.optimizer.Adam(layers.exponential_decay(0.05, 3, 0.9))
            if queue is not None:
                cuts = [[first], [second], [self.loss]]
                optimizer = fluid.optimizer.PipelineOptimizer(optimizer, cut_list=cuts, queue_size=queue)
            optimizer.minimize(self.loss)
        self.fed = [ids, y]

    def handler(self, values: dict[str, Any]) -> None:
        """Keep a loss."""
        self.losses.append(np.array(values["loss"]).item())

    def train(self, path: Path) -> Line:
        """Two passes over a file, from the same start each time."""
        self.losses = []
        resume(self.main, 0, 0)
        executor, numbers = fluid.Executor(), np.random.RandomState(3)
        dataset = fluid.DatasetFactory().create_dataset("QueueDataset")
        dataset.set_batch_size(8)
        dataset.set_use_var(self.fed)
        dataset.set_filelist([str(path)])
        with fluid.scope_guard(self.scope):
            executor.run(self.startup)
            for parameter in self.main.all_parameters():
                tensor = self.scope.find_var(parameter.name).get_tensor()
                tensor.set(numbers.uniform(-1, 1, tensor.shape()).astype("float32"), fluid.CPUPlace())
            asked = {"fetch_list": [self.loss], "fetch_info": ["loss"], "print_period": 1, "fetch_handler": self}
            for _ in range(2):
                executor.train_from_dataset(self.main, dataset, **asked)
        assert len(self.losses) == 8
        return self

    def values(self) -> Iterator[tuple[str, np.ndarray]]:
        """What persists, by name."""
        for var in self.main.list_vars():
            if var.persistable:
                yield var.name, np.array(self.scope.find_var(var.name).get_tensor())

    def stages(self) -> list[Stage]:
        """The stages of the last pass."""
        return self.main.__dict__["_pipeline"][1].stages


def _data() -> Path:
    numbers, path = np.random.RandomState(0), Path(tempfile.mkdtemp()) / "data"
    rows = [(numbers.randint(0, 20, numbers.randint(1, 6)), numbers.rand()) for _ in range(32)]
    path.write_text("".join(f"{len(ids)} {' '.join(map(str, ids))} 1 {y}\n" for ids, y in rows))
    return path


def check_sections_train_on_devices_of_their_own() -> None:
    """One batch at a time trains as the uncut program; several at once repeat bit for bit, however fast stages are."""
    path = _data()
    cut, whole, several = Line(1).train(path), Line(None).train(path), Line(4).train(path)
    np.testing.assert_allclose(cut.losses, whole.losses, rtol=2e-5)
    others = dict(whole.values())
    for name, value in cut.values():
        np.testing.assert_allclose(value, others[name], rtol=2e-5, atol=2e-6, err_msg=name)
    assert [stage.device for stage in cut.stages()] == jax.devices("cpu")[:3]
    for stage, name in zip(cut.stages(), ("emb", "w0", "w1"), strict=True):
        array = stage.scope.find_var(name).get_tensor()._array
        assert array.sharding.device_set == {stage.device}, name
        assert len(stage.back) == (name != "w1")
    losses, values = several.losses, dict(several.values())
    assert several.train(path).losses == losses != cut.losses
    for name, value in several.values():
        np.testing.assert_array_equal(value, values[name])
