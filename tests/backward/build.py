"""Small programs of plain ops, without the layers."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from fluidjax import framework
from fluidjax.framework.view import program_view
from lowering import Runner


class Builder:
    """Appends ops to block 0 of a new program; variables are made as they are named."""

    def __init__(self) -> None:
        self.program = framework.Program()
        self.block = self.program.global_block()

    def data(self, name: str, shape: list[int], dtype: str = "float32", stop_gradient: bool = True) -> Any:
        return self.block.create_var(name=name, shape=shape, dtype=dtype, stop_gradient=stop_gradient)

    def parameter(self, name: str, shape: list[int]) -> Any:
        return self.block.create_parameter(name=name, shape=shape, dtype="float32")

    def op(self, type: str, inputs: dict[str, Any], out: str | dict[str, str], **attrs: Any) -> Any:
        outputs = {"Out": out} if isinstance(out, str) else out
        made = {slot: self._var(name) for slot, name in outputs.items()}
        self.block.append_op(type=type, inputs=inputs, outputs=made, attrs=attrs)
        return next(iter(made.values()))

    def _var(self, name: str) -> Any:
        return self.block.var(name) if self.block.has_var(name) else self.block.create_var(name=name, dtype="float32")


def run(program: framework.Program, feed: dict[str, np.ndarray], fetch: list[str]) -> list[np.ndarray]:
    """Run block 0 as one jit."""
    view = program_view(program)

    def step(env: dict[str, Any]) -> list[Any]:
        done = Runner(view, key=jax.random.key(0)).run_block(0, dict(env))
        return [done[name] for name in fetch]

    with jax.enable_x64(True):
        return [np.asarray(value) for value in jax.jit(step)(feed)]
