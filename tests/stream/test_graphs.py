"""Graph networks, whose numbers of nodes, edges and graphs change in each batch: a few compilations, exact results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers
from fluidjax.execution.rooms.dense import ChangingDims
from tests.stream.graphs import NETWORKS, Feed, classified, graph, graphs
from tests.stream.test_wide import Trained, train

pytestmark = pytest.mark.usefixtures("compiled_quickly")

SIZES = ((40, 100, 3), (50, 150, 5), (20, 30, 2), (44, 120, 4))  # nodes, edges, graphs


def taken(build: Callable[[], Sequence[Any]], feeds: Sequence[Feed], counted: bool) -> Trained:
    """One step on each feed, of which the numbers of nodes and edges are left out if the program does not read them."""
    read = [{n: v for n, v in feed.items() if counted or n not in ("nodes", "edges")} for feed in feeds]
    return train(build, read)


def exactly(monkeypatch: pytest.MonkeyPatch, build: Any, feeds: Sequence[Feed]) -> Trained:
    """What each size as it is gives."""
    with monkeypatch.context() as patch:
        patch.setattr(ChangingDims, "_may_have_rows", lambda _: False)
        return taken(build, feeds, False)


def hold(found: Trained, exact: Trained, most: int) -> None:
    """At most so many compilations, and fetches and parameters as with each size as it is."""
    assert found.compilations <= most
    for mine, theirs in zip(found.fetches, exact.fetches, strict=True):
        for a, b in zip(mine, theirs, strict=True):
            assert a.shape == b.shape
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    for name, value in found.parameters.items():
        np.testing.assert_allclose(value, exact.parameters[name], rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("name", NETWORKS)
def test_graphs_of_any_size(name: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    feeds = [graph(rng, *sizes) for sizes in SIZES]
    exact = exactly(monkeypatch, classified(NETWORKS[name], counted=False), feeds)
    assert exact.compilations == len(feeds)
    for counted in (False, True):
        hold(taken(classified(NETWORKS[name], counted=counted), feeds, counted), exact, 2)


@pytest.mark.parametrize("counted", [False, True])
def test_a_stream_of_graphs_compiles_a_few_times(counted: bool, rng: np.random.Generator) -> None:
    found = taken(classified(NETWORKS["gat"], counted=counted), graphs(rng, 30), counted)
    assert found.compilations <= 6


def test_counts_may_be_of_other_feeds_than_the_first(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first room for nodes is too small for the edges of the first batch, which are fed before them."""
    fed = [graph(rng, *sizes) for sizes in ((44, 150, 3), (50, 170, 4))]
    feeds = [{"src": feed["src"], **feed} for feed in fed]
    exact = exactly(monkeypatch, classified(NETWORKS["gcn"], counted=False), feeds)
    hold(taken(classified(NETWORKS["gcn"], counted=True), feeds, True), exact, 2)


def test_graphs_of_which_only_the_edges_change(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    feeds = [graph(rng, 20, edges, 3) for edges in (31, 50, 27, 44)]
    build = classified(NETWORKS["sage"], counted=False)
    hold(taken(build, feeds, False), exactly(monkeypatch, build, feeds), 2)


def test_a_graph_without_edges_is_exact(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    feeds = [graph(rng, 20 + edges, edges, 3) for edges in (31, 50, 0, 44)]
    build = classified(NETWORKS["gcn"], counted=False)
    hold(taken(build, feeds, False), exactly(monkeypatch, build, feeds), 3)


def test_offsets_that_are_not_those_of_the_edges_are_refused(rng: np.random.Generator) -> None:
    """As many nodes receive messages as sequences have: in a later batch as in the first."""
    feeds = [dict(graph(rng, *sizes)) for sizes in SIZES]
    feeds[3]["uniq"] = feeds[3]["uniq"][:-1]
    with pytest.raises(fluid.core.EnforceNotMet, match="scatter"):
        taken(classified(NETWORKS["sage"], counted=False), feeds, False)


def test_a_batch_beside_a_table_is_no_graph(rng: np.random.Generator) -> None:
    """Feeds that change are equally many: the last batch is smaller, and compiled as it is."""

    def build() -> Sequence[Any]:
        x, table = (fluid.data(name, [None, 4], "float32") for name in ("x", "table"))
        scores = layers.softmax(layers.matmul(layers.fc(x, 4), table, transpose_y=True))
        return [layers.mean(scores), scores]

    table = rng.standard_normal((7, 4)).astype(np.float32)
    feeds = [{"x": rng.standard_normal((n, 4)).astype(np.float32), "table": table} for n in (8, 8, 5, 8, 5)]
    assert train(build, feeds).compilations == 2


def test_rows_give_way_to_other_dims(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dim after the first changes, too: rows are exact from then on."""

    def build() -> Sequence[Any]:
        x, y = fluid.data("x", [None, None, 4], "float32"), fluid.data("y", [None, 4], "float32")
        pooled = layers.reduce_sum(layers.fc(x, 4, num_flatten_dims=2), [0, 1], keep_dim=False)
        return [layers.mean(layers.fc(y, 4) + pooled)]

    sizes = [(3, 1, 5), (4, 1, 6), (5, 1, 9), (5, 3, 9), (5, 4, 9), (5, 6, 9)]
    feeds = [
        {
            "x": rng.standard_normal((a, b, 4)).astype(np.float32),
            "y": rng.standard_normal((c, 4)).astype(np.float32),
        }
        for a, b, c in sizes
    ]
    hold(taken(build, feeds, False), exactly(monkeypatch, build, feeds), 4)
