"""Labels and ids out of range and integer divisors of zero are errors, and the step that finds one changes nothing."""

from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
import lowering
from fluidjax.execution.runs.mode import interpret_mode
from tests.executor.conftest import Net, ragged

pytestmark = pytest.mark.usefixtures("compiled_quickly")

layers = fluid.layers
FAR = 2**32 + 1  # what a cast to int32 would make a 1

X = np.linspace(0.1, 0.9, 12, dtype=np.float32).reshape(4, 3)
P = X / X.sum(1, keepdims=True)


def column(*ids: int, dtype: str = "int64") -> np.ndarray:
    return np.array(ids, dtype).reshape(-1, 1)


def seq(rows: np.ndarray, *lengths: int) -> fluid.LoDTensor:
    return ragged(rows, list(lengths))


# op type, its inputs with ids that are right, the output fetched, attributes, the input under test, and values of its
# element 1 that Paddle 1.8.5 refuses (or answers by reading and writing foreign memory), and those that it takes.
CASES: dict[str, tuple[Any, ...]] = {
    "softmax_with_cross_entropy": (
        {"Logits": X, "Label": column(0, 1, 2, 0)},
        "Loss",
        {"ignore_index": 7},
        "Label",
        (3, -1, FAR),
        (2, 7),
    ),
    "cross_entropy": ({"X": P, "Label": column(0, 1, 2, 0)}, "Y", {}, "Label", (3, -1, FAR), (2, -100)),
    "cross_entropy2": ({"X": P, "Label": column(0, 1, 2, 0)}, "Y", {}, "Label", (3, -1, FAR), (2, -100)),
    "lookup_table": ({"W": X, "Ids": column(0, 1)}, "Out", {"padding_idx": 9}, "Ids", (4, -1, 2**33), (3, 9)),
    "lookup_table_v2": ({"W": X, "Ids": column(0, 1)}, "Out", {}, "Ids", (4, -1, 2**33), (3,)),
    "gather": ({"X": X, "Index": np.array([0, 1])}, "Out", {}, "Index", (4, -1, FAR), (3,)),
    "gather_nd": ({"X": X, "Index": np.array([[0, 1]])}, "Out", {}, "Index", (3, -1, FAR), (2,)),
    "scatter": ({"X": X, "Ids": np.array([0, 1]), "Updates": X[:2]}, "Out", {}, "Ids", (4, -1, FAR), (3,)),
    "scatter_nd_add": ({"X": X, "Index": column(0, 1), "Updates": X[:2]}, "Out", {}, "Index", (4, -1, FAR), (3,)),
    "index_select": ({"X": X, "Index": np.array([0, 1])}, "Out", {"dim": 1}, "Index", (3, -1, FAR), (2,)),
    "index_sample": ({"X": X, "Index": column(0, 1, 2, 0)}, "Out", {}, "Index", (3, -1, FAR), (2,)),
    "multiplex": ({"Ids": column(0, 1, 1, 0, dtype="int32"), "X": [X, P]}, "Out", {}, "Ids", (2, -1), (0,)),
    "shard_index": (
        {"X": column(0, 1)},
        "Out",
        {"index_num": 4, "nshards": 2, "shard_id": 0},
        "X",
        (4, FAR),
        (3, -1),
    ),
    "gather_tree": (
        {"Ids": np.zeros((2, 1, 2), np.int64), "Parents": np.zeros((2, 1, 2), np.int64)},
        "Out",
        {},
        "Parents",
        (2, -1),
        (1,),
    ),
    "sequence_slice": (
        {"X": seq(np.ones((6, 2), np.float32), 3, 3), "Offset": column(0, 0), "Length": column(1, 2)},
        "Out",
        {},
        "Length",
        (4, -1, FAR),
        (3, 0),
    ),
    "sequence_scatter": (
        {"X": X[:2], "Ids": seq(column(0, 1, 2, 1), 2, 2), "Updates": seq(X[:, :1], 2, 2)},
        "Out",
        {},
        "Ids",
        (3, -1, FAR),
        (2,),
    ),
    "one_hot": ({"X": column(0, 1)}, "Out", {"depth": 3}, "X", (3, -1, FAR), (2,)),
    "one_hot_v2": ({"X": column(0, 1)}, "Out", {"depth": 3}, "X", (3, -1, FAR), (2,)),
    "accuracy": (
        {"Out": X[:, :1], "Indices": column(0, 1, 2, 0), "Label": column(0, 1, 2, 0)},
        "Accuracy",
        {},
        "Label",
        (-1,),
        (3, FAR),
    ),
    "mean_iou": (
        {"Predictions": np.array([0, 1], "int32"), "Labels": np.array([0, 1], "int32")},
        "OutMeanIou",
        {"num_classes": 3},
        "Labels",
        (3, -1),
        (2,),
    ),
    "nce": (
        {"Input": X, "Label": column(0, 1, 2, 0), "Weight": X[:3]},
        "Cost",
        {"num_total_classes": 3, "num_neg_samples": 2, "seed": 1},
        "Label",
        (3, -1, FAR),
        (2,),
    ),
    "hierarchical_sigmoid": (
        {"X": X, "W": X[:2], "Label": column(0, 1, 2, 0)},
        "Out",
        {"num_classes": 3},
        "Label",
        (3, -1, FAR),
        (2,),
    ),
    "sample_logits": (
        {"Logits": X, "Labels": column(0, 1, 2, 0)},
        "SampledLogits",
        {"num_samples": 2, "seed": 1},
        "Labels",
        (3, -1, FAR),
        (2,),
    ),
    "bpr_loss": ({"X": P, "Label": column(0, 1, 2, 0)}, "Y", {}, "Label", (3, -1, FAR), (2,)),
    "nll_loss": ({"X": X, "Label": np.array([0, 1, 2, 0])}, "Out", {}, "Label", (3, -1, FAR), (2, -100)),
    "center_loss": (
        {"X": X, "Label": column(0, 1, 2, 0), "Centers": X[:3], "CenterUpdateRate": X[0, :1]},
        "Loss",
        {"cluster_num": 3, "need_update": True},
        "Label",
        (3, -1, FAR),
        (2,),
    ),
    "linear_chain_crf": (
        {
            "Emission": seq(X, 2, 2),
            "Transition": np.ones((5, 3), np.float32),
            "Label": seq(column(0, 1, 2, 0), 2, 2),
        },
        "LogLikelihood",
        {},
        "Label",
        (3, -1, FAR),
        (2,),
    ),
    "warpctc": (
        {"Logits": seq(X, 4), "Label": seq(column(1, 2, dtype="int32"), 2)},
        "Loss",
        {},
        "Label",
        (3, -1),
        (1,),
    ),
    "tdm_child": (
        {"X": column(0, 1, dtype="int32"), "TreeInfo": np.zeros((3, 5), np.int32)},
        "Child",
        {"child_nums": 2},
        "X",
        (3, -1),
        (2,),
    ),
    "fused_embedding_seq_pool": ({"W": X, "Ids": seq(column(0, 1), 2)}, "Out", {}, "Ids", (4, -1, FAR), (3,)),
    "elementwise_div": ({"X": np.array([4, 5]), "Y": np.array([2, 1])}, "Out", {}, "Y", (0,), (-1,)),
    "elementwise_mod": ({"X": np.array([4, 5]), "Y": np.array([2, 1])}, "Out", {}, "Y", (0,), (3,)),
    "elementwise_floordiv": ({"X": np.array([4, 5]), "Y": np.array([2, 1])}, "Out", {}, "Y", (0,), (3,)),
}


def with_value(given: Any, value: int) -> Any:
    """``given`` with its element 1 replaced."""
    rows = np.array(given)
    rows.reshape(-1)[1] = value
    return seq(rows, *given.recursive_sequence_lengths()[-1]) if isinstance(given, fluid.LoDTensor) else rows


def single_op(net: Net, type: str, computed: bool) -> tuple[dict[str, Any], str, str]:
    """(the feeds of a program of one op, the variable under test, the fetch); ``computed``: it is fed plus zero."""
    inputs, out, attrs, slot, _, _ = CASES[type]
    feeds, bound = {}, {}
    for name, value in inputs.items():
        values = value if isinstance(value, list) else [value]
        bound[name] = [f"{name}{i}" for i in range(len(values))]
        for variable, one in zip(bound[name], values, strict=True):
            level = 1 if isinstance(one, fluid.LoDTensor) else 0
            net.data(variable, [-1, *np.shape(np.array(one))[1:]], str(np.array(one).dtype), level)
            feeds[variable] = one
    if computed:
        kind = str(np.array(feeds[slot + "0"]).dtype)
        net.block.create_var(name="nothing", shape=[1], dtype=kind)
        net.block.append_op(
            type="fill_constant",
            outputs={"Out": ["nothing"]},
            attrs={"shape": [1], "dtype": fluid.framework.convert_np_dtype_to_dtype_(kind), "value": 0.0},
        )
        net.block.create_var(name="ids", dtype=kind)
        net.op("elementwise_add", {"X": bound[slot], "Y": ["nothing"]}, "ids")
        bound[slot] = ["ids"]
    outputs = {slot.name: ["out" if slot.name == out else slot.name] for slot in lowering.get_op(type).outputs}
    for (name,) in outputs.values():
        net.block.create_var(name=name, dtype="float32")
    net.block.append_op(type=type, inputs=bound, outputs=outputs, attrs=attrs)
    return feeds, bound[slot][0], slot + "0"


@pytest.mark.parametrize("computed", [False, True], ids=["fed", "computed"])
@pytest.mark.parametrize("type", CASES)
def test_an_op_refuses_what_it_cannot_take(net: Net, type: str, computed: bool) -> None:
    feeds, variable, fed = single_op(net, type, computed)
    refused, taken = CASES[type][4:]
    for value in refused:
        with pytest.raises(fluid.core.EnforceNotMet) as caught:
            net.run({**feeds, fed: with_value(feeds[fed], value)}, ["out"], return_numpy=False)
        text = str(caught.value)
        assert f"op {type} (#" in text and f"cannot take the value {value} of {variable!r}" in text
        assert "test_checks.py" in text and "expected: " in text and "to do: " in text
    for value in taken:
        net.run({**feeds, fed: with_value(feeds[fed], value)}, ["out"], return_numpy=False)


@pytest.mark.parametrize("computed", [False, True], ids=["fed", "computed"])
@pytest.mark.parametrize("type", ["gather_nd", "sequence_slice", "sequence_scatter", "elementwise_div"])
def test_op_by_op_refuses_the_same(net: Net, type: str, computed: bool) -> None:
    feeds, variable, fed = single_op(net, type, computed)
    for value in CASES[type][4]:
        with interpret_mode(), pytest.raises(fluid.core.EnforceNotMet, match=f"value {value} of '{variable}'"):
            net.run({**feeds, fed: with_value(feeds[fed], value)}, ["out"])


def test_floats_are_divided_by_zero(net: Net) -> None:
    net.data("x", [-1])
    net.data("y", [-1])
    net.op("elementwise_div", {"X": ["x"], "Y": ["y"]}, "z")
    (z,) = net.run({"x": np.ones(2, np.float32), "y": np.array([2, 0], np.float32)}, ["z"])
    np.testing.assert_array_equal(z, [0.5, np.inf])


def test_padded_labels_may_hold_anything_behind_their_length(net: Net) -> None:
    net.data("logits", [4, 2, 3])
    net.data("label", [2, 2], "int32")
    for name in ("frames", "sizes"):
        net.data(name, [2], "int64")
    inputs = {"Logits": ["logits"], "Label": ["label"], "LogitsLength": ["frames"], "LabelLength": ["sizes"]}
    net.block.create_var(name="grad", dtype="float32")
    net.block.create_var(name="loss", dtype="float32")
    net.block.append_op(type="warpctc", inputs=inputs, outputs={"Loss": ["loss"], "WarpCTCGrad": ["grad"]})
    feed = {"logits": np.zeros((4, 2, 3), np.float32), "frames": np.array([4, 4]), "sizes": np.array([1, 2])}
    net.run({**feed, "label": np.array([[1, -1], [1, 2]], np.int32)}, ["loss"])
    with pytest.raises(fluid.core.EnforceNotMet, match="value -1 of 'label'"):
        net.run({**feed, "label": np.array([[1, -1], [1, -1]], np.int32)}, ["loss"])


# --- training -----------------------------------------------------------------------------------------------------

GOOD = {"x": column(1, 2, 3), "y": column(0, 1, 2)}
BAD = {
    "id": {"x": column(1, 10, 3)},
    "wide id": {"x": column(1, 2**33, 3)},
    "negative id": {"x": column(1, -4, 3)},
    "label": {"y": column(0, 3, 1)},
}


class Training:
    """A classifier of embedded ids in a scope of its own; ``computed``: zero is added to the fed ids and labels."""

    def __init__(self, computed: bool, sparse: bool = False, rows: int = 10):
        self.main, startup = fluid.Program(), fluid.Program()
        self.main.random_seed = startup.random_seed = 3
        with fluid.unique_name.guard(), fluid.program_guard(self.main, startup):
            x, y = fluid.data("x", [None, 1], "int64"), fluid.data("y", [None, 1], "int64")
            zero = layers.fill_constant([1], "int64", 0)
            ids, label = (layers.elementwise_add(x, zero), layers.elementwise_add(y, zero)) if computed else (x, y)
            embedded = layers.embedding(ids, [rows, 8], is_sparse=sparse)
            self.loss = layers.mean(layers.cross_entropy(layers.fc(embedded, 3, act="softmax"), label))
            fluid.optimizer.Adam(0.1).minimize(self.loss)
        self.scope, self.exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
        self.exe.run(startup, scope=self.scope)

    def step(self, **feed: Any) -> Any:
        return self.exe.run(self.main, feed={**GOOD, **feed}, fetch_list=[self.loss], scope=self.scope)[0]

    def state(self) -> dict[str, np.ndarray]:
        names = [v.name for v in self.main.list_vars() if v.persistable]
        return {n: np.array(self.scope.find_var(n).get_tensor()) for n in names}

    @property
    def prepared(self) -> Any:
        (found,) = self.main.__dict__["_prepared_cache"].values()
        return found

    @property
    def checks(self) -> Any:
        (compiled,) = self.prepared._whole.compiled._ready.values()
        return compiled.checks


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("computed", [False, True], ids=["fed", "computed"])
def test_a_step_that_fails_leaves_the_state(computed: bool, sparse: bool) -> None:
    failing, calm = Training(computed, sparse), Training(computed, sparse)
    for bad in BAD.values():
        before = failing.state()
        with pytest.raises(fluid.core.EnforceNotMet):
            failing.step(**bad)
        after = failing.state()
        for name, value in before.items():
            np.testing.assert_array_equal(value, after[name], err_msg=name)
        np.testing.assert_array_equal(failing.step(), calm.step())
    assert failing.prepared.compilations == calm.prepared.compilations == 1


def test_fed_ids_add_nothing_to_the_compiled_step() -> None:
    training = Training(False)
    training.step()
    checks = training.checks
    assert len(checks.watch.on_host) == len(checks.limits) == 2 and not checks.watch.faults and not checks.others


@pytest.mark.parametrize("computed", [False, True], ids=["fed", "computed"])
def test_rows_of_ids_that_are_checked_before_the_step_are_not_masked(computed: bool) -> None:
    training = Training(computed)
    training.step()
    (compiled,) = training.prepared._whole.compiled._ready.values()
    assert ("constant(nan)" in compiled.executable.compiled.as_text()) == computed


def test_rows_are_masked_where_nothing_is_checked() -> None:
    fluid.set_flags({"FLAGS_check_values": False})
    try:
        assert np.isnan(Training(False).step(x=column(1, 10, 3))).all()
    finally:
        fluid.set_flags({"FLAGS_check_values": True})


ROWS = 40_000


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_large_state_is_kept_by_a_step_that_fails(sparse: bool) -> None:
    training = Training(True, sparse, ROWS)
    training.step()
    assert len(training.checks.watch.faults) == 2
    before = training.state()
    for bad in ({"x": column(1, ROWS, 3)}, {"x": column(1, -2, 3)}, {"y": column(0, 3, 1)}):
        with pytest.raises(fluid.core.EnforceNotMet, match=r"cannot take the value"):
            training.step(**bad)
    after = training.state()
    for name, value in before.items():
        np.testing.assert_array_equal(value, after[name], err_msg=name)
    training.step()
    assert training.prepared.compilations == 1


@pytest.mark.parametrize("network", [False, True], ids=["computed", "of a network"])
def test_a_checked_update_of_a_few_rows_copies_no_table(network: bool) -> None:
    """What the step itself checks, it updates in place as if nothing were checked."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 8], "float32")
        chosen = layers.fc(x, 16, param_attr=fluid.initializer.Constant(1.0)) if network else x
        ids = layers.cast(layers.reduce_sum(chosen, dim=1, keep_dim=True), "int64")
        loss = layers.mean(layers.square(layers.embedding(ids, [ROWS, 8], is_sparse=True)))
        fluid.optimizer.SGD(0.1).minimize(loss)
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    exe.run(startup, scope=scope)
    (table,) = (v.name for v in main.list_vars() if v.persistable and v.shape == (ROWS, 8))
    good, bad = np.ones((2, 8), np.float32), np.full((2, 8), ROWS, np.float32)
    for _ in range(2):
        exe.run(main, feed={"x": good}, fetch_list=[loss], scope=scope)
    before = np.array(scope.find_var(table).get_tensor())
    with pytest.raises(fluid.core.EnforceNotMet, match="cannot take the value"):
        exe.run(main, feed={"x": bad}, fetch_list=[loss], scope=scope)
    np.testing.assert_array_equal(before, np.array(scope.find_var(table).get_tensor()))
    (prepared,) = main.__dict__["_prepared_cache"].values()
    state = prepared._compilations.state()
    (compiled,) = state.compiled.values()
    assert len(compiled.checks.watch.faults) == 1
    memory = compiled.executable.compiled.memory_analysis()
    assert memory.temp_size_in_bytes < before.nbytes / 4


def test_the_flag_turns_the_checks_off() -> None:
    training = Training(False)
    fluid.set_flags({"FLAGS_check_values": False})
    try:
        assert np.isfinite(training.step(y=column(0, 3, 1))).all()
    finally:
        fluid.set_flags({"FLAGS_check_values": True})
    with pytest.raises(fluid.core.EnforceNotMet):
        training.step(y=column(0, 3, 1))


def test_another_size_of_a_table_has_its_own_bound(net: Net) -> None:
    net.data("ids", [-1, 1], "int64")
    net.parameter("w", np.ones((4, 2), np.float32))
    net.op("lookup_table_v2", {"W": ["w"], "Ids": ["ids"]}, "out")
    net.run({"ids": column(3)}, ["out"])
    net.set("w", np.ones((2, 2), np.float32))
    with pytest.raises(fluid.core.EnforceNotMet, match="< 2"):
        net.run({"ids": column(3)}, ["out"])
    net.set("w", np.ones((4, 2), np.float32))
    net.run({"ids": column(3)}, ["out"])


# --- blocks -------------------------------------------------------------------------------------------------------


def table() -> Any:
    return layers.create_parameter([4, 2], "float32", name="table", default_initializer=fluid.initializer.Constant(1))


def loop(x: Any, n: Any) -> Any:
    """Gathers x in each of n steps, and x + 1 from the third step on."""
    total, i, w = layers.fill_constant([1, 2], "float32", 0), layers.fill_constant([1], "int64", 0), table()

    def body(i: Any, total: Any) -> list[Any]:
        late = layers.cast(layers.greater_than(i, layers.fill_constant([1], "int64", 1)), "int64")
        taken = layers.gather(w, layers.reshape(x, [1]) + late)
        return [layers.increment(i, in_place=False), total + taken]

    return layers.while_loop(lambda i, total: layers.less_than(i, n), body, [i, total])[1]


def branch(x: Any, n: Any) -> Any:
    """Gathers x where n > 2, else 0."""
    w, zero = table(), layers.fill_constant([1], "int64", 0)
    rows = layers.reshape(x, [1])
    taken = layers.greater_than(n, layers.fill_constant([1], "int64", 2))
    return layers.cond(taken, lambda: layers.gather(w, rows), lambda: layers.gather(w, zero))


def recurrence(x: Any, n: Any) -> Any:
    """Gathers n of the rows x, x + 1, x + 2 in a StaticRNN over three steps."""
    w, rnn = table(), layers.StaticRNN()
    steps = layers.reshape(x, [1, 1]) + layers.assign(np.array([[0], [1], [2]]))
    over = layers.cast(layers.less_than(layers.assign(np.array([[0], [1], [2]])), n), "int64")
    ids = steps * over
    with rnn.step():
        ids = rnn.step_input(ids)
        rnn.step_output(layers.gather(w, ids))
    return rnn()


BLOCKS = {
    # builder, (x, n) that are right, (x, n, value refused)
    "while": (loop, [(3, 2), (2, 5)], [(3, 3, 4), (-1, 1, -1)]),
    "branch": (branch, [(3, 3), (9, 1)], [(4, 3, 4), (-1, 5, -1)]),
    "recurrent": (recurrence, [(1, 3), (2, 2), (9, 0)], [(2, 3, 4), (-1, 1, -1)]),
}


@pytest.mark.parametrize("trained", [False, True], ids=["forward", "trained"])
@pytest.mark.parametrize("kind", BLOCKS)
def test_blocks_carry_faults_out_and_what_does_not_run_has_none(kind: str, trained: bool) -> None:
    build, right, wrong = BLOCKS[kind]
    main, startup = fluid.Program(), fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x, n = fluid.data("x", [1, 1], "int64"), fluid.data("n", [1], "int64")
        loss = layers.mean(build(x, n))
        if trained:
            fluid.optimizer.SGD(0.1).minimize(loss)
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    exe.run(startup, scope=scope)

    def run(x: int, n: int) -> None:
        exe.run(main, feed={"x": column(x), "n": np.array([n])}, fetch_list=[loss], scope=scope)

    for x_, n_ in right:
        run(x_, n_)
    before = np.array(scope.find_var("table").get_tensor())
    for x_, n_, value in wrong:
        with pytest.raises(fluid.core.EnforceNotMet, match=rf"op gather .*the value {value} of"):
            run(x_, n_)
    np.testing.assert_array_equal(before, np.array(scope.find_var("table").get_tensor()))
    run(*right[0])


def test_a_dynamic_rnn_carries_faults_out() -> None:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 1], "int64", lod_level=1)
        rnn = layers.DynamicRNN()
        with rnn.block():
            rows = layers.embedding(rnn.step_input(x), [4, 3])
            memory = rnn.memory(shape=[3], value=0.0)
            after = layers.elementwise_add(memory, rows)
            rnn.update_memory(memory, after)
            rnn.output(after)
        loss = layers.mean(layers.sequence_last_step(rnn()))
        fluid.optimizer.SGD(0.1).minimize(loss)
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    exe.run(startup, scope=scope)

    def run(ids: list[int], lengths: list[int]) -> None:
        exe.run(main, feed={"x": ragged(column(*ids), lengths)}, fetch_list=[loss], scope=scope)

    run([0, 1, 2, 3, 0], [3, 2])
    with pytest.raises(fluid.core.EnforceNotMet, match="op lookup_table.* the value 4 of"):
        run([0, 1, 2, 4, 0], [3, 2])


def test_segments_that_are_recomputed_are_checked_once() -> None:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 1], "int64")
        rows = layers.embedding(x + 0, [4, 3])
        hidden = layers.fc(rows, 3, act="tanh")
        loss = layers.mean(layers.fc(layers.fc(hidden, 3, act="tanh"), 3))
        optimizer = fluid.optimizer.RecomputeOptimizer(fluid.optimizer.SGD(0.1))
        optimizer._set_checkpoints([hidden])
        optimizer.minimize(loss)
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    exe.run(startup, scope=scope)
    assert sum(op.type == "lookup_table" for op in main.global_block().ops) == 2
    exe.run(main, feed={"x": column(0, 3)}, fetch_list=[loss], scope=scope)
    with pytest.raises(fluid.core.EnforceNotMet, match="op lookup_table.* the value 4 of"):
        exe.run(main, feed={"x": column(0, 4)}, fetch_list=[loss], scope=scope)


@pytest.mark.parametrize("lengths", [[3, 2], [0, 0], [0, 1], [4, 5]])
def test_padding_rows_are_no_ids(lengths: list[int]) -> None:
    """Without any row the padding holds zeros; ids from 1 on must not be held against them."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 1], "int64", lod_level=1)
        whole = layers.elementwise_floordiv(x * 10, x)
        kept = layers.sequence_pool(layers.cast(layers.elementwise_floordiv(whole + 1, x), "float32"), "sum")
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    rows = column(*range(1, sum(lengths) + 1)) if sum(lengths) else np.zeros((0, 1), np.int64)
    exe.run(main, feed={"x": ragged(rows, lengths)}, fetch_list=[kept], scope=scope)
    if sum(lengths):
        rows[-1] = 0
        with pytest.raises(fluid.core.EnforceNotMet, match="the value 0 of 'x'.*"):
            exe.run(main, feed={"x": ragged(rows, lengths)}, fetch_list=[kept], scope=scope)


def test_host_ops_cut_the_step_and_the_checks_stay(net: Net) -> None:
    net.data("ids", [-1, 1], "int64")
    net.parameter("w", np.ones((4, 2), np.float32))
    net.op("lookup_table_v2", {"W": ["w"], "Ids": ["ids"]}, "rows")
    with fluid.program_guard(net.program):
        layers.Print(net.block.var("rows"), first_n=1)
    net.op("scale", {"X": ["rows"]}, "w", scale=2.0)
    with pytest.raises(fluid.core.EnforceNotMet, match="the value 4 of 'ids'"):
        net.run({"ids": column(1, 4, 0, 0)}, ["rows"])
    np.testing.assert_array_equal(net.get("w"), np.ones((4, 2)))


def test_a_sequence_longer_than_its_padding() -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 3], lod_level=1)
        padded, _ = layers.sequence_pad(layers.relu(x), layers.fill_constant([1], "float32", 0.0), maxlen=2)
        exe = fluid.Executor(fluid.CPUPlace())
        (found,) = exe.run(feed={"x": seq(X[:3], 1, 2)}, fetch_list=[padded])
        np.testing.assert_array_equal(found, [[X[0], 0 * X[0]], X[1:3]])
        with pytest.raises(fluid.core.EnforceNotMet, match="sequence_pad.*value 3"):
            exe.run(feed={"x": seq(X, 1, 3)}, fetch_list=[padded])


@pytest.mark.parametrize("spread", [layers.sequence_expand, layers.sequence_expand_as])
@pytest.mark.parametrize("computed", [False, True], ids=["fed", "computed"])
def test_rows_are_spread_over_as_many_sequences(spread: Any, computed: bool) -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x, y = fluid.data("x", [None, 3]), fluid.data("y", [None, 1], lod_level=1)
        out = spread(layers.scale(x, 1.0) if computed else x, y)
        exe = fluid.Executor(fluid.CPUPlace())
        for rows in (1, 2, 3):
            feed = {"x": X[:rows], "y": seq(X[:3, :1], 2, 1)}
            if rows == 2:
                (found,) = exe.run(feed=feed, fetch_list=[out], return_numpy=False)
                np.testing.assert_array_equal(np.array(found), X[[0, 0, 1]])
                continue
            with pytest.raises(fluid.core.EnforceNotMet, match=f"value {rows} of(.|\n)*as many rows"):
                exe.run(feed=feed, fetch_list=[out])


def test_rows_in_sequences_are_rows_to_be_spread() -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x, y = fluid.data("x", [None, 3], lod_level=1), fluid.data("y", [None, 1], lod_level=1)
        out = layers.sequence_expand_as(x, y)
        exe, feed = fluid.Executor(fluid.CPUPlace()), {"x": seq(X[:2], 2), "y": seq(X[:3, :1], 2, 1)}
        (found,) = exe.run(feed=feed, fetch_list=[out], return_numpy=False)
        np.testing.assert_array_equal(np.array(found), X[[0, 0, 1]])
        with pytest.raises(fluid.core.EnforceNotMet, match="value 3 of(.|\n)*as many rows"):
            exe.run(feed={**feed, "x": seq(X[:3], 2, 1)}, fetch_list=[out])


def test_sequences_are_repeated_for_as_many_sequences() -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x, y = fluid.data("x", [None, 3], lod_level=1), fluid.data("y", [None, 1], lod_level=1)
        out = layers.sequence_expand(x, y)
        with pytest.raises(fluid.core.EnforceNotMet, match="value 2 of(.|\n)*as many rows"):
            feed = {"x": seq(X[:3], 1, 2), "y": seq(X[:2, :1], 2)}
            fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[out])
