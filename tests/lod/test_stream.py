"""Models over streams of ragged batches: few compilations, the same numbers as with exact rows, and they learn."""

from __future__ import annotations

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers
from fluidjax.execution.scopes import exchange

pytestmark = pytest.mark.usefixtures("compiled_quickly")

WORDS, TAGS, SEQUENCES = 50, 5, 8


def embedded(ids, width=8):
    return layers.embedding(ids, [WORDS, width])


def lstm_classifier(ids, label):
    hidden, _ = layers.dynamic_lstm(layers.fc(embedded(ids), 32), 32)
    return classified(layers.sequence_pool(hidden, "max"), label)


def conv_classifier(ids, label):
    table = layers.embedding(ids, [WORDS, 8], is_sparse=True)
    conv = layers.sequence_conv(table, 6, 3, act="tanh")
    return classified(layers.sequence_pool(conv, "sqrt"), label)


def attention_classifier(ids, label):
    rows = layers.fc(embedded(ids), 8, act="tanh")
    weights = layers.reshape(layers.sequence_softmax(layers.fc(rows, 1, bias_attr=False)), [-1])
    summed = layers.sequence_pool(layers.elementwise_mul(rows, weights, axis=0), "sum")
    both = layers.concat([rows, layers.sequence_expand(summed, rows)], axis=1)
    return classified(layers.sequence_pool(both, "average"), label)


def classified(rows, label):
    return layers.mean(layers.cross_entropy(layers.fc(rows, 2, act="softmax"), label))


def crf_tagger(ids, tags):
    rows = embedded(ids)
    ways = [layers.dynamic_gru(layers.fc(rows, 24), 8, is_reverse=r) for r in (False, True)]
    emission = layers.fc(ways, TAGS)
    return layers.mean(layers.linear_chain_crf(emission, tags, param_attr=fluid.ParamAttr(name="crf")))


def ctc_reader(ids, tags):
    logits = layers.fc(embedded(ids), TAGS + 1)
    return layers.mean(layers.warpctc(logits, layers.cast(tags, "int32"), blank=TAGS))


MODELS = {f.__name__: f for f in (lstm_classifier, conv_classifier, attention_classifier, crf_tagger, ctc_reader)}
RAGGED_LABELS = {"crf_tagger", "ctc_reader"}


def build(model):
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 7
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ids = fluid.data("ids", [None, 1], "int64", lod_level=1)
        label = fluid.data("label", [None, 1], "int64", lod_level=int(model in RAGGED_LABELS))
        loss = MODELS[model](ids, label)
        fluid.optimizer.SGD(0.1).minimize(loss)
    return main, startup, loss


def batch(model, rng, lengths):
    """Ids of these lengths; the label says whether the first word is a low one, tags follow from the words."""
    place = fluid.CPUPlace()
    ids = rng.integers(0, WORDS, (sum(lengths), 1))
    feed = {"ids": fluid.create_lod_tensor(ids, [list(lengths)], place)}
    if model == "crf_tagger":
        feed["label"] = fluid.create_lod_tensor(ids % TAGS, [list(lengths)], place)
    elif model == "ctc_reader":
        sizes = [min(2, n // 2) for n in lengths]
        feed["label"] = fluid.create_lod_tensor(rng.integers(0, TAGS, (sum(sizes), 1)), [sizes], place)
    else:
        feed["label"] = rng.integers(0, 2, (len(lengths), 1))
    return feed


def train(model, feeds):
    """(losses, final parameters, number of compilations)."""
    main, startup, loss = build(model)
    scope = fluid.Scope()
    with fluid.scope_guard(scope):
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        losses = [float(np.asarray(exe.run(main, feed=f, fetch_list=[loss])[0]).item()) for f in feeds]
        values = {p.name: np.array(scope.find_var(p.name).get_tensor()) for p in main.all_parameters()}
    return losses, values, sum(p.compilations for p in main._prepared_cache.values())


def lengths_of(rng, low=1, high=9):
    """Lengths with an empty sequence now and then."""
    drawn = rng.integers(low, high, SEQUENCES)
    drawn[rng.integers(SEQUENCES)] = rng.integers(0, 2) * drawn[0]
    return [int(n) for n in drawn]


@pytest.mark.parametrize("model", MODELS)
def test_bucketed_and_exact_rows_agree(model, rng, monkeypatch):
    lengths = lengths_of(rng)
    feeds = [batch(model, rng, lengths) for _ in range(2)]
    losses, values, _ = train(model, feeds)
    monkeypatch.setattr(exchange, "bucket", lambda n: n)
    exact_losses, exact_values, _ = train(model, feeds)
    np.testing.assert_allclose(losses, exact_losses, rtol=2e-5)
    for name, value in values.items():
        np.testing.assert_allclose(value, exact_values[name], rtol=1e-4, atol=1e-6, err_msg=name)


def test_a_stream_of_batches_needs_few_compilations(rng):
    """Many row totals within two buckets, and a smaller last batch."""
    sizes = [lengths_of(rng, 5, 9) for _ in range(40)]
    feeds = [batch("conv_classifier", rng, s) for s in [*sizes, sizes[0][:3]]]
    totals = {sum(s) for s in sizes}
    assert len(totals) > 10
    _, _, compilations = train("conv_classifier", feeds)
    assert compilations <= 4


def test_an_all_empty_batch_trains_on(rng):
    feeds = [batch("lstm_classifier", rng, lengths) for lengths in ([0] * SEQUENCES, [1, 0, 2, 0, 0, 0, 0, 0])]
    losses, values, _ = train("lstm_classifier", feeds)
    assert np.all(np.isfinite(losses))
    assert all(np.all(np.isfinite(v)) for v in values.values())


def test_a_tagger_learns(rng):
    """The tag is the word modulo the number of tags: a BiGRU-CRF finds it out on ragged batches."""
    feeds = [batch("crf_tagger", rng, rng.permutation([3, 4, 5, 6, 7, 8, 9, 2])) for _ in range(60)]
    losses, _, _ = train("crf_tagger", feeds)
    assert np.mean(losses[-5:]) < 0.5 * np.mean(losses[:5])
