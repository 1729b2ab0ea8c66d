"""``python -m tests.golden.zoo [case ...]``: replay network recordings and report per case."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import lowering
from tests.golden.recordings import folder
from tests.golden.zoocase import zoo_case, zoo_cases
from tests.golden.zoorunner import replay

PARTS = ["trace", "steps", "test", "extra", "saved"]


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden.zoo", description=__doc__)
    parser.add_argument("cases", nargs="*", help="networks to replay; default: those whose ops are all registered")
    parser.add_argument("--parts", default=",".join(PARTS), help=f"comma separated, of {', '.join(PARTS)}")
    parser.add_argument("--interpret", action="store_true", help="op by op instead of one jitted program")
    parser.add_argument("--verbose", "-v", action="store_true", help="all problems and tracebacks")
    parser.add_argument("--json", metavar="FILE", help="enter {case: [problems]} into FILE, case by case")
    return parser.parse_args()


def missing_ops(name: str) -> list[str]:
    """The operators of a network that are not registered."""
    meta = zoo_case(name).meta
    types = set(meta["op_types"]) | {t for p in meta["programs"].values() for t in p["op_types"]}
    types |= {t for e in meta["extra"].values() for t in e["op_types"]}
    return sorted(t for t in types if not lowering.has_op(t))


def enter(path: str | None, name: str, problems: list[str] | dict[str, str]) -> None:
    """Add a case to the JSON file of results, if one is asked for: a long replay may be stopped and taken up again."""
    if path is None:
        return
    file = Path(path)
    known = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(known | {name: problems}, indent=1, sort_keys=True))


def main() -> int:
    """Replay and report; the exit status is 1 when a case failed or none ran."""
    args = parse()
    unknown = sorted(set(args.cases) - set(zoo_cases()))
    if unknown:
        sys.exit(f"no recordings of {', '.join(unknown)} in {folder()}")
    results: dict[str, list[str]] = {}
    for name in args.cases or zoo_cases():
        missing = missing_ops(name)
        if missing:
            print(f"----  {name:42s} needs {', '.join(missing)}", flush=True)
            results[name] = [f"operators not registered: {', '.join(missing)}"]
            enter(args.json, name, results[name])
            continue
        start = time.perf_counter()
        report = replay(zoo_case(name), args.parts.split(","), args.interpret)
        seconds = time.perf_counter() - start
        state = "ok  " if report.passed else "FAIL"
        print(f"{state}  {name:42s} {report.checks:5d} checks {report.error:8.1e} {seconds:6.1f}s", flush=True)
        shown = report.problems if args.verbose else [p[:240] for p in report.problems[:4]]
        print("".join(f"        {p}\n" for p in shown), end="")
        if args.verbose and report.trace:
            print(report.trace)
        results[name] = report.problems if report.checks else ["nothing was checked"]
        enter(args.json, name, results[name])
    print(f"{len(results)} networks, {sum(not p for p in results.values())} pass")
    return 1 if any(results.values()) or not results else 0


if __name__ == "__main__":
    sys.exit(main())
