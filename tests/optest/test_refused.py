"""What Paddle 1.8.5 refuses when a program is written, by the kind of its error: ``refused.txt`` holds its answers.

One line for each: the kind of error, and an expression of ``layers``, ``fluid`` and the short names below. Errors here
may be of several kinds, of which Paddle's has to be one, so that the ``except`` clauses of scripts catch them.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers

REFUSED = [(line[:16].strip(), line[16:]) for line in Path(__file__).with_name("refused.txt").read_text().splitlines()]
_numbers = itertools.count()


def data(shape: tuple[int, ...] = (2, 4), dtype: str = "float32", **options: object) -> fluid.Variable:
    return fluid.data(f"refused{next(_numbers)}", list(shape), dtype, **options)


def image(shape: tuple[int, ...] = (3, 8, 8)) -> fluid.Variable:
    return data((1, *shape))


NAMES = {
    "layers": layers,
    "fluid": fluid,
    "np": np,
    "exe": fluid.Executor(fluid.CPUPlace()),
    "d": data,
    "I": image,
    "V": lambda: data((1, 3, 4, 8, 8)),
}


@pytest.mark.parametrize(("kind", "expression"), REFUSED, ids=[e for _, e in REFUSED])
@pytest.mark.filterwarnings("ignore")
def test_refused_as_by_paddle(kind: str, expression: str) -> None:
    with fluid.scope_guard(fluid.Scope()), fluid.program_guard(fluid.Program(), fluid.Program()):
        with pytest.raises(Exception) as raised:  # of which kind is looked at below
            eval(expression, dict(NAMES))
    assert kind in {c.__name__ for c in raised.type.__mro__}, raised.value


def test_hash_is_written_where_paddle_refuses_every_call() -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        out = layers.hash(data((2, 2), "int64", lod_level=1), 4, num_hash=3)
    assert tuple(out.shape) == (2, 3, 1)
