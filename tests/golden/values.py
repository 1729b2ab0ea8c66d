"""What a recording says about a variable, in plain NumPy, and how two such values are compared."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

Lod = list[list[int]]


@dataclass
class Tensor:
    """A dense tensor with its LoD in offset form; ``array`` is None for a tensor without memory."""

    array: np.ndarray | None
    lod: Lod = field(default_factory=list)


@dataclass
class Rows:
    """A SelectedRows value."""

    rows: np.ndarray
    height: int
    array: np.ndarray | None  # None: without memory


@dataclass
class TensorList:
    """A LoDTensorArray."""

    items: list[Tensor]


@dataclass
class Table:
    """A LoDRankTable: [sequence index, length] pairs, longest first."""

    pairs: list[list[int]]


Value = Tensor | Rows | TensorList | Table

# Relative tolerance by dtype; integers and booleans have to be equal.
RTOL = {"float64": 1e-7, "float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}
FLOOR = 1e-6


@dataclass
class Verdict:
    """The outcome of comparing one value: an error text (empty when equal) and the largest relative error."""

    problem: str = ""
    error: float = 0.0


def rounding(a: np.ndarray) -> float:
    """Absolute tolerance floor: values whose whole tensor is below it are rounding noise of larger ones."""
    return FLOOR if a.dtype == np.float32 else (1e-3 if a.dtype == np.float16 else 1e-9)


def compare_arrays(got: np.ndarray, want: np.ndarray, rtol: float | None = None) -> Verdict:
    """Compare dtype, shape and elements; floats relative to the largest magnitude of the tensor."""
    if got.dtype != want.dtype:
        return Verdict(f"dtype {got.dtype}, recorded {want.dtype}")
    if got.shape != want.shape:
        return Verdict(f"shape {list(got.shape)}, recorded {list(want.shape)}")
    if want.dtype.name not in RTOL:
        wrong = int(np.sum(got != want))
        return Verdict(f"{wrong} of {want.size} elements differ", np.inf) if wrong else Verdict()
    return _compare_floats(got, want, RTOL[want.dtype.name] if rtol is None else rtol)


def _compare_floats(got: np.ndarray, want: np.ndarray, rtol: float) -> Verdict:
    finite = np.isfinite(want)
    if not np.array_equal(got[~finite], want[~finite], equal_nan=True):
        return Verdict("non-finite elements differ", np.inf)
    if not np.isfinite(got[finite]).all():
        return Verdict("non-finite where the recording is finite", np.inf)
    if not finite.any():
        return Verdict()
    floor = rounding(want)
    g, w = got[finite].astype(np.float64), want[finite].astype(np.float64)
    error = float(np.max(np.abs(g - w)) / max(np.max(np.abs(w)), floor))
    return Verdict(f"relative error {error:.2e}, allowed {rtol:.0e}" if error > rtol else "", error)


def compare_lod(got: Lod, want: Lod) -> Verdict:
    """LoD has to be equal, level by level."""
    return Verdict(f"LoD {got}, recorded {want}") if [list(x) for x in got] != want else Verdict()


def worst(verdicts: list[Verdict]) -> Verdict:
    """The first verdict with a problem, or else the one with the largest error."""
    bad = [v for v in verdicts if v.problem]
    return bad[0] if bad else max(verdicts, key=lambda v: v.error, default=Verdict())


def compare(got: Value | None, want: Value, rtol: float | None = None, lods: list[Lod] | None = None) -> Verdict:
    """Compare a computed value with a recorded one; ``lods`` lists further LoDs that are right."""
    if got is None:
        # A recorded tensor without memory is no value either: the kernel left the variable as it was.
        return Verdict("" if isinstance(want, Tensor) and want.array is None else "no value")
    if type(got) is not type(want):
        return Verdict(f"kind {type(got).__name__}, recorded {type(want).__name__}")
    if isinstance(want, Tensor):
        return _compare_tensor(got, want, rtol, lods or [])  # type: ignore[arg-type]
    if isinstance(want, Rows):
        return _compare_rows(got, want, rtol)  # type: ignore[arg-type]
    if isinstance(want, TensorList):
        if len(got.items) != len(want.items):  # type: ignore[union-attr]
            return Verdict(f"{len(got.items)} elements, recorded {len(want.items)}")  # type: ignore[union-attr]
        pairs = zip(got.items, want.items, strict=True)  # type: ignore[union-attr]
        return worst([_compare_tensor(g, w, rtol, []) for g, w in pairs])
    same = [list(p) for p in got.pairs] == want.pairs  # type: ignore[union-attr]
    return Verdict() if same else Verdict(f"pairs {got.pairs}, recorded {want.pairs}")  # type: ignore[union-attr]


def _compare_tensor(got: Tensor, want: Tensor, rtol: float | None, lods: list[Lod]) -> Verdict:
    if want.array is None:
        return Verdict()  # the kernel allocated nothing: there is nothing to compare with
    if got.array is None:
        return Verdict("no memory")
    lod = Verdict() if [list(x) for x in got.lod] in lods else compare_lod(got.lod, want.lod)
    return worst([compare_arrays(got.array, want.array, rtol), lod])


def _compare_rows(got: Rows, want: Rows, rtol: float | None) -> Verdict:
    if got.height != want.height:
        return Verdict(f"height {got.height}, recorded {want.height}")
    if list(got.rows) != list(want.rows):
        return Verdict(f"rows {list(got.rows)}, recorded {list(want.rows)}")
    if want.array is None or not want.array.size:
        return Verdict()  # what the reference allocates no values for has no shape to compare
    return Verdict("no values") if got.array is None else compare_arrays(got.array, want.array, rtol)


def compare_random(got: Value | None, want: Value) -> Verdict:
    """A drawn tensor: dtype, shape, and mean and spread within what chance allows (six standard errors)."""
    if isinstance(got, Rows) and isinstance(want, Rows):
        place = _compare_rows(Rows(got.rows, got.height, want.array), want, None)
        return worst([place, compare_random(Tensor(got.array), Tensor(want.array))])
    if not isinstance(got, Tensor) or not isinstance(want, Tensor) or got.array is None or want.array is None:
        return compare(got, want)
    g, w = got.array, want.array
    if g.dtype != w.dtype or g.shape != w.shape:
        return compare_arrays(g, w)
    if w.size < 16:
        return Verdict()
    g64, w64 = g.astype(np.float64), w.astype(np.float64)
    spread = max(float(g64.std()), float(w64.std()), 1e-12)
    allowed = 6 * spread * np.sqrt(2 / w.size)
    for what, a, b in (("mean", g64.mean(), w64.mean()), ("standard deviation", g64.std(), w64.std())):
        if abs(a - b) > allowed:
            return Verdict(f"{what} {a:.4g}, recorded {b:.4g}, allowed difference {allowed:.2g}", np.inf)
    return Verdict()
