"""The networks that eager mode is measured on: each function gives one training step, to be called again and again.

They run on fluidjax and on Paddle 1.8.5 (Python 3.7) alike: ``fluid`` is the module of either.
"""

import numpy as np


def _rng(seed=0):
    return np.random.RandomState(seed)


def _normal(*shape):
    return _rng(len(shape)).normal(0, 1, shape).astype("float32")


def _ints(high, *shape):
    return _rng(high).randint(0, high, shape).astype("int64")


class Step:
    """A step of eager training.

    Args:
        net: what computes the loss of a batch.
        batch: NumPy arrays.
    """

    def __init__(self, fluid, net, optimizer, batch):
        self.fluid, self.net, self.optimizer, self.batch = fluid, net, optimizer, batch

    def __call__(self):
        """Run it; the loss as a NumPy array."""
        loss = self.net(*[self.fluid.dygraph.to_variable(a) for a in self.batch])
        loss.backward()
        self.optimizer.minimize(loss)
        self.net.clear_gradients()
        return loss.numpy()


def make_step(fluid, net, optimizer, batch):
    """An eager step, or what the stand-in of ``fluid`` makes of it."""
    return getattr(fluid, "make_step", Step)(fluid, net, optimizer, batch)


def mlp(fluid):
    """64-128-128-10, batch 32, Adam."""
    dg, layers = fluid.dygraph, fluid.layers

    class Net(dg.Layer):
        def __init__(self):
            super().__init__()
            self.a, self.b = dg.Linear(64, 128, act="relu"), dg.Linear(128, 128, act="relu")
            self.c = dg.Linear(128, 10)

        def forward(self, x, label):
            return layers.mean(layers.softmax_with_cross_entropy(self.c(self.b(self.a(x))), label))

    net = Net()
    return make_step(fluid, net, fluid.optimizer.Adam(0.001, parameter_list=net.parameters()), MLP_BATCH)


MLP_BATCH = _normal(32, 64), _ints(10, 32, 1)


def cnn(fluid):
    """Two convolutions and pools on 28 by 28, batch 8, Adam."""
    dg, layers = fluid.dygraph, fluid.layers

    class Net(dg.Layer):
        def __init__(self):
            super().__init__()
            self.a, self.b = dg.Conv2D(1, 6, 5, act="relu"), dg.Conv2D(6, 8, 3, act="relu")
            self.pool = dg.Pool2D(pool_size=2, pool_stride=2, pool_type="max")
            self.c = dg.Linear(200, 10, act="softmax")

        def forward(self, x, label):
            x = self.pool(self.b(self.pool(self.a(x))))
            return layers.mean(layers.cross_entropy(self.c(layers.reshape(x, [-1, 200])), label))

    net = Net()
    return make_step(fluid, net, fluid.optimizer.Adam(0.002, parameter_list=net.parameters()), CNN_BATCH)


CNN_BATCH = _normal(8, 1, 28, 28), _ints(10, 8, 1)


def lstm(fluid):
    """A language model: 35 Python steps, 2 layers of 64, batch 4, vocabulary 1000, SGD with a global norm clip."""
    dg, layers = fluid.dygraph, fluid.layers
    size, count, vocabulary = 64, 2, 1000

    class Net(dg.Layer):
        def __init__(self):
            super().__init__()
            self.table = dg.Embedding(size=[vocabulary, size])
            self.gates = dg.LayerList([dg.Linear(2 * size, 4 * size) for _ in range(count)])
            self.out = dg.Linear(size, vocabulary)

        def forward(self, words, labels):
            x = self.table(words)
            state = [(layers.zeros([4, size], "float32"), layers.zeros([4, size], "float32")) for _ in range(count)]
            outputs = []
            for t in range(35):
                h = layers.reshape(layers.slice(x, axes=[1], starts=[t], ends=[t + 1]), [4, size])
                for k in range(count):
                    h, c = self._cell(k, h, state[k])
                    state[k] = (h, c)
                outputs.append(layers.reshape(h, [4, 1, size]))
            logits = self.out(layers.concat(outputs, 1))
            return layers.mean(layers.softmax_with_cross_entropy(logits, labels))

        def _cell(self, k, x, state):
            h, c = state
            i, j, f, o = layers.split(self.gates[k](layers.concat([x, h], 1)), 4, dim=-1)
            c = c * layers.sigmoid(f + 1.0) + layers.sigmoid(i) * layers.tanh(j)
            return layers.tanh(c) * layers.sigmoid(o), c

    net = Net()
    clip = fluid.clip.GradientClipByGlobalNorm(5.0)
    return make_step(fluid, net, fluid.optimizer.SGD(0.5, parameter_list=net.parameters(), grad_clip=clip), LSTM_BATCH)


LSTM_BATCH = _ints(1000, 4, 35), _ints(999, 4, 35, 1)


def transformer(fluid):
    """Two encoder blocks, width 64, 8 rows of 10, 4 heads, Adam with Noam's rate."""
    dg, layers = fluid.dygraph, fluid.layers
    size, heads = 64, 4

    class Block(dg.Layer):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v, self.o = [dg.Linear(size, size) for _ in range(4)]
            self.one, self.two = dg.LayerNorm(size), dg.LayerNorm(size)
            self.up, self.down = dg.Linear(size, 4 * size, act="relu"), dg.Linear(4 * size, size)

        def _split(self, x):
            return layers.transpose(layers.reshape(x, [8, 10, heads, size // heads]), [0, 2, 1, 3])

        def forward(self, x):
            q, k, v = self._split(self.q(x)), self._split(self.k(x)), self._split(self.v(x))
            weights = layers.softmax(layers.matmul(q, k, transpose_y=True, alpha=(size // heads) ** -0.5))
            mixed = layers.reshape(layers.transpose(layers.matmul(weights, v), [0, 2, 1, 3]), [8, 10, size])
            x = self.one(x + self.o(mixed))
            return self.two(x + self.down(self.up(x)))

    class Net(dg.Layer):
        def __init__(self):
            super().__init__()
            self.first, self.second = Block(), Block()
            self.out = dg.Linear(size, 10)

        def forward(self, x, label):
            x = layers.reduce_mean(self.second(self.first(x)), dim=1)
            return layers.mean(layers.softmax_with_cross_entropy(self.out(x), label))

    net = Net()
    rate = dg.NoamDecay(size, 100)
    return make_step(fluid, net, fluid.optimizer.Adam(rate, parameter_list=net.parameters()), TRANSFORMER_BATCH)


TRANSFORMER_BATCH = _normal(8, 10, 64), _ints(10, 8, 1)


def dqn(fluid):
    """4-16-16-3 and its target network, batch 8, Adam."""
    dg, layers = fluid.dygraph, fluid.layers

    class Net(dg.Layer):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = dg.Linear(4, 16, act="relu"), dg.Linear(16, 16, act="relu"), dg.Linear(16, 3)

        def forward(self, x):
            return self.c(self.b(self.a(x)))

    class Learner(dg.Layer):
        def __init__(self):
            super().__init__()
            self.q, self.target = Net(), Net()

        def forward(self, state, action, reward, after):
            best = layers.reduce_max(self.target(after), dim=1, keep_dim=True)
            best.stop_gradient = True
            wanted = reward + best * 0.9
            taken = layers.reduce_sum(self.q(state) * layers.one_hot(action, 3), dim=1, keep_dim=True)
            return layers.mean(layers.square(taken - wanted))

    net = Learner()
    return make_step(fluid, net, fluid.optimizer.Adam(0.001, parameter_list=net.q.parameters()), DQN_BATCH)


DQN_BATCH = _normal(8, 4), _ints(3, 8, 1), _normal(8, 1), _normal(8, 4) + 1


def adds(fluid):
    """A chain of 200 additions of 2 by 2, forward and backward."""
    x, c = [fluid.dygraph.to_variable(np.ones([2, 2], "float32")) for _ in range(2)]
    x.stop_gradient = False

    def step():
        y = x
        for _ in range(200):
            y = y + c
        y.backward()
        return x.gradient()

    return step


MODELS = {f.__name__: f for f in (mlp, cnn, lstm, transformer, dqn, adds)}
