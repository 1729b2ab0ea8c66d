"""``python -m tests.golden.scripts [KIND ...]``: the replay tools that lie beside recordings of scripts.

Eager scripts, transpilations, runs on several devices and clusters come with tools of their own: each takes the
framework from ``FLUID_MODULE``, prints a line for each case, and ends with ``KIND: P of N``. Eager scripts are replayed
twice, op by op and with blocks. A folder without these tools has nothing to replay, which is said.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.golden import known
from tests.golden.recordings import folder

ROOT = Path(__file__).parents[2]
_EQUAL = re.compile(r"(?P<name>\S+)\s+(equal|pass)\b")
_LAST = re.compile(r"\w+: (?P<passed>\d+) of (?P<count>\d+)")


@dataclass(frozen=True)
class Tool:
    """A replay tool: its file and arguments, by their places in the recording folder, and its environment."""

    file: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def cases(self, golden: Path) -> dict[str, str]:
        """Each case and what differs in it ("" where nothing does), as the tool prints them."""
        paths = [str(golden / argument) for argument in self.arguments]
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        environment = {"FLUID_MODULE": "fluidjax", "PYTHONPATH": path, **self.environment}
        command = [sys.executable, str(golden / self.file), *paths]
        done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
        lines = [line for line in done.stdout.splitlines() if line.strip()]
        last = _LAST.match(lines[-1]) if lines else None
        found = {} if last is None else dict(map(_judged, lines[:-1]))
        if last is None or len(found) != int(last["count"]) or list(found.values()).count("") != int(last["passed"]):
            raise RuntimeError(f"{self.file} did not end with a line for each case:\n{done.stdout}\n{done.stderr}")
        return found


def _judged(line: str) -> tuple[str, str]:
    """A case, and what differs in it."""
    name, _, rest = line.partition(" ")
    return name, "" if _EQUAL.match(line) else rest.strip()


TOOLS: dict[str, Tool] = {
    "eager scripts, op by op": Tool("dygraph/replay.py", ("dygraph",), {"FLAGS_eager_blocks": "0"}),
    "eager scripts, with blocks": Tool("dygraph/replay.py", ("dygraph",)),
    "transpilations": Tool("distributed/tools/transpile_replay.py", ("distributed/transpile",)),
    "several devices": Tool("distributed/dp/dp_replay.py"),
    "clusters": Tool("distributed/cluster/cluster_replay.py"),
}


def main() -> int:
    """Replay and report; the exit status is 1 when a case differs that is not known to."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden.scripts", description=__doc__)
    parser.add_argument("kinds", nargs="*", help=f"of {', '.join(map(repr, TOOLS))}; default: all")
    parser.add_argument("--json", type=Path, help="file for the outcome of each case")
    args = parser.parse_args()
    if unknown := sorted(set(args.kinds) - TOOLS.keys()):
        sys.exit(f"no replay tools for {', '.join(unknown)}; there are {', '.join(map(repr, TOOLS))}")
    golden, results, failed = folder().resolve(), {}, 0
    for kind in args.kinds or TOOLS:
        if not (golden / TOOLS[kind].file).is_file():
            print(f"{kind}: no {TOOLS[kind].file} in {golden}", flush=True)
            continue
        cases = results[kind] = TOOLS[kind].cases(golden)
        differing = {name: problem for name, problem in cases.items() if problem}
        for name, problem in differing.items():
            print(f"  {name}: {known.SCRIPTS.get(name, problem)}")
        failed += len(differing.keys() - known.SCRIPTS.keys())
        print(f"{kind}: {len(cases) - len(differing)} of {len(cases)}", flush=True)
    if args.json:
        args.json.write_text(json.dumps(results))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
