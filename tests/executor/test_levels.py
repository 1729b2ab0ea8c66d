"""Recurrences are compiled at LLVM's second level, unless they join rows."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.execution.executables.levels import compiler_options

SECOND = {"xla_backend_optimization_level": 2}
SQUARE = np.eye(3, dtype=np.float32)


def scanned(step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: jax.lax.scan(lambda carry, _: (step(carry), None), x, length=4)[0]


def multiplied(x: Any) -> Any:
    return jnp.tanh(x @ SQUARE)


def repeated(x: Any) -> Any:
    return jax.lax.while_loop(lambda c: c.sum() < 9, lambda c: jax.jit(multiplied)(c) + 1, x)


@pytest.mark.parametrize(
    ("function", "options"),
    [
        (scanned(multiplied), SECOND),
        (repeated, SECOND),
        (jax.jit(scanned(multiplied)), SECOND),
        (lambda x: jax.lax.cond(x.sum() > 0, repeated, multiplied, x), SECOND),
        (lambda x: jnp.concatenate([scanned(multiplied)(x), x], axis=1), SECOND),
        (lambda x: jnp.pad(scanned(multiplied)(x), ((0, 0), (0, 1))), SECOND),
        (lambda x: jnp.concatenate([scanned(multiplied)(x), x]), {}),
        (lambda x: jnp.pad(scanned(multiplied)(x), ((0, 1), (0, 0))), {}),
        (scanned(lambda x: jnp.concatenate([multiplied(x)[1:], x[:1]])), {}),
        (scanned(jnp.tanh), {}),
        (multiplied, {}),
    ],
)
def test_the_level_follows_from_what_a_step_does(function: Callable[[Any], Any], options: dict[str, Any]) -> None:
    jaxpr = jax.make_jaxpr(function)(SQUARE)
    assert compiler_options(jaxpr, "cpu") == options
    assert compiler_options(jaxpr, "gpu") == {}


def rnn(words: Any) -> Any:
    layer = fluid.layers.DynamicRNN()
    with layer.block():
        word, memory = layer.step_input(words), layer.memory(shape=[4])
        hidden = fluid.layers.fc([word, memory], 4, act="tanh")
        layer.update_memory(memory, hidden)
        layer.output(hidden)
    return layer()


def lstm(words: Any) -> Any:
    return fluid.layers.dynamic_lstm(words, 16, use_peepholes=False, is_reverse=True)[0]


def labelled(words: Any) -> Any:
    hidden = lstm(words)
    tags = fluid.layers.cast(fluid.layers.reduce_max(words, dim=1, keep_dim=True), "int64")
    cost = fluid.layers.linear_chain_crf(hidden, tags, fluid.ParamAttr(name="transitions"))
    return hidden * fluid.layers.mean(cost)


def tagger(words: Any) -> Any:
    hidden = fluid.layers.dynamic_gru(fluid.layers.fc(words, 48), 16)
    fluid.layers.create_parameter([18, 16], "float32", name="transitions")
    path = fluid.layers.crf_decoding(hidden, fluid.ParamAttr(name="transitions"))
    return hidden * fluid.layers.cast(path, "float32")


@pytest.mark.parametrize(
    ("build", "chosen"),
    [
        (rnn, SECOND),
        (lstm, SECOND),
        (labelled, SECOND),
        (tagger, SECOND),
        (lambda x: fluid.layers.fc(x, 4, act="tanh"), {}),
    ],
)
def test_training_steps_of_recurrent_layers_are_compiled_so(
    build: Callable[[Any], Any], chosen: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, thread = [], threading.current_thread()

    def compile(lowered: jax.stages.Lowered, options: Any = None, **others: Any) -> Any:
        # JAX's own kernels have no options; other threads compile what earlier tests repeated.
        if options is not None and threading.current_thread() is thread:
            seen.append(options)
        return compiled(lowered, options, **others)

    compiled = jax.stages.Lowered.compile
    monkeypatch.setattr(jax.stages.Lowered, "compile", compile)
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        words = fluid.data("words", [None, 16], lod_level=1)
        loss = fluid.layers.mean(fluid.layers.sequence_last_step(build(words)))
        fluid.optimizer.SGD(0.1).minimize(loss)
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        fed = fluid.create_lod_tensor(np.ones((20, 16), np.float32), [[1] * 16 + [4]], fluid.CPUPlace())
        exe.run(main, {"words": fed}, [loss])
    assert seen[-1] == chosen
