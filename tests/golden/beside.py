"""``python -m tests.golden.beside [--seconds N] [--seed S]``: random programs, beside Paddle 1.8.5 itself.

Each program is drawn here, sent to Paddle as a ProgramDesc, and run by both: the loss and the gradients by all that has
one, from each side's own backward pass. FLUIDJAX_PADDLE_PYTHON names a Python that has Paddle 1.8.5. What differs is
printed with its kind and seed; ``--only KIND --seed S --count 1`` draws it again. Programs that Paddle does not run are
counted apart, as are those where differences of Paddle's own loss are closer to the gradient here than to Paddle's.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded

import fluidjax as fluid
from fluidjax.testing.nests import KINDS as NESTS
from fluidjax.testing.nests import LENGTHS, Nest, nests
from fluidjax.testing.programs import Sample, blocks, grow
from fluidjax.testing.table_blocks import block_cases, case_block

WORKER = Path(__file__).with_name("beside_worker.py")
TOLERANCE = {"float32": 2e-4, "float64": 1e-7}  # of the largest number
STEP = {"float32": 1e-2, "float64": 1e-5}  # of differences
MOST = 6
Found = dict[str, np.ndarray]


@dataclass
class Case:
    """A program with all that a run needs: forward ops, what is fed and held, and what the loss is derived by."""

    program: Any
    loss: str
    feed: Mapping[str, Any]
    held: Mapping[str, np.ndarray]
    wanted: list[str]
    text: str

    def here(self) -> Found:
        """The loss and its gradients as fluidjax has them."""
        program, scope = self.program.clone(), fluid.Scope()
        block = program.global_block()
        with fluid.program_guard(program, fluid.Program()), fluid.scope_guard(scope):
            for name, value in self.held.items():
                scope.var(name).get_tensor().set(value, fluid.CPUPlace())
            for name in self.wanted:
                block.var(name).stop_gradient = False
            wanted = [block.var(name) for name in self.wanted]
            gradients = fluid.gradients([block.var(self.loss)], wanted) if wanted else []
            names = ["loss", *(name for name, g in zip(self.wanted, gradients, strict=True) if g is not None)]
            fetches = [self.loss, *(g for g in gradients if g is not None)]
            run = fluid.Executor(fluid.CPUPlace()).run
            found = run(program, feed=dict(self.feed), fetch_list=fetches, return_numpy=False)
        return {name: np.array(value) for name, value in zip(names, found, strict=True)}

    def write(self, folder: Path) -> None:
        """For the worker."""
        arrays: Found = dict(self.held)
        lengths: dict[str, list[list[int]]] = {}
        for name, value in self.feed.items():
            arrays[name] = np.array(value)
            lengths[name] = getattr(value, "recursive_sequence_lengths", list)()
        np.savez(folder / "values.npz", allow_pickle=False, **arrays)
        # Whether a gradient stops at a variable is Python's knowledge, not the desc's.
        stopped = [(b.idx, v.name) for b in self.program.blocks for v in b.vars.values() if v.stop_gradient]
        told = {"fed": lengths, "held": list(self.held), "loss": self.loss, "wanted": self.wanted, "stopped": stopped}
        (folder / "run.json").write_text(json.dumps(told))
        (folder / "program").write_bytes(self.program.desc.serialize_to_string())


class Paddle:
    """The worker, which answers with Paddle's results, until the context ends."""

    def __init__(self, python: str):
        pipe = subprocess.PIPE
        environment = os.environ | {"GLOG_minloglevel": "4"}
        self._worker = subprocess.Popen(
            [python, str(WORKER)], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env=environment
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.communicate()

    def of(self, case: Case) -> Found | str:
        """Its results, or what it says instead."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            case.write(folder)
            assert self._worker.stdin is not None and self._worker.stdout is not None
            print(folder, file=self._worker.stdin, flush=True)
            while not (line := self._worker.stdout.readline()).startswith("ended"):
                if not line:
                    raise RuntimeError("the worker has ended: does FLUIDJAX_PADDLE_PYTHON have Paddle 1.8.5?")
            if (folder / "results.npz").exists():
                with np.load(folder / "results.npz") as found:
                    return dict(found)
            error = folder / "error"
            return _said(error.read_text()) if error.exists() else f"its process {line.strip()}"


def _said(text: str) -> str:
    """The line of an error that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in lines if "Error: " in line and "paddle" not in line.split(":")[0]), lines[-1])[:160]


def of_sample(sample: Sample, blocks: list[str]) -> Case:
    """A program grown of these blocks."""
    held = {n: np.array(sample.scope.var(n).get_tensor()) for n in (*sample.parameters, *sample.constants)}
    return Case(sample.program, sample.loss.name, sample.feed, held, sample.parameters, ", ".join(blocks))


def of_nest(nest: Nest, rng: random.Random) -> Case:
    """Loops and branches inside each other: what they compute. What Paddle derives there is often wrong."""
    draw = np.random.default_rng(rng.randint(0, 2**32))
    point = [draw.uniform(0.2, 0.9, sum(LENGTHS) if v.lod_level else 1) for v in nest.inputs]
    return Case(nest.forward, nest.loss.name, nest.feed(point), {}, [], nest.text)


def chain(rng: random.Random) -> Case:
    """Cases of the op table, one after the other."""
    cases = rng.choices(block_cases(), k=rng.randint(1, MOST))
    return of_sample(grow(rng.randint, [case_block(c) for c in cases]), [c.name for c in cases])


def _named(rng: random.Random, ragged: bool) -> Case:
    kinds = blocks(ragged, control_flow=rng.random() < 0.6, sequences=ragged)
    names = rng.choices(list(kinds), k=rng.randint(1, MOST))
    return of_sample(grow(rng.randint, [kinds[name] for name in names], ragged), names)


def flow(rng: random.Random) -> Case:
    """Dense programs with branches, loops and recurrences."""
    return _named(rng, ragged=False)


def sequences(rng: random.Random) -> Case:
    """Ragged programs."""
    return _named(rng, ragged=True)


def nested(rng: random.Random) -> Case:
    """Loops, branches and recurrences inside each other."""
    kinds, depth, direct = rng.sample(NESTS, rng.randint(1, 4)), rng.randint(1, 3), rng.random() < 0.3
    drawn: list[Nest] = []

    @seeded(rng.randint(0, 2**32))
    @settings(
        max_examples=3, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(nests(kinds, depth=depth, direct=direct))
    def keep(nest: Nest) -> None:
        drawn.append(nest)

    keep()
    return of_nest(drawn[-1], rng)


KINDS = {f.__name__: f for f in (chain, flow, sequences, nested)}


def apart(ours: Found, theirs: Found) -> tuple[str, str]:
    """(the name of a value that differs, how); "" if none does."""
    if ours.keys() != theirs.keys():
        return "", f"gradients of {sorted(ours)}, and of {sorted(theirs)}"
    largest = max(_size(value) for value in theirs.values())
    for name, value in theirs.items():
        if not value.size and not ours[name].any():
            continue  # a loop that ran no time computed none
        if ours[name].shape != value.shape or ours[name].dtype != value.dtype:
            return name, f"{name}: {ours[name].dtype} {ours[name].shape}, and {value.dtype} {value.shape}"
        size = max(_size(value), largest / 100)  # gradients that cancel out are rounding alone
        if not np.allclose(ours[name], value, rtol=0, atol=TOLERANCE[value.dtype.name] * size, equal_nan=True):
            return name, f"{name}: {ours[name].reshape(-1)[:4]}, and {value.reshape(-1)[:4]}"
    return "", ""


def _size(value: np.ndarray) -> float:
    return float(np.abs(value[np.isfinite(value)]).max(initial=1e-3))


def wrong_there(case: Case, paddle: Paddle, name: str, ours: Found, theirs: Found) -> bool:
    """Whether Paddle's gradient by a held value is farther from differences of its own loss than the one here."""
    if name not in case.held or ours[name].shape != theirs[name].shape:
        return False
    value, apart = case.held[name], (ours[name] - theirs[name]).astype(np.float64)
    along = apart / np.linalg.norm(apart)
    step = STEP[value.dtype.name]
    ends = []
    for s in (step, -step):
        found = paddle.of(replace(case, held={**case.held, name: (value + s * along).astype(value.dtype)}))
        if isinstance(found, str):
            return False
        ends.append(float(found["loss"].item()))
    slope = (ends[0] - ends[1]) / (2 * step)
    here, there = (abs(float((found[name] * along).sum()) - slope) for found in (ours, theirs))
    return 5 * here < there


def judge(case: Case, paddle: Paddle) -> tuple[str, str]:
    """(equal, differs, fails, wrong there or refused, why)."""
    theirs = paddle.of(case)
    if isinstance(theirs, str):
        return "refused", theirs
    try:
        ours = case.here()
    except Exception as error:  # noqa: BLE001  (whatever it is, it is what is reported)
        return "fails", f"{type(error).__name__}: {error}"
    name, different = apart(ours, theirs)
    if name and wrong_there(case, paddle, name, ours, theirs):
        return "wrong there", different
    return ("differs", different) if different else ("equal", "")


def main() -> int:
    """Draw and report; the exit status is 1 when a program differed or none was compared."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden.beside", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="when to stop drawing")
    parser.add_argument("--count", type=int, default=10**9, help="how many programs at most")
    parser.add_argument("--seed", type=int, default=0, help="of the first program; the others count on")
    parser.add_argument("--only", choices=KINDS, help="one kind of programs")
    args = parser.parse_args()
    python = os.environ.get("FLUIDJAX_PADDLE_PYTHON")
    if not python:
        sys.exit("FLUIDJAX_PADDLE_PYTHON names no Python that has Paddle 1.8.5")
    count, began, drawn = Counter[str](), time.monotonic(), 0
    with Paddle(python) as paddle:
        while drawn < args.count and time.monotonic() - began < args.seconds:
            seed = args.seed + drawn
            kind = args.only or list(KINDS)[seed % len(KINDS)]
            case = KINDS[kind](random.Random(seed))
            verdict, why = judge(case, paddle)
            count[verdict] += 1
            drawn += 1
            if verdict != "equal":
                print(f"{verdict:12}{kind} {seed}: {why}", flush=True)
            if verdict in ("differs", "fails"):
                print(f"    {case.text}", flush=True)
    print(f"{drawn} programs: " + ", ".join(f"{number} {verdict}" for verdict, number in count.items()))
    return 1 if count["differs"] or count["fails"] or not count["equal"] else 0


if __name__ == "__main__":
    sys.exit(main())
