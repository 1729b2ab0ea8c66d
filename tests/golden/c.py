"""``python -m tests.golden.c [case ...]``: recorded networks as C programs, run and compared with the Executor."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import jax
import numpy as np
from safetensors.numpy import load_file

import fluidjax as fluid
from fluidjax.export import ExportError, ragged, to_jax
from fluidjax.export.c import source_of, trace
from fluidjax.export.c.build import as_executed, compile_c, difference, load_outputs, run_c, save_inputs
from fluidjax.export.c.convert import SEED, Exact
from tests.golden.recordings import folder
from tests.golden.session import Session
from tests.golden.trace import perturbed
from tests.golden.values import Tensor, Value
from tests.golden.zoo import enter
from tests.golden.zoocase import ZooCase, zoo_case, zoo_cases
from tests.golden.zoorunner import accuracies, rows_of

PARTS = ("forward", "step")
NO_TEST = "no test program"
EQUAL = ("equal", "float64")  # as the Executor, or, where rounding decides, as the same step in float64


@dataclass
class Result:
    """What became of a network: problems, or how it compares."""

    problems: list[str] = field(default_factory=list)
    absent: str = ""  # why there is nothing to convert
    error: float = 0.0
    judged: dict[str, str] = field(default_factory=dict)  # what float64 was asked for, and how it decided
    figures: str = ""
    memory: int = 0

    @property
    def outcome(self) -> str:
        """One of ``EQUAL``, or what is missing or wrong."""
        return next(iter(self.problems), "") or self.absent or EQUAL[bool(self.judged)]


def job_of(case: ZooCase, part: str) -> tuple[bytes, list[str], dict[str, Value]] | None:
    """(program, fetches, feeds) of the test program, or of the first training step."""
    if part == "step":
        key, fetch = case.schedule(0)
        return case.program(key), fetch, case.feeds(0)
    meta = case.meta.get("test")
    if not meta:
        return None
    own = case.file("test_outs").group("f0/", meta["feed_lod"][0])
    return (
        case.program("test"),
        meta["fetch"],
        own or {name: value for name, value in case.feeds(0).items() if name in meta["feed_names"][0]},
    )


def convert(case: ZooCase, part: str, where: Path, flags: tuple[str, ...] = ()) -> Result:
    """One program through C, into files at ``where``."""
    result, job = Result(), job_of(case, part)
    if job is None:
        return Result(absent=NO_TEST)
    raw, fetches, feeds = job
    session = Session()
    session.set(case.initial_values())
    program = fluid.Program.parse_from_string(raw)
    program.random_seed = SEED
    values = {n: (v.array, [np.diff(level).tolist() for level in v.lod]) for n, v in feeds.items()}  # type: ignore
    with jax.enable_x64(True):
        given = {n: ragged(a, lengths) if lengths else a for n, (a, lengths) in values.items()}
    start = time.process_time()
    try:
        function, parameters = to_jax(program, list(feeds), fetches, scope=session.scope, platform="cpu")
        source = source_of(trace(function, parameters, given, part == "step"), "model")
    except ExportError as error:
        return Result(absent=" ".join(str(error).split()))
    written = time.process_time() - start
    (where / "model.c").write_text(source.text)
    (where / "model.safetensors").write_bytes(source.weights)
    compile_c(where / "model.c", where / "model", flags)
    save_inputs(where, source.inputs, values)
    said = run_c(
        where / "model", where, where, "--seed", str(SEED), "--time", "--save", str(where / "after.safetensors")
    )
    size, result.memory = (where / "model").stat().st_size, source.arena + len(source.weights)
    result.figures = (
        f"{1e6 * float(said.split()[0]):.0f} us, {source.statements} statements, {source.kernels} kernels, "
        f"{size / 1e3:.0f} kB, memory {result.memory / 1e6:.2f} MB, written in {written:.1f} s"
    )
    found, want = load_outputs(where, source.outputs), session.run(program, feeds, fetches)
    shaken = Session()
    shaken.set(perturbed(case))
    moved = shaken.run(program, feeds, fetches)
    flips, exact = accuracies(raw), Exact(function, parameters, given, SEED)
    for name in fetches:
        expected, near = want[name], moved[name]
        assert isinstance(expected, Tensor) and isinstance(near, Tensor)
        lengths = [np.diff(level).tolist() for level in expected.lod]
        array, sizes = as_executed(found[name], (expected.array, lengths))
        allowed = 1.01 / rows_of(feeds) if name in flips else 30 * difference(near.array, expected.array)
        _judge(result, name, array, expected.array, allowed, exact)
        if sizes != lengths:
            result.problems.append(f"{name}: lengths {sizes}, the Executor's {lengths}")
    if part == "step":
        after = load_file(where / "after.safetensors")
        for name in function.written:
            if name in after:
                now, near = session.get(name), shaken.get(name)
                allowed = max(1e-5, 30 * difference(near, now))
                alone = "" if difference(after[name], now) <= allowed else _alone(case, name, after[name], now, exact)
                if alone:
                    result.judged[name] = alone
                else:
                    _judge(result, name, after[name], now, allowed, exact)
    return result


def _judge(result: Result, name: str, found: np.ndarray, expected: np.ndarray, allowed: float, exact: Exact) -> None:
    """1e-5, or 30 times what the Executor's own value moves by when every parameter is changed by a millionth.

    Where they differ by more, C has to be that near to the same step in float64 (see ``Exact``).
    """
    apart = difference(found, expected)
    allowed = max(1e-5, allowed)
    if not apart <= allowed:
        far, apart = apart, exact.distance(0, name, found, allowed)
        if apart <= allowed:
            result.judged[name] = f"{apart:.1e} from float64, the Executor {exact.distance(0, name, expected):.1e}"
        else:
            apart = min(apart, far)
    if not apart <= allowed:
        result.problems.append(f"{name}: {apart:.1e} from the Executor, allowed {max(1e-5, allowed):.0e}")
    result.error = max(result.error, apart)


def _alone(case: ZooCase, name: str, found: np.ndarray, expected: np.ndarray, exact: Exact) -> str:
    given = case.initial_values().get(name)
    before = None if given is None else given.array
    return "" if before is None else rounding_alone(before, found, expected, exact.distance(0, name, before))


def rounding_alone(before: np.ndarray, found: np.ndarray, expected: np.ndarray, exact: float) -> str:
    """How far both moved a parameter that the step in float64 leaves where it was; "" where it is another matter.

    Its gradient is zero, as of a bias before a softmax, and Adam divides what rounding leaves of it by its own size:
    the two then only have to move it as far.
    """
    sizes = [float(np.abs(v - before).max()) for v in (found, expected)]
    if exact > 1e-6 or sizes[0] > 10 * sizes[1]:
        return ""
    return f"moved by {sizes[0]:.1e} through rounding alone, in the Executor {sizes[1]:.1e}"


def main() -> int:
    """Convert and report; the exit status is 1 when a program differs, or none ran."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden.c", description=__doc__)
    parser.add_argument("cases", nargs="*", help="networks; default: all")
    parser.add_argument("--parts", default=",".join(PARTS), help=f"comma separated, of {', '.join(PARTS)}")
    parser.add_argument("--flags", default="", help="further flags for the compiler")
    parser.add_argument("--json", metavar="FILE", help="enter {case: {part: outcome}} into FILE, case by case")
    args = parser.parse_args()
    if unknown := sorted(set(args.cases) - set(zoo_cases())):
        sys.exit(f"no recordings of {', '.join(unknown)} in {folder()}")
    count: dict[str, list[str]] = {part: [] for part in args.parts.split(",")}
    failed = 0
    for name in args.cases or zoo_cases():
        outcome = {}
        for part in count:
            with tempfile.TemporaryDirectory() as where:
                result = convert(zoo_case(name), part, Path(where), tuple(args.flags.split()))
            state = "FAIL" if result.problems else "----" if result.absent else "ok  "
            count[part] += [name] * (state == "ok  ")
            failed += bool(result.problems)
            outcome[part] = result.outcome
            said = result.absent[:200] or f"{result.error:8.1e}  {result.figures}"
            print(f"{state}  {name:42s} {part:8s} {said}", flush=True)
            print("".join(f"        {p}\n" for p in result.problems[:8]), end="", flush=True)
            print("".join(f"        {n}: {said}\n" for n, said in result.judged.items()), end="", flush=True)
        enter(args.json, name, outcome)
    print(", ".join(f"{part}: {len(names)} as C" for part, names in count.items()) + f", {failed} differ")
    return 1 if failed or not any(count.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
