"""Each op that has a rule for wide dims, on recorded inputs: the same numbers with more room, or a plain refusal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
import pytest

from lowering.engine.runner import Runner
from lowering.errors import NeedsSizes
from lowering.values import Axis, Wide, taken
from lowering.wide.rules import RULES
from tests.golden.backend import to_lowering
from tests.golden.oprunner import judged_outputs
from tests.golden.recordings import DATA, OpCase, op_cases
from tests.golden.values import Tensor
from tests.golden.views import program_view

pytestmark = pytest.mark.usefixtures("compiled_quickly")

MORE, CASES = 3, 3
# Rows of sequences, not dims, are wide here; and ops whose recordings have nothing to widen.
ELSEWHERE = {"sequence_pad", "sequence_unpad", "im2sequence"}


@pytest.fixture(autouse=True)
def own_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUIDJAX_GOLDEN", str(DATA))


def widen(value: np.ndarray, size: int, label: int) -> Any:
    """``value`` with room for more along each dim of this size: copies of its first place."""
    axes = tuple(Axis(dim, size + MORE, label) for dim, n in enumerate(value.shape) if n == size)
    data = value
    for axis in axes:
        first = np.take(data, [0] * MORE, axis.dim)
        data = np.concatenate([data, first], axis.dim)
    return Wide(data, (np.int32(size),) * len(axes), axes) if axes else value


def run(case: OpCase, env: Mapping[str, Any]) -> dict[str, np.ndarray]:
    wanted = [v.name for v in (*judged_outputs(case), *case.variables("grads"))]
    view = program_view(case.program)
    arrays, fixed = jax.tree_util.tree_flatten(dict(env))

    def traced(leaves: Any) -> Any:
        values = jax.tree_util.tree_unflatten(fixed, leaves)
        runner = Runner(view, key=jax.random.key(0))
        runner.run_block(0, values)
        return {n: values.get(n) for n in wanted}

    with jax.enable_x64(True):
        found = jax.jit(traced)(arrays)
    return {n: taken(v) if isinstance(v, Wide) else np.asarray(v) for n, v in found.items() if v is not None}


def plain_cases(op_type: str) -> Iterator[OpCase]:
    for case in op_cases(op_type):
        values = [v.value for v in case.variables("inputs")]
        if all(isinstance(v, Tensor) and v.array is not None and not v.lod for v in values):
            yield case


def sizes(case: OpCase) -> list[int]:
    shapes = [v.value.array.shape for v in case.variables("inputs")]
    return sorted({n for shape in shapes for n in shape if n > 1})


def check(case: OpCase) -> tuple[int, int]:
    """(how many sizes were run wide, how many were refused)."""
    env = {v.name: to_lowering(v.value) for v in case.variables("inputs")}
    expected, ran, refused = None, 0, 0
    for label, size in enumerate(sizes(case)):
        wide = {name: widen(value, size, label) for name, value in env.items()}
        try:
            found = run(case, wide)
        except NeedsSizes:
            refused += 1
            continue
        expected = expected or run(case, env)
        ran += 1
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_allclose(
                found[name], value, rtol=2e-5, atol=1e-6, err_msg=f"{case.id} {name}: {size} of {size + MORE}"
            )
    return ran, refused


RECORDED = sorted((RULES.keys() - ELSEWHERE) & {file.stem for file in (DATA / "ops").glob("*.npz")})
# What is recorded of these here has no dim that may be wide; whole programs test them.
NARROW = {"expand_as", "crf_decoding", "linear_chain_crf", "reshape2", "one_hot", "one_hot_v2", "sum", "fill_any_like"}
NARROW |= {"conv2d_transpose", "nearest_interp", "bicubic_interp"}
# The regions of what is recorded of these are sequences.
NARROW |= {"psroi_pool", "roi_align", "roi_pool"}
NARROW |= {"maxout", "warpctc", "yolov3_loss"}
NARROW |= {"sigmoid_focal_loss"}  # as many classes as rows


@pytest.mark.parametrize("op_type", RECORDED)
def test_room_changes_nothing(op_type: str) -> None:
    ran = sum(check(case)[0] for _, case in zip(range(CASES), plain_cases(op_type), strict=False))
    assert ran or op_type in NARROW


def test_most_rules_are_tried() -> None:
    assert len(RECORDED) > 50
