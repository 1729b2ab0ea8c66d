"""``python -m tests.golden.dygraph [FOLDER]``: replay a folder of scripts, op by op and with blocks."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.golden.dygraph.replay import CASES, names, problem


def main() -> int:
    """Print a line for each script and way, and how many agree; 0 when all do."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else CASES
    failed = 0
    for name in names(folder):
        for blocks in (False, True):
            try:
                found = problem(name, blocks, folder)
            except Exception as error:  # noqa: BLE001 - a script that stops is a difference too
                found = f"{type(error).__name__}: {error}"
            failed += found is not None
            print(f"{name} {'with blocks' if blocks else 'op by op'}: {found or 'agrees'}", flush=True)
    print(f"{2 * len(names(folder)) - failed} of {2 * len(names(folder))} runs agree")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
