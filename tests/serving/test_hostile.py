"""Whatever is sent, the answer is an error of the sender's in three parts, and the server goes on."""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.serving.at_work import JSON, NPZ, packed

PARTS = {"error", "expected", "received", "what_to_do"}
X, W = [[1.0, 2.0, 3.0]], [[1, 2]]


def refused(client, body, headers):
    """The answer, which has to be a refusal."""
    answer = client.ask("POST", "/predict", body, headers)
    assert 400 <= answer.status < 500, (answer.status, answer.body)
    assert set(answer.json) == PARTS and all(answer.json.values()), answer.json
    assert "Traceback" not in answer.body.decode() and client.is_alive()
    return answer


BODIES = {
    "nothing": "",
    "half": '{"inputs": {"x": [[1, 2',
    "no object": "[1, 2]",
    "no text": b"\xff\xfe\x00",
    "deep": "[" * 100_000,
    "deep value": '{"inputs": {"x": ' + "[" * 500 + "1" + "]" * 500 + ', "w": [[1]]}}',
    "NaN": '{"inputs": {"x": [[NaN, 1, 2]], "w": [[1]]}}',
    "infinity": '{"inputs": {"x": [[1e999, 1, 2]], "w": [[1]]}}',
    "more than float32": '{"inputs": {"x": [[1e300, 1, 2]], "w": [[1]]}}',
    "digits": '{"inputs": {"x": [[' + "9" * 5000 + ', 1, 2]], "w": [[1]]}}',
    "others": '{"inputs": {"x": [[1, 2, 3]], "w": [[1]], "z": 1}}',
    "missing": '{"inputs": {"x": [[1, 2, 3]]}}',
    "beside": '{"inputs": {"x": [[1, 2, 3]], "w": [[1]]}, "fetch": ["a"]}',
}
VALUES = {
    "text": ("x", "abc"), "null": ("x", None), "nulls": ("x", [[None, None, None]]), "words": ("x", [["1", "2", "3"]]),
    "an object": ("x", {"rows": 1}), "ragged": ("x", [[1, 2, 3], [1]]), "wide": ("x", [[1, 2, 3, 4]]),
    "a number": ("x", 7), "truth": ("w", [[True]]), "fractions": ("w", [[1.5]]), "negative": ("w", [[-1]]),
    "out of the table": ("w", [[10]]), "long": ("w", [[1 << 70]]), "flat": ("w", [1, 2]), "too deep": ("w", [[[[1]]]]),
    "LoD for dense": ("x", {"data": X, "lod": [[0, 1]]}), "no LoD": ("w", {"data": [[1]]}),
    "LoD decreases": ("w", {"data": [[1], [2]], "lod": [[0, 2, 1]]}),
    "LoD too long": ("w", {"data": [[1]], "lod": [[0, 9]]}),
    "LoD of text": ("w", {"data": [[1]], "lod": [["0", "1"]]}), "LoD flat": ("w", {"data": [[1]], "lod": [0, 1]}),
    "LoD levels": ("w", {"data": [[1]], "lod": [[0, 1], [0, 1]]}),
    "huge LoD": ("w", {"data": [[1]], "lod": [[0, 1 << 80]]}),
    "more samples": ("w", [[1], [2]]), "no samples": ("w", []),
}  # fmt: skip


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_json_that_is_no_request(client, body):
    refused(client, body, JSON)


@pytest.mark.parametrize("name, value", VALUES.values(), ids=VALUES)
def test_values_that_are_none(client, name, value):
    refused(client, json.dumps({"inputs": {"x": X, "w": W} | {name: value}}), JSON)


def test_a_type_that_is_not_read(client):
    assert refused(client, json.dumps({"inputs": {"x": X, "w": W}}), {"Content-Type": "text/plain"}).status == 415
    assert refused(client, "", {}).status == 415


def header(shape, descr="<f4"):
    """A .npy that says what it likes of its shape."""
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape!r}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def archive(method=zipfile.ZIP_STORED, **members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
    return buffer.getvalue()


GOOD = {"x": np.array(X, "float32"), "w": np.array([[1], [2]]), "w.lod0": np.array([0, 2])}
ARCHIVES = {
    "nothing": b"", "no zip": b"PK\x03\x04 not so", "half": packed(GOOD)[:200], "empty": archive(),
    "objects": packed(GOOD | {"x": np.array([[1, None, print]], object)}),
    "a pickle": archive(x=pickle.dumps(X), w=b""), "text": packed(GOOD | {"x": np.array([["a", "b", "c"]])}),
    "huge shape": archive(x=header((1 << 40, 3)), w=b""), "shape of nothing": archive(x=header((0, 1 << 40)), w=b""),
    "negative shape": archive(x=header((-1, 3)), w=b""), "overflow": archive(x=header((1 << 63, 1 << 63)), w=b""),
    "shape of text": archive(x=header("abc"), w=b""), "fields": archive(x=header((1,), "f4,i8"), w=b""),
    "code": archive(x=b"\x93NUMPY\x01\x00\x10\x00__import__('os')", w=b""), "version": archive(x=b"\x93NUMPY\x09\x00"),
    "bomb": archive(zipfile.ZIP_DEFLATED, x=bytes(17_000_000)),
    "half a LoD": packed(GOOD | {"w.lod0": np.array([0, 1])}), "flat LoD": packed(GOOD | {"w.lod0": np.array(2)}),
    "LoD with fractions": packed(GOOD | {"w.lod0": np.array([0, 1.5])}),
    "others": packed(GOOD | {"w.lod1": np.array([0, 2])}),
    "more than float32": packed(GOOD | {"x": np.array([[1e300, 1, 2]])}),
    "complex": packed(GOOD | {"x": np.array([[1j, 2, 3]])}),
}  # fmt: skip


@pytest.mark.parametrize("body", ARCHIVES.values(), ids=ARCHIVES)
def test_archives_that_are_none(client, body):
    refused(client, body, NPZ)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["data", "lod", "x"]), inner, max_size=2)
    ),
    max_leaves=8,
)


@given(x=json_values, w=json_values)
@settings(max_examples=60)
def test_any_json(client, x, w):
    refused(client, json.dumps({"inputs": {"x": x, "w": w}}), JSON)


@given(st.data())
@settings(max_examples=60)
def test_any_damage_to_an_archive(client, data):
    body = bytearray(packed(GOOD))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    answer = client.ask("POST", "/predict", bytes(body[: data.draw(st.integers(1, len(body)))]), NPZ)
    assert answer.status < 500 and client.is_alive()
    assert answer.status == 200 or set(answer.json) == PARTS
