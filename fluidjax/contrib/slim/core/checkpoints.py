"""A compression's state after an epoch, in a folder of its number."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from fluidjax.base.errors import explain
from fluidjax.contrib.slim.core.context import Context
from fluidjax.contrib.slim.core.strategy import Strategy
from fluidjax.contrib.slim.graph import SlimGraphExecutor
from fluidjax.executor import scope_guard
from fluidjax.files import pickles
from fluidjax.files.atomic import write_file

_PLAIN = (bool, int, float, str)


def save(path: str, context: Context, strategies: Sequence[Strategy], eval_model: bool, infer_model: Any) -> str:
    """Write the weights, the context, what strategies found out, and the evaluated network if asked.

    Args:
        path: the folder of all checkpoints.
        eval_model: also write what is evaluated, for ``load_inference_model``.
        infer_model: (inputs, outputs) between which to cut the network for inference; None for no such file.

    Returns the folder of this checkpoint.
    """
    folder = os.path.join(path, str(context.epoch_id))
    os.makedirs(os.path.join(folder, "model"), exist_ok=True)
    executor = SlimGraphExecutor(context.place)
    with scope_guard(context.scope):
        context.optimize_graph.save_persistables(os.path.join(folder, "model"), executor)
        model = os.path.join(folder, "eval_model")
        if eval_model:
            context.eval_graph.save_model(model, executor)
        if infer_model:
            context.eval_graph.save_infer_model(model, executor, infer_model, program_only=eval_model)
    context.to_file(os.path.join(folder, "context"))
    states = {str(at): _known(strategy) for at, strategy in enumerate(strategies)}
    write_file(os.path.join(folder, "strategies"), [pickles.dumps(states)])
    return folder


def load(path: str, context: Context, strategies: Sequence[Strategy]) -> str | None:
    """Go on from the last checkpoint in a folder.

    What strategies found out is theirs again, where their configuration does not say otherwise; they change the graphs
    as they had, and the weights are read.

    Returns the folder of the checkpoint; None if there is none.
    """
    epochs = [int(name) for name in os.listdir(path) if name.isdigit()] if os.path.isdir(path) else []
    if not epochs:
        return None
    folder = os.path.join(path, str(max(epochs)))
    context.from_file(os.path.join(folder, "context"))
    context.epoch_id += 1
    file = os.path.join(folder, "strategies")
    with open(file, "rb") as opened:
        states = pickles.loads(opened.read(), file)
    if len(states) != len(strategies):
        todo = "go on with the configuration that the checkpoint was made with, or give another checkpoint_path"
        raise ValueError(
            explain(f"{file} does not fit", f"{len(strategies)} strategies", f"{len(states)} strategies", todo)
        )
    for at, strategy in enumerate(strategies):
        vars(strategy).update({n: v for n, v in states[str(at)].items() if n not in vars(strategy)})
    for strategy in strategies:
        strategy.restore_from_checkpoint(context)
    with scope_guard(context.scope):
        context.optimize_graph.load_persistables(os.path.join(folder, "model"), SlimGraphExecutor(context.place))
    return folder


def _known(strategy: Strategy) -> dict[str, Any]:
    """The attributes of a strategy that a file can hold: numbers, texts and lists of them."""
    return {name: value for name, value in strategy.__getstate__().items() if _plain(value)}


def _plain(value: Any) -> bool:
    return value is None or isinstance(value, _PLAIN) or (isinstance(value, list) and all(map(_plain, value)))
