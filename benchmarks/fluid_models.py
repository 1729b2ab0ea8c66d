"""The models as Fluid scripts. The same source runs on fluidjax and, under Python 3.7, on Paddle 1.8.5."""

from benchmarks import data


def _classifier(fluid, probability, label):
    return fluid.layers.mean(fluid.layers.cross_entropy(input=probability, label=label))


def fit_a_line(fluid):
    """Linear regression with SGD."""
    x = fluid.data("x", [None, 13], "float32")
    y = fluid.data("y", [None, 1], "float32")
    loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(x, 1), y))
    fluid.optimizer.SGD(0.01).minimize(loss)
    return loss, data.fit_a_line()


def mlp(fluid):
    """784-200-200-10 with Adam."""
    image, label = fluid.data("image", [None, 784], "float32"), fluid.data("label", [None, 1], "int64")
    hidden = fluid.layers.fc(fluid.layers.fc(image, 200, act="relu"), 200, act="relu")
    loss = _classifier(fluid, fluid.layers.fc(hidden, 10, act="softmax"), label)
    fluid.optimizer.Adam(0.001).minimize(loss)
    return loss, data.mlp()


def lenet(fluid):
    """Two convolution-pool pairs with Adam."""
    image, label = fluid.data("image", [None, 1, 28, 28], "float32"), fluid.data("label", [None, 1], "int64")
    hidden = fluid.nets.simple_img_conv_pool(image, 20, 5, 2, 2, act="relu")
    hidden = fluid.nets.simple_img_conv_pool(hidden, 50, 5, 2, 2, act="relu")
    loss = _classifier(fluid, fluid.layers.fc(hidden, 10, act="softmax"), label)
    fluid.optimizer.Adam(0.001).minimize(loss)
    return loss, data.lenet()


def _conv_bn(fluid, x, filters, size, stride, act):
    x = fluid.layers.conv2d(x, filters, size, stride, (size - 1) // 2, bias_attr=False)
    return fluid.layers.batch_norm(x, act=act)


def resnet20(fluid):
    """ResNet-20 for 32x32 images with Momentum."""
    image, label = fluid.data("image", [None, 3, 32, 32], "float32"), fluid.data("label", [None, 1], "int64")
    x = _conv_bn(fluid, image, 16, 3, 1, "relu")
    for stage, filters in enumerate((16, 32, 64)):
        for block in range(3):
            stride = 2 if stage and not block else 1
            short = _conv_bn(fluid, x, filters, 1, stride, None) if stride == 2 else x
            y = _conv_bn(fluid, _conv_bn(fluid, x, filters, 3, stride, "relu"), filters, 3, 1, None)
            x = fluid.layers.elementwise_add(short, y, act="relu")
    pooled = fluid.layers.pool2d(x, pool_type="avg", global_pooling=True)
    loss = _classifier(fluid, fluid.layers.fc(pooled, 10, act="softmax"), label)
    fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    return loss, data.resnet20()


def _word2vec(fluid, sparse):
    words, target = fluid.data("words", [None, data.CONTEXT], "int64"), fluid.data("target", [None, 1], "int64")
    embedded = fluid.embedding(words, [data.VOCABULARY, 32], is_sparse=sparse)
    hidden = fluid.layers.fc(fluid.layers.reshape(embedded, [-1, data.CONTEXT * 32]), 256, act="sigmoid")
    loss = _classifier(fluid, fluid.layers.fc(hidden, data.TARGETS, act="softmax"), target)
    fluid.optimizer.SGD(0.1).minimize(loss)
    return loss, data.word2vec()


def word2vec_dense(fluid):
    """N-gram language model, dense embedding gradient."""
    return _word2vec(fluid, False)


def word2vec_sparse(fluid):
    """N-gram language model, SelectedRows embedding gradient."""
    return _word2vec(fluid, True)


def _deepfm(fluid, sparse, optimizer):
    layers = fluid.layers
    features = fluid.data("features", [None, data.FIELDS], "int64")
    values = fluid.data("values", [None, data.FIELDS, 1], "float32")
    label = fluid.data("label", [None, 1], "float32")
    first, second = [fluid.embedding(features, [data.FEATURES, n], is_sparse=sparse) * values for n in (1, 10)]
    squared_sum = layers.square(layers.reduce_sum(second, 1))
    paired = 0.5 * layers.reduce_sum(squared_sum - layers.reduce_sum(layers.square(second), 1), 1, keep_dim=True)
    hidden = layers.reshape(second, [-1, data.FIELDS * 10])
    for _ in range(3):
        hidden = layers.fc(hidden, 128, act="relu")
    logit = layers.reduce_sum(first, 1) + paired + layers.fc(hidden, 1)
    loss = layers.mean(layers.sigmoid_cross_entropy_with_logits(logit, label))
    optimizer.minimize(loss)
    return loss, data.clicks()


def deepfm_sgd(fluid):
    """DeepFM of 39 features of 100,000, SelectedRows embedding gradients."""
    return _deepfm(fluid, True, fluid.optimizer.SGD(0.01))


def deepfm_adam(fluid):
    """DeepFM of 39 features of 100,000, dense embedding gradients."""
    return _deepfm(fluid, False, fluid.optimizer.Adam(0.001))


def _attended(fluid, queries, keys, mask=None):
    layers, width = fluid.layers, data.WIDTH

    def heads(rows):
        split = layers.reshape(layers.fc(rows, width, num_flatten_dims=2), [0, 0, data.HEADS, width // data.HEADS])
        return layers.transpose(split, [0, 2, 1, 3])

    scores = layers.matmul(heads(queries), heads(keys), transpose_y=True, alpha=(width // data.HEADS) ** -0.5)
    if mask is not None:
        scores = layers.elementwise_add(scores, mask)
    read = layers.transpose(layers.matmul(layers.softmax(scores), heads(keys)), [0, 2, 1, 3])
    joined = layers.fc(layers.reshape(read, [0, 0, width]), width, num_flatten_dims=2)
    return layers.layer_norm(queries + joined, begin_norm_axis=2)


def _fed_forward(fluid, rows):
    hidden = fluid.layers.fc(rows, 4 * data.WIDTH, num_flatten_dims=2, act="relu")
    hidden = fluid.layers.fc(hidden, data.WIDTH, num_flatten_dims=2)
    return fluid.layers.layer_norm(rows + hidden, begin_norm_axis=2)


def transformer(fluid):
    """An encoder and a decoder of two layers, width 128 and 4 heads, with Adam."""
    layers = fluid.layers
    source, target = [fluid.data(name, [None, data.LENGTH], "int64") for name in ("source", "target")]
    words = fluid.data("words", [None, data.LENGTH, 1], "int64")
    memory, state = [
        layers.elementwise_add(
            fluid.embedding(ids, [data.WORDS, data.WIDTH]),
            layers.create_parameter([data.LENGTH, data.WIDTH], "float32"),
            axis=1,
        )
        for ids in (source, target)
    ]
    later = layers.assign(data.np.triu(data.np.full([data.LENGTH, data.LENGTH], -1e9, "float32"), 1))
    for _ in range(data.LAYERS):
        memory = _fed_forward(fluid, _attended(fluid, memory, memory))
    for _ in range(data.LAYERS):
        state = _attended(fluid, state, state, later)
        state = _fed_forward(fluid, _attended(fluid, state, memory))
    logits = layers.fc(state, data.WORDS, num_flatten_dims=2)
    loss = layers.mean(layers.softmax_with_cross_entropy(logits, words))
    fluid.optimizer.Adam(0.001).minimize(loss)
    return loss, data.pairs()


_MODELS = (fit_a_line, mlp, lenet, resnet20, word2vec_dense, word2vec_sparse, transformer, deepfm_sgd, deepfm_adam)
MODELS = {f.__name__: f for f in _MODELS}


def big_program(fluid):
    """A forward program of 1,000 ops and its backward pass: only built, never run."""
    x = fluid.data("x", [None, 64], "float32")
    hidden = x
    for _ in range(250):
        hidden = fluid.layers.elementwise_add(fluid.layers.fc(hidden, 64, act="relu"), hidden)
    loss = fluid.layers.mean(hidden)
    fluid.backward.append_backward(loss)
    return loss
