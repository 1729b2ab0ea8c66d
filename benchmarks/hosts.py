"""``python -m benchmarks.hosts``: what jobs on many hosts would lose, by simulation from figures measured on one.

Each number of hosts is drawn for with the same seed; figures that nothing here has measured are named as assumed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

HOSTS = (10, 100, 1000)
HOURS = 1000.0  # simulated

# Measured (docs/scale.md): a restart on busy cores, the wait for a frozen process; a server's CPU time and the bytes of
# one trainer's step of the click network on two servers.
RESTART, FROZEN = 20.0, 10.0
SERVED, BYTES = 3.1e-3, 350_000
# Assumed: seconds of a server for a step's three messages, however short; hours between two deaths of a host, seconds
# that a checkpoint stops the job, a step, how much steps of one host differ (of a logarithm, normally), bytes a second
# of a link, seconds between two hosts.
LEAST = 3 * 0.3e-3
LIFE, PAUSE, STEP, SPREAD, LINK, LATENCY = 1000.0, 1.0, 0.1, 0.1, 1.25e9, 20e-6
GRADIENTS = 100e6  # bytes that are summed after each step


def deaths(hosts: int, draw: np.random.Generator) -> Iterator[float]:
    """Seconds between deaths of any host, without end."""
    while True:
        yield draw.exponential(LIFE * 3600 / hosts)


def interval(hosts: int) -> float:
    """Seconds of work between two checkpoints that lose the least."""
    return math.sqrt(2 * PAUSE * LIFE * 3600 / hosts)


def lost_by_deaths(hosts: int, draw: np.random.Generator) -> float:
    """The share of all time that is not new work: checkpoints, restarts and what is done again."""
    every, clock, done = interval(hosts), 0.0, 0.0
    for alive in deaths(hosts, draw):
        rounds = int(alive // (every + PAUSE))
        done += rounds * every
        clock += alive + FROZEN + RESTART
        if clock > HOURS * 3600:
            return 1 - done / clock
    raise AssertionError("deaths never end")


def slowest(hosts: int, draw: np.random.Generator, steps: int = 2000) -> float:
    """Seconds of a step that waits for the slowest of all hosts: the mean."""
    return float(np.mean([STEP * np.exp(SPREAD * draw.standard_normal(hosts).max()) for _ in range(steps)]))


def summed(hosts: int, per_host: int = 1) -> float:
    """Seconds of a ring's sum of the gradients, its latency included."""
    members = hosts * per_host
    return 2 * (members - 1) * (GRADIENTS / members / LINK + LATENCY)


def round_of_servers(trainers: int, servers: int) -> float:
    """Seconds in which a server, one loop, answers all trainers of a synchronous round; its link may be slower."""
    share = 2 / servers
    return trainers * max(share * SERVED, share * BYTES / 2 / LINK, LEAST)


def main() -> None:
    """Print all figures."""
    for hosts in HOSTS:
        draw = np.random.default_rng(0)
        print(
            f"{hosts} hosts: a checkpoint every {interval(hosts):.0f} s; lost by deaths"
            f" {100 * lost_by_deaths(hosts, draw):.1f} %; step {1e3 * slowest(hosts, draw):.0f} ms for the slowest,"
            f" {1e3 * summed(hosts):.0f} ms for the sum; synchronous round at"
            + ",".join(f" {n} servers {1e3 * round_of_servers(hosts, n):.0f} ms" for n in (2, 8, 32))
        )


if __name__ == "__main__":
    main()
