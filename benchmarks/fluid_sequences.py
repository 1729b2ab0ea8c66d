"""Ragged models as Fluid scripts; the same source runs on fluidjax and, under Python 3.7, on Paddle 1.8.5."""

from benchmarks import data

STREAM = 300  # distinct ragged batches
RAGGED_RESULT = ("beam_search",)  # fetched as LoDTensor


def _feeds(fluid, names=("words",)):
    place = fluid.CPUPlace()
    feeds = []
    for batch in data.sentences(STREAM):
        flat = data.np.concatenate(batch["words"])[:, None]
        ragged = fluid.create_lod_tensor(flat, [[len(w) for w in batch["words"]]], place)
        feeds.append(dict({name: ragged for name in names}, label=batch["label"]))
    return feeds


def _words(fluid):
    words = fluid.data("words", [None, 1], "int64", lod_level=1)
    label = fluid.data("label", [None, 1], "int64")
    return fluid.embedding(words, [data.WORDS, 128]), label


def _finish(fluid, features, label):
    probability = fluid.layers.fc(features, 2, act="softmax")
    loss = fluid.layers.mean(fluid.layers.cross_entropy(input=probability, label=label))
    fluid.optimizer.Adam(0.001).minimize(loss)
    return loss, _feeds(fluid)


def _lstm(fluid, hidden):
    embedded, label = _words(fluid)
    embedded = fluid.layers.reshape(embedded, [-1, 128])
    gates = fluid.layers.fc(embedded, hidden * 4)
    state, _ = fluid.layers.dynamic_lstm(gates, hidden * 4, use_peepholes=False)
    return _finish(fluid, fluid.layers.sequence_pool(state, "max"), label)


def lstm_127(fluid):
    """LSTM sentiment classifier, hidden size 127."""
    return _lstm(fluid, 127)


def lstm_256(fluid):
    """LSTM sentiment classifier, hidden size 256."""
    return _lstm(fluid, 256)


def gru_256(fluid):
    """GRU sentiment classifier, hidden size 256."""
    embedded, label = _words(fluid)
    gates = fluid.layers.fc(fluid.layers.reshape(embedded, [-1, 128]), 256 * 3)
    state = fluid.layers.dynamic_gru(gates, 256)
    return _finish(fluid, fluid.layers.sequence_pool(state, "max"), label)


def sequence_pool(fluid):
    """Bag of words: average pooling and two layers."""
    embedded, label = _words(fluid)
    pooled = fluid.layers.sequence_pool(fluid.layers.reshape(embedded, [-1, 128]), "average")
    return _finish(fluid, fluid.layers.fc(pooled, 128, act="tanh"), label)


def dynamic_rnn_attention(fluid):
    """A DynamicRNN decoder that attends to the encoded words at each step, hidden size 64."""
    embedded, label = _words(fluid)
    embedded = fluid.layers.reshape(embedded, [-1, 128])
    encoded = fluid.layers.fc(embedded, 64, act="tanh")
    projected = fluid.layers.fc(encoded, 64, bias_attr=False)
    first = fluid.layers.sequence_pool(encoded, "first")
    rnn = fluid.layers.DynamicRNN()
    with rnn.block():
        word = rnn.step_input(embedded)
        states, keys = rnn.static_input(encoded), rnn.static_input(projected)
        memory = rnn.memory(init=first, need_reorder=True)
        query = fluid.layers.sequence_expand(fluid.layers.fc(memory, 64, bias_attr=False), keys)
        score = fluid.layers.fc(fluid.layers.tanh(fluid.layers.elementwise_add(keys, query)), 1, bias_attr=False)
        weight = fluid.layers.reshape(fluid.layers.sequence_softmax(score), [-1])
        context = fluid.layers.sequence_pool(fluid.layers.elementwise_mul(states, weight, axis=0), "sum")
        hidden = fluid.layers.fc([word, context, memory], 64, act="tanh")
        rnn.update_memory(memory, hidden)
        rnn.output(hidden)
    return _finish(fluid, fluid.layers.sequence_last_step(rnn()), label)


def dynamic_rnn(fluid):
    """A DynamicRNN classifier, hidden size 128."""
    embedded, label = _words(fluid)
    embedded = fluid.layers.reshape(embedded, [-1, 128])
    rnn = fluid.layers.DynamicRNN()
    with rnn.block():
        word = rnn.step_input(embedded)
        memory = rnn.memory(shape=[128], value=0.0)
        hidden = fluid.layers.fc([word, memory], 128, act="tanh")
        rnn.update_memory(memory, hidden)
        rnn.output(hidden)
    return _finish(fluid, fluid.layers.sequence_last_step(rnn()), label)


def beam_search(fluid):
    """Decoding at most 16 words with a beam of 4 over 2,000 words from 8 encoded sentences; nothing is trained."""
    beam, end, longest, size = data.BEAM, 1, data.LONGEST_OUTPUT, 128
    embedded, _ = _words(fluid)
    first = fluid.layers.fc(fluid.layers.sequence_pool(fluid.layers.reshape(embedded, [-1, 128]), "average"), size)
    start_ids = fluid.data("start_ids", [None, 1], "int64", lod_level=2)
    start_scores = fluid.data("start_scores", [None, 1], "float32", lod_level=2)
    step = fluid.layers.fill_constant([1], "int64", 0)
    limit = fluid.layers.fill_constant([1], "int64", longest)
    states = fluid.layers.array_write(first, step)
    ids, scores = fluid.layers.array_write(start_ids, step), fluid.layers.array_write(start_scores, step)
    running = fluid.layers.less_than(step, limit)
    loop = fluid.layers.While(running)
    with loop.block():
        last_ids, last_scores = fluid.layers.array_read(ids, step), fluid.layers.array_read(scores, step)
        state = fluid.layers.sequence_expand(fluid.layers.array_read(states, step), last_scores)
        word = fluid.layers.reshape(fluid.embedding(last_ids, [data.TARGETS, 128]), [-1, 128])
        state = fluid.layers.fc([state, word], size, act="tanh")
        ragged = fluid.layers.lod_reset(state, last_scores)
        probability = fluid.layers.fc(ragged, data.TARGETS, act="softmax")
        best, words = fluid.layers.topk(probability, beam)
        total = fluid.layers.elementwise_add(fluid.layers.log(best), fluid.layers.reshape(last_scores, [-1]), axis=0)
        new_ids, new_scores = fluid.layers.beam_search(last_ids, last_scores, words, total, beam, end, level=0)
        fluid.layers.increment(step, 1, in_place=True)
        for value, array in ((state, states), (new_ids, ids), (new_scores, scores)):
            fluid.layers.array_write(value, step, array)
        going = fluid.layers.logical_not(fluid.layers.is_empty(new_ids))
        fluid.layers.logical_and(fluid.layers.less_than(step, limit), going, out=running)
    sentences, _ = fluid.layers.beam_search_decode(ids, scores, beam, end)
    return sentences, _decoder_feeds(fluid)


def _decoder_feeds(fluid):
    place, feeds = fluid.CPUPlace(), []
    for batch in data.sentences(data.BATCHES, batch=data.DECODED):
        flat = data.np.array([[w] for words in batch["words"] for w in words])
        ones = [[1] * data.DECODED] * 2
        feeds.append(
            {
                "words": fluid.create_lod_tensor(flat, [[len(w) for w in batch["words"]]], place),
                "start_ids": fluid.create_lod_tensor(data.np.zeros((data.DECODED, 1), "int64"), ones, place),
                "start_scores": fluid.create_lod_tensor(data.np.zeros((data.DECODED, 1), "float32"), ones, place),
            }
        )
    return feeds


def _while_rnn(fluid, steps, size):
    """A plain tanh RNN over 32 rows written with While and arrays, trained by SGD."""
    x = fluid.data("x", [steps, data.RNN_BATCH, size], "float32")
    step, limit = fluid.layers.fill_constant([1], "int64", 0), fluid.layers.fill_constant([1], "int64", steps)
    step.stop_gradient = limit.stop_gradient = True
    memory = fluid.layers.array_write(fluid.layers.fill_constant([data.RNN_BATCH, size], "float32", 0), step)
    rows = fluid.layers.split(x, steps, dim=0)
    inputs = None
    for i, row in enumerate(rows):
        at = fluid.layers.fill_constant([1], "int64", i)
        inputs = fluid.layers.array_write(fluid.layers.reshape(row, [data.RNN_BATCH, size]), at, inputs)
    running = fluid.layers.less_than(step, limit)
    loop = fluid.layers.While(running)
    with loop.block():
        previous, row = fluid.layers.array_read(memory, step), fluid.layers.array_read(inputs, step)
        hidden = fluid.layers.fc([row, previous], size, act="tanh")
        fluid.layers.increment(step, 1, in_place=True)
        fluid.layers.array_write(hidden, step, memory)
        fluid.layers.less_than(step, limit, cond=running)
    loss = fluid.layers.mean(fluid.layers.array_read(memory, limit))
    fluid.optimizer.SGD(0.01).minimize(loss)
    return loss, data.rnn(steps, size)


def _rnn_model(name):
    def model(fluid):
        return _while_rnn(fluid, *data.RNNS[name])

    model.__name__ = name
    model.__doc__ = "While RNN of {} steps, hidden size {}.".format(*data.RNNS[name])
    return model


MODELS = {
    f.__name__: f for f in (lstm_127, lstm_256, gru_256, sequence_pool, dynamic_rnn, dynamic_rnn_attention, beam_search)
}
MODELS.update((name, _rnn_model(name)) for name in data.RNNS)
