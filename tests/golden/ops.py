"""``python -m tests.golden.ops [op_type ...]``: replay operator recordings and report per operator."""

from __future__ import annotations

import argparse
import json
import sys
import time

import lowering
from tests.golden.backend import BACKENDS
from tests.golden.oprunner import Outcome, run_op
from tests.golden.recordings import folder, op_types


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden.ops", description=__doc__)
    parser.add_argument("op_types", nargs="*", help="operators to run; default: every registered one")
    parser.add_argument("--all", action="store_true", help="also the operators that are not registered")
    parser.add_argument("--verbose", "-v", action="store_true", help="name every failed case, with its traceback")
    parser.add_argument("--failed", "-f", action="store_true", help="report only the operators with a failed case")
    parser.add_argument("--backend", choices=sorted(BACKENDS), default="executor", help="how programs are run")
    parser.add_argument("--json", metavar="FILE", help="write {op: {case id: problem or ''}} to FILE")
    return parser.parse_args()


def chosen(args: argparse.Namespace) -> list[str]:
    """The operators to run."""
    have = op_types()
    if args.op_types:
        missing = sorted(set(args.op_types) - set(have))
        if missing:
            sys.exit(f"no recordings of {', '.join(missing)} in {folder()}")
        return args.op_types
    registered = set(lowering.registered_ops())
    return have if args.all else [t for t in have if t in registered]


def report(op_type: str, outcomes: list[Outcome], args: argparse.Namespace, seconds: float) -> None:
    """One line per operator, and the failed cases."""
    failed = [o for o in outcomes if not o.passed]
    if args.failed and not failed:
        return
    error = max((o.verdict.error for o in outcomes if o.passed), default=0.0)
    state = "ok  " if not failed else "FAIL"
    print(f"{state} {op_type:36s} {len(outcomes) - len(failed):2d}/{len(outcomes):<2d} {error:8.1e} {seconds:6.1f}s")
    for o in failed:
        print(f"       {o.case.id}: {o.verdict.problem[: 2000 if args.verbose else 200]}")
        if args.verbose and o.trace:
            print(o.trace)
    sys.stdout.flush()


def main() -> int:
    """Run and report; the exit status is 1 when a case failed or none ran."""
    args = parse()
    backend, results = BACKENDS[args.backend], {}
    for op_type in chosen(args):
        start = time.perf_counter()
        outcomes = run_op(op_type, backend)
        report(op_type, outcomes, args, time.perf_counter() - start)
        results[op_type] = {o.case.id: o.verdict.problem for o in outcomes}
    problems = [p for cases in results.values() for p in cases.values()]
    print(f"{len(results)} operators, {len(problems)} cases, {sum(not p for p in problems)} pass")
    if args.json:
        with open(args.json, "w") as f:
            json.dump(results, f, indent=1, sort_keys=True)
    return 1 if any(problems) or not problems else 0


if __name__ == "__main__":
    sys.exit(main())
