"""Replaying a network recording and judging it: all steps, step 0 variable by variable, final state, test program.

Tolerances follow from the recording: a fetch may differ by max(1e-5, 30 * what the reference itself moves when every
parameter is changed by 1e-6), relative to max(max|x|, 1e-3). Of a step that moves by more than ``CHAOTIC`` nothing is
judged but step 0 and its trace. An accuracy may flip one sample.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import fluidjax as fluid
from tests.golden.session import Session, lod_tensor, value_of
from tests.golden.values import Tensor, TensorList, Value, Verdict, compare
from tests.golden.zoocase import CHAOTIC, ZooCase

SCALE_FLOOR = 1e-3


@dataclass
class Report:
    """What was checked of a case, and what is wrong."""

    case: str
    checks: int = 0
    problems: list[str] = field(default_factory=list)
    error: float = 0.0
    trace: str = ""

    @property
    def passed(self) -> bool:
        """Whether something was checked and all of it agrees."""
        return self.checks > 0 and not self.problems

    def note(self, what: str, verdict: Verdict) -> None:
        """Count one comparison."""
        self.checks += 1
        if verdict.problem:
            self.problems.append(f"{what}: {verdict.problem}")
        else:
            self.error = max(self.error, verdict.error)


def compare_scaled(got: Value | None, want: Value, rtol: float, flips: int = 0) -> Verdict:
    """Compare with tolerance ``rtol * max(max|x|, 1e-3)``; ``flips``: an accuracy over that many samples."""
    if isinstance(want, TensorList) and isinstance(got, TensorList) and len(got.items) == len(want.items):
        pairs = zip(got.items, want.items, strict=True)
        return max((compare_scaled(g, w, rtol) for g, w in pairs), key=lambda v: (bool(v.problem), v.error))
    if not isinstance(got, Tensor) or not isinstance(want, Tensor) or got.array is None or want.array is None:
        return compare(got, want)
    g, w = got.array, want.array
    if [list(x) for x in got.lod] != want.lod:
        return Verdict(f"LoD {got.lod}, recorded {want.lod}")
    if g.dtype != w.dtype or g.shape != w.shape or not np.issubdtype(w.dtype, np.floating) or not w.size:
        return compare(got, want)
    allowed = 1.01 / flips if flips else 0.0
    return _scaled(g.astype(np.float64), w.astype(np.float64), rtol, allowed)


def _scaled(g: np.ndarray, w: np.ndarray, rtol: float, allowed: float) -> Verdict:
    finite = np.isfinite(w)
    if not np.array_equal(g[~finite], w[~finite], equal_nan=True):
        return Verdict("non-finite elements differ", np.inf)
    if not finite.any():
        return Verdict()
    scale = max(float(np.abs(w[finite]).max()), SCALE_FLOOR)
    worst = float(np.max(np.abs(g[finite] - w[finite])))
    if not worst <= max(rtol * scale, allowed):
        return Verdict(f"relative error {worst / scale:.2e}, allowed {rtol:.1e}", worst / scale)
    return Verdict("", worst / scale)


class Replay:
    """One case on one Session."""

    def __init__(self, case: ZooCase, interpret: bool = False) -> None:
        self.case, self.interpret = case, interpret
        self.report = Report(case.name)
        self.chaotic_from = self._first_chaotic_step()
        self.session = Session(interpret)

    def _first_chaotic_step(self) -> int:
        for step in range(self.case.meta["steps"]):
            key, _ = self.case.schedule(step)
            flips = accuracies(self.case.program(key))
            moves = [v for n, v in self.case.sensitivity(step).items() if n not in flips]
            if max(moves, default=0.0) > CHAOTIC:
                return max(step, 1)
        return self.case.meta["steps"]

    @property
    def chaotic(self) -> bool:
        """Whether the training becomes chaotic."""
        return self.chaotic_from < self.case.meta["steps"]

    def attempt(self, what: str, part: Callable[[], None]) -> None:
        """Run one part; an error is a problem of that part, with its traceback."""
        try:
            part()
        except Exception as error:  # the report names it, and the other parts still run
            self.report.problems.append(f"{what}: {type(error).__name__}: {error}")
            self.report.trace += f"--- {what}\n{traceback.format_exc()}"

    def run(self, parts: list[str]) -> Report:
        """Run the named parts in order."""
        if "trace" in parts:
            self.attempt("trace0", self.trace)
        if "steps" in parts:
            self.attempt("steps", self.steps)
            for name, part in (("test", self.test), ("extra", self.extras), ("saved", self.saved)):
                if name in parts:
                    self.attempt(name, part)
        return self.report

    def trace(self) -> None:
        """Step 0, every temporary of the global block."""
        recorded = self.case.trace()
        if recorded is None:
            return
        session = Session(self.interpret)
        session.set(self.case.initial_values())
        names = [n for n in recorded["order"] if _has_meaning(n, recorded["vars"][n]["k"])]
        got = session.run(self.case.program("main"), self.case.feeds(self.case_step("main")), names)
        moves = max(self.case.sensitivity(0).values(), default=0.0)
        rtol = max(1e-4, 30 * moves) if not self.case.meta["random"] else np.inf
        for name in names:
            self.report.note(f"trace0 {name}", compare_trace(got[name], recorded["vars"][name], rtol))

    def case_step(self, key: str) -> int:
        """The first step that runs a program."""
        keys = [self.case.schedule(s)[0] for s in range(self.case.meta["steps"])]
        return keys.index(key)

    def steps(self) -> None:
        """All steps, then the final state."""
        case = self.case
        self.session.set(case.initial_values())
        for step in range(case.meta["steps"]):
            key, fetch = case.schedule(step)
            got = self.session.run(case.program(key), case.feeds(step), fetch)
            if step < self.chaotic_from:
                self._judge_step(step, key, got)
        if not self.chaotic and not case.meta["random"]:
            self._judge_final()

    def _judge_step(self, step: int, key: str, got: dict[str, Value | None]) -> None:
        moves, flips = self.case.sensitivity(step), accuracies(self.case.program(key))
        for name, want in self.case.fetches(step).items():
            if self.case.meta["random"]:
                verdict = compare_shape(got[name], want)
            else:
                rtol = max(1e-5, 30 * moves[name])
                verdict = compare_scaled(got[name], want, rtol, self.case.rows_fed(step) if name in flips else 0)
            self.report.note(f"step {step} {name}", verdict)

    def _judge_final(self) -> None:
        allowed = 30 * self.case.meta["sensitivity"]["final_abs"]
        for name, want in self.case.file("final").items():
            self.report.note(f"final {name}", compare_state(self.session.get(name), want, allowed))
        digest = self.case.file("final_digest")
        for name, row in zip(sorted(self.case.meta["vars"]), digest.get("digest", ()), strict=False):
            self.report.note(f"final {name}", compare_digest(self.session.get(name), row, allowed))

    def _after_training(self) -> tuple[bool, float]:
        """(whether values are comparable, tolerance) of what runs on the trained parameters."""
        last = max(max(self.case.sensitivity(s).values(), default=0.0) for s in range(self.case.meta["steps"]))
        return not self.chaotic and not self.case.meta["random"], max(1e-5, 30 * last)

    def _judge(
        self, what: str, got: dict[str, Value | None], want: dict[str, Value], program: bytes, rows: int
    ) -> None:
        comparable, rtol = self._after_training()
        flips = accuracies(program)
        for name, value in want.items():
            if comparable:
                verdict = compare_scaled(got[name], value, rtol, rows if name in flips else 0)
            else:
                verdict = compare_shape(got[name], value)
            self.report.note(f"{what} {name}", verdict)

    def test(self) -> None:
        """The test program on the trained parameters."""
        meta, outs = self.case.meta.get("test"), self.case.file("test_outs")
        if not meta:
            return
        program = self.case.program("test")
        for i in range(meta["n"]):
            own = outs.group(f"f{i}/", meta["feed_lod"][i])
            feed = own or {n: v for n, v in self.case.feeds(i).items() if n in meta["feed_names"][i]}
            got = self.session.run(program, feed, meta["fetch"])
            want = outs.group(f"t{i}/", meta["fetch_lod"][i])
            self._judge(f"test {i}", got, want, program, rows_of(feed))

    def extras(self) -> None:
        """Further programs: beam search, averaged parameters ..."""
        for name, meta in self.case.meta["extra"].items():
            arrays, program = self.case.file(f"extra_{name}"), self.case.program(f"extra_{name}")
            session, own = self.session, {k: v for k, v in arrays.group("init/", {}).items() if isinstance(v, Tensor)}
            if own:
                session = Session(self.interpret)
                session.set(own)
            for i in range(meta["n"]):
                feed = arrays.group(f"f{i}/", meta["feed_lod"][i])
                got = session.run(program, feed, meta["fetch"])
                want = arrays.group(f"t{i}/", meta["fetch_lod"][i])
                self._judge(f"extra {name} {i}", got, want, program, rows_of(feed))

    def saved(self) -> None:
        """The inference models that Paddle saved, loaded and run."""
        formats = self.case.meta["formats"]
        for kind, params in (("inference", None), ("inference_combined", "__params__")):
            if kind not in formats or not (self.case.path / "saved" / kind).is_dir():
                continue
            self._saved_inference(kind, params, formats[kind])

    def _saved_inference(self, kind: str, params: str | None, meta: dict[str, Any]) -> None:
        session = Session(self.interpret)
        with fluid.scope_guard(session.scope):
            folder = str(self.case.path / "saved" / kind)
            program, feeds, targets = fluid.io.load_inference_model(folder, session.executor, params_filename=params)
            outs = self.case.file("saved_inference_outs")
            for i in range(meta["n"]):
                batch = self.case.feeds(i)
                feed = {n: lod_tensor(batch[n]) for n in feeds}  # type: ignore[arg-type]
                values = session.executor.run(program, feed=feed, fetch_list=targets, return_numpy=False)
                got = dict(zip(meta["fetch"], map(value_of, values), strict=True))
                for name, want in saved_outputs(outs, i, meta).items():
                    self.report.note(f"{kind} {i} {name}", compare_scaled(got[name], want, 1e-5))


def _has_meaning(name: str, kind: str) -> bool:
    """The reference adds in place into elements of gradient arrays it has used up: what is left there means nothing."""
    return kind in ("t", "sr") or (kind == "arr" and "@GRAD" not in name)


def saved_outputs(outs: Any, i: int, meta: dict[str, Any]) -> dict[str, Value]:
    """The recorded outputs of the saved inference model on batch ``i``."""
    prefix = f"t{i}/" if any(k.startswith("t0/") for k in outs) else f"s{i}/"
    return outs.group(prefix, meta["fetch_lod"][i])


def rows_of(feed: dict[str, Value]) -> int:
    """The largest leading dimension of a feed."""
    shapes = [v.array.shape for v in feed.values() if isinstance(v, Tensor) and v.array is not None]
    return max((s[0] for s in shapes if s), default=1)


def accuracies(program: bytes) -> frozenset[str]:
    """The variables that accuracy ops write."""
    from fluidjax import framework_pb2

    desc = framework_pb2.ProgramDesc.FromString(program)
    ops = [op for block in desc.blocks for op in block.ops if op.type == "accuracy"]
    return frozenset(a for op in ops for v in op.outputs if v.parameter == "Accuracy" for a in v.arguments)


def compare_shape(got: Value | None, want: Value) -> Verdict:
    """Dtype and shape alone, for values that are drawn or chaotic."""
    if isinstance(got, Tensor) and isinstance(want, Tensor) and got.array is not None and want.array is not None:
        a, b = (got.array.dtype, got.array.shape), (want.array.dtype, want.array.shape)
        return Verdict() if a == b else Verdict(f"{a}, recorded {b}")
    return (
        Verdict() if type(got) is type(want) else Verdict(f"kind {type(got).__name__}, recorded {type(want).__name__}")
    )


def compare_state(got: np.ndarray | None, want: np.ndarray, allowed: float) -> Verdict:
    """A final persistable: absolute tolerance of the recording, or 1e-5 relative."""
    if got is None:
        return Verdict("not in the scope")
    if got.dtype != want.dtype or got.shape != want.shape or not np.issubdtype(want.dtype, np.floating):
        return compare(Tensor(got), Tensor(want))
    scale = max(float(np.abs(want).max(initial=0.0)), SCALE_FLOOR)
    return _scaled(got.astype(np.float64), want.astype(np.float64), 1e-5, max(allowed, 1e-5 * scale))


def compare_digest(got: np.ndarray | None, row: np.ndarray, allowed: float) -> Verdict:
    """A final persistable against its digest: sum, sum of abs, max abs, sixteen elements."""
    if got is None:
        return Verdict("not in the scope")
    flat = got.astype(np.float64).ravel()
    picked = flat[np.linspace(0, flat.size - 1, 16).astype(np.int64)]
    scale = max(float(row[2]), SCALE_FLOOR)
    elements = _scaled(np.append(picked, np.abs(flat).max()), np.append(row[3:], row[2]), 1e-5, allowed)
    if elements.problem:
        return elements
    spread = max(allowed, 1e-5 * scale) * np.sqrt(flat.size) + 1e-5 * float(row[1])
    for what, a, b in (("sum", flat.sum(), row[0]), ("sum of abs", np.abs(flat).sum(), row[1])):
        if not abs(a - b) <= spread:
            return Verdict(f"{what} {a:.8g}, recorded {b:.8g}, allowed difference {spread:.1e}", np.inf)
    return elements


def compare_trace(got: Value | None, want: dict[str, Any], rtol: float) -> Verdict:
    """A temporary of step 0 against its digest in the trace."""
    if got is None:
        return Verdict("no value")
    if want["k"] == "arr":
        return _compare_trace_array(got, want, rtol)
    array = got.array if not isinstance(got, TensorList) else None  # type: ignore[union-attr]
    if array is None:
        return Verdict() if not want["s"] or 0 in want["s"] else Verdict("no memory")
    if list(array.shape) != want["s"] or array.dtype.name != want["d"]:
        return Verdict(f"{array.dtype}{list(array.shape)}, recorded {want['d']}{want['s']}")
    if want["k"] == "sr" and (list(got.rows) != want["rows"] or got.height != want["height"]):  # type: ignore[union-attr]
        return Verdict(f"rows {list(got.rows)}, recorded {want['rows']}")  # type: ignore[union-attr]
    if want["k"] == "t" and [list(x) for x in got.lod] != want["lod"]:  # type: ignore[union-attr]
        return Verdict(f"LoD {got.lod}, recorded {want['lod']}")  # type: ignore[union-attr]
    return _compare_sums(array.astype(np.float64).ravel(), want, rtol)


def _compare_sums(flat: np.ndarray, want: dict[str, Any], rtol: float) -> Verdict:
    if not np.isfinite(want["abs"]) or not np.isfinite(rtol):
        return Verdict()
    mean = want["abs"] / max(flat.size, 1)
    floor = 1e-7
    scale = max([abs(v) for v in want["v"]] + [mean, floor / rtol])
    for a, b in zip(flat, want["v"], strict=False):
        if not abs(a - b) <= rtol * scale:
            return Verdict(f"element {a:.8g}, recorded {b:.8g}", abs(a - b) / scale)
    for what, a, b in (("sum", flat.sum(), want["sum"]), ("sum of abs", np.abs(flat).sum(), want["abs"])):
        if not abs(a - b) <= rtol * max(want["abs"], floor / rtol * max(flat.size, 1)):
            return Verdict(f"{what} {a:.8g}, recorded {b:.8g}", np.inf)
    return Verdict()


def _compare_trace_array(got: Value, want: dict[str, Any], rtol: float) -> Verdict:
    if not isinstance(got, TensorList):
        return Verdict(f"kind {type(got).__name__}, recorded a tensor array")
    if len(got.items) != want["n"]:
        return Verdict(f"{len(got.items)} elements, recorded {want['n']}")
    for i, (item, record) in enumerate(zip(got.items, want["items"], strict=True)):
        array = np.zeros(0) if item.array is None else item.array
        if list(array.shape) != record["s"]:
            return Verdict(f"element {i}: shape {list(array.shape)}, recorded {record['s']}")
        total, scale = float(array.sum(dtype=np.float64)), float(np.abs(array).sum(dtype=np.float64))
        if not abs(total - record["sum"]) <= rtol * max(scale, 1e-6):
            return Verdict(f"element {i}: sum {total:.8g}, recorded {record['sum']:.8g}", np.inf)
    return Verdict()


def replay(case: ZooCase, parts: list[str], interpret: bool = False) -> Report:
    """Replay a recording; ``parts`` of trace, steps, test, extra, saved."""
    return Replay(case, interpret).run(parts)
