"""The nets of ``eager_models`` as static programs: stand-ins for the layer classes that write ops."""

from types import SimpleNamespace

import numpy as np

import fluidjax as fluid
from benchmarks.measure import place
from fluidjax import layers


class Layer:
    """What nets derive from."""

    def __call__(self, *inputs):
        return self.forward(*inputs)

    late = False  # whether parameters are only made when it is called

    def parts(self):
        """The layer and all layers in it."""
        inner = [part for value in vars(self).values() for part in (value if isinstance(value, list) else [value])]
        return [self, *[p for part in inner if isinstance(part, Layer) for p in part.parts()]]

    def parameters(self):
        """The names of all parameters; none, for all of the program, where some are not there yet."""
        parts = self.parts()
        return [] if any(p.late for p in parts) else [name for p in parts for name in getattr(p, "made", [])]


class _Made(Layer):
    def make(self, shape, **settings):
        param = layers.create_parameter(shape, "float32", **settings)
        self.made = [*getattr(self, "made", []), param.name]
        return param


class Linear(_Made):
    """matmul and add on the last axis."""

    def __init__(self, width, size, act=None):
        self.weight, self.bias, self.act = self.make([width, size]), self.make([size], is_bias=True), act

    def forward(self, x):
        """The op types of the eager class."""
        y = layers.elementwise_add(layers.matmul(x, self.weight), self.bias, axis=len(x.shape) - 1)
        return getattr(layers, self.act)(y) if self.act else y


class Embedding(_Made):
    """Rows of a table."""

    late = True

    def __init__(self, size):
        self.size = size

    def forward(self, ids):
        """[N, T] -> [N, T, width]."""
        return fluid.embedding(ids, self.size)


class Conv2D(_Made):
    """A convolution, used once."""

    late = True

    def __init__(self, channels, filters, size, act=None):
        self.settings = {"num_filters": filters, "filter_size": size, "act": act}

    def forward(self, x):
        """With its parameters."""
        return layers.conv2d(x, **self.settings)


class Pool2D(Layer):
    """A pool."""

    def __init__(self, **settings):
        self.settings = settings

    def forward(self, x):
        """As set."""
        return layers.pool2d(x, **self.settings)


class LayerNorm(Layer):
    """Over the last axis."""

    late = True

    def __init__(self, size):
        self.size = size

    def forward(self, x):
        """With its parameters."""
        return layers.layer_norm(x, begin_norm_axis=len(x.shape) - 1)


def _noam(size, warmup):
    return layers.noam_decay(size, warmup)


def _optimizer(make):
    def build(*args, parameter_list, **kwargs):
        return make(*args, parameter_list=parameter_list or None, **kwargs)

    return build


class Step:
    """A step of a program."""

    def __init__(self, shim, net, optimizer, batch):
        names = [f"in{k}" for k in range(len(batch))]
        feeds = [fluid.data(n, a.shape, str(a.dtype)) for n, a in zip(names, batch, strict=True)]
        self.loss = net(*feeds)
        optimizer.minimize(self.loss)
        self.executor = fluid.Executor(place(fluid))
        self.executor.run(fluid.default_startup_program())
        self.feed = dict(zip(names, batch, strict=True))

    def __call__(self):
        return self.executor.run(feed=self.feed, fetch_list=[self.loss])[0]


SHIM = SimpleNamespace(
    dygraph=SimpleNamespace(
        Layer=Layer, Linear=Linear, Embedding=Embedding, Conv2D=Conv2D, Pool2D=Pool2D, LayerNorm=LayerNorm,
        LayerList=list, NoamDecay=_noam,
    ),
    layers=layers,
    clip=fluid.clip,
    optimizer=SimpleNamespace(SGD=_optimizer(fluid.optimizer.SGD), Adam=_optimizer(fluid.optimizer.Adam)),
    make_step=Step,
)  # fmt: skip


def adds():
    """The chain of 200 additions and its gradient as one program."""
    x = fluid.data("x", [2, 2], "float32")
    x.stop_gradient = False
    c = fluid.data("c", [2, 2], "float32")
    y = x
    for _ in range(200):
        y = y + c
    (grad,) = fluid.gradients(y, x)
    executor = fluid.Executor(place(fluid))
    feed = {name: np.ones([2, 2], "float32") for name in ("x", "c")}
    return lambda: executor.run(feed=feed, fetch_list=[grad])[0]
