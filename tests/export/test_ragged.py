"""Models of ragged inputs as StableHLO: rows and offsets in, for any numbers of both or for given ones."""

from __future__ import annotations

import json

import jax
import numpy as np
import pytest
from jax import export

import fluidjax as fluid
from fluidjax.export import ExportError
from fluidjax.export.files import Model
from tests.here import PLATFORM

pytestmark = pytest.mark.usefixtures("compiled_quickly")

L = fluid.layers


def save(folder, feeds, targets):
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    fluid.io.save_inference_model(str(folder), feeds, targets, exe)
    return Model(folder, None, None)


def embedded(name="words"):
    words = fluid.data(name, [None, 1], "int64", lod_level=1)
    return L.embedding(words, [9, 4])


def pooled():
    rows = embedded()
    return ["words"], [L.fc(L.sequence_pool(rows, kind), 3) for kind in ("sum", "max", "last", "sqrt")]


def convolved():
    rows = L.sequence_conv(embedded(), 6, 3, act="tanh")
    return ["words"], [rows, L.sequence_softmax(L.fc(rows, 1)), L.sequence_pool(rows, "average")]


def recurrent():
    hidden, _ = L.dynamic_lstm(L.fc(embedded(), 16), 16)
    backwards = L.dynamic_gru(L.fc(embedded("others"), 12), 4, is_reverse=True)
    return ["words", "others"], [L.sequence_pool(hidden, "last"), backwards]


def expanded():
    per_sequence = fluid.data("weights", [None, 4])
    rows = embedded()
    return ["weights", "words"], [
        L.elementwise_mul(rows, L.sequence_expand(per_sequence, rows)),
        L.sequence_reverse(rows),
    ]


def measured():
    """Rows that a comparison reads beside others are computed once."""
    weights, rows = fluid.data("weights", [None, 4]), L.sequence_pool(embedded(), "sum")
    near = L.reduce_sum(L.elementwise_mul(rows, weights), 1, keep_dim=True)
    far = L.reduce_sum(weights, 1, keep_dim=True)
    return ["weights", "words"], [L.cast(L.less_than(near, far), "float32"), L.elementwise_sub(far, near)]


NETWORKS = {
    "pooled": pooled,
    "convolved": convolved,
    "recurrent": recurrent,
    "expanded": expanded,
    "measured": measured,
}


def drawn(names, lengths):
    """For each input rows of these lengths, or a row for each sequence."""
    rng = np.random.default_rng(len(lengths))
    found = {}
    for name in names:
        whole = rng.integers(0, 9, (sum(lengths), 1))
        found[name] = rng.random((len(lengths), 4), "float32") if name == "weights" else whole
    return found


def tensors(given, lengths):
    return {
        n: v if n == "weights" else fluid.create_lod_tensor(v, [lengths], fluid.CPUPlace()) for n, v in given.items()
    }


def parts(given, lengths, room):
    """As the file takes them: rows past the last sequence are of no account."""
    lod = [np.cumsum([0, *lengths]).astype(np.int32)]
    junk = {n: np.full((room - len(v), *v.shape[1:]), 8, v.dtype) for n, v in given.items() if n != "weights"}
    return {n: {"data": np.concatenate([v, junk[n]]), "lod": lod} if n in junk else v for n, v in given.items()}


def written(folder, model, **options):
    model.write(str(folder), "stablehlo", platforms=[PLATFORM], **options)
    with np.load(folder / "weights.npz") as weights:
        return export.deserialize(bytearray((folder / "model.jax_export").read_bytes())), dict(weights)


def check(loaded, held, model, names, lengths, room):
    """What the file gives is what the Executor does."""
    given = drawn(names, lengths)
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(model.scope):
        expected = exe.run(model.program, tensors(given, lengths), model.fetches, return_numpy=False)
    with jax.enable_x64(True):
        found = loaded.call(held, parts(given, lengths, room))
    for ours, want in zip(found, expected, strict=True):
        if isinstance(ours, dict):
            assert [np.asarray(level).tolist() for level in ours["lod"]] == want.lod()
            ours = np.asarray(ours["data"])[: int(ours["nrows"])]
        np.testing.assert_allclose(ours, np.array(want), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("network", NETWORKS)
def test_any_rows_of_any_number_of_sequences(network, tmp_path):
    names, targets = NETWORKS[network]()
    model = save(tmp_path / "model", names, targets)
    loaded, held = written(tmp_path / "out", model)
    for lengths, room in (([3, 1, 4], 64), ([70], 70), ([1, 2, 3, 4, 5], 80)):
        check(loaded, held, model, names, lengths, room)
    signature = json.loads((tmp_path / "out" / "signature.json").read_text())
    assert signature["inputs"]["words"]["lod"] == [[["batch + 1"], "int32"]]


@pytest.mark.parametrize("network", NETWORKS)
def test_given_rows_of_a_given_number_of_sequences(network, tmp_path):
    names, targets = NETWORKS[network]()
    model = save(tmp_path / "model", names, targets)
    loaded, held = written(tmp_path / "out", model, batch=3, rows=12)
    for lengths in ([3, 1, 4], [12, 0, 0] if network == "expanded" else [10, 1, 1]):
        check(loaded, held, model, names, lengths, 12)
    assert json.loads((tmp_path / "out" / "signature.json").read_text())["inputs"]["words"] == {
        "data": [["12", "1"], "int64"],
        "lod": [[["4"], "int32"]],
    }


def levels(tmp_path):
    """Words of sentences of documents."""
    words = fluid.data("words", [None, 1], "int64", lod_level=2)
    sentences = L.sequence_pool(L.embedding(words, [9, 4]), "sum")
    return save(tmp_path / "model", ["words"], [sentences, L.sequence_pool(sentences, "max")])


@pytest.mark.parametrize(("options", "room"), [({}, (64, 5)), ({"batch": 2, "rows": 12}, (12, 12))])
def test_sequences_of_sequences(options, room, tmp_path):
    model = levels(tmp_path)
    loaded, held = written(tmp_path / "out", model, **options)
    rows, lod = np.arange(7).reshape(-1, 1), [[0, 2, 3], [0, 3, 4, 7]]
    tensor = fluid.LoDTensor()
    tensor.set(rows, fluid.CPUPlace())
    tensor.set_lod(lod)
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(model.scope):
        expected = exe.run(model.program, {"words": tensor}, model.fetches, return_numpy=False)
    offsets = [np.array(lod[0], np.int32), np.pad(np.array(lod[1], np.int32), (0, room[1] - 3), mode="edge")]
    data = np.pad(rows, ((0, room[0] - 7), (0, 0)))
    with jax.enable_x64(True):
        sentences, documents = loaded.call(held, {"words": {"data": data, "lod": offsets}})
    assert int(sentences["nrows"]) == 3
    np.testing.assert_allclose(sentences["data"][:3], np.array(expected[0]), rtol=1e-6)
    np.testing.assert_allclose(documents, np.array(expected[1]), rtol=1e-6)


@pytest.mark.parametrize(("level", "shape"), [(2**30, [None, 1]), (-1, [None, 1]), (1, [])])
@pytest.mark.parametrize("to", ["stablehlo", "jax", "c"])
def test_damaged_declarations_of_inputs(level, shape, to, tmp_path):
    model = levels(tmp_path)
    words = model.program.global_block().var("words")
    words.desc.set_lod_level(level)
    words.desc.set_shape([-1 if n is None else n for n in shape])
    with pytest.raises(ExportError, match="'words' cannot be of ragged sequences"):
        model.write(str(tmp_path / "out"), to)


def test_an_input_has_its_own_sizes(tmp_path):
    words, labels = fluid.data("words", [None, None], "int64"), fluid.data("labels", [None, 1], "int64")
    scores = L.reshape(L.fc(fluid.embedding(words, [9, 4]), 5, num_flatten_dims=2), [-1, 5])
    model = save(tmp_path / "model", ["words", "labels"], [L.softmax_with_cross_entropy(scores, labels)])
    with pytest.raises(ExportError, match="--batch N"):
        model.write(str(tmp_path / "out"), "stablehlo", platforms=[PLATFORM])
    sizes = {"words": [2, 3], "labels": [6]}
    loaded, held = written(tmp_path / "out", model, sizes=sizes)
    given = {"words": np.arange(6).reshape(2, 3), "labels": np.arange(6).reshape(6, 1) % 5}
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(model.scope):
        (want,) = exe.run(model.program, given, model.fetches)
    with jax.enable_x64(True):
        np.testing.assert_allclose(loaded.call(held, given)[0], want, rtol=1e-5)
    model.write(str(tmp_path / "module"), "jax", sizes=sizes)
    assert (tmp_path / "module" / "model.py").exists()


@pytest.mark.parametrize(
    ("sizes", "told"),
    [({"other": [2]}, r"one of the inputs \['words'\]"), ({"words": [2]}, r"2, of its dims \[0, 1\]")],
)
def test_sizes_of_what_is_open_alone(sizes, told, tmp_path):
    words = fluid.data("words", [None, None], "int64")
    model = save(tmp_path / "model", ["words"], [L.reduce_sum(fluid.embedding(words, [9, 4]), 1)])
    for to in ("stablehlo", "jax", "c"):
        with pytest.raises(ExportError, match=told):
            model.write(str(tmp_path / "out"), to, sizes=sizes)
