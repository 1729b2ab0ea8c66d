"""Small networks, one for each family of layers, whose programs the reference has recorded under the same names."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import numpy as np


def compare(fluid: ModuleType) -> None:
    layers = fluid.layers
    x = layers.data("x", [3], append_batch_size=False)
    y = layers.data("y", [3], append_batch_size=False)
    cond = layers.less_than(x, y)
    layers.less_than(x, y, force_cpu=True, cond=cond)
    layers.less_than(x, y, force_cpu=False)
    layers.less_equal(x, y)
    layers.greater_than(x, y)
    layers.greater_equal(x, y)
    layers.equal(x, y)
    layers.not_equal(x, y)
    layers.is_empty(x)
    layers.is_empty(x, cond=cond)
    one = layers.data("x1", [1], append_batch_size=False)
    layers.increment(one)
    layers.increment(one, value=2.0, in_place=False)
    layers.Print(x, message="hi", summarize=3)


def arrays(fluid: ModuleType) -> None:
    layers = fluid.layers
    x = layers.data("x", [3], append_batch_size=False)
    i = layers.fill_constant([1], "int64", 0)
    array = layers.array_write(x, i)
    other = layers.create_array("float32")
    layers.array_write(x, i, other)
    layers.array_read(array, i)
    layers.array_length(array)
    layers.tensor_array_to_tensor(other)


def while_block(fluid: ModuleType) -> None:
    layers = fluid.layers
    i = layers.fill_constant([1], "int64", 0)
    i.stop_gradient = True
    n = layers.fill_constant([1], "int64", 10)
    x = layers.data("x", [3], append_batch_size=False)
    total = layers.zeros([3], "float32")
    cond = layers.less_than(i, n)
    with layers.While(cond).block():
        layers.assign(layers.elementwise_add(x, total), total)
        layers.increment(i, in_place=True)
        layers.less_than(i, n, cond=cond)


def while_loop(fluid: ModuleType) -> None:
    layers = fluid.layers
    i = layers.fill_constant([1], "int64", 0)
    n = layers.fill_constant([1], "int64", 10)
    layers.while_loop(lambda i, n: layers.less_than(i, n), lambda i, n: [i + 1, n], [i, n])


def while_loop_of_dicts(fluid: ModuleType) -> None:
    layers = fluid.layers
    i = layers.fill_constant([1], "int64", 0)
    ten = layers.fill_constant([1], "int64", 10)
    given = {"a": layers.data("x", [1], append_batch_size=False), "l": [layers.zeros([1], "float32")]}

    def body(i, ten, given):
        i = i + 1
        given["a"] = given["a"] + 1.0
        return [i, ten, given]

    layers.while_loop(lambda i, ten, given: layers.less_than(i, ten), body, [i, ten, given])


def switch(fluid: ModuleType) -> None:
    layers = fluid.layers
    lr = layers.create_global_var(shape=[1], value=0.0, dtype="float32", persistable=True, name="lr")
    one = layers.fill_constant([1], "float32", 1.0)
    two = layers.fill_constant([1], "float32", 2.0)
    step = layers.fill_constant([1], "float32", 1.5)
    with layers.Switch() as cases:
        with cases.case(step < one):
            layers.assign(one, lr)
        with cases.case(step < two):
            layers.assign(two, lr)
        with cases.default():
            layers.assign(step, lr)


def cond(fluid: ModuleType) -> None:
    layers = fluid.layers
    x = layers.data("x", [3], append_batch_size=False)
    pred = layers.less_than(layers.reduce_sum(x), layers.fill_constant([1], "float32", 1.0))
    layers.cond(pred, lambda: (x + 1.0, x * 2.0), lambda: (x - 1.0, x / 2.0))
    layers.cond(pred, lambda: layers.Print(x) and None, None)


def case(fluid: ModuleType) -> None:
    layers = fluid.layers
    x = layers.fill_constant([1], "float32", 0.3)
    y = layers.fill_constant([1], "float32", 0.1)
    less, equal = layers.less_than(x, y), layers.equal(x, y)

    def one():
        return layers.fill_constant([1, 2], "float32", 1)

    def two():
        return layers.fill_constant([1, 2], "float32", 2)

    def three():
        return layers.fill_constant([1, 2], "float32", 3)

    layers.case([(less, one), (equal, two)], three)
    layers.case([(less, one), (equal, two)])
    i = layers.fill_constant([1], "int32", 2)
    layers.switch_case(i, {1: one, 2: two}, three)
    layers.switch_case(i, [(0, one), (4, two), (7, three)])
    layers.switch_case(i, [one, two])


def ifelse(fluid: ModuleType) -> None:
    layers = fluid.layers
    x = layers.data("x", [4, 1], append_batch_size=False)
    limit = layers.fill_constant_batch_size_like(x, [-1, 1], "float32", 0.0)
    branches = layers.IfElse(layers.less_than(x, limit))
    with branches.true_block():
        branches.output(layers.scale(branches.input(x), 2.0))
    with branches.false_block():
        branches.output(layers.scale(branches.input(x), 3.0))
    branches()


def static_rnn(fluid: ModuleType) -> None:
    layers = fluid.layers
    x = layers.data("x", [5, 4, 3], append_batch_size=False)
    x.stop_gradient = False
    h0 = layers.data("h0", [4, 3], append_batch_size=False)
    network = layers.StaticRNN()
    with network.step():
        word = network.step_input(x)
        p = network.memory(init=h0)
        q = network.memory(shape=[-1, 3], batch_ref=word, init_value=0.5)
        hidden = layers.fc([word, p, q], 3, act="relu")
        network.update_memory(p, hidden)
        network.update_memory(q, layers.scale(hidden, 2.0))
        network.step_output(hidden)
    fluid.optimizer.SGD(0.1).minimize(layers.mean(network()))


def dynamic_rnn(fluid: ModuleType) -> None:
    layers = fluid.layers
    x = layers.data("x", [3], lod_level=1)
    start = layers.data("s", [3])
    encoded = layers.data("enc", [3], lod_level=1)
    network = layers.DynamicRNN()
    with network.block():
        word = network.step_input(x)
        p = network.memory(init=start, need_reorder=True)
        q = network.memory(shape=[3], value=0.1)
        static = network.static_input(encoded)
        hidden = layers.fc([word, p, q], 3, act="tanh")
        hidden = hidden + layers.sequence_pool(static, "sum")
        network.update_memory(p, hidden)
        network.update_memory(q, hidden)
        network.output(hidden)
    fluid.optimizer.SGD(0.1).minimize(layers.mean(layers.sequence_last_step(network())))


def while_gradient(fluid: ModuleType) -> None:
    layers = fluid.layers
    x = layers.data("x", [3], append_batch_size=False)
    x.stop_gradient = False
    i, j = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 0)
    i.stop_gradient = j.stop_gradient = True
    n = layers.fill_constant([1], "int64", 3)
    start = layers.zeros([3], "float32")
    start.stop_gradient = False
    sums, data = layers.array_write(start, i), layers.array_write(x, i)
    cond = layers.less_than(i, n)
    with layers.While(cond).block():
        before = layers.array_read(sums, i)
        row = layers.array_read(data, j)
        after = layers.sums([before, layers.scale(row, 2.0)])
        layers.increment(i, in_place=True)
        layers.array_write(after, i, sums)
        layers.less_than(i, n, cond=cond)
    fluid.backward.append_backward(layers.mean(layers.array_read(sums, n)))


def rnn_cells(fluid: ModuleType) -> None:
    layers = fluid.layers
    x = layers.data("x", [4, 5, 3], append_batch_size=False)
    length = layers.data("len", [4], dtype="int64", append_batch_size=False)
    layers.rnn(layers.LSTMCell(6), x, sequence_length=length)
    layers.rnn(layers.GRUCell(6, name="g"), x, is_reverse=True, time_major=False)
    states = layers.GRUCell(6).get_initial_states(x, batch_dim_idx=1)
    layers.rnn(layers.GRUCell(6, name="g2"), x, initial_states=states, time_major=True)


def _embed(fluid: ModuleType) -> Callable:
    return lambda ids: fluid.embedding(ids, size=[20, 6], param_attr=fluid.ParamAttr(name="emb"))


def _project(fluid: ModuleType) -> Callable:
    attr = {"param_attr": fluid.ParamAttr(name="ow"), "bias_attr": False}
    return lambda x: fluid.layers.fc(x, 20, num_flatten_dims=len(x.shape) - 1, **attr)


def beam_search_decoder(fluid: ModuleType) -> None:
    layers = fluid.layers
    encoded = layers.data("enc", [6])
    cell = layers.GRUCell(6)
    decoder = layers.BeamSearchDecoder(cell, 0, 1, 3, embedding_fn=_embed(fluid), output_fn=_project(fluid))
    layers.dynamic_decode(decoder, inits=cell.get_initial_states(encoded), max_step_num=5)
    layers.dynamic_decode(
        decoder,
        inits=cell.get_initial_states(encoded),
        max_step_num=5,
        is_test=True,
        return_length=True,
        output_time_major=True,
    )


def basic_decoder(fluid: ModuleType) -> None:
    layers = fluid.layers
    embed, project = _embed(fluid), _project(fluid)
    x = layers.data("x", [4, 5, 6], append_batch_size=False)
    length = layers.data("len", [4], dtype="int64", append_batch_size=False)
    cell = layers.LSTMCell(6)
    start = cell.get_initial_states(x)
    helper = layers.TrainingHelper(x, length)
    decoder = layers.BasicDecoder(cell, helper, output_fn=project)
    layers.dynamic_decode(decoder, inits=start, impute_finished=True)
    tokens = layers.fill_constant([4], "int64", 0)
    helper = layers.GreedyEmbeddingHelper(embed, tokens, 1)
    decoder = layers.BasicDecoder(cell, helper, output_fn=project)
    layers.dynamic_decode(decoder, inits=start, max_step_num=4, return_length=True)
    helper = layers.SampleEmbeddingHelper(embed, tokens, 1, softmax_temperature=0.7, seed=3)
    decoder = layers.BasicDecoder(cell, helper, output_fn=project)
    layers.dynamic_decode(decoder, inits=start, max_step_num=4)


def kernels(fluid: ModuleType) -> None:
    layers = fluid.layers
    x = layers.data("x", [24], lod_level=1)
    layers.dynamic_lstm(x, 24)
    layers.dynamic_lstm(x, 24, use_peepholes=False, is_reverse=True)
    x2 = layers.data("x2", [18], lod_level=1)
    layers.dynamic_gru(x2, 6)
    layers.dynamic_lstmp(x, 24, 5)
    layers.dynamic_lstmp(x, 24, 5, cell_clip=1.0, proj_clip=2.0, use_peepholes=False)
    before = layers.data("hp", [6])
    layers.gru_unit(x2, before, 18)
    layers.gru_unit(x2, before, 18, bias_attr=False, origin_mode=True)
    xt, cell = layers.data("xt", [5]), layers.data("cp", [6])
    layers.lstm_unit(xt, before, cell, forget_bias=1.0)
    padded = layers.data("s", [10, 4, 7], append_batch_size=False)
    start = layers.fill_constant([2, 4, 6], "float32", 0.0)
    layers.lstm(padded, start, start, 10, 6, 2, dropout_prob=0.2)
    start = layers.fill_constant([2, 4, 6], "float32", 0.0)
    layers.lstm(padded, start, start, 10, 6, 1, is_bidirec=True, is_test=True)


def beam_search(fluid: ModuleType) -> None:
    layers = fluid.layers
    ids = layers.data("pi", [1], dtype="int64", lod_level=2)
    scores = layers.data("ps", [1], lod_level=2)
    table = layers.data("pr", [1000])
    best, words = layers.topk(table, 50)
    layers.beam_search(ids, scores, words, best, 4, 1)
    layers.beam_search(ids, scores, None, table, 4, 1, is_accumulated=False, return_parent_idx=True, level=1)
    i = layers.fill_constant([1], "int64", 0)
    layers.beam_search_decode(layers.array_write(ids, i), layers.array_write(scores, i), 4, 1)
    dims = {"dtype": "int64", "append_batch_size": False}
    layers.gather_tree(layers.data("gi", [5, 2, 3], **dims), layers.data("gp", [5, 2, 3], **dims))


def stacked(fluid: ModuleType) -> None:
    layers, contrib = fluid.layers, fluid.contrib.layers
    x = layers.data("x", [4, 5, 3], append_batch_size=False)
    length = layers.data("len", [4], dtype="int64", append_batch_size=False)
    contrib.basic_gru(x, None, 6, num_layers=2, sequence_length=length, bidirectional=True, dropout_prob=0.1)
    layers.data("h", [2, 4, 6], append_batch_size=False)
    start = layers.data("h5", [2, 5, 6], append_batch_size=False)
    contrib.basic_lstm(x, start, start, 6, num_layers=2, batch_first=False)


def ragged(fluid: ModuleType) -> None:
    layers, flow = fluid.layers, fluid.layers.control_flow
    x = layers.data("x", [3], lod_level=1)
    table = flow.lod_rank_table(x)
    flow.max_sequence_len(table)
    joined = flow.array_to_lod_tensor(flow.lod_tensor_to_array(x, table), table)
    i = layers.fill_constant([1], "int64", 0)
    flow.shrink_memory(joined, i, table)
    layers.reorder_lod_tensor_by_rank(x, table)
    mask = layers.data("m", [1], dtype="bool")
    true, false = flow.split_lod_tensor(x, mask)
    flow.merge_lod_tensor(true, false, x, mask)
    outs = [layers.fill_constant([1], "float32", 0.0) for _ in range(2)]
    which = layers.fill_constant([1], "int32", 0)
    flow.select_output(i, outs, which)
    flow.select_input(outs, which)


def distributions(fluid: ModuleType) -> None:
    layers = fluid.layers
    uniform = layers.Uniform([0.0, 1.0], [2.0, 3.0])
    uniform.sample([2, 3])
    uniform.log_prob(layers.assign(np.array([0.5, 1.5], "float32")))
    uniform.entropy()
    scalar = layers.Uniform(0.0, 2.0)
    scalar.sample([2], seed=1)
    scalar.entropy()
    normal, other = layers.Normal(0.0, 1.0), layers.Normal([1.0], [2.0])
    normal.sample([4])
    normal.entropy()
    normal.log_prob(layers.assign(np.array([0.5], "float32")))
    normal.kl_divergence(other)
    other.sample([2], seed=4)
    v = layers.data("v", [2])
    wide = layers.Normal(v, v)
    wide.sample([2])
    wide.entropy()
    layers.Uniform(v, v).sample([2])
    logits = layers.data("lg", [2, 3], append_batch_size=False)
    first, second = layers.Categorical(logits), layers.Categorical(logits)
    first.kl_divergence(second)
    first.entropy()
    loc, scale = np.array([0.3, 0.5], "float32"), np.array([[0.4, 0], [0, 0.5]], "float32")
    one, two = layers.MultivariateNormalDiag(loc, scale), layers.MultivariateNormalDiag(loc, scale)
    one.entropy()
    one.kl_divergence(two)


RECORDED: dict[str, Callable[[ModuleType], None]] = {
    "cmp": compare,
    "arr": arrays,
    "while": while_block,
    "while_loop": while_loop,
    "while_dict": while_loop_of_dicts,
    "switch": switch,
    "cond": cond,
    "case": case,
    "ifelse": ifelse,
    "static": static_rnn,
    "dyn": dynamic_rnn,
    "while_grad": while_gradient,
    "rnn": rnn_cells,
    "decode": beam_search_decoder,
    "basicdec": basic_decoder,
    "lstms": kernels,
    "beam": beam_search,
    "basic": stacked,
    "mem": ragged,
    "dist": distributions,
}
