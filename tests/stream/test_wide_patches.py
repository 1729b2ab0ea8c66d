"""Images of any size as sequences of patches: text that is read off images, and each form of ``im2sequence``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers
from fluidjax.layer_helper import LayerHelper
from tests.stream.test_wide import Feed, compare
from tests.stream.test_wide_images import image, images
from tests.stream.test_wide_sizes import both, equal_to_exact_sizes

pytestmark = pytest.mark.usefixtures("compiled_quickly")

B, CLASSES, H = 2, 6, 4
SIZES = ((12, 16), (16, 24), (12, 20))
FORMS: dict[str, dict[str, list[int]]] = {
    "columns": {"kernels": [3, 1], "strides": [3, 1], "paddings": [0, 0, 0, 0]},
    "padded": {"kernels": [3, 2], "strides": [2, 2], "paddings": [1, 0, 2, 1]},
    "apart": {"kernels": [2, 2], "strides": [3, 4], "paddings": [0, 0, 0, 0]},
}


def patches_of(x: Any, form: dict[str, list[int]]) -> Any:
    """The op on float64, which the layer refuses."""
    helper = LayerHelper("im2sequence", input=x)
    out = helper.create_variable_for_type_inference(x.dtype)
    helper.append_op(type="im2sequence", inputs={"X": x}, outputs={"Out": out}, attrs=form)
    return out


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_patches_of_images_of_any_size(
    form: dict[str, list[int]], rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build() -> Sequence[Any]:
        patches = patches_of(layers.conv2d(image(), 3, 3, 1, 1), form)
        last = layers.sequence_pool(layers.fc(patches, H, act="tanh"), "last")
        return [layers.mean(layers.square(last)), *(layers.sequence_pool(patches, how) for how in ("sum", "last"))]

    equal_to_exact_sizes(monkeypatch, build, images(rng, SIZES), 2)


def test_an_image_smaller_than_a_patch_is_exact(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has one patch nevertheless, as few places are missing."""

    def build() -> Sequence[Any]:
        form = {"kernels": [1, 8], "strides": [8, 8], "paddings": [0, 0, 0, 0]}
        patches = patches_of(layers.conv2d(image(), 3, 1), form)
        return [layers.mean(layers.square(patches)), layers.sequence_pool(patches, "sum")]

    both(monkeypatch, build, images(rng, [(4, 16), (4, 24), (4, 6)]))


# --- text is read off images ---------------------------------------------------------------------------------------


def encoded() -> Any:
    """What both directions of a recurrence make of the columns of images."""
    x = fluid.data("image", [None, 1, 8, None], "float32")
    for channels in (3, 4):
        x = layers.conv2d(x, channels, 3, padding=1, bias_attr=False)
        x = layers.pool2d(layers.batch_norm(x, act="relu"), 2, "max", 2, ceil_mode=True)
    columns = layers.im2sequence(x, stride=[1, 1], filter_size=[x.shape[2], 1])
    return [layers.dynamic_gru(layers.fc(columns, 3 * H), H, is_reverse=turned) for turned in (False, True)]


def read_off() -> Sequence[Any]:
    """Labels by CTC, beside what is decoded and how far that is off."""
    label = fluid.data("label", [None, 1], "int32", lod_level=1)
    scores = layers.fc(encoded(), CLASSES + 1)
    loss = layers.reduce_sum(layers.warpctc(scores, label, blank=CLASSES, norm_by_times=True))
    decoded = layers.ctc_greedy_decoder(scores, blank=CLASSES)
    distance, count = layers.edit_distance(decoded, layers.cast(label, "int64"))
    return [loss, layers.sequence_pool(scores, "max"), distance, count]


def spelled() -> Sequence[Any]:
    """Labels one by one, by attention over the columns."""
    label = fluid.data("label", [None, 1], "int64", lod_level=1)
    forward, backward = encoded()
    columns = layers.concat([forward, backward], 1)
    keys = layers.fc(columns, H, bias_attr=False)
    words, first, rnn = (
        layers.embedding(label, [CLASSES, H]),
        layers.sequence_pool(backward, "first"),
        layers.DynamicRNN(),
    )
    with rnn.block():
        word = rnn.step_input(words)
        inside, key = rnn.static_input(columns), rnn.static_input(keys)
        state = rnn.memory(init=first, need_reorder=True)
        query = layers.sequence_expand(layers.fc(state, H, bias_attr=False), key)
        weight = layers.sequence_softmax(layers.fc(layers.tanh(key + query), 1, bias_attr=False))
        read = layers.sequence_pool(layers.elementwise_mul(inside, layers.reshape(weight, [-1]), axis=0), "sum")
        state_after, _, _ = layers.gru_unit(layers.fc([read, word], 3 * H, bias_attr=False), state, 3 * H)
        rnn.update_memory(state, state_after)
        rnn.output(layers.fc(state_after, CLASSES, act="softmax"))
    cost = layers.cross_entropy(rnn(), label)
    return [layers.reduce_sum(cost), layers.sequence_pool(cost, "max")]


def texts(rng: np.random.Generator, widths: Sequence[int], dtype: str) -> list[Feed]:
    found: list[Feed] = []
    for width in widths:
        lengths = rng.integers(1, 3, B).tolist()
        label = rng.integers(0, CLASSES, (sum(lengths), 1)).astype(dtype)
        label = fluid.create_lod_tensor(label, [lengths], fluid.CPUPlace())
        found.append({"image": rng.normal(size=(B, 1, 8, width)).astype(np.float32), "label": label})
    return found


@pytest.mark.parametrize("build, dtype", [(read_off, "int32"), (spelled, "int64")], ids=["ctc", "attention"])
def test_text_in_images_of_any_width(
    build: Callable[[], Sequence[Any]], dtype: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare(monkeypatch, build, texts(rng, (16, 24, 20), dtype), 2)
