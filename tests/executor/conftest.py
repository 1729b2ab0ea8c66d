"""Small programs written op by op, so that the executor is tested without any layer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluidjax as fluid


class Net:
    """A program under construction and the scope it runs in."""

    def __init__(self) -> None:
        self.program = fluid.Program()
        self.scope = fluid.Scope()
        self.executor = fluid.Executor(fluid.CPUPlace())

    @property
    def block(self) -> Any:
        return self.program.global_block()

    def data(self, name: str, shape: list[int], dtype: str = "float32", lod_level: int = 0, check: bool = False) -> str:
        self.block.create_var(
            name=name, shape=shape, dtype=dtype, lod_level=lod_level, is_data=True, need_check_feed=check
        )
        return name

    def parameter(self, name: str, value: np.ndarray) -> str:
        self.block.create_var(name=name, shape=value.shape, dtype=str(value.dtype), persistable=True)
        self.set(name, value)
        return name

    def set(self, name: str, value: np.ndarray) -> None:
        self.scope.var(name).get_tensor().set(value, fluid.CPUPlace())

    def get(self, name: str) -> np.ndarray:
        return np.array(self.scope.find_var(name).get_tensor())

    def op(self, type: str, inputs: dict[str, Any], out: str, slot: str = "Out", **attrs: Any) -> str:
        if not self.block.has_var(out):
            self.block.create_var(name=out, dtype="float32")
        self.block.append_op(type=type, inputs=inputs, outputs={slot: [out]}, attrs=attrs)
        return out

    def run(self, feed: dict[str, Any] | None = None, fetch: list[str] | None = None, **options: Any) -> list[Any]:
        return self.executor.run(self.program, feed=feed, fetch_list=fetch, scope=self.scope, **options)

    def compilations(self) -> int:
        return sum(p.compilations for p in self.program.__dict__["_prepared_cache"].values())


@pytest.fixture
def net() -> Net:
    return Net()


def ragged(rows: np.ndarray, lengths: list[int]) -> fluid.LoDTensor:
    """A LoDTensor of one level."""
    tensor = fluid.LoDTensor()
    tensor.set(rows, fluid.CPUPlace())
    tensor.set_recursive_sequence_lengths([lengths])
    return tensor
