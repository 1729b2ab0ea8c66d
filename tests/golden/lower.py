"""``python -m tests.golden.lower [case ...]``: lower recorded networks for GPU and TPU, and run those formulations."""

from __future__ import annotations

import argparse
import sys
import time

from tests.golden.platforms import PLATFORMS, replay_as
from tests.golden.recordings import folder
from tests.golden.zoocase import zoo_case, zoo_cases


def main() -> int:
    """Replay and report; the exit status is 1 when a case failed or none ran."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden.lower", description=__doc__)
    parser.add_argument("cases", nargs="*", help="networks; default: all")
    parser.add_argument("--platforms", default=",".join(PLATFORMS), help=f"comma separated, of {', '.join(PLATFORMS)}")
    parser.add_argument("--verbose", "-v", action="store_true", help="all problems and tracebacks")
    args = parser.parse_args()
    if unknown := sorted(set(args.cases) - set(zoo_cases())):
        sys.exit(f"no recordings of {', '.join(unknown)} in {folder()}")
    passed = ran = 0
    for name in args.cases or zoo_cases():
        for platform in args.platforms.split(","):
            start = time.perf_counter()
            replay, steps = replay_as(zoo_case(name), platform)
            report = replay.report
            good = report.passed and steps > 0
            passed, ran = passed + good, ran + 1
            seconds = time.perf_counter() - start
            print(
                f"{'ok  ' if good else 'FAIL'}  {name:42s} {platform}  {steps:2d} lowered {report.checks:5d} checks"
                f" {report.error:8.1e} {seconds:6.1f}s", flush=True
            )  # fmt: skip
            shown = report.problems if args.verbose else [p[:240] for p in report.problems[:4]]
            print("".join(f"        {p}\n" for p in shown), end="")
            if args.verbose and report.trace:
                print(report.trace)
    print(f"{ran} networks and platforms, {passed} pass")
    return 0 if ran and passed == ran else 1


if __name__ == "__main__":
    sys.exit(main())
