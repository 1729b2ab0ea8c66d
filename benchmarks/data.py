"""The batches that every peer trains on; equal numbers under every NumPy. Runs under Python 3.7 too."""

import numpy as np

BATCHES = 8  # dense batches are cycled through
VOCABULARY, CONTEXT, TARGETS = 20000, 4, 2000
BEAM, LONGEST_OUTPUT, DECODED = 4, 16, 8
RNN_BATCH = 32
# Of the While RNNs: steps and hidden size. The last two differ in the room for steps alone.
RNNS = {"while_rnn": (100, 256), "while_rnn_64": (100, 64), "while_rnn_short": (50, 64), "while_rnn_long": (800, 64)}
WORDS = 5000  # vocabulary of the text models
FIELDS, FEATURES = 39, 100000  # of a click: a feature of each field
PAIRS, LENGTH, WIDTH, HEADS, LAYERS = 16, 32, 128, 4, 2  # of the Transformer


def _random(seed):
    return np.random.RandomState(seed)


def fit_a_line():
    """20 samples of 13 features and their price."""
    r = _random(0)
    return [{"x": r.randn(20, 13).astype("float32"), "y": r.randn(20, 1).astype("float32")} for _ in range(BATCHES)]


def _images(shape, classes, batch):
    r = _random(1)
    return [
        {
            "image": r.randn(batch, *shape).astype("float32"),
            "label": r.randint(0, classes, (batch, 1)).astype("int64"),
        }
        for _ in range(BATCHES)
    ]


def mlp():
    """64 flat digits."""
    return _images((784,), 10, 64)


def lenet():
    """64 digits."""
    return _images((1, 28, 28), 10, 64)


def resnet20():
    """32 small colour images."""
    return _images((3, 32, 32), 10, 32)


def word2vec():
    """100 contexts of four words and the word that follows, one of 2,000."""
    r = _random(2)
    return [
        {
            "words": r.randint(0, VOCABULARY, (100, CONTEXT)).astype("int64"),
            "target": r.randint(0, TARGETS, (100, 1)).astype("int64"),
        }
        for _ in range(BATCHES)
    ]


def clicks():
    """256 clicks or not, each of 39 features with their values."""
    r = _random(8)
    return [
        {
            "features": r.randint(0, FEATURES, (256, FIELDS)).astype("int64"),
            "values": r.rand(256, FIELDS, 1).astype("float32"),
            "label": r.randint(0, 2, (256, 1)).astype("float32"),
        }
        for _ in range(BATCHES)
    ]


def pairs():
    """Sentences of 32 words, their translations, and the translations' next words."""
    r = _random(9)
    found = []
    for _ in range(BATCHES):
        source, target = [r.randint(0, WORDS, (PAIRS, n)).astype("int64") for n in (LENGTH, LENGTH + 1)]
        found.append({"source": source, "target": target[:, :-1].copy(), "words": target[:, 1:, None].copy()})
    return found


def sentences(batches, batch=32, low=5, high=100, seed=3):
    """A stream of ragged batches: lists of word-id arrays [n] with ``low`` to ``high`` words, and labels [batch, 1]."""
    r = _random(seed)
    found = []
    for _ in range(batches):
        lengths = r.randint(low, high + 1, batch)
        words = [r.randint(0, WORDS, n).astype("int64") for n in lengths]
        found.append({"words": words, "label": r.randint(0, 2, (batch, 1)).astype("int64")})
    return found


def rnn(steps, size):
    """Time-major input of a While RNN."""
    r = _random(4)
    return [{"x": r.randn(steps, RNN_BATCH, size).astype("float32")} for _ in range(2)]


def lines(count, vocabulary):
    """Sentences of 1 to 60 word ids, many of them short."""
    r = _random(5)
    lengths = np.clip(r.gamma(2.5, 8, count), 1, 60).astype(int)
    return [r.randint(0, vocabulary, n).astype("int64") for n in lengths]


def histories(batches, items, categories, batch=32, longest=100):
    """Padded histories of items with their categories, and a candidate, repeated, for each."""
    r = _random(6)
    found = []
    for _ in range(batches):
        width = r.randint(1, longest + 1)
        behind = np.arange(width) >= r.randint(1, width + 1, (batch, 1))
        candidates = [r.randint(0, n, (batch, 1)).repeat(width, 1).astype("int64") for n in (items, categories)]
        found.append(
            {
                "history_items": r.randint(0, items, (batch, width)).astype("int64"),
                "history_categories": r.randint(0, categories, (batch, width)).astype("int64"),
                "candidate_items": candidates[0],
                "candidate_categories": candidates[1],
                "mask": np.where(behind, -1e9, 0).astype("float32")[:, :, None],
                "label": r.randint(0, 2, (batch, 1)).astype("float32"),
            }
        )
    return found


def translations(batches, batch=16, shortest=5, longest=50):
    """Padded pairs of sentences of word ids."""
    r = _random(7)
    found = []
    for _ in range(batches):
        source, target = r.randint(shortest, longest + 1, 2)
        there, wanted = [np.arange(n) < r.randint(shortest, n + 1, (batch, 1)) for n in (source, target)]
        ids = r.randint(0, WORDS, (batch, target + 1, 1)).astype("int64")
        found.append(
            {
                "source": r.randint(0, WORDS, (batch, source, 1)).astype("int64"),
                "target": ids[:, :-1],
                "words": ids[:, 1:],
                "unseen": np.where(there, 0, -1e9).astype("float32")[:, None, None],
                "weight": wanted.astype("float32")[:, :, None],
            }
        )
    return found
