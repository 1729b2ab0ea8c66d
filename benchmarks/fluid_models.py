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


MODELS = {f.__name__: f for f in (fit_a_line, mlp, lenet, resnet20, word2vec_dense, word2vec_sparse)}


def big_program(fluid):
    """A forward program of 1,000 ops and its backward pass: only built, never run."""
    x = fluid.data("x", [None, 64], "float32")
    hidden = x
    for _ in range(250):
        hidden = fluid.layers.elementwise_add(fluid.layers.fc(hidden, 64, act="relu"), hidden)
    loss = fluid.layers.mean(hidden)
    fluid.backward.append_backward(loss)
    return loss
