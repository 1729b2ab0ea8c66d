"""What a backward pass does not do while it is built."""

import gc

import pytest

import fluidjax as fluid
from fluidjax.backward import versions


@pytest.fixture(autouse=True)
def programs():
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        yield


def _loss(depth=40):
    hidden = fluid.data("x", [None, 4], "float32")
    for _ in range(depth):
        hidden = fluid.layers.fc(hidden, 4, act="tanh")
    return fluid.layers.mean(hidden)


def test_nothing_looks_for_garbage_in_the_pass():
    loss = _loss()
    before = sum(generation["collections"] for generation in gc.get_stats())
    fluid.backward.append_backward(loss)
    # The first object that is made after the pass may start one.
    assert sum(generation["collections"] for generation in gc.get_stats()) <= before + 1
    assert gc.isenabled()


def test_garbage_is_looked_for_again_behind_a_pass_that_fails():
    def fail(block, context):
        raise RuntimeError("as the test wants")

    with pytest.raises(RuntimeError, match="as the test wants"):
        fluid.backward.append_backward(_loss(1), callbacks=[fail])
    assert gc.isenabled()


def test_who_turned_collections_off_keeps_them_off():
    gc.disable()
    try:
        fluid.backward.append_backward(_loss(1))
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_ops_without_blocks_need_no_view_of_the_program(monkeypatch):
    def fail(program):
        raise AssertionError("the whole program was viewed")

    monkeypatch.setattr(versions, "program_view", fail)
    pairs = fluid.backward.append_backward(_loss(2))
    assert len(pairs) == 4
