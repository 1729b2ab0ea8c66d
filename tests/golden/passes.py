"""``python -m tests.golden.passes [case ...]``: recorded networks' test programs, pass by pass, with equal outputs."""

from __future__ import annotations

import argparse
import sys
from collections import Counter

import jax

import fluidjax as fluid
from fluidjax.export.c.build import difference
from fluidjax.ir import PASSES, Optimized, optimize
from tests.golden.c import job_of
from tests.golden.recordings import folder
from tests.golden.session import Session
from tests.golden.values import Tensor, Value
from tests.golden.zoocase import ZooCase, zoo_case, zoo_cases

# Filters that batch normalisation was folded into round otherwise.
TOLERANCE = 1e-5


class Job:
    """A network's test program with its recorded feeds, and what it gives as it is."""

    def __init__(self, case: ZooCase):
        found = job_of(case, "forward")
        self.known = found is not None
        if found is not None:
            raw, self.fetches, self.feeds = found
            # Some networks test with the statistics of the batch, which is_test_pass is there to end.
            self.program = fluid.Program.parse_from_string(raw).clone(for_test=True)
            self.feeds = {n: v for n, v in self.feeds.items() if self.program.global_block().has_var(n)}
            self.session = Session()
            self.session.set(case.initial_values())
            self.expected = self._run(self.program, self.session)

    def _run(self, program: fluid.Program, session: Session) -> dict[str, Value | None]:
        kept = {n: v for n, v in self.feeds.items() if program.global_block().has_var(n)}
        return session.run(program, kept, self.fetches)

    def check(self, passes: list[str] | None) -> tuple[Optimized, float]:
        """What passes made of it, and how far its outputs are from the program's own; inf where their LoD differs."""
        found = optimize(self.program, list(self.feeds), self.fetches, self.session.scope, passes)
        session, apart = Session(), 0.0
        session.scope = found.scope
        for name, value in self._run(found.program, session).items():
            want = self.expected[name]
            assert isinstance(value, Tensor) and isinstance(want, Tensor)
            apart = max(apart, difference(value.array, want.array) if value.lod == want.lod else float("inf"))
        return found, apart


def main() -> int:
    """Each pass alone where it finds something, and all together; the exit status is 1 where an output differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden.passes", description=__doc__)
    parser.add_argument("cases", nargs="*", help="networks; default: all")
    args = parser.parse_args()
    if unknown := sorted(set(args.cases) - set(zoo_cases())):
        sys.exit(f"no recordings of {', '.join(unknown)} in {folder()}")
    failed, total, ops = 0, Counter[str](), Counter[str]()
    for name in args.cases or zoo_cases():
        job = Job(zoo_case(name))
        if not job.known:
            continue
        found, apart = job.check(None)
        effective = [step.name for step in found.steps if step.found]
        alone = {one: job.check([one])[1] for one in effective} if len(effective) > 1 else {}
        worst = max(apart, *alone.values(), 0.0)
        total.update({step.name: step.found for step in found.steps})
        ops.update(before=found.steps[0].before, after=len(found.program.global_block().ops))
        failed += not worst <= TOLERANCE
        said = ", ".join(f"{step.name} {step.found}" for step in found.steps if step.found)
        state = "ok  " if worst <= TOLERANCE else "FAIL"
        sizes = f"{found.steps[0].before} -> {len(found.program.global_block().ops)} ops"
        print(f"{state}  {name:42s} {worst:8.1e}  {sizes}: {said}", flush=True)
        jax.clear_caches()
    print(f"{ops['before']} -> {ops['after']} ops, {failed} differ; {', '.join(f'{n} {total[n]}' for n in PASSES)}")
    return 1 if failed or not ops else 0


if __name__ == "__main__":
    sys.exit(main())
