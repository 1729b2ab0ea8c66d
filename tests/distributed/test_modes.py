"""One trainer and two servers train as one process does, in every mode that keeps step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.distributed import asynchronous
from fluidjax.distributed.communicator import Background
from fluidjax.distributed.parts import Target
from fluidjax.distributed.shard import Shard
from fluidjax.framework import program_view
from tests.distributed.jobs import ROWS, WIDTH, Job, constant, dense, sparse
from tests.ports import free_endpoints

OPTIMIZERS = {
    "sgd": lambda: fluid.optimizer.SGD(0.1),
    "momentum": lambda: fluid.optimizer.Momentum(0.1, 0.9),
    "adam": lambda: fluid.optimizer.Adam(0.05, lazy_mode=True),
}


@pytest.mark.parametrize("network", [dense, sparse])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_rounds_of_one_trainer_are_the_steps_of_one_process(network, optimizer):
    """Momentum's search for rows depends on which of them a server gets: only one that gets all finds the same."""
    job = Job(network, OPTIMIZERS[optimizer], servers=1 if optimizer == "momentum" and network is sparse else 2)
    with job.running():
        losses = job.train()
    assert losses[-1] < losses[0] and not job.errors
    np.testing.assert_allclose(losses, job.alone(), rtol=1e-5)


def test_each_gradient_is_used_at_once_in_async_mode():
    job = Job(config={"sync_mode": False}, sync=False)
    with job.running():
        losses = job.train()
    np.testing.assert_allclose(losses, job.alone(), rtol=1e-5)


def scheduled() -> fluid.optimizer.SGD:
    return fluid.optimizer.SGD(fluid.layers.exponential_decay(0.2, 2, 0.5))


def test_servers_follow_the_schedule_of_the_learning_rate():
    job = Job(optimizer=scheduled)
    with job.running():
        losses = job.train(6)
    assert not job.errors
    np.testing.assert_allclose(losses, job.alone(6), rtol=1e-5)


def test_async_servers_count_the_steps_of_trainers_for_the_schedule():
    job = Job(optimizer=scheduled, config={"sync_mode": False}, sync=False)
    with job.running():
        losses = job.train(6)
    assert not job.errors and losses[-1] < losses[0]
    for scope in job.scopes.values():
        counted = [np.array(scope.find_var(f"@LR_DECAY_COUNTER@{of}").get_tensor()) for of in ("", ".trainer_0")]
        assert [int(n[0]) for n in counted] == [7, 7]  # startup programs let them begin at 1


def test_gradients_of_one_trainer_need_no_compensation():
    """dc_asgd adds what a parameter has moved since the trainer saw it: with one trainer nothing."""
    job = Job(config={"sync_mode": False, "enable_dc_asgd": True}, sync=False)
    with job.running():
        losses = job.train()
    assert not job.errors
    np.testing.assert_allclose(losses, job.alone(), rtol=1e-5)


def test_a_server_that_loads_goes_on_where_it_was_saved(tmp_path):
    network, optimizer = sparse, OPTIMIZERS["adam"]
    job = Job(network, optimizer)
    with job.running():
        job.train(4, lambda step, exe, main: step == 3 and _save(exe, tmp_path, main))
    again = Job(network, optimizer, load=str(tmp_path))
    with fluid.scope_guard(fluid.Scope()), again.running():
        losses = again.train(3, first=4)
    np.testing.assert_allclose(losses, job.alone(7)[4:], rtol=1e-5)


def _save(exe: fluid.Executor, folder: Path, main: fluid.Program) -> None:
    """All state, and a model for inference with the same table; what a trainer alone does not have is not written."""
    fluid.io.save_persistables(exe, str(folder), main)
    model, block = str(folder / "model"), main.global_block()
    targets = [block.var(op.output("Out")[0]) for op in block.ops if op.type == "elementwise_add"]
    fluid.io.save_inference_model(model, ["ids"], targets, exe, main)
    table = (folder / "table").read_bytes()
    assert np.frombuffer(table[-4 * ROWS * WIDTH :], "f4").any() and (folder / "model" / "table").read_bytes() == table
    for alone in (fluid.io.save_params, lambda exe, path, main: fluid.save(main, f"{path}/all")):
        with pytest.raises(fluid.core.EnforceNotMet, match="table cannot be saved by a trainer alone"):
            alone(exe, model, main)
    with pytest.raises(ValueError, match="params_filename None"):
        fluid.io.save_inference_model(model, ["ids"], targets, exe, main, params_filename="one")


def lower_half() -> fluid.Variable:
    """A table of which only the first server's rows are looked up."""
    ids, y = fluid.data("ids", [None, 1], "int64"), fluid.data("y", [None, 1], "float32")
    low = fluid.layers.elementwise_mod(ids, fluid.layers.fill_constant([1], "int64", ROWS // 2))
    rows = fluid.layers.embedding(low, [ROWS, WIDTH], is_sparse=True, param_attr=constant("table", 0.3))
    return fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.reduce_sum(rows, 1, keep_dim=True), y))


def test_an_async_trainer_that_sent_nothing_stops_without_a_server():
    before = fluid.get_flags(["FLAGS_rpc_deadline"])
    fluid.set_flags({"FLAGS_rpc_deadline": 100})
    try:
        nowhere = Target(("w",), (f"127.0.0.1:{free_endpoints(1)[0]}",), ())
        trainer = Background({"w@GRAD": nowhere}, {"w": nowhere}, fluid.global_scope(), {})
        trainer.start()
        trainer.stop()
    finally:
        fluid.set_flags(before)
    assert fluid.global_scope().find_var("w") is None


def test_what_nobody_looks_up_does_not_decay_in_async_mode():
    """As in Fluid, whose trainers do not send gradients without rows."""
    decayed = fluid.regularizer.L2Decay(0.5)
    job = Job(
        lower_half, lambda: fluid.optimizer.SGD(0.1, regularization=decayed), config={"sync_mode": False}, sync=False
    )
    with job.running():
        job.train(2)
    found = [
        np.array(var.get_tensor())
        for scope in job.scopes.values()
        for var in map(scope.find_var, ("table.block0", "table.block1"))
        if var is not None and var.get_tensor()._is_initialized()
    ]
    assert not job.errors and len(found) == 2
    assert sorted((block == np.float32(0.3)).all() for block in found) == [False, True]


def test_rows_that_changed_take_no_more_memory_however_often_they_do(monkeypatch, rng):
    """A trainer that died never asks for them."""
    monkeypatch.setattr(asynchronous, "_FEW", 64)
    changed, drawn = asynchronous.Changed(), [rng.integers(0, 100, 16) for _ in range(200)]
    for rows in drawn:
        changed.add(rows)
        assert sum(part.nbytes for part in changed._parts) <= 8 * (200 + 16)
    np.testing.assert_array_equal(changed.take(), np.unique(drawn))
    assert not len(changed.take())


def test_only_in_geo_sgd_do_servers_note_what_changed():
    """In the other modes nobody asks."""
    job = Job(sparse, config={"sync_mode": False}, sync=False)
    main, _ = job.server_programs(job.endpoints[0])
    listening = main.global_block().ops[-1]
    assert listening.attr("sparse_grad_to_param")
    for mode, tables in ((1, 0), (2, 0), (3, 1)):
        listening._set_attr("distributed_mode", mode)
        view = program_view(main)
        assert len(Shard(view, view.blocks[0].ops[-1], fluid.Scope()).tables) == tables
