"""What a server answers is what the Executor computes, in either format, alone or with others."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.command import models
from fluidjax.serving.model import ServedModel
from fluidjax.serving.settings import Settings
from tests.serving.at_work import NPZ, packed, saved, serving, words_and_numbers

X, WORDS = [[1.0, 2.0, 3.0], [0.5, -1.0, 0.0]], [[1, 2, 3], [4]]
DENSE, RAGGED = "save_infer_model/scale_0.tmp_0", "save_infer_model/scale_1.tmp_0"


@pytest.fixture(scope="module")
def expected(folder):
    """The Executor's outputs for any inputs."""
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    with fluid.scope_guard(scope):
        program, _, fetches = fluid.io.load_inference_model(folder, exe)

    def run(x, words):
        rows = np.array([[w] for sequence in words for w in sequence], "int64").reshape(-1, 1)
        ragged = fluid.create_lod_tensor(rows, [[len(s) for s in words]], fluid.CPUPlace())
        feed = {"x": np.array(x, "float32"), "w": ragged}
        return exe.run(program, feed, fetches, scope=scope, return_numpy=False)

    return run


def check(outputs, expected):
    for name, value in zip((DENSE, RAGGED), expected, strict=True):
        array = np.asarray(value)
        assert outputs[name]["shape"] == list(array.shape) and outputs[name]["dtype"] == "float32"
        assert outputs[name]["lod"] == value.lod()
        np.testing.assert_allclose(outputs[name]["data"], array, rtol=1e-6, atol=1e-7)


WAYS = {
    "numbers": WORDS,
    "rows": [[[1], [2], [3]], [[4]]],
    "offsets of numbers": {"data": [1, 2, 3, 4], "lod": [[0, 3, 4]]},
    "offsets of rows": {"data": [[1], [2], [3], [4]], "lod": [[0, 3, 4]]},
}


@pytest.mark.parametrize("words", WAYS.values(), ids=WAYS)
def test_json(client, expected, words):
    answer = client.predict({"x": X, "w": words})
    assert answer.status == 200 and answer.headers["content-type"] == "application/json"
    check(answer.json["outputs"], expected(X, WORDS))


def test_npz(client, expected):
    arrays = {"x": np.array(X), "w": np.array([1, 2, 3, 4], "int32"), "w.lod0": np.array([0, 3, 4])}
    answer = client.ask("POST", "/predict", packed(arrays), NPZ)
    assert answer.status == 200, answer.body
    dense, ragged = expected(X, WORDS)
    assert sorted(answer.arrays) == [DENSE, RAGGED, RAGGED + ".lod0"]
    np.testing.assert_array_equal(answer.arrays[DENSE], np.asarray(dense))
    np.testing.assert_array_equal(answer.arrays[RAGGED], np.asarray(ragged))
    assert [answer.arrays[RAGGED + ".lod0"].tolist()] == ragged.lod()


def test_each_format_is_answered_in_the_other_where_that_is_asked_for(client):
    arrays = {"x": np.array(X), "w": np.array([1, 2, 3, 4]), "w.lod0": np.array([0, 3, 4])}
    read = client.ask("POST", "/predict", packed(arrays), NPZ | {"Accept": "application/json"}).json["outputs"]
    other = client.predict({"x": X, "w": WORDS}, Accept="application/x-npz").arrays
    np.testing.assert_array_equal(np.array(read[DENSE]["data"], "float32"), other[DENSE])


def test_requests_at_the_same_time_get_what_they_would_get_alone(client, expected, rng):
    requests = []
    for _ in range(24):
        lengths = rng.integers(1, 6, rng.integers(1, 4))
        words = [rng.integers(0, 10, n).tolist() for n in lengths]
        requests.append((rng.standard_normal((len(words), 3)).round(3).tolist(), words))
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda request: client.predict(dict(zip("xw", request, strict=True))), requests))
    for request, answer in zip(requests, answers, strict=True):
        check(answer.json["outputs"], expected(*request))
    counts = dict(re.findall(r"^(fluidjax_batch_samples_\w+|fluidjax_requests_total\S*) (\S+)", text(client), re.M))
    assert float(counts["fluidjax_batch_samples_count"]) < float(counts['fluidjax_requests_total{status="200"}'])


def text(client):
    return client.get("/metrics").body.decode()


def test_one_bad_request_does_not_spoil_the_others_of_its_batch(client, expected):
    words = [[[n % 10 if n != 7 else 99]] for n in range(20)]
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda w: client.predict({"x": X[:1], "w": w}), words))
    for n, answer in enumerate(answers):
        if n != 7:
            check(answer.json["outputs"], expected(X[:1], words[n]))
    error = answers[7].json
    assert answers[7].status == 422
    assert "cannot take the value 99 of 'w'" in error["error"] and error["expected"] == "0 <= value < 10"
    assert error["received"] == "99" and ".py" not in json.dumps(error)


def test_what_is_told_about_the_model(client):
    assert client.get("/health").json == {"status": "ready"}
    told = client.get("/model").json
    assert told["inputs"] == [
        {"name": "x", "dtype": "float32", "shape": [-1, 3], "lod_level": 0},
        {"name": "w", "dtype": "int64", "shape": [-1, 1], "lod_level": 1},
    ]
    assert [out["name"] for out in told["outputs"]] == [DENSE, RAGGED] and told["batching"]["together"]
    described = client.get("/openapi.json").json
    schema = described["paths"]["/predict"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert schema["properties"]["inputs"]["required"] == ["x", "w"]
    assert "# TYPE fluidjax_request_seconds histogram" in text(client)
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html") and b"http" not in page.body.replace(b"http-equiv", b"")


def test_a_model_with_the_names_of_paddle_2(tmp_path):
    saved(tmp_path, words_and_numbers, model_filename="net.pdmodel", params_filename="net.pdiparams")
    path = models.find(str(tmp_path))
    with serving(ServedModel(path.folder, path.program, path.parameters), Settings(max_batch=1)) as other:
        assert list(other.predict({"x": X, "w": WORDS}).json["outputs"]) == [DENSE, RAGGED]
