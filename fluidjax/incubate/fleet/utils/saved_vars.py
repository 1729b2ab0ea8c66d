"""Checks that a saved model loads and runs: compares its parameters with its program, and runs one batch."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import numpy as np

from fluidjax import io
from fluidjax.base.errors import explain
from fluidjax.base.places import CPUPlace
from fluidjax.base.scope import Scope
from fluidjax.base.values import LoDTensor
from fluidjax.data_feeder import DataFeeder
from fluidjax.executor import Executor, scope_guard
from fluidjax.framework import Program, Variable

_logger = logging.getLogger(__name__)


def try_saved(
    folder: str,
    file: str,
    feed_config: Any,
    fetch_config: Any,
    batch_size: int,
    params_file: str | None,
    params: Iterable[Variable] = (),
) -> list[Any]:
    """The results of a saved model's program for one batch, in a scope of its own; see check_saved_vars_try_dump."""
    scope = Scope()
    with scope_guard(scope):
        executor = Executor(CPUPlace())
        program, fed, targets = io.load_inference_model(folder, executor, file, params_file)
        check_shapes(params, scope)
        targets = _wanted(program, targets, fetch_config.fetch_vars_names)
        feeds = [_fed(program, *facts) for facts in _facts(feed_config)]
        _say_where_they_differ("feed", fed, [var.name for var in feeds])
        _without(program, ("feed", "fetch"))
        feed = (
            _from_files(feeds, feed_config, batch_size)
            if feed_config.feeded_vars_filelist
            else {
                var.name: _random(var, kind, batch_size)
                for var, kind in zip(feeds, feed_config.feeded_vars_types, strict=True)
            }
        )
        dense = all(var.lod_level == 0 for var in targets)
        results = executor.run(program, feed=feed, fetch_list=targets, return_numpy=dense)
    for var, value in zip(targets, results, strict=True):
        _logger.info("%s: %s", var.name, value)
    return results


def _facts(config: Any) -> Iterable[tuple[str, tuple[int, ...]]]:
    for name, dims in zip(config.feeded_vars_names, config.feeded_vars_dims, strict=True):
        yield name, tuple(dims) if isinstance(dims, (list, tuple)) else (dims,)


def _fed(program: Program, name: str, dims: tuple[int, ...]) -> Variable:
    var = program.global_block().var(name)
    if tuple(var.shape[1:]) != dims:
        raise RuntimeError(
            explain(
                f"check_saved_vars_try_dump: the shape of feed {name!r} does not fit the program",
                f"{tuple(var.shape[1:])} for one example",
                str(dims),
                "state the shape that the program has in feeded_vars_dims",
            )
        )
    return var


def _wanted(program: Program, targets: list[Variable], names: list[str] | None) -> list[Variable]:
    if names is None:
        return targets
    _say_where_they_differ("fetch", [var.name for var in targets], names)
    return [program.global_block().var(name) for name in names]


def _say_where_they_differ(what: str, of_program: list[str], of_config: list[str]) -> None:
    if of_program != of_config:
        _logger.warning("the program was saved to %s %s, and the config says %s", what, of_program, of_config)


def _without(program: Program, types: tuple[str, ...]) -> None:
    block = program.global_block()
    for index in reversed([i for i, op in enumerate(block.ops) if op.type in types]):
        block._remove_op(index)


def _random(var: Variable, kind: str, batch_size: int) -> Any:
    """Values between 0 and 1; for a variable of sequences, each of length 1."""
    value = np.random.random((batch_size, *var.shape[1:])).astype(kind)
    if var.lod_level > 1:
        raise RuntimeError(
            explain(
                f"check_saved_vars_try_dump: no values are drawn for {var.name!r}",
                "lod_level 0 or 1",
                f"lod_level {var.lod_level}",
                "pass files of values, feeded_vars_filelist",
            )
        )
    if not var.lod_level:
        return value
    tensor = LoDTensor()
    tensor.set(value, CPUPlace())
    tensor.set_recursive_sequence_lengths([[1] * batch_size])
    return tensor


def check_shapes(params: Iterable[Variable], scope: Scope) -> None:
    """RuntimeError if a loaded parameter has not the shape that a program gives it, AssertionError if there is none."""
    for param in params:
        held = scope.find_var(param.name)
        assert held is not None, f"{param.name} was not loaded: expected it in the model's files; save it again"
        shape = tuple(held.get_tensor().shape())
        if shape != tuple(param.shape):
            raise RuntimeError(
                explain(
                    f"the shape of parameter {param.name!r} does not fit the program",
                    str(tuple(param.shape)),
                    f"{shape} in its file",
                    "save the parameters of this program",
                )
            )


def _from_files(feeds: list[Variable], config: Any, batch_size: int) -> Any:
    """All batches of the files at once, as Fluid feeds them; a variable of sequences gets one."""
    batches = feed_gen(batch_size, [var.shape[1:] for var in feeds], config.feeded_vars_filelist)
    return DataFeeder(feeds, CPUPlace()).feed([batches])


def feed_gen(batch_size: int, feeded_vars_dims: Any, feeded_vars_filelist: Iterable[str]) -> list[list[Any]]:
    """The batches of each file, by ``reader``; the dims of an example are given for each."""
    return [reader(batch_size, file, dims) for file, dims in zip(feeded_vars_filelist, feeded_vars_dims, strict=False)]


def reader(batch_size: int, fn: str, dim: int | Iterable[int]) -> list[Any]:
    """The batches in a file, of shape [batch_size, *dim], dropping a remainder of each line of numbers."""
    shape = (batch_size, *([dim] if isinstance(dim, int) else dim))
    size = int(np.prod(shape))
    found = []
    with open(fn) as lines:
        for line in lines:
            values = np.array(line.split(), float)
            found += [values[i : i + size].reshape(shape) for i in range(0, len(values) - size + 1, size)]
    return found
