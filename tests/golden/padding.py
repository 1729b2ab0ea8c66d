"""``python -m tests.golden.padding [case ...]``: train recorded networks with LoD padded and exact, and compare."""

from __future__ import annotations

import argparse
import sys
import time

from tests.golden.recordings import folder
from tests.golden.zoocase import ZooCase, zoo_case, zoo_cases
from tests.lod.training import Comparison, Step, compare_paddings

STEPS = 3


def ragged_cases() -> list[str]:
    """The networks that are fed sequences."""
    return [name for name in zoo_cases() if any(lod for fed in zoo_case(name).meta["feed_lod"] for lod in fed.values())]


def steps_of(case: ZooCase) -> list[Step]:
    """The first steps of a recording."""
    found = []
    for i in range(min(STEPS, case.meta["steps"])):
        key, fetch = case.schedule(i)
        found.append(Step(case.program(key), case.feeds(i), fetch))
    return found


def compare(case: ZooCase) -> Comparison:
    """Train one network in each padding."""
    return compare_paddings(case.initial_values(), steps_of(case))


def main() -> int:
    """Compare and report; the exit status is 1 when something differs or nothing was compared."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden.padding", description=__doc__)
    parser.add_argument("cases", nargs="*", help="networks; default: all that are fed sequences")
    parser.add_argument("--verbose", "-v", action="store_true", help="all differences")
    args = parser.parse_args()
    names = args.cases or ragged_cases()
    if unknown := sorted(set(names) - set(zoo_cases())):
        sys.exit(f"no recordings of {', '.join(unknown)} in {folder()}")
    failed = 0
    for name in names:
        start = time.perf_counter()
        found = compare(zoo_case(name))
        good = found.checks > 0 and not found.problems
        failed += not good
        note = f"  not padded: {', '.join(found.unpadded)}" if found.unpadded else ""
        seconds = time.perf_counter() - start
        print(f"{'ok  ' if good else 'FAIL'}  {name:42s} {found.checks:5d} checks {seconds:6.1f}s{note}", flush=True)
        shown = found.problems if args.verbose else found.problems[:4]
        print("".join(f"        {p}\n" for p in shown), end="", flush=True)
    print(f"{len(names)} networks with sequences, {len(names) - failed} equal in each padding")
    return 1 if failed or not names else 0


if __name__ == "__main__":
    sys.exit(main())
