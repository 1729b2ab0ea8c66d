"""``python -m tests.gradcheck.sweep [--seconds N] [--seed S]``: random programs, drawn anew for as long as one likes.

Chains of the op table's cases are held against jax.grad and finite differences, programs with sequences, branches and
loops by ``check_grad``, nests of them against finite differences, and ragged ones are trained padded and exact. What is
wrong is printed with its kind and seed; ``--only KIND --seed S --count 1`` draws it again.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback

from hypothesis import HealthCheck, Phase, given, seed, settings

from fluidjax.testing.nests import KINDS as NESTS
from fluidjax.testing.nests import Nest, nests
from fluidjax.testing.programs import Sample, blocks, grow
from fluidjax.testing.table_blocks import block_cases, case_block
from tests.lod.test_training import check

MOST = 5


def chain(rng: random.Random) -> None:
    """Cases of the op table."""
    drawn = rng.choices(block_cases(), k=rng.randint(1, MOST))
    print("", *(c.name for c in drawn), end="", flush=True)
    grow(rng.randint, [case_block(c) for c in drawn]).check_backward()


def _named(rng: random.Random, ragged: bool) -> Sample:
    kinds = blocks(ragged, control_flow=rng.random() < 0.5, sequences=ragged)
    names = rng.choices(list(kinds), k=rng.randint(1, MOST))
    print("", *names, end="", flush=True)
    return grow(rng.randint, [kinds[name] for name in names], ragged)


def flow(rng: random.Random) -> None:
    """Dense programs with branches, loops and recurrences."""
    _named(rng, ragged=False).check_grad()


def sequences(rng: random.Random) -> None:
    """Ragged programs."""
    _named(rng, ragged=True).check_grad()


def training(rng: random.Random) -> None:
    """Ragged programs, trained in each padding."""
    check(_named(rng, ragged=True))


def nested(rng: random.Random) -> None:
    """Loops, branches and recurrences inside each other, each op by op; one in ten is compiled as well."""
    kinds, depth = rng.sample(NESTS, rng.randint(1, 4)), rng.randint(1, 3)
    print("", *kinds, "depth", depth, end="", flush=True)

    @seed(rng.randint(0, 2**32))
    @settings(max_examples=10, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=HealthCheck)
    @given(nests(kinds, depth=depth, direct=rng.random() < 0.3))
    def check_each(nest: Nest) -> None:
        nest.check()
        if rng.random() < 0.1:
            nest.check(interpret=False)

    check_each()


KINDS = {f.__name__: f for f in (chain, flow, sequences, training, nested)}


def main() -> int:
    """Draw and report; the exit status is 1 when a program was wrong or none was drawn."""
    parser = argparse.ArgumentParser(prog="python -m tests.gradcheck.sweep", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="when to stop drawing")
    parser.add_argument("--count", type=int, default=10**9, help="how many programs at most")
    parser.add_argument("--seed", type=int, default=0, help="of the first program; the others count on")
    parser.add_argument("--only", choices=KINDS, help="one kind of programs")
    args = parser.parse_args()
    kinds = [args.only] if args.only else list(KINDS)
    began, drawn, wrong = time.monotonic(), 0, 0
    while drawn < args.count and time.monotonic() - began < args.seconds:
        seed, kind = args.seed + drawn, kinds[(args.seed + drawn) % len(kinds)]
        print(f"{kind} {seed}:", end="", flush=True)
        try:
            KINDS[kind](random.Random(seed))
            print("  ok", flush=True)
        except Exception:  # whatever it is, it is reported, and the next program is drawn
            wrong += 1
            print(f"  WRONG\n{traceback.format_exc()}", flush=True)
        drawn += 1
    print(f"{drawn} programs, {wrong} wrong")
    return 1 if wrong or not drawn else 0


if __name__ == "__main__":
    sys.exit(main())
