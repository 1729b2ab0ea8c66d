"""What the transpilers refuse, and what they do where no recording says it."""

import pytest

import fluidjax as fluid
from fluidjax.initializer import Constant
from fluidjax.transpiler.geo_sgd_transpiler import GeoSgdTranspiler
from fluidjax.transpiler.ps_dispatcher import HashName, PSDispatcher, RoundRobin

SERVERS = ["127.0.0.1:6170", "127.0.0.1:6171"]


def loss_of(h):
    return fluid.layers.mean(fluid.layers.fc(h, 1))


def dense():
    return loss_of(fluid.layers.fc(fluid.data("x", [None, 32]), 600))


def ids(name="ids"):
    return fluid.data(name, [None, 1], "int64")


def embedding(index, name="table", **settings):
    settings = {"is_sparse": True, **settings}
    return fluid.embedding(index, [1000, 32], param_attr=fluid.ParamAttr(name, initializer=Constant(3)), **settings)


class Job:
    """The programs of a network after ``minimize``, and a transpiler of them."""

    def __init__(
        self, network=dense, optimizer=lambda: fluid.optimizer.SGD(0.1), maker=fluid.DistributeTranspiler, **c
    ):
        self.main, self.startup = fluid.Program(), fluid.Program()
        self.config = fluid.DistributeTranspilerConfig()
        for name, value in c.items():
            setattr(self.config, name, value)
        with fluid.program_guard(self.main, self.startup), fluid.unique_name.guard():
            loss = network()
            optimizer().minimize(loss)
        self.transpiler = maker(self.config)

    def transpile(self, trainer_id=0, trainers=2, **settings):
        settings = {"pservers": ",".join(SERVERS), "sync_mode": self.config.sync_mode, **settings}
        self.transpiler.transpile(
            trainer_id, program=self.main, startup_program=self.startup, trainers=trainers, **settings
        )
        return self.transpiler

    def trainer(self, **settings):
        return self.transpile(**settings).get_trainer_program(wait_port=False)


def types(program, block=0):
    return [op.type for op in program.block(block).ops]


# --- configuration -----------------------------------------------------------------------------------------------


def test_modes_that_exclude_each_other():
    config = fluid.DistributeTranspilerConfig()
    with pytest.raises(ValueError, match="runtime_split_send_recv cannot be True while sync_mode is"):
        config.runtime_split_send_recv = True
    config.sync_mode = False
    config.runtime_split_send_recv = True
    with pytest.raises(ValueError, match="sync_mode cannot be True while runtime_split_send_recv is"):
        config.sync_mode = True
    for name in ("sync_mode", "runtime_split_send_recv"):
        with pytest.raises(ValueError, match=f"{name} can't be None"):
            setattr(config, name, None)


def test_configurations_that_make_no_sense():
    with pytest.raises(AssertionError, match="at least 8192"):
        Job(min_block_size=100)
    with pytest.raises(AssertionError, match="derived from PSDispatcher"):
        Job(split_method=dict)
    with pytest.raises(TypeError, match="must be an instance of ServerRuntimeConfig"):
        fluid.DistributeTranspiler()._set_server_config({"threads": 3})


def test_threads_of_servers_are_taken_from_the_environment(monkeypatch):
    monkeypatch.setenv("FLAGS_rpc_send_thread_num", "5")
    server = Job().transpile().get_pserver_program(SERVERS[0])
    assert server.global_block().ops[0].attr("rpc_send_thread_num") == 5
    assert server.global_block().ops[0].attr("rpc_get_thread_num") == 12


def test_who_holds_what():
    variables = [fluid.Program().global_block().create_var(name=name) for name in ("w", "b", "v", "c", "u")]
    turns = RoundRobin(["a", "b", "c"])
    assert turns.dispatch(variables) == ["a", "b", "c", "a", "b"] and turns.dispatch(variables[:2]) == ["c", "a"]
    turns.reset()
    assert turns.dispatch(variables[:1]) == ["a"] and turns.eps == ["a", "b", "c"]
    assert HashName(["a", "b", "c"]).dispatch(variables) == ["a", "c", "c", "a", "a"]
    with pytest.raises(NotImplementedError, match=r"no dispatch\(varlist\)"):
        PSDispatcher(["a"]).dispatch(variables)


def test_names_dealt_by_hash():
    """1.8.5 raises TypeError, and would deal differently in each process."""
    job = Job(split_method=HashName)
    placed = job.transpile().param_grad_ep_mapping
    assert sum(len(shard["params"]) for shard in placed.values()) == 5
    names = job.transpiler.param_name_to_grad_name
    assert names == {p.name: f"{p.name}@GRAD" for p in job.main.all_parameters()}
    assert {grad: param for param, grad in names.items()} == job.transpiler.grad_name_to_param_name
    sends = [op for op in job.main.global_block().ops if op.type == "send"]
    where = {name: server for op in sends for name, server in zip(op.input("X"), op.attr("epmap"), strict=True)}
    for server, shard in placed.items():
        assert [p.name for p in shard["params"]] == [
            g.name.replace("@GRAD", "").removesuffix(".trainer_0") for g in shard["grads"]
        ]
        assert {where[g.name] for g in shard["grads"]} <= {server}


@pytest.mark.parametrize(
    "shape, servers, least, sizes",
    [
        ([45, 400], 2, 8192, [9200, 8800]),
        ([10], 2, 8192, [10]),
        ([100], 3, 10, [34, 34, 32]),
        ([7, 100], 4, 100, [200, 200, 200, 100]),
        ([9, 1000], 4, 1000, [3000, 3000, 3000]),
    ],
)
def test_blocks(shape, servers, least, sizes):
    var = fluid.Program().global_block().create_var(name="w:x", shape=shape, dtype="float32")
    found = fluid.transpiler.distribute_transpiler.slice_variable([var], servers, least)
    assert found == [f"w:x:{number}:{size}" for number, size in enumerate(sizes)]


# --- trainers and servers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", [fluid.optimizer.Lamb, fluid.optimizer.Adadelta])
def test_optimizers_that_servers_do_not_have(optimizer):
    with pytest.raises(ValueError, match="Not supported optimizer for distributed training: (lamb|adadelta)"):
        Job(optimizer=lambda: optimizer(0.1)).transpile()


def test_a_distributed_table_is_updated_by_plain_descent():
    """Whatever the optimizer: neither clipped nor decayed, before the others; as 1.8.5 writes it."""
    job = Job(
        lambda: loss_of(fluid.layers.embedding(ids(), [1000, 32], is_sparse=True, is_distributed=True, param_attr="t")),
        lambda: fluid.optimizer.Adam(
            0.1, regularization=fluid.regularizer.L2Decay(0.1), grad_clip=fluid.clip.GradientClipByValue(1.0)
        ),
    )
    ops = job.main.global_block().ops
    (table,) = [op for op in ops if op.type == "sgd"]
    assert table.input("Param") == ["t"] and table.input("Grad") == ["t@GRAD"]
    after = [op.type for op in ops[ops.index(table) + 1 :]]
    assert after[:2] == ["clip", "clip"] and after.count("adam") == 2
    assert not [op for op in ops if op.type == "clip" and op.input("X") == ["t@GRAD"]]


def test_more_servers_than_trainers_count_steps():
    """A fleet's server transpiles with its own number, which need not be that of a trainer."""
    job = Job(optimizer=lambda: fluid.optimizer.SGD(fluid.layers.exponential_decay(0.1, 10, 0.5)), sync_mode=False)
    transpiler = job.transpile(trainer_id=1, trainers=1)
    assert transpiler.counter_var is None
    assert types(transpiler.get_pserver_program(SERVERS[1]), 1)[0] == "sum"


def test_servers_have_dpsgd():
    server = Job(optimizer=lambda: fluid.optimizer.Dpsgd(0.1, 10.0, 4.0, 1.0), sync_mode=False).transpile()
    assert types(server.get_pserver_program(SERVERS[0]), 1) == ["dpsgd"]


def test_what_is_no_server():
    with pytest.raises(ValueError, match="127.0.0.1:9 is no server of this job"):
        Job().transpile().get_pserver_program("127.0.0.1:9")


def test_a_schedule_with_blocks_that_have_variables_of_their_own():
    """1.8.5 fails an assertion when it clones them."""
    job = Job(optimizer=lambda: fluid.optimizer.SGD(fluid.layers.linear_lr_warmup(0.1, 10, 0.01, 0.1)))
    server = job.transpile().get_pserver_program(SERVERS[0])
    decay = server.block(1)
    assert [op._block_attr_id("sub_block") for op in decay.ops if op.has_attr("sub_block")] == [2, 3]
    assert types(server, 2) == ["scale", "scale", "scale", "assign"] and server.block(2).parent_idx == 1
    assert server.global_block().ops[0].attr("lr_decay_block_id") == 1


def test_a_sparse_nce_is_told_where_the_rows_of_its_weights_are():
    """1.8.5 looks for W in it, and raises."""

    def network():
        x = fluid.layers.reshape(embedding(ids("word")), [-1, 32])
        settings = {"param_attr": "classes", "bias_attr": "b", "is_sparse": True}
        return fluid.layers.mean(fluid.layers.nce(x, ids(), 1000, **settings))

    job = Job(network)
    main = job.trainer(trainer_id=1)
    (op,) = (op for op in main.global_block().ops if op.type == "nce")
    names = ("epmap", "table_names", "height_sections", "trainer_id")
    expected = [SERVERS[::-1], ["classes.block0", "classes.block1"], [500, 500], 1]
    assert [op.attr(name) for name in names] == expected
    received = [name for op in main.global_block().ops if op.type == "recv" for name in op.output_arg_names]
    assert received == ["b"]
    (fake,) = (op for op in job.startup.global_block().ops if op.output_arg_names == ["classes"])
    assert (fake.type, fake.attr("shape")) == ("fake_init", [1000, 32])
    server = Job(network).transpile().get_pserver_program(SERVERS[0])
    assert "classes.block1" in [name for block in server.blocks for op in block.ops for name in op.input_arg_names]


def test_delay_compensation_needs_dense_gradients_and_asynchronous_servers():
    job = Job(lambda: loss_of(embedding(ids())), sync_mode=False, enable_dc_asgd=True)
    with pytest.raises(ValueError, match="dc_asgd cannot correct table@GRAD"):
        [job.transpile().get_pserver_program(server) for server in SERVERS]
    with pytest.raises(AssertionError, match="expected an asynchronous mode"):
        Job(enable_dc_asgd=True).transpile().get_pserver_program(SERVERS[0])


def test_lookups_that_wait_for_each_other_stay_in_order():
    """1.8.5 merges them into one op, after what reads its results."""

    def network():
        first = embedding(ids())
        second = embedding(fluid.layers.cast(fluid.layers.reduce_sum(first, -1), "int64"))
        return loss_of(fluid.layers.concat([first, second], 1))

    ops = Job(network).trainer().global_block().ops
    lookups = [i for i, op in enumerate(ops) if op.type == "distributed_lookup_table"]
    assert len(lookups) == 2 and ops[lookups[0]].output("Outputs") != ops[lookups[1]].output("Outputs")
    for index in lookups:
        reads = [i for i, op in enumerate(ops) if set(ops[index].output("Outputs")) & set(op.input_arg_names)]
        writes = [i for i, op in enumerate(ops) if set(ops[index].input("Ids")) & set(op.output_arg_names)]
        assert max(writes, default=-1) < index < min(reads)


def test_a_frozen_table_keeps_its_values():
    """1.8.5 throws away what initialises it, and nobody sends any."""
    job = Job(
        lambda: loss_of(
            fluid.layers.embedding(
                ids(),
                [100, 8],
                is_sparse=True,
                param_attr=fluid.ParamAttr("table", trainable=False, initializer=Constant(3)),
            )
        )
    )
    job.trainer()
    assert "fake_init" not in types(job.startup)
    assert any(op.output_arg_names == ["table"] for op in job.startup.global_block().ops)


def test_a_table_is_initialised_once():
    job = Job(lambda: loss_of(embedding(ids())))
    table = job.startup.global_block().var("table")
    fluid.initializer.Constant(4)(table, job.startup.global_block())
    with pytest.raises(ValueError, match="table table is initialised by 2 ops"):
        job.trainer()


def test_servers_first_then_trainer():
    """1.8.5 writes the shapes of blocks into the trainer's startup program."""
    job = Job()
    transpiler = job.transpile()
    main, startup = transpiler.get_pserver_programs(SERVERS[1])
    whole = next(op for op in job.startup.global_block().ops if op.output_arg_names == ["fc_0.w_0"])
    part = next(op for op in startup.global_block().ops if "fc_0.w_0.block" in op.output_arg_names[0])
    assert whole.attr("shape") == [32, 600] and part.attr("shape") == [16, 600]
    assert transpiler.get_startup_program(SERVERS[1], main).fingerprint() == startup.fingerprint()


def test_two_kinds_of_lookups_in_a_distributed_table():
    def network(second):
        tables = [
            fluid.layers.embedding(ids(f"ids_{k}"), [100, 8], is_distributed=flag, is_sparse=True, param_attr=name)
            for k, (name, flag) in enumerate([("a", True), second])
        ]
        return loss_of(fluid.layers.concat(tables, 1))

    for second in (("a", False), ("b", True)):
        with pytest.raises(RuntimeError, match="all distributed lookup_table_ops should have only one table"):
            Job(lambda second=second: network(second)).transpile()


def test_programs_for_servers_are_written_read_and_printed():
    server = Job().transpile().get_pserver_program(SERVERS[0])
    read = fluid.Program.parse_from_string(server.desc.serialize_to_string())
    assert read.proto == server.proto and types(read) == ["listen_and_serv"]
    assert read.global_block().ops[0]._blocks_attr_ids("optimize_blocks") == [1, 2, 3]
    assert "listen_and_serv" in str(read) and "Fanin" in str(read)


# --- geo -----------------------------------------------------------------------------------------------------------


def test_geo_names_ids_once_per_table_and_pass():
    def network():
        tables = [
            fluid.layers.embedding(ids(), [100, 8], is_sparse=sparse, param_attr=name)
            for name, sparse in (("a", True), ("b", True), ("c", False))
        ]
        return loss_of(fluid.layers.concat(tables, 1))

    job = Job(network, maker=GeoSgdTranspiler, sync_mode=False)
    send = job.trainer(sync_mode=False).global_block().ops[-1]
    assert send.attr("send_varnames") == ["a", "b", "a"] and send.input("X") == ["ids"] * 3
    assert types(job.startup)[-1] == "send"


def test_geo_leaves_other_ops_that_may_be_sparse_alone():
    """1.8.5 looks for Ids in nce."""

    def network():
        return fluid.layers.mean(fluid.layers.nce(fluid.data("x", [None, 32]), ids(), 1000))

    assert Job(network, maker=GeoSgdTranspiler, sync_mode=False).trainer().global_block().ops[-1].input("X") == []


# --- workers among themselves --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings, error",
    [
        ({"trainers": "a:1"}, "invalid trainer number in distributed: 1"),
        ({"trainers": 2}, "invalid trainers config: 2"),
        ({"trainers": "a:1,b:1", "current_endpoint": "c:1"}, "current endpoint c:1 is not in"),
        ({"trainers": "a:1,b:1", "current_endpoint": "a:1", "trainer_id": -1}, "rank must >= 0"),
    ],
)
def test_workers_that_do_not_fit(settings, error):
    with pytest.raises(ValueError, match=error):
        Job(mode="collective", collective_mode="grad_allreduce", wait_port=False).transpile(**settings)


def test_a_mode_that_is_none():
    with pytest.raises(ValueError, match="invalid collective_mode: gossip"):
        Job(mode="collective", collective_mode="gossip").transpile(trainers="a:1,b:1")


def test_local_sgd_averages_what_any_optimizer_updates():
    """1.8.5 overlooks Adadelta, which takes no learning rate."""
    job = Job(
        optimizer=lambda: fluid.optimizer.Adadelta(0.1), mode="collective", collective_mode="local_sgd", wait_port=False
    )
    job.transpile(trainers="a:1,b:1", current_endpoint="a:1")
    assert types(job.main).count("c_allreduce_sum") == len(job.main.all_parameters()) == 4
    assert "c_broadcast" in types(job.startup) and "c_broadcast" not in types(job.startup._origin_program)


def test_nccl2_notes_the_workers():
    config = {"mode": "nccl2", "wait_port": False, "use_hierarchical_allreduce": True}
    job = Job(hierarchical_allreduce_inter_nranks=2, **config)
    before = job.main.proto.SerializeToString()
    assert job.transpile(trainers="a:1,a:2,b:1,b:2", current_endpoint="a:1") is job.transpiler
    assert job.main.proto.SerializeToString() == before
    assert (job.main._trainers_endpoints, job.main._hierarchical_allreduce_inter_nranks) == (
        ["a:1", "a:2", "b:1", "b:2"],
        2,
    )
    with pytest.raises(AssertionError, match="mod hierarchical"):
        Job(hierarchical_allreduce_inter_nranks=2, **config).transpile(trainers="a:1,a:2,b:1", current_endpoint="a:1")
    with pytest.raises(AssertionError, match="expected endpoints"):
        Job(**config).transpile(trainers=2)
    with pytest.raises(ValueError, match="must set trainer_id > 0"):
        Job(**config).transpile(trainers="a:1,b:1", trainer_id=-1)


def test_a_server_averages_its_part_of_a_parameter():
    job = Job()
    with fluid.program_guard(job.main, job.startup):
        fluid.optimizer.ModelAverage(0.15, min_average_window=2, max_average_window=10)
    transpiler = job.transpile(trainers=2, pservers=",".join(SERVERS))
    for endpoint in SERVERS:
        program = transpiler.get_pserver_program(endpoint)
        startup = transpiler.get_startup_program(endpoint, program)
        made = {op.output("Out")[0]: op.attr("shape") for op in startup.global_block().ops}
        averages = [op for block in program.blocks for op in block.ops if op.type == "average_accumulates"]
        for op in averages:
            shape = list(program.global_block().var(op.input("param")[0]).shape)
            assert [made[op.output(f"out_sum_{i}")[0]] for i in (1, 2, 3)] == [shape] * 3
        assert any(".block" in op.input("param")[0] for op in averages)


@pytest.mark.parametrize("mode", ["nccl2", "collective"])
def test_a_divided_table_of_trainers_without_servers_is_said_to_be_whole(mode):
    """Fluid trains it whole, too, and says nothing; devices of one process divide it."""
    settings = {"mode": mode, "collective_mode": "grad_allreduce", "wait_port": False}
    job = Job(lambda: loss_of(embedding(ids(), is_distributed=True)), **settings)
    with pytest.warns(UserWarning, match="table is not divided among 2 trainers"):
        job.transpile(trainers="a:1,b:1", current_endpoint="b:1", trainer_id=1)


@pytest.mark.parametrize("mode, meaning", [("nccl2", "each has the whole"), ("collective", "nor its gradients are")])
def test_a_parameter_that_the_user_divides_is_said_to_be_each_trainers(mode, meaning):
    """Fluid's collective programs leave it out of broadcasts and sums; those of nccl2 do not look at it."""
    job = Job(mode=mode, collective_mode="grad_allreduce", wait_port=False)
    job.main.global_block().var("fc_0.w_0").is_distributed = True
    with pytest.warns(UserWarning, match=f"fc_0.w_0 is not divided among 2 trainers: .*{meaning}") as found:
        job.transpile(trainers="a:1,b:1", current_endpoint="b:1", trainer_id=1)
    assert [warning.filename for warning in found] == [__file__]
    exchanged = [op.input("X")[0] for op in job.main.global_block().ops if op.type == "c_allreduce_sum"]
    expected = ["fc_0.b_0@GRAD", "fc_1.b_0@GRAD", "fc_1.w_0@GRAD"]
    assert sorted(exchanged) == (expected if mode == "collective" else [])
