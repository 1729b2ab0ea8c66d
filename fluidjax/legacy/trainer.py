"""Training by events: ``Trainer`` and ``Inferencer`` of Fluid 0.13 to 1.0, in ``fluid.contrib`` until 1.5."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fluidjax import io, unique_name
from fluidjax.base.errors import explain
from fluidjax.base.places import CPUPlace, CUDAPlace, is_compiled_with_cuda
from fluidjax.base.scope import Scope, scope_guard
from fluidjax.base.unbuilt import NotBuiltError
from fluidjax.data_feeder import DataFeeder
from fluidjax.executor import Executor
from fluidjax.framework import Program, Variable, program_guard
from fluidjax.legacy import checkpoints
from fluidjax.optimizer import Optimizer
from fluidjax.parallel_executor import ParallelExecutor

_ROLE = "PADDLE_TRAINING_ROLE"


class BeginEpochEvent:
    """An epoch begins. ``epoch``: its number, from 0."""

    def __init__(self, epoch_id: int) -> None:
        self.epoch = epoch_id


class EndEpochEvent:
    """An epoch ended. ``epoch``: its number, from 0."""

    def __init__(self, epoch_id: int) -> None:
        self.epoch = epoch_id


class BeginStepEvent:
    """A step begins. ``epoch``, ``step``: its numbers; a handler may set ``fetch_metrics`` to False to save fetches."""

    def __init__(self, epoch_id: int, step_id: int) -> None:
        self.epoch = epoch_id
        self.step = step_id
        self.fetch_metrics = True


class EndStepEvent:
    """A step ended. ``epoch``, ``step``: its numbers; ``metrics``: the values of what ``train_func`` returned."""

    def __init__(self, epoch_id: int, step_id: int, metrics: list[Any]) -> None:
        self.epoch = epoch_id
        self.step = step_id
        self.metrics = metrics


class CheckpointConfig:
    """When a Trainer keeps checkpoints, and where.

    Args:
        checkpoint_dir: the folder; None for the current one.
        max_num_checkpoints: how many stay.
        epoch_interval, step_interval: one every so many epochs and steps, both at least 1.
    """

    def __init__(
        self,
        checkpoint_dir: str | None = None,
        max_num_checkpoints: int = 3,
        epoch_interval: int = 1,
        step_interval: int = 10,
    ) -> None:
        for name, value in (("epoch_interval", epoch_interval), ("step_interval", step_interval)):
            if value < 1:
                raise AssertionError(f"CheckpointConfig: {name} must be at least 1, and it is {value}. Give 1 or more.")
        self.checkpoint_dir = os.getcwd() if checkpoint_dir is None else checkpoint_dir
        self.max_num_checkpoints = max_num_checkpoints
        self.epoch_interval = epoch_interval
        self.step_interval = step_interval
        self.epoch_id = self.step_id = 0
        self.load_serial: int | None = None


class Trainer:
    """A network, its optimizer and its parameters, and the loop that trains it.

    Args:
        train_func: builds the network; returns the loss, or a list of the loss and other metrics.
        optimizer_func: returns the optimizer.
        param_path: a folder of parameters to start from, as ``save_params`` writes them.
        place: where it runs; None for the first GPU where there is one.
        parallel: whether all devices share each batch.
        checkpoint_config: when to keep checkpoints; training goes on from the newest one.

    Raises TypeError for something else than an optimizer.

    Examples:
        >>> def train():
        ...     x, y = fluid.data("x", [None, 2]), fluid.data("y", [None, 1])
        ...     return fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(x, 1), y))
        >>> trainer = fluid.Trainer(train, lambda: fluid.optimizer.SGD(0.1), place=fluid.CPUPlace())
        >>> rows = [([1.0, 2.0], [3.0]), ([2.0, 0.5], [1.0])]
        >>> trainer.train(2, lambda event: None, fluid.io.batch(lambda: iter(rows), 2), ["x", "y"])
        >>> len(trainer.test(fluid.io.batch(lambda: iter(rows), 2), ["x", "y"]))
        1
    """

    def __init__(
        self,
        train_func: Callable[[], Any],
        optimizer_func: Callable[[], Optimizer],
        param_path: str | None = None,
        place: Any = None,
        parallel: bool = False,
        checkpoint_config: CheckpointConfig | None = None,
    ) -> None:
        _refuse_clusters()
        self._stopped = False
        self.parallel = parallel
        self.checkpoint_cfg = checkpoint_config
        self.place = _place(place)
        self.scope = Scope()
        self.startup_program, self.train_program = Program(), Program()
        with program_guard(self.train_program, self.startup_program), unique_name.guard():
            made = train_func()
            self.train_func_outputs: list[Variable] = list(made) if isinstance(made, (list, tuple)) else [made]
            self.test_program = self.train_program.clone(for_test=True)
            optimizer = optimizer_func()
            if not isinstance(optimizer, Optimizer):
                raise TypeError(
                    f"The optimizer should be an instance of Optimizer: optimizer_func returned {optimizer!r:.60}. "
                    "Return one of fluid.optimizer."
                )
            optimizer.minimize(self.train_func_outputs[0])
        with self._entered() as exe:
            exe.run(self.startup_program)
            if param_path and os.path.isdir(param_path):
                io.load_persistables(exe, param_path, self.startup_program)
            self._resume(exe)

    @contextlib.contextmanager
    def _entered(self) -> Iterator[Executor]:
        with program_guard(self.train_program, self.startup_program), scope_guard(self.scope):
            yield Executor(self.place)

    def stop(self) -> None:
        """Let the training end before its next step."""
        self._stopped = True

    def train(
        self,
        num_epochs: int,
        event_handler: Callable[[Any], Any],
        reader: Callable[[], Any],
        feed_order: Any = None,
    ) -> None:
        """Train; the handler gets an event at the beginning and the end of each epoch and step.

        Args:
            num_epochs: how often the reader is gone through.
            event_handler: called with a BeginEpochEvent, BeginStepEvent, EndStepEvent or EndEpochEvent.
            reader: gives batches, lists of samples.
            feed_order: names of the inputs in the order of a sample's fields, or name -> place; None: as declared.
        """
        with self._entered() as exe:
            feeder = DataFeeder(_feed_list(self.train_program, feed_order), self.place)
            batches = feeder.decorate_reader(reader, multi_devices=self.parallel)
            loss = self.train_func_outputs[0].name
            runner = ParallelExecutor(isinstance(self.place, CUDAPlace), loss_name=loss) if self.parallel else exe
            first = self.checkpoint_cfg.epoch_id if self.checkpoint_cfg else 0
            for epoch in range(first, num_epochs):
                event_handler(BeginEpochEvent(epoch))
                for step, feed in enumerate(batches()):
                    if self._stopped:
                        return self._clean()
                    if not self._is_done(epoch, step):
                        self._step(runner, exe, epoch, step, feed, event_handler)
                event_handler(EndEpochEvent(epoch))
            return self._clean()

    def _step(self, runner: Any, exe: Executor, epoch: int, step: int, feed: Any, handler: Callable[..., Any]) -> None:
        begin = BeginStepEvent(epoch, step)
        handler(begin)
        wanted = [var.name for var in self.train_func_outputs] if begin.fetch_metrics else []
        metrics = runner.run(feed=feed, fetch_list=wanted)
        config = self.checkpoint_cfg
        if config and epoch % config.epoch_interval == 0 and step % config.step_interval == 0:
            notes = {"epoch_id": epoch, "step_id": step}
            checkpoints.save_checkpoint(
                exe, config.checkpoint_dir, 0, notes, self.train_program, config.max_num_checkpoints
            )
        handler(EndStepEvent(epoch, step, metrics))

    def test(self, reader: Callable[[], Any], feed_order: Any = None) -> list[Any]:
        """The mean over batches of the first element of each metric; arguments as for ``train``."""
        with scope_guard(self.scope):
            feeder = DataFeeder(_feed_list(self.test_program, feed_order), self.place)
            exe, names = Executor(self.place), [var.name for var in self.train_func_outputs]
            found = [exe.run(self.test_program, feeder.feed(batch), names) for batch in reader()]
        return [np.mean([np.asarray(values[at]).ravel()[0] for values in found]) for at in range(len(names))]

    def save_params(self, param_path: str) -> None:
        """Save what persists, a file for each variable."""
        with self._entered() as exe:
            io.save_persistables(exe, param_path)

    def save_inference_model(self, param_path: str, feeded_var_names: list[str], target_var_indexes: list[int]) -> None:
        """Save a model that computes some of what ``train_func`` returned, by their places in that list."""
        with self._entered() as exe:
            targets = [self.train_func_outputs[index] for index in target_var_indexes]
            io.save_inference_model(param_path, feeded_var_names, targets, exe)

    # Checkpoints.

    def _resume(self, exe: Executor) -> None:
        config = self.checkpoint_cfg
        if config is None:
            return
        serial = checkpoints.get_latest_checkpoint_serial(config.checkpoint_dir)
        if serial < 0:
            return
        config.load_serial = serial
        checkpoints.load_checkpoint(exe, config.checkpoint_dir, serial, self.train_program)
        noted = checkpoints.load_trainer_args_of(config.checkpoint_dir, serial, 0, ["epoch_id", "step_id"])
        config.epoch_id, config.step_id = (int(text) for text in noted)

    def _is_done(self, epoch: int, step: int) -> bool:
        """Whether a checkpoint has a step already."""
        config = self.checkpoint_cfg
        resumed = config is not None and config.load_serial is not None
        return resumed and (epoch, step) <= (config.epoch_id, config.step_id)  # type: ignore[union-attr]

    def _clean(self) -> None:
        if self.checkpoint_cfg:
            checkpoints.clean_checkpoint(self.checkpoint_cfg.checkpoint_dir)


class Inferencer:
    """A network with parameters that a Trainer saved.

    Args:
        infer_func: builds the network; returns what is predicted.
        param_path: the folder of parameters, as ``Trainer.save_params`` writes it.
        place: where it runs; None for the first GPU where there is one.
        parallel: whether all devices share each batch.
    """

    def __init__(
        self, infer_func: Callable[[], Variable], param_path: str, place: Any = None, parallel: bool = False
    ) -> None:
        self.param_path = param_path
        self.scope = Scope()
        self.parallel = parallel
        self.place = _place(place)
        self.inference_program = Program()
        with program_guard(self.inference_program, Program()), unique_name.guard():
            self.predict_var = infer_func()
        with program_guard(self.inference_program), scope_guard(self.scope):
            io.load_params(Executor(self.place), param_path)
        self.inference_program = self.inference_program.clone(for_test=True)
        self.exe: Any = Executor(self.place)
        if parallel:
            with scope_guard(self.scope):
                self.exe = ParallelExecutor(isinstance(self.place, CUDAPlace), main_program=self.inference_program)

    def infer(self, inputs: dict[str, Any], return_numpy: bool = True) -> list[Any]:
        """The prediction for inputs by name. Raises ValueError for something else than a dict."""
        if not isinstance(inputs, dict):
            raise ValueError(
                f"inputs should be a map of {{'input_name': input_var}}, and it is {type(inputs)}. Pass one."
            )
        with program_guard(self.inference_program), scope_guard(self.scope):
            return self.exe.run(feed=inputs, fetch_list=[self.predict_var.name], return_numpy=return_numpy)


def _place(place: Any) -> Any:
    if place is None:
        return CUDAPlace(0) if is_compiled_with_cuda() else CPUPlace()
    if not isinstance(place, (CPUPlace, CUDAPlace)):
        raise TypeError(f"Place should be either CUDAPlace or CPUPlace, and it is {place!r}. Pass fluid.CPUPlace().")
    return place


def _feed_list(program: Program, order: Any) -> list[Variable]:
    block = program.global_block()
    if order is None:
        return [var for var in block.vars.values() if var.is_data]
    if isinstance(order, dict):
        if sorted(order.values()) != list(range(len(order))):
            raise ValueError(
                "The values of 'feed_order' should be a permutation of [0, len(feed_order)), and they are "
                f"{list(order.values())}. Number the fields of a sample."
            )
        order = sorted(order, key=order.__getitem__)
    if not isinstance(order, (list, tuple)):
        raise TypeError(f"The 'feed_order' should be either None, list or dict, and it is {order!r:.60}. Pass names.")
    return [block.var(name) for name in order]


def _refuse_clusters() -> None:
    if role := os.environ.get(_ROLE):
        raise NotBuiltError(
            explain(
                "fluid.Trainer does not start clusters",
                f"one process, {_ROLE} not set",
                f"{_ROLE}={role}",
                "write the loop with fluid.DistributeTranspiler, or unset the variable",
            )
        )
