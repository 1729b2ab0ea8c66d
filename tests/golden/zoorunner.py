"""Replaying a network recording and judging it: all steps, step 0 variable by variable, final state, test program.

Tolerances follow from the recording: a fetch may differ by max(1e-5, 30 * what the reference itself moves when every
parameter is changed by 1e-6), relative to max(max|x|, 1e-3). Of a step that moves by more than ``CHAOTIC`` nothing is
judged but step 0 and its trace. An accuracy may flip one sample.
"""

from __future__ import annotations

import functools
import re
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import fluidjax as fluid
from fluidjax.proto.framework_pb2 import ProgramDesc, VarType
from tests.golden import known
from tests.golden.session import Session, lod_tensor, value_of
from tests.golden.trace import compare_step, perturbed
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


@dataclass(frozen=True)
class Job:
    """A program to be run on trained parameters."""

    program: bytes
    feed: dict[str, Value]
    fetch: list[str]

    def run(self, session: Session) -> dict[str, Value | None]:
        """Run it on a session."""
        return session.run(self.program, self.feed, self.fetch)


def movement(a: Value | None, b: Value | None) -> float:
    """How far two values of a tensor are apart, relative to max(max|x|, 1e-3)."""
    if not isinstance(a, Tensor) or not isinstance(b, Tensor) or a.array is None or b.array is None:
        return 0.0
    if a.array.shape != b.array.shape or a.array.dtype.kind != "f":
        return 0.0
    return float(np.abs(a.array - b.array).max(initial=0.0) / max(np.abs(a.array).max(initial=0.0), SCALE_FLOOR))


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
        for name, verdict in compare_step(self.case, self.interpret).items():
            self.report.note(f"trace0 {name}", Verdict(verdict.problem))

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
                rtol = 1e-5 if name in flips else max(1e-5, 30 * moves[name])
                verdict = compare_scaled(got[name], want, rtol, self.case.rows_fed(step) if name in flips else 0)
            self.report.note(f"step {step} {name}", verdict)

    def _judge_final(self) -> None:
        allowed = 30 * self.case.meta["sensitivity"]["final_abs"]
        for name, want in self.case.file("final").items():
            of_it = max(allowed, self._at_kinks(name) * float(np.abs(want).max(initial=0.0)))
            self.report.note(f"final {name}", compare_state(self.session.get(name), want, of_it))
        digest = self.case.file("final_digest")
        for name, row in zip(self._digested(), digest.get("digest", ()), strict=False):
            of_it = max(allowed, self._at_kinks(name) * float(row[2]))
            self.report.note(f"final {name}", compare_digest(self.session.get(name), row, of_it))

    def _at_kinks(self, name: str) -> float:
        """How far a state may be off, relative to its largest element, where rounding decides the side of a kink."""
        names = known.KINKS.get(self.case.name)
        return 0.2 if names is not None and re.fullmatch(names, name) else 0.0

    def _digested(self) -> list[str]:
        """The names of the digest's rows: evaluators' states, which no startup program fills, are among them."""
        block = ProgramDesc.FromString(self.case.program("main")).blocks[0]
        kinds = (VarType.FEED_MINIBATCH, VarType.FETCH_LIST)
        kept = {v.name for v in block.vars if v.persistable and v.type.type not in kinds}
        return sorted(kept | set(self.case.meta["vars"]))

    def _after_training(self) -> tuple[bool, float]:
        """(whether values are comparable, tolerance) of what runs on the trained parameters."""
        moves = []
        for step in range(self.case.meta["steps"]):
            flips = accuracies(self.case.program(self.case.schedule(step)[0]))
            moves += [v for n, v in self.case.sensitivity(step).items() if n not in flips]
        return not self.chaotic and not self.case.meta["random"], max(1e-5, 30 * max(moves, default=0.0))

    @functools.cached_property
    def shadow(self) -> Session:
        """A second training from parameters moved by a millionth, as the recording's sensitivities were measured."""
        session = Session(self.interpret)
        session.set(perturbed(self.case))
        for step in range(self.case.meta["steps"]):
            key, fetch = self.case.schedule(step)
            session.run(self.case.program(key), self.case.feeds(step), fetch)
        return session

    def _judge(self, what: str, job: Job, session: Session, want: dict[str, Value]) -> None:
        """Run a program after training. The recording states no sensitivity for it: training fetches' serve, or else
        what the result itself moves by in the shadow training."""
        comparable, rtol = self._after_training()
        got, flips, rows = job.run(session), accuracies(job.program), rows_of(job.feed)
        for name, value in want.items():
            if not comparable:
                verdict = compare_shape(got[name], value)
            else:
                verdict = compare_scaled(got[name], value, rtol, rows if name in flips else 0)
                if verdict.problem and session is self.session:
                    moved = 30 * movement(got[name], job.run(self.shadow)[name])
                    verdict = compare_scaled(got[name], value, max(rtol, moved), rows if name in flips else 0)
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
            job = Job(program, feed, meta["fetch"])
            self._judge(f"test {i}", job, self.session, outs.group(f"t{i}/", meta["fetch_lod"][i]))

    def extras(self) -> None:
        """Further programs: beam search, averaged parameters ..."""
        for name, meta in self.case.meta["extra"].items():
            arrays, program = self.case.file(f"extra_{name}"), self.case.program(f"extra_{name}")
            session, own = self.session, {k: v for k, v in arrays.group("init/", {}).items() if isinstance(v, Tensor)}
            if own:
                session = Session(self.interpret)
                session.set(own)
            for i in range(meta["n"]):
                job = Job(program, arrays.group(f"f{i}/", meta["feed_lod"][i]), meta["fetch"])
                self._judge(f"extra {name} {i}", job, session, arrays.group(f"t{i}/", meta["fetch_lod"][i]))

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
    from fluidjax.proto import framework_pb2

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


def replay(case: ZooCase, parts: list[str], interpret: bool = False) -> Report:
    """Replay a recording; ``parts`` of trace, steps, test, extra, saved."""
    return Replay(case, interpret).run(parts)
