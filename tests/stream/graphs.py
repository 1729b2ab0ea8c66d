"""Graphs of changing sizes, and networks on them in the style of pgl 1.x: messages along edges, received by node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import fluidjax as fluid
from fluidjax import layers

D, H = 6, 5
Feed = Mapping[str, Any]


def graph(rng: np.random.Generator, nodes: int, edges: int, graphs: int) -> Feed:
    """Edges sorted by where they end, as ``uniq`` and the offsets ``lod`` say; ``parts``: offsets of the graphs."""
    src, dst = rng.integers(0, nodes, edges), np.sort(rng.integers(0, nodes, edges))
    uniq, counts = np.unique(dst, return_counts=True)
    cuts = np.sort(rng.choice(np.arange(1, nodes), graphs - 1, replace=False))
    return {
        "x": rng.standard_normal((nodes, D)).astype(np.float32),
        "degree": np.bincount(dst, minlength=nodes).astype(np.float32)[:, None],
        "src": src,
        "dst": dst,
        "uniq": uniq,
        "lod": np.insert(np.cumsum(counts), 0, 0).astype(np.int32),
        "parts": np.array([0, *cuts, nodes], np.int32),
        "label": rng.integers(0, 2, (graphs, 1)),
        "nodes": np.array([nodes]),
        "edges": np.array([edges]),
    }


def graphs(rng: np.random.Generator, count: int, most: int = 60) -> list[Feed]:
    """So many batches of graphs of any size."""
    sizes = [(n, int(rng.integers(n, 4 * n)), int(rng.integers(2, 6))) for n in rng.integers(8, most, count).tolist()]
    return [graph(rng, *of) for of in sizes]


class Wrapper:
    """What pgl's GraphWrapper holds: a graph as feeds; ``counted``: the numbers of nodes and edges are fed too."""

    def __init__(self, *, counted: bool):
        ids = {name: fluid.data(name, [None], "int64") for name in ("src", "dst", "uniq")}
        self.src, self.dst, self.uniq = ids.values()
        self.lod, self.parts = (fluid.data(name, [None], "int32") for name in ("lod", "parts"))
        self.x, self.degree = fluid.data("x", [None, D], "float32"), fluid.data("degree", [None, 1], "float32")
        self.x.stop_gradient = False
        self.nodes, self.edges = (fluid.data(n, [1], "int64") if counted else None for n in ("nodes", "edges"))

    def zeros(self, width: int) -> Any:
        """A row for each node."""
        if self.nodes is not None:
            return layers.fill_constant([self.nodes, width], "float32", 0.0)
        return layers.fill_constant_batch_size_like(self.x, [-1, width], "float32", 0.0)

    def send(self, rows: Any, by: Any) -> Any:
        return layers.gather(rows, by, overwrite=False)

    def received_sum(self, message: Any) -> Any:
        """The sum of the messages to each node, by ``scatter``."""
        zeros = self.zeros(message.shape[-1])
        zeros.stop_gradient = False
        if self.edges is not None:
            message = message * layers.cast(self.edges > 0, "float32")
        return layers.scatter(zeros, self.dst, message, overwrite=False)

    def received(self, message: Any, reduce: Callable[[Any], Any]) -> Any:
        """What ``reduce`` makes of the messages to each node, as sequences."""
        found = reduce(layers.lod_reset(message, self.lod))
        return layers.scatter(self.zeros(found.shape[-1]), self.uniq, found)


def bias(width: int) -> Any:
    return layers.create_parameter([width], "float32", is_bias=True)


def gcn(g: Wrapper) -> Any:
    """Two graph convolutions (Kipf and Welling), the messages added by ``scatter``."""
    norm = layers.elementwise_pow(g.degree + 1.0, layers.fill_constant([1], "float32", -0.5))
    rows = g.x
    for _ in range(2):
        rows = layers.fc(rows, H, bias_attr=False) * norm
        rows = layers.relu(g.received_sum(g.send(rows, g.src)) + bias(H))
    return rows


def _softmax(scores: Any) -> Any:
    """For several heads, of which ``sequence_softmax`` takes one."""
    exps = layers.exp(scores - layers.sequence_expand(layers.sequence_pool(scores, "max"), scores))
    return exps / layers.sequence_expand(layers.sequence_pool(exps, "sum"), exps)


def gat(g: Wrapper) -> Any:
    """Graph attention (Velickovic et al.) with three heads, then one."""
    rows = g.x
    for heads in (3, 1):
        rows = layers.fc(rows, H * heads, bias_attr=False)
        parted = layers.reshape(rows, [-1, heads, H])
        here, there = (layers.reduce_sum(parted * layers.create_parameter([heads, H], "float32"), -1) for _ in "ab")
        scores = layers.leaky_relu(g.send(here, g.src) + g.send(there, g.dst), 0.2)
        scores = layers.lod_reset(scores, g.lod)
        weights = _softmax(scores) if heads > 1 else layers.sequence_softmax(scores)
        message = layers.reshape(g.send(rows, g.src), [-1, heads, H]) * layers.reshape(weights, [-1, heads, 1])
        message = layers.reshape(message, [-1, heads * H])
        rows = layers.elu(g.received(message, lambda m: layers.sequence_pool(m, "sum")) + bias(H * heads))
    return rows


def sage(g: Wrapper) -> Any:
    """GraphSAGE with the maximum of the messages."""
    found = g.received(g.send(g.x, g.src), lambda m: layers.sequence_pool(m, "max"))
    both = layers.concat([layers.fc(g.x, H, act="relu"), layers.fc(found, H, act="relu")], axis=1)
    return layers.l2_normalize(both, axis=1)


def classified(network: Callable[[Wrapper], Any], *, counted: bool) -> Callable[[], Sequence[Any]]:
    """A network whose nodes are pooled graph by graph, and the graphs classified."""

    def build() -> Sequence[Any]:
        g = Wrapper(counted=counted)
        rows = network(g)
        pooled = layers.sequence_pool(layers.lod_reset(rows, g.parts), "average")
        logits, label = layers.fc(pooled, 2), fluid.data("label", [None, 1], "int64")
        return [layers.mean(layers.softmax_with_cross_entropy(logits, label)), rows, logits]

    return build


NETWORKS = {"gcn": gcn, "gat": gat, "sage": sage}
