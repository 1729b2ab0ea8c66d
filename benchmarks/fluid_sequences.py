"""Ragged models as Fluid scripts; the same source runs on fluidjax and, under Python 3.7, on Paddle 1.8.5."""

from benchmarks import data

STREAM = 300  # distinct ragged batches


def _feeds(fluid, names=("words",)):
    place = fluid.CPUPlace()
    feeds = []
    for batch in data.sentences(STREAM):
        flat = [[w] for words in batch["words"] for w in words]
        ragged = fluid.create_lod_tensor(data.np.array(flat), [[len(w) for w in batch["words"]]], place)
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


MODELS = {f.__name__: f for f in (lstm_127, lstm_256, gru_256, sequence_pool, dynamic_rnn_attention)}
