"""Step 0 of a network recording, temporary by temporary.

The recording keeps a digest of each temporary (sum, sum of abs, four elements) and no tolerance for it, so it is
measured: step 0 runs a second time with every parameter multiplied by (1 + 1e-6 N(0, 1)), as the recording's own
sensitivities were, and a temporary may differ by max(1e-5 of its scale, 30 times what it moved by).

Where large numbers cancel, as in the gradient of a bias under a softmax of equal logits, rounding moves a temporary by
more than the parameters do. So what exceeds that bound is judged once more by a third run, op by op, in which every
number that an op writes is rounded at random: it may differ by 30 times what that moved it by.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from fluidjax.proto import framework_pb2
from tests.golden.oprunner import intermediate_slots
from tests.golden.session import Session
from tests.golden.values import Rows, Tensor, TensorList, Value, Verdict
from tests.golden.zoocase import ZooCase

GRAD = "@GRAD"


def compare_step(case: ZooCase, interpret: bool) -> dict[str, Verdict]:
    """The verdict on each temporary of step 0 of the main program."""
    recorded = case.trace()
    if recorded is None:
        return {}
    names = [n for n in recorded["order"] if recorded["vars"][n]["k"] in ("t", "sr", "arr")]
    step = next(s for s in range(case.meta["steps"]) if case.schedule(s)[0] == "main")
    session = Session(interpret)
    runs = [_run(session, case, step, values, names) for values in (case.initial_values(), perturbed(case))]
    private, noise = intermediates(case.program("main")), rounding(recorded["vars"])
    verdicts = {}
    rounded: dict[str, Value | None] | None = None
    for name in names:
        lods = allowed_lods(name, recorded["vars"]) if name not in private else None
        digest = recorded["vars"][name]
        # Gradient arrays are taken and cleared here, added to and left there (docs/deviations.md): shapes alone count.
        shapes_only = case.meta["random"] or (digest["k"] == "arr" and GRAD in name)
        verdict = compare(runs[0][name], runs[1][name], digest, lods, shapes_only)
        if verdict.problem and GRAD in name and both_noise(runs[0][name], digest, noise):
            verdict = Verdict()
        if verdict.problem and not shapes_only:
            if rounded is None:
                rounded = _run(Session(True, random_rounding()), case, step, case.initial_values(), names)
            verdict = compare(runs[0][name], rounded[name], digest, lods, shapes_only)
        verdicts[name] = verdict
    return verdicts


def _run(
    session: Session, case: ZooCase, step: int, values: dict[str, Tensor], names: list[str]
) -> dict[str, Value | None]:
    session.set(values)
    return session.run(case.program("main"), case.feeds(step), names)


def random_rounding() -> Callable[[Any, dict[str, Any]], None]:
    """A hook that moves each float that an op writes by at most half a unit in the last place, at random.

    Whole numbers stay: they are exact, and may be counts or sizes.
    """
    rng = np.random.RandomState(0)

    def rounded(leaf: Any) -> Any:
        array = np.asarray(leaf)
        if array.dtype.kind != "f":
            return leaf
        half_unit = np.finfo(array.dtype).eps / 2
        moved = array * (1 + half_unit * rng.uniform(-1, 1, array.shape))
        return np.where(array == np.rint(array), array, moved).astype(array.dtype)

    def after_op(op: Any, values: dict[str, Any]) -> None:
        values.update({name: jax.tree_util.tree_map(rounded, value) for name, value in values.items()})

    return after_op


def perturbed(case: ZooCase) -> dict[str, Tensor]:
    """The initial values with every float parameter moved by a millionth."""
    rng = np.random.RandomState(0)
    moved = {}
    for name, value in case.initial_values().items():
        array = value.array
        if case.meta["vars"][name]["parameter"] and array is not None and array.dtype.kind == "f":
            array = (array * (1 + 1e-6 * rng.standard_normal(array.shape))).astype(array.dtype)
        moved[name] = Tensor(array, value.lod)
    return moved


def rounding(digests: dict[str, Any]) -> float:
    """What float32 rounding leaves of a sum over the largest gradient of the program."""
    return 2.0**-24 * max((d["abs"] for n, d in digests.items() if GRAD in n and d["k"] == "t"), default=0.0)


def both_noise(got: Value | None, want: dict[str, Any], noise: float) -> bool:
    """Whether a gradient that is zero in exact arithmetic (a bias in front of batch_norm) is rounding noise in both."""
    if not isinstance(got, Tensor) or got.array is None or want["k"] != "t" or list(got.array.shape) != want["s"]:
        return False
    most = noise * got.array.size
    return want["abs"] <= most and float(np.abs(got.array.astype(np.float64)).sum()) <= most


def intermediates(program: bytes) -> frozenset[str]:
    """Variables that ops write through intermediate slots: their LoD is a private matter of the kernels."""
    block = framework_pb2.ProgramDesc.FromString(program).blocks[0]
    found = set()
    for op in block.ops:
        private = intermediate_slots(op.type)
        found.update(name for slot in op.outputs if slot.parameter in private for name in slot.arguments)
    return frozenset(found)


def allowed_lods(name: str, digests: dict[str, Any]) -> list[Any]:
    """The recorded LoD; a gradient may carry that of its forward variable, where Paddle's kernels lose it."""
    lods = [digests[name].get("lod", [])]
    forward = digests.get(name.split(GRAD)[0]) if GRAD in name else None
    return lods + ([forward.get("lod", [])] if forward else [])


def compare(
    got: Value | None, other: Value | None, want: dict[str, Any], lods: list[Any] | None, shapes_only: bool
) -> Verdict:
    """One temporary against its digest; ``other`` is its value under perturbed parameters."""
    if got is None or other is None:
        return Verdict("no value")
    if (want["k"] == "sr") != isinstance(got, Rows):
        return Verdict(f"kind {type(got).__name__}, recorded {want['k']}")
    if isinstance(got, Rows) and isinstance(other, Rows):
        got, other = merged(got, want["rows"]), merged(other, want["rows"])
    if want["k"] == "arr":
        return _compare_array(got, other, want, shapes_only)
    array = got.array if isinstance(got, (Tensor, Rows)) else None
    if array is None:
        return Verdict("no memory") if want["s"] and 0 not in want["s"] else Verdict()
    if list(array.shape) != want["s"] or array.dtype.name != want["d"]:
        return Verdict(f"{array.dtype}{list(array.shape)}, recorded {want['d']}{want['s']}")
    if isinstance(got, Rows) and (list(got.rows) != want["rows"] or got.height != want["height"]):
        return Verdict(f"rows {list(got.rows)}, recorded {want['rows']}")
    if isinstance(got, Tensor) and lods is not None and [list(x) for x in got.lod] not in lods:
        return Verdict(f"LoD {got.lod}, recorded {lods[0]}")
    return Verdict() if shapes_only else _compare_numbers(array, other.array, want)  # type: ignore[union-attr]


def merged(value: Rows, rows: list[int]) -> Rows:
    """Rows of equal number added up, in the order of ``rows``, where the recording holds each row once."""
    if list(value.rows) == rows or len(set(rows)) != len(rows) or set(value.rows.tolist()) != set(rows):
        return value
    total = np.zeros((value.height, *value.array.shape[1:]), value.array.dtype)
    np.add.at(total, value.rows, value.array)
    return Rows(np.asarray(rows), value.height, total[rows])


def _compare_numbers(got: np.ndarray, other: np.ndarray, want: dict[str, Any]) -> Verdict:
    """Elements and sums; of integers and booleans the perturbed run gives no tolerance."""
    x, y = got.astype(np.float64).ravel(), other.astype(np.float64).ravel()
    if not np.isfinite(want["abs"]):
        return Verdict() if not np.isfinite(np.abs(x).sum()) else Verdict("finite, recorded non-finite", np.inf)
    moved = float(np.abs(x - y).max(initial=0.0)) if got.dtype.kind == "f" else 0.0
    scale = max([abs(v) for v in want["v"]] + [want["abs"] / max(x.size, 1), 1e-12])
    allowed = max(1e-5 * scale, 30 * moved)
    for a, b in zip(x, want["v"], strict=False):
        if not abs(a - b) <= allowed:
            return Verdict(f"element {a:.8g}, recorded {b:.8g}, allowed difference {allowed:.1e}", np.inf)
    spread = 1e-5 * want["abs"] + allowed * np.sqrt(x.size)
    for what, a, b in (("sum", x.sum(), want["sum"]), ("sum of abs", np.abs(x).sum(), want["abs"])):
        if not abs(a - b) <= spread:
            return Verdict(f"{what} {a:.8g}, recorded {b:.8g}, allowed difference {spread:.1e}", np.inf)
    return Verdict("", float(np.abs(x[: len(want["v"])] - want["v"]).max(initial=0.0)) / scale)


def _compare_array(got: Value, other: Value, want: dict[str, Any], shapes_only: bool) -> Verdict:
    if not isinstance(got, TensorList) or not isinstance(other, TensorList):
        return Verdict(f"kind {type(got).__name__}, recorded a tensor array")
    if len(got.items) != want["n"]:
        return Verdict(f"{len(got.items)} elements, recorded {want['n']}")
    for i, (item, second, record) in enumerate(zip(got.items, other.items, want["items"], strict=True)):
        array = np.zeros(0) if item.array is None else item.array.astype(np.float64)
        if list(array.shape) != record["s"]:
            return Verdict(f"element {i}: shape {list(array.shape)}, recorded {record['s']}")
        moved = float(np.abs(array - second.array).max(initial=0.0)) if second.array is not None else 0.0
        allowed = 1e-5 * np.abs(array).sum() + 30 * moved * np.sqrt(max(array.size, 1))
        if not shapes_only and not abs(array.sum() - record["sum"]) <= max(allowed, 1e-12):
            return Verdict(f"element {i}: sum {array.sum():.8g}, recorded {record['sum']:.8g}", np.inf)
    return Verdict()
