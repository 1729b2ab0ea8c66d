"""``paddle.dataset``: the datasets of Paddle's book, downloaded to and read from a local cache."""

from fluidjax.paddle.dataset import (
    cifar,
    common,
    conll05,
    flowers,
    image,
    imdb,
    imikolov,
    mnist,
    movielens,
    mq2007,
    sentiment,
    uci_housing,
    voc2012,
    wmt14,
    wmt16,
)

__all__ = [
    "mnist",
    "imikolov",
    "imdb",
    "cifar",
    "movielens",
    "conll05",
    "uci_housing",
    "sentiment",
    "wmt14",
    "wmt16",
    "mq2007",
    "flowers",
    "voc2012",
    "image",
    "common",
]
