"""Models whose batches change their sizes, as Fluid scripts; the same source runs on fluidjax and on Paddle 1.8.5."""

from benchmarks import data

BATCHES = 300
SENTENCES = 200
WORDS, TAGS, UNITS = 20940, 57, 128
ITEMS, CATEGORIES = 5000, 100


def lac_tagger(fluid):
    """jieba's lexical analysis in its sizes: two bidirectional GRUs and a CRF, one sentence after the other."""
    layers = fluid.layers
    rows = fluid.embedding(fluid.data("words", [None, 1], "int64", lod_level=1), [WORDS, UNITS])
    rows = layers.reshape(rows, [-1, UNITS])
    for _ in range(2):
        ways = [layers.dynamic_gru(layers.fc(rows, 3 * UNITS), UNITS, is_reverse=way) for way in (False, True)]
        rows = layers.concat(ways, axis=1)
    emission = layers.fc(rows, TAGS)
    layers.create_parameter([TAGS + 2, TAGS], "float32", name="crf")
    path = layers.crf_decoding(emission, fluid.ParamAttr(name="crf"))
    place = fluid.CPUPlace()
    words = data.lines(SENTENCES, WORDS)
    return path, [{"words": fluid.create_lod_tensor(w[:, None], [[len(w)]], place)} for w in words]


def _embedded(fluid, ids, name, size):
    return fluid.embedding(ids, [size, 32], param_attr=fluid.ParamAttr(name=name))


def din_histories(fluid):
    """A deep interest network: histories of 1 to 100 items, padded to the longest of a batch."""
    layers = fluid.layers
    history, candidates = [
        layers.concat(
            [
                _embedded(fluid, fluid.data(which + "_items", [None, None], "int64"), "items", ITEMS),
                _embedded(fluid, fluid.data(which + "_categories", [None, None], "int64"), "categories", CATEGORIES),
            ],
            axis=2,
        )
        for which in ("history", "candidate")
    ]
    mask, label = fluid.data("mask", [None, None, 1], "float32"), fluid.data("label", [None, 1], "float32")
    both = layers.concat([history, candidates, history - candidates, history * candidates], axis=2)
    hidden = layers.fc(both, 80, num_flatten_dims=2, act="sigmoid")
    hidden = layers.fc(hidden, 40, num_flatten_dims=2, act="sigmoid")
    scores = layers.transpose(layers.fc(hidden, 1, num_flatten_dims=2) + mask, [0, 2, 1])
    read = layers.matmul(layers.softmax(layers.scale(scores, 64**-0.5)), history)
    logit = layers.fc(layers.fc(layers.reshape(read, [0, 64]), 80, act="sigmoid"), 1)
    loss = layers.mean(layers.sigmoid_cross_entropy_with_logits(logit, label))
    fluid.optimizer.SGD(0.1).minimize(loss)
    return loss, data.histories(BATCHES, ITEMS, CATEGORIES)


def _attended(fluid, queries, keys, unseen):
    layers = fluid.layers

    def heads(rows):
        split = layers.reshape(layers.fc(rows, 64, num_flatten_dims=2), [0, 0, 4, 16])
        return layers.transpose(split, [0, 2, 1, 3])

    scores = layers.matmul(heads(queries), heads(keys), transpose_y=True, alpha=0.25)
    read = layers.matmul(layers.softmax(layers.elementwise_add(scores, unseen)), heads(keys))
    joined = layers.reshape(layers.transpose(read, [0, 2, 1, 3]), [0, 0, 64])
    return layers.layer_norm(queries + layers.fc(joined, 64, num_flatten_dims=2), begin_norm_axis=2)


def translation(fluid):
    """An encoder and a decoder with attention; both lengths change from batch to batch."""
    layers = fluid.layers
    source, target, words = [fluid.data(n, [None, None, 1], "int64") for n in ("source", "target", "words")]
    unseen = fluid.data("unseen", [None, 1, 1, None], "float32")
    weight = fluid.data("weight", [None, None, 1], "float32")
    memory, state = [layers.embedding(ids, [data.WORDS, 64]) for ids in (source, target)]
    memory = _attended(fluid, memory, memory, unseen)
    state = _attended(fluid, state, memory, unseen)
    logits = layers.fc(layers.reshape(state, [-1, 64]), data.WORDS)
    cost = layers.softmax_with_cross_entropy(logits, layers.reshape(words, [-1, 1]))
    cost = layers.reduce_sum(cost * layers.reshape(weight, [-1, 1])) / layers.reduce_sum(weight)
    fluid.optimizer.Adam(0.001).minimize(cost)
    return cost, data.translations(BATCHES)


MODELS = {f.__name__: f for f in (lac_tagger, din_histories, translation)}
RAGGED_RESULT = ("lac_tagger",)
STEPS = {"lac_tagger": SENTENCES - 1, "din_histories": BATCHES - 1, "translation": BATCHES - 1}
