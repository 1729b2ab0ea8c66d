"""Files of parameters and programs: the error that the documentation names, or a sound value."""

import numpy as np

import fluidjax as fluid
from fluidjax.files import pickles
from fluidjax.files.cursor import Cursor
from fluidjax.files.errors import FileFormatError
from fluidjax.files.tensor import DenseValue, decode, encode
from tests.conftest import seed_of
from tests.fuzz.mutate import cases

ARRAYS = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.zeros(2, np.int64)}


def test_tensors() -> None:
    value = DenseValue(ARRAYS["w"], [[0, 1, 2]])
    for data in cases(b"".join(map(bytes, encode(value))), seed_of("tensors")):
        try:
            cursor = Cursor(data, "file")
            decode(cursor)
            cursor.end()
        except FileFormatError:
            continue


def test_pickles() -> None:
    for data in cases(pickles.dumps(ARRAYS), seed_of("pickles")):
        try:
            assert isinstance(pickles.loads(data, "file"), dict)
        except FileFormatError:
            continue


def test_programs(recwarn) -> None:
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()):
        x = fluid.data("x", [None, 3], "float32")
        fluid.layers.cond(fluid.layers.reduce_sum(x) > 0, lambda: x + 1.0, lambda: x)
    for data in cases(program.desc.serialize_to_string(), seed_of("programs")):
        try:
            text = str(fluid.Program.parse_from_string(data))  # or it says what the message lacks
        except ValueError:
            continue
        assert all(c.isprintable() or c == "\n" for c in text)
