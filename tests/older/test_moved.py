"""Names that moved, or that have something in their place."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.base.older import HIDDEN, OLDER
from fluidjax.base.unbuilt import Instead, NotBuiltError
from tools.coverage import older_part

NAMES = [(module, name) for module, names in OLDER.items() for name in names]


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_older_names(module: str, name: str) -> None:
    found = getattr(importlib.import_module(module), name)
    if not isinstance(OLDER[module][name], Instead):
        return
    with pytest.raises(NotBuiltError, match=name):
        found()


def test_sequences_through_arrays() -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        x = fluid.data("x", [None, 1], "float32", lod_level=1)
        table = fluid.layers.lod_rank_table(x)
        back = fluid.layers.array_to_lod_tensor(fluid.layers.lod_tensor_to_array(x, table), table)
        longest = fluid.layers.max_sequence_len(table)
        value = fluid.create_lod_tensor(np.arange(5, dtype="float32")[:, None], [[2, 3]], fluid.CPUPlace())
        exe = fluid.Executor(fluid.CPUPlace())
        out, length = exe.run(feed={"x": value}, fetch_list=[back, longest], return_numpy=False)
    assert np.asarray(out).ravel().tolist() == [0, 1, 2, 3, 4] and np.asarray(length).item() == 3


def test_methods_without_an_underscore() -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 2], "float32")
        wanted = fluid.layers.relu(x)
        fluid.layers.tanh(x)
        program = fluid.default_main_program()
        assert [op.type for op in program.prune([wanted]).global_block().ops] == ["relu"]
        assert len(program.inference_optimize().global_block().ops) == 2
        block = program.global_block()
        for kind, value in (("Program", program), ("Block", block), ("Operator", block.ops[0])):
            assert all(callable(getattr(value, name)) for name in HIDDEN[kind])
            with pytest.raises(AttributeError, match="nothing_like_it"):
                value.nothing_like_it  # noqa: B018
        block.ops[0].set_attr("use_mkldnn", True)
        assert block.ops[0].attr("use_mkldnn") is True
        block.prepend_op(type="scale", inputs={"X": x}, outputs={"Out": x}, attrs={"scale": 2.0})
        block.remove_op(1)
        assert [op.type for op in block.ops] == ["scale", "tanh"]


def test_the_page_lists_them() -> None:
    text = older_part()
    assert all(f".{name}`" in text for _, name in NAMES)
    assert "`fluid.layers.fc(use_mkldnn=, is_test=)`" in text
