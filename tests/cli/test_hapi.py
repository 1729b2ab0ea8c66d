"""paddle.incubate.hapi: shares of a data set, and pictures that are changed at random."""

import random
import sys

import numpy as np
import pytest

from fluidjax import paddle
from fluidjax.paddle.incubate.hapi.distributed import DistributedBatchSampler
from fluidjax.paddle.incubate.hapi.vision import transforms


def shares(monkeypatch, count: int, ranks: int, **options) -> list[list[list[int]]]:
    """The batches of each process."""
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", str(ranks))
    found = []
    for rank in range(ranks):
        monkeypatch.setenv("PADDLE_TRAINER_ID", str(rank))
        sampler = DistributedBatchSampler(range(count), **options)
        found.append(list(sampler))
        assert len(sampler) == len(found[-1])
    return found


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("shuffle", [False, True])
def test_all_indices_are_dealt_out(monkeypatch, ranks: int, shuffle: bool) -> None:
    found = shares(monkeypatch, 14, ranks, batch_size=3, shuffle=shuffle)
    assert {i for share in found for batch in share for i in batch} == set(range(14))
    assert len({sum(map(len, share)) for share in found}) == 1


def test_batches_go_round(monkeypatch) -> None:
    # As 1.8.5 deals them out: 11 indices become 12; each has a whole batch, and a third of what is left.
    assert shares(monkeypatch, 11, 3, batch_size=3) == [[[0, 1, 2], [9]], [[3, 4, 5], [10]], [[6, 7, 8], [0]]]
    assert shares(monkeypatch, 11, 3, batch_size=3, drop_last=True) == [[[0, 1, 2]], [[3, 4, 5]], [[6, 7, 8]]]


def test_epochs_are_shuffled_alike(monkeypatch) -> None:
    sampler = DistributedBatchSampler(range(9), 4, shuffle=True)
    first, second = list(sampler), list(sampler)
    assert first != second
    sampler.set_epoch(0)
    assert list(sampler) == first


@pytest.mark.parametrize("options", [{"batch_size": 0}, {"batch_size": 2.0}, {"batch_size": 1, "shuffle": 1}])
def test_arguments_are_checked(options) -> None:
    with pytest.raises(AssertionError, match="DistributedBatchSampler"):
        DistributedBatchSampler(range(3), **options)


def test_pictures_are_blended(rng) -> None:
    assert paddle.incubate.hapi.vision.ContrastTransform is transforms.ContrastTransform
    picture = rng.integers(0, 256, (4, 5, 3)).astype("uint8")
    grey = picture @ np.array([0.114, 0.587, 0.299])
    others = {
        transforms.BrightnessTransform: 0.0,
        transforms.ContrastTransform: grey.mean(),
        transforms.SaturationTransform: grey[..., None],
    }
    for kind, other in others.items():
        assert kind(0)(picture) is picture
        np.random.seed(1)
        share = np.random.uniform(0.6, 1.4)
        np.random.seed(1)
        changed = kind(0.4)(picture)
        assert changed.dtype == picture.dtype
        np.testing.assert_allclose(changed, (picture * share + other * (1 - share)).clip(0, 255), atol=1.01)
        with pytest.raises(ValueError, match="should be non-negative"):
            kind(-1)
    with pytest.raises(ValueError, match="hue value"):
        transforms.HueTransform(0.6)


def test_jitter_does_all_it_was_given(rng) -> None:
    random.seed(3)
    jitter = transforms.ColorJitter(0.2, 0.3, 0, 0)
    assert {type(t).__name__ for t in jitter.transforms} == {"BrightnessTransform", "ContrastTransform"}
    assert jitter(rng.random((4, 4, 3)).astype("float32")).shape == (4, 4, 3)


def test_hues_need_opencv(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    assert transforms.HueTransform(0)("a picture") == "a picture"
    with pytest.raises(ImportError, match="(?s)HueTransform needs OpenCV.*opencv-python-headless"):
        transforms.HueTransform(0.5)(np.zeros((2, 2, 3), "uint8"))
